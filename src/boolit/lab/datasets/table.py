"""The user's own table as a dataset: every run has its own split of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import file_digest
from boolit.lab.datasets.base import Dataset, Resample, Source, Split, Task
from boolit.tables import RowSplitter, TablePreparation, read_table
from boolit.tables.checks import unused_columns
from boolit.tables.preparation import as_text, parse, recognize
from boolit.tables.read import check_columns
from boolit.tables.splits import balance

Share = Annotated[float, Field(gt=0, lt=1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
TableTask = Literal["classify", "regress"]
Floats = npt.NDArray[np.float64]

DIGEST_DIGITS = 16
MIN_ROWS, MAX_CLASSES = 10, 1000
FEW_NUMBERS = 20  # at most so many different whole numbers are classes, unless the user says otherwise
ROWS_AT_ONCE = 2**16
LARGEST = 1e15  # of a number in units of its column's spread
BALANCED_ROWS = 4  # balanced classes repeat rows up to this many times their number


class TableSource(Source):
    """A CSV, TSV or Parquet file with a column to predict."""

    name: Literal["table"] = "table"
    path: str
    target: str  # the column to predict
    task: TableTask | None = None  # defaults to what the target looks like
    test: Share = 0.2  # share of the rows to test on
    validation: Share = 0.2  # share of the other rows to validate on
    levels: int = Field(20, ge=1)  # maximum number of categories of a column that have their own feature
    drop: Names = ()  # columns to leave out
    keep: Names = ()  # columns to use even if they look like identifiers
    groups: str | None = None  # column whose equal values stay in the same part of a split
    time: str | None = None  # column by which rows are ordered; later rows are tested on
    class_weight: Literal["balanced"] | None = None  # repeats the rows of rare classes
    seed: int = 0  # of the splits
    digest: str  # hash of the file's content, part of every run's key; computed if it is not given

    @classmethod
    def identify(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        path = options.get("path")
        if "digest" in options or not isinstance(path, str):
            return {}
        if not Path(path).exists():
            raise UserError(f"{path} does not exist")
        return {"digest": file_digest(Path(path), "table")[:DIGEST_DIGITS]}

    def load(self) -> Dataset:
        table = prepare_table(self)
        first = table.resample(1)
        return Dataset(
            {name: Split(table.x[:1].expand(len(rows), -1), table.y[rows]) for name, rows in first.rows.items()},
            table.task,
            len(table.classes) if table.task == "classes" else 1,
            unit=table.target_unit,
            pool=Split(table.x, table.y),
            resample=table.resample,
            input_shape=(table.x.shape[1],),
        )


@dataclass(frozen=True)
class PreparedTable:
    """The features and targets of a table, and everything that a model needs to prepare other rows in the same way.

    Numbers are stored as float32 in units of their column's spread around its median, which keeps small differences of large
    numbers. Missing numbers are NaN: every split fills them with the median of its own training rows.
    """

    source: TableSource
    columns: pd.DataFrame  # those that are used
    preparation: TablePreparation
    x: Tensor  # stored features ``(rows, features)``, in units of ``unit`` from ``offset``
    y: Tensor  # class numbers, or targets in units of ``target_unit`` from ``target_offset``
    labels: npt.NDArray[Any]  # target of every row, as in the table
    classes: list[Any]  # empty for regression
    task: Task  # of a network: two classes need one logit
    offset: Floats
    unit: Floats
    target_offset: float
    target_unit: float
    splitter: RowSplitter
    unused: dict[str, str]  # columns that are not used, with the reason
    without_target: int  # number of rows that were left out

    @cached_property
    def resample(self) -> Callable[[int], Resample]:
        """A function that returns the rows of a split, and the center and scale of its training rows in stored units."""
        return cache(self._resample)

    def features(self, rows: npt.NDArray[np.int64], resample: Resample) -> Floats:
        """Return rows in the units of their columns, with gaps filled as for a split."""
        stored = self.x[torch.from_numpy(rows)].double()
        filled = torch.where(stored.isnan(), resample.mean.double(), stored).numpy()
        return filled * self.unit + self.offset

    def _resample(self, number: int) -> Resample:
        parts = self.splitter.rows(number)  # without repetitions
        train = torch.from_numpy(parts["train"])
        center, scale = self._moments(train)
        rows = {name: torch.from_numpy(part) for name, part in parts.items()}
        if self.source.class_weight == "balanced":
            codes = self.y.flatten().long().numpy()
            largest = np.bincount(codes).max() / len(codes)
            for name in ("train", "valid"):  # all splits have the same number of rows
                wanted = len(self.classes) * (math.ceil(largest * len(rows[name])) + 1)
                size = min(BALANCED_ROWS * len(rows[name]), wanted)
                rows[name] = torch.from_numpy(balance(parts[name], codes, size))
        if self.task != "regression":
            return Resample(rows, center, scale)
        y = self.y[train].double()
        deviation = float(y.std(correction=0))
        return Resample(rows, center, scale, float(y.mean()), deviation if deviation > 0 else 1.0)

    def _moments(self, train: Tensor) -> tuple[Tensor, Tensor]:
        """Return center and scale of every feature: mean and deviation, or 0 and 1 for flags and categories.

        The center of a column with gaps is its median, so that a gap becomes 0.
        """
        scaled = torch.from_numpy(self.preparation.scaled_)
        center, scale = torch.zeros(len(scaled), dtype=torch.float64), torch.ones(len(scaled), dtype=torch.float64)
        for feature in range(self.preparation.n_numbers_):
            values = self.x[train, feature].double()
            gaps = values.isnan()
            if gaps.any():
                known = values[~gaps]
                center[feature] = known.quantile(0.5) if len(known) else 0.0  # the mean of the two middle values, as numpy
                values = values.where(~gaps, center[feature])
            elif scaled[feature]:
                center[feature] = values.mean()
            if scaled[feature]:
                deviation = (values - center[feature]).square().mean().sqrt()
                scale[feature] = deviation if deviation > 1e-6 * center[feature].abs().clamp(min=1e-6) else 1.0
        return center.float(), scale.float()


@lru_cache(maxsize=4)
def prepare_table(source: TableSource) -> PreparedTable:
    """Read a table and turn it into features. Later calls return the same object."""
    path, target = Path(source.path), source.target
    if file_digest(path, "table")[:DIGEST_DIGITS] != source.digest:
        raise UserError(f"{path} has changed since the study was planned; start it again")
    frame = read_table(path)
    special = [name for name in (source.groups, source.time) if name is not None]
    check_columns((target, *source.drop, *source.keep, *special), frame.columns, str(path))
    if target in (*source.drop, *special):
        raise UserError(f"the target {target!r} cannot be dropped, and is neither group nor time")
    labels, task = _labels(frame[target], target, source.task)
    known = ~pd.isna(labels)
    frame, labels = frame[known].reset_index(drop=True), np.array(labels[known].tolist())
    if len(frame) < MIN_ROWS:
        raise UserError(f"{path} has {len(frame)} rows with a target; at least {MIN_ROWS} are needed")
    features = frame.drop(columns=[target, *source.drop, *([source.groups] if source.groups else [])], errors="ignore")
    unused = unused_columns(features, source.levels, source.keep)
    unused |= {source.groups: "it names the groups"} if source.groups else {}
    unused |= dict.fromkeys(source.drop, "as asked")
    features = features.drop(columns=[name for name in unused if name in features])
    if features.shape[1] == 0:
        reasons = ", ".join(f"{name}: {reason}" for name, reason in unused.items()) or "there is no other column"
        raise UserError(f"{path} has no column to predict {target!r} from ({reasons})")
    preparation = TablePreparation(source.levels).fit(features)
    classes, y, offset, unit = _encode_target(labels, task, target)
    strata = np.zeros(len(frame), np.int64) if task == "regression" else y.astype(np.int64)
    groups = pd.factorize(as_text(frame[source.groups]))[0].astype(np.int64) if source.groups else None
    splitter = RowSplitter(strata, groups, _times(frame, source), source.test, source.validation, source.seed)
    if len(np.unique(y[splitter.rows(1)["train"]])) < 2:
        raise UserError(f"the target {target!r} is the same in all training rows; more rows are needed")
    x, offsets, units = _stored_features(features, preparation)
    tensor = torch.from_numpy(y).long() if task == "classes" else torch.from_numpy(y).float().unsqueeze(1)
    missing = int((~known).sum())
    return PreparedTable(
        source, features, preparation, x, tensor, labels, classes, task, offsets, units, offset, unit, splitter, unused, missing
    )


def _labels(column: pd.Series[Any], name: str, task: TableTask | None) -> tuple[npt.NDArray[Any], Task]:
    recognized = recognize(name, column)
    if recognized.kind == "empty":
        raise UserError(f"the target {name!r} is empty; choose another column")
    if recognized.kind == "date":
        raise UserError(f"the target {name!r} holds dates; predict a class or a number, such as days")
    numbers = parse(column, recognized.kind, recognized.format) if recognized.kind == "number" else None
    if task == "regress" and numbers is None:
        raise UserError(f"the target {name!r} does not hold numbers; use --task classify")
    if numbers is not None:
        distinct = np.unique(numbers[~np.isnan(numbers)])
        few = len(distinct) <= FEW_NUMBERS and bool((distinct == np.floor(distinct)).all())
        if task == "regress" or (task is None and not few):
            return numbers, "regression"
    labels: npt.NDArray[Any] = as_text(column).to_numpy(object)
    if numbers is not None and (numbers[~np.isnan(numbers)] == np.floor(numbers[~np.isnan(numbers)])).all():
        labels = np.array([None if np.isnan(number) else int(number) for number in numbers], dtype=object)
    return labels, "binary" if len(pd.unique(labels[~pd.isna(labels)])) == 2 else "classes"


def _encode_target(labels: npt.NDArray[Any], task: Task, name: str) -> tuple[list[Any], Floats, float, float]:
    distinct, codes = np.unique(labels, return_inverse=True)
    if len(distinct) < 2:
        raise UserError(f"the target {name!r} is the same in every row; choose another column")
    if task == "regression":
        values = labels.astype(np.float64)
        offset, unit = _spread(values)
        return [], (values - offset) / unit, offset, unit
    if len(distinct) > MAX_CLASSES:
        raise UserError(f"the target {name!r} has {len(distinct):,} classes, more than {MAX_CLASSES:,}; use --task regress")
    return distinct.tolist(), codes.astype(np.float64), 0.0, 1.0


def _times(frame: pd.DataFrame, source: TableSource) -> Floats | None:
    if source.time is None:
        return None
    column = recognize(source.time, frame[source.time])
    if column.kind not in ("date", "number"):
        raise UserError(f"the column {source.time!r} holds neither dates nor numbers to order rows by")
    times = parse(frame[source.time], column.kind, column.format)
    if np.isnan(times).any():
        raise UserError(f"the column {source.time!r} is missing in {int(np.isnan(times).sum())} rows; remove them")
    return times


def _stored_features(frame: pd.DataFrame, preparation: TablePreparation) -> tuple[Tensor, Floats, Floats]:
    offset, unit = np.zeros(len(preparation.scaled_)), np.ones(len(preparation.scaled_))
    stored = torch.empty(len(frame), len(offset))
    numbers = preparation.n_numbers_
    for first in range(0, len(frame), ROWS_AT_ONCE):  # bounds the memory of float64 copies
        rows = slice(first, first + ROWS_AT_ONCE)
        features = preparation.transform_with_gaps(frame.iloc[rows])
        if first == 0:
            for feature in np.flatnonzero(preparation.scaled_):
                offset[feature], unit[feature] = _spread(features[:, feature])
        features[:, :numbers] = (features[:, :numbers] - offset[:numbers]) / unit[:numbers]
        large = np.flatnonzero(np.nanmax(np.abs(features), axis=0, initial=0) > LARGEST)
        if len(large):
            name = preparation.get_feature_names_out()[large[0]].partition("__")[2]
            raise UserError(f"column {name!r} has values {LARGEST:g} times as large as most; remove or correct them")
        stored[rows] = torch.from_numpy(features)
    return stored, offset, unit


def _spread(values: Floats) -> tuple[float, float]:
    """Return the median and the distance of the quartiles, or of the extremes if that is 0."""
    known = values[~np.isnan(values)]
    if not len(known):
        return 0.0, 1.0
    low, middle, high = (float(value) for value in np.quantile(known, (0.25, 0.5, 0.75)))
    unit = high - low or float(known.max() - known.min())
    return middle, unit if 0 < unit < np.inf else 1.0
