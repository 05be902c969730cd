"""From a table to what networks read, in a bounded amount of memory.

The table is read twice in pieces: once to see what its columns hold, once to write them as raw numbers, column after column.
Rows are then split, every column is fitted to its training rows, and the features are written row after row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from boolit.lab.common.errors import UserError
from boolit.lab.common.files import atomic_write, data_folder, hash_file, regular_file
from boolit.lab.common.progress import Begin, count_progress
from boolit.lab.datasets.tables.columns import Fitted, Target, fitted, moments, strata, target_of, useless
from boolit.lab.datasets.tables.prepared import DESCRIPTION, MATRIX, SPLITS, TARGETS, Prepared, Rows, split
from boolit.lab.datasets.tables.profile import Evidence, RawColumn, gathered, written
from boolit.lab.datasets.tables.reading import TableFile, open_table
from boolit.saved.columns import column_entry, encoded
from boolit.saved.file import TableTask

# What the user wants of a table.

DIGEST_DIGITS = 16
VERSION = 1  # raised when the same wishes would be prepared differently


@dataclass(frozen=True)
class Wanted:
    """A table, its target, and how it is cut and prepared; ``digest`` is of its contents.

    ``test`` is the share of all rows that is tested on, ``validation`` that of the others which is validated on. A category
    has at most ``levels`` features besides the one for any other text.
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
        """What it is kept under: not the path, for a table may move."""
        wishes = {name: value for name, value in asdict(self).items() if name != "path"} | {"version": VERSION}
        return hashlib.sha256(json.dumps(wishes, sort_keys=True).encode()).hexdigest()[:DIGEST_DIGITS]


def digest_of(path: Path) -> str:
    """The hash of a file's contents, so that a changed table is another one."""
    try:
        return hash_file(regular_file(path, "give the file of a table"))[:DIGEST_DIGITS]
    except FileNotFoundError:
        raise UserError(f"there is no table {path}; check the path") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}); give the file of a table") from None


LEAST_ROWS = 10
NUMBERS_AT_ONCE = 2**21
MOST_BYTES = 8 * 2**30


def prepared(wanted: Wanted, shown: bool | None = None) -> Prepared:
    """The prepared table, made now or earlier: it is kept in the data folder under its contents and the wishes.

    ``shown`` may hide the progress.
    """
    folder = data_folder() / "tables" / wanted.key
    if not folder.exists():
        with count_progress(shown) as begin:
            _made(wanted, folder, begin)
    return Prepared.read(folder)


def _made(wanted: Wanted, folder: Path, begin: Begin) -> None:
    try:
        with atomic_write(folder) as unfinished:
            unfinished.mkdir(parents=True)
            _Preparation(wanted, unfinished, begin).run()
    except OSError as error:
        raise UserError(f"cannot prepare the table in {folder.parent} ({error.strerror or error}); set BOOLIT_DATA") from error


class _Preparation:
    def __init__(self, wanted: Wanted, folder: Path, begin: Begin) -> None:
        self.wanted, self.folder, self.begin = wanted, folder, begin
        self.dropped: dict[str, str] = dict.fromkeys(wanted.drop, "as asked")

    def run(self) -> None:
        wanted, path = self.wanted, Path(self.wanted.path)
        table = open_table(path)
        names = _names(table, wanted)
        if digest_of(path) != wanted.digest:
            raise UserError(f"{path} is not the table this study is of, its contents changed; start the study again")
        evidence = gathered(table, names, wanted.target, self.begin("reading"))
        rows = evidence[wanted.target].rows
        self._check(evidence, rows)
        *columns, goal = self._raw(table, evidence, rows)
        target = target_of(goal, wanted.task)
        parts = self._parts(target)
        fits = self._fits(columns, parts["train"])
        self._write(fits, target, parts, rows)
        (self.folder / "raw").unlink()

    def _check(self, evidence: Mapping[str, Evidence], rows: int) -> None:
        path, target = self.wanted.path, evidence[self.wanted.target]
        if rows < LEAST_ROWS:
            raise UserError(f"{path} has {rows} row{'s' * (rows != 1)}; a comparison needs at least {LEAST_ROWS}")
        if target.found == "text" and target.distinct is None:
            raise UserError(f"the target {target.name!r} has {useless(target, 0)}; choose a column of classes or numbers")
        for column in evidence.values():
            if column.found == "empty":
                fix = "choose another target" if column is target else f"leave it out with --drop {column.name!r}"
                raise UserError(f"column {column.name!r} of {path} is empty in every row; {fix}")

    def _raw(self, table: TableFile, evidence: Mapping[str, Evidence], rows: int) -> list[RawColumn]:
        """All columns that are of use, and the target as the last."""
        others = [column for name, column in evidence.items() if name != self.wanted.target]
        reasons = {column.name: useless(column, self.wanted.levels) for column in others}
        self.dropped |= {name: reason for name, reason in reasons.items() if reason}
        used = [column for column in others if not reasons[column.name]]
        columns = [*used, evidence[self.wanted.target]]
        return written(table, columns, rows, self.folder / "raw", self.begin("sorting by column", rows))

    def _parts(self, target: Target) -> dict[str, Rows]:
        known = np.flatnonzero(~np.isnan(target.values))
        wanted = self.wanted
        parts = split(strata(target, known), wanted.test, wanted.validation, wanted.seed)
        for name, rows in parts.items():
            if len(rows) < (2 if name == "train" else 1):
                raise UserError(f"{wanted.path} has {len(known)} rows with a target, too few to split; give more rows")
        train = target.values[known[parts["train"]]]
        if (train == train[0]).all():
            raise UserError(f"the target {target.name!r} is the same in all training rows; give more rows of other values")
        return {name: known[rows] for name, rows in parts.items()}

    def _fits(self, columns: Sequence[RawColumn], train: Rows) -> list[Fitted]:
        step = self.begin("fitting columns", len(columns))
        fits = []
        for column in columns:
            found = fitted(column, train, self.wanted.levels)
            if isinstance(found, str):
                self.dropped[column.name] = found
            else:
                fits.append(found)
            step(1)
        if not fits:
            reasons = ", ".join(f"{name}: {reason}" for name, reason in self.dropped.items()) or "it has no other"
            raise UserError(f"{self.wanted.path} has no column to predict {self.wanted.target!r} from ({reasons}); add some")
        return fits

    def _write(self, fits: Sequence[Fitted], target: Target, parts: Mapping[str, Rows], rows: int) -> None:
        pairs = [moments(fit, parts["train"]) for fit in fits]
        mean, scale = (np.concatenate(values) for values in zip(*pairs, strict=True))
        place = _places(parts, rows)
        self._write_matrix(fits, mean, scale, place)
        unit = _unit(target, parts["train"])
        ordered = target.values[np.concatenate([parts[name] for name in SPLITS])]
        ((ordered - unit[0]) / unit[1]).tofile(self.folder / TARGETS)
        entry = {
            "target": target.name,
            "task": target.task,
            "classes": list(target.classes),
            "columns": [column_entry(fit.column) for fit in fits],
            "mean": mean.tolist(),
            "scale": scale.tolist(),
            "target_mean": unit[0],
            "target_scale": unit[1],
            "rows": {name: len(parts[name]) for name in SPLITS},
            "left_out": rows - len(ordered),
            "dropped": self.dropped,
        }
        (self.folder / DESCRIPTION).write_text(json.dumps(entry, ensure_ascii=False), encoding="utf-8")

    def _write_matrix(self, fits: Sequence[Fitted], mean: np.ndarray, scale: np.ndarray, place: Rows) -> None:
        rows, shape = len(place), (int((place >= 0).sum()), len(mean))
        if 4 * shape[0] * shape[1] > MOST_BYTES:
            limit = f"{shape[1]} features of {shape[0]} rows are more than {MOST_BYTES >> 30} GiB"
            raise UserError(f"{limit}; use fewer --levels, or leave columns out with --drop")
        matrix = np.memmap(self.folder / MATRIX, np.float32, "w+", shape=shape)
        size = max(1, NUMBERS_AT_ONCE // shape[1])
        step = self.begin("writing features", rows)
        for first in range(0, rows, size):
            last = min(first + size, rows)
            used = place[first:last] >= 0
            features = encoded([fit.column for fit in fits], [fit.raw(first, last)[used] for fit in fits])
            matrix[place[first:last][used]] = (features - mean) / scale
            step(last - first)


def _names(table: TableFile, wanted: Wanted) -> list[str]:
    for name in (wanted.target, *wanted.drop):
        if name not in table.names:
            known = ", ".join(table.names[:20]) + (", …" if len(table.names) > 20 else "")
            raise UserError(f"{table.path} has no column {name!r}; it has {known}")
    if wanted.target in wanted.drop:
        raise UserError(f"the target {wanted.target!r} cannot be left out; drop another column")
    return [name for name in table.names if name not in wanted.drop]


def _places(parts: Mapping[str, Rows], rows: int) -> Rows:
    """Where each row of the table goes: training rows first, then those to validate and to test on; -1 for none.

    Shape: ``(rows,)``.
    """
    place = np.full(rows, -1, np.int64)
    place[np.concatenate([parts[name] for name in SPLITS])] = np.arange(sum(map(len, parts.values())))
    return place


def _unit(target: Target, train: Rows) -> tuple[float, float]:
    """Mean and standard deviation of a quantity in the training rows; classes stay as they are."""
    if target.task == "classify":
        return 0.0, 1.0
    return float(target.values[train].mean()), float(target.values[train].std())
