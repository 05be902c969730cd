"""From a table to features on disk, in bounded memory.

The table is read twice in batches: once to profile its columns, once to write them as raw numbers, column after column.
Then rows are split, every column is fitted to its training rows, and the features are written row after row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, data_folder, file_digest
from boolit.lab.common.progress import Begin, count_progress
from boolit.lab.datasets.tables.fitting import FittedColumn, TargetColumn, fit_column, fit_target, unused_reason
from boolit.lab.datasets.tables.prepared import DESCRIPTION, MATRIX, SPLITS, TARGETS, PreparedTable, Rows, split_rows
from boolit.lab.datasets.tables.profile import (
    ColumnProfile,
    RawColumn,
    profile_columns,
    write_raw_columns,
)
from boolit.lab.datasets.tables.reading import TableFile, open_table
from boolit.saved.columns import column_entry, encode_features
from boolit.saved.file import TableTask

DIGEST_DIGITS = 16
VERSION = 1  # raised when the same specification would be prepared differently
MIN_ROWS = 10
NUMBERS_AT_ONCE = 2**21
MAX_BYTES = 8 * 2**30


@dataclass(frozen=True)
class TableSpec:
    """A table, its target, and how it is split and prepared; ``digest`` is the hash of its contents.

    ``test`` is the test share of all rows, ``validation`` the validation share of the others. A category has at most ``levels``
    features, plus one for all other texts.
    """

    path: str
    digest: str
    target: str
    task: TableTask | None = None
    test: float = 0.2
    validation: float = 0.2
    levels: int = 20
    drop: tuple[str, ...] = ()
    seed: int = 0

    @property
    def key(self) -> str:
        """The name of its folder on disk; the path is not part of it, as a table may move."""
        options = {name: value for name, value in asdict(self).items() if name != "path"} | {"version": VERSION}
        return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:DIGEST_DIGITS]


def table_digest(path: Path) -> str:
    """The hash of a table's contents."""
    with suppress(OSError):  # file_digest says what else is wrong with a path
        if not path.exists():
            raise UserError(f"there is no table {path}; check the path")
    return file_digest(path, "table")[:DIGEST_DIGITS]


def prepare_table(spec: TableSpec, shown: bool | None = None) -> PreparedTable:
    """The prepared table, made now or read from the data folder; ``shown`` may hide the progress."""
    folder = data_folder() / "tables" / spec.key
    if not folder.exists():
        with count_progress(shown) as begin:
            _write_folder(spec, folder, begin)
    return PreparedTable.read(folder)


def _write_folder(spec: TableSpec, folder: Path, begin: Begin) -> None:
    try:
        with atomic_write(folder) as unfinished:
            unfinished.mkdir(parents=True)
            _Preparation(spec, unfinished, begin).run()
    except OSError as error:
        raise UserError(f"cannot prepare the table in {folder.parent} ({error.strerror or error}); set BOOLIT_DATA") from error


class _Preparation:
    def __init__(self, spec: TableSpec, folder: Path, begin: Begin) -> None:
        self.spec, self.folder, self.begin = spec, folder, begin
        self.dropped: dict[str, str] = dict.fromkeys(spec.drop, "as asked")

    def run(self) -> None:
        path = Path(self.spec.path)
        table = open_table(path)
        names = self._column_names(table)
        if table_digest(path) != self.spec.digest:
            raise UserError(f"{path} is not the table this study is of, its contents changed; start the study again")
        profiles = profile_columns(table, names, self.spec.target, self.begin("reading"))
        rows = profiles[self.spec.target].rows
        self._check(profiles, rows)
        *columns, last = self._write_raw(table, profiles, rows)
        target = fit_target(last, self.spec.task)
        parts = self._split(target)
        self._write(self._fit(columns, parts["train"]), target, parts, rows)
        (self.folder / "raw").unlink()

    def _column_names(self, table: TableFile) -> list[str]:
        target, drop = self.spec.target, self.spec.drop
        for name in (target, *drop):
            if name not in table.names:
                known = ", ".join(table.names[:20]) + (", …" if len(table.names) > 20 else "")
                raise UserError(f"{table.path} has no column {name!r}; it has {known}")
        if target in drop:
            raise UserError(f"the target {target!r} cannot be left out; drop another column")
        return [name for name in table.names if name not in drop]

    def _check(self, profiles: Mapping[str, ColumnProfile], rows: int) -> None:
        path, target = self.spec.path, profiles[self.spec.target]
        if rows < MIN_ROWS:
            raise UserError(f"{path} has {rows} row{'s' * (rows != 1)}; a comparison needs at least {MIN_ROWS}")
        if target.type == "text" and target.distinct is None:
            raise UserError(f"the target {target.name!r} has {unused_reason(target, 0)}; choose a column of classes or numbers")
        for column in profiles.values():
            if column.type == "empty":
                fix = "choose another target" if column is target else f"leave it out with --drop {column.name!r}"
                raise UserError(f"column {column.name!r} of {path} is empty in every row; {fix}")

    def _write_raw(self, table: TableFile, profiles: Mapping[str, ColumnProfile], rows: int) -> list[RawColumn]:
        """All useful columns, and the target as the last."""
        others = [column for name, column in profiles.items() if name != self.spec.target]
        reasons = {column.name: unused_reason(column, self.spec.levels) for column in others}
        self.dropped |= {name: reason for name, reason in reasons.items() if reason}
        columns = [*(column for column in others if not reasons[column.name]), profiles[self.spec.target]]
        return write_raw_columns(table, columns, rows, self.folder / "raw", self.begin("sorting by column", rows))

    def _split(self, target: TargetColumn) -> dict[str, Rows]:
        known = np.flatnonzero(~np.isnan(target.values))
        strata = (target.values[known] if target.task == "classify" else np.zeros(len(known))).astype(np.int64)
        parts = split_rows(strata, self.spec.test, self.spec.validation, self.spec.seed)
        for name, rows in parts.items():
            if len(rows) < (2 if name == "train" else 1):
                raise UserError(f"{self.spec.path} has {len(known)} rows with a target, too few to split; give more rows")
        train = target.values[known[parts["train"]]]
        if (train == train[0]).all():
            raise UserError(f"the target {target.name!r} is the same in all training rows; give more rows of other values")
        return {name: known[rows] for name, rows in parts.items()}

    def _fit(self, columns: Sequence[RawColumn], train: Rows) -> list[FittedColumn]:
        step = self.begin("fitting columns", len(columns))
        fitted = []
        for column in columns:
            result = fit_column(column, train, self.spec.levels)
            if isinstance(result, str):
                self.dropped[column.name] = result
            else:
                fitted.append(result)
            step(1)
        if not fitted:
            reasons = ", ".join(f"{name}: {reason}" for name, reason in self.dropped.items()) or "it has no other"
            raise UserError(f"{self.spec.path} has no column to predict {self.spec.target!r} from ({reasons}); add some")
        return fitted

    def _write(self, columns: Sequence[FittedColumn], target: TargetColumn, parts: Mapping[str, Rows], rows: int) -> None:
        moments = [column.scaling(parts["train"]) for column in columns]
        mean, scale = (np.concatenate(values) for values in zip(*moments, strict=True))
        order = np.concatenate([parts[name] for name in SPLITS])
        place = np.full(rows, -1, np.int64)  # of each row of the table among the features; -1 without a target
        place[order] = np.arange(len(order))
        self._write_matrix(columns, mean, scale, place)
        target_mean, target_scale = target.scaling(parts["train"])
        ((target.values[order] - target_mean) / target_scale).tofile(self.folder / TARGETS)
        entry = {
            "target": target.name,
            "task": target.task,
            "classes": list(target.classes),
            "columns": [column_entry(each.column) for each in columns],
            "mean": mean.tolist(),
            "scale": scale.tolist(),
            "target_mean": target_mean,
            "target_scale": target_scale,
            "rows": {name: len(parts[name]) for name in SPLITS},
            "left_out": rows - len(order),
            "dropped": self.dropped,
        }
        (self.folder / DESCRIPTION).write_text(json.dumps(entry, ensure_ascii=False), encoding="utf-8")

    def _write_matrix(self, columns: Sequence[FittedColumn], mean: np.ndarray, scale: np.ndarray, place: Rows) -> None:
        rows, shape = len(place), (int((place >= 0).sum()), len(mean))
        if 4 * shape[0] * shape[1] > MAX_BYTES:
            limit = f"{shape[1]} features of {shape[0]} rows are more than {MAX_BYTES >> 30} GiB"
            raise UserError(f"{limit}; use fewer --levels, or leave columns out with --drop")
        matrix = np.memmap(self.folder / MATRIX, np.float32, "w+", shape=shape)
        size = max(1, NUMBERS_AT_ONCE // shape[1])
        step = self.begin("writing features", rows)
        for first in range(0, rows, size):
            last = min(first + size, rows)
            used = place[first:last] >= 0
            features = encode_features([each.column for each in columns], [each.raw(first, last)[used] for each in columns])
            matrix[place[first:last][used]] = (features - mean) / scale
            step(last - first)
