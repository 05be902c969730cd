"""Columns fitted to the training rows: the features, and the target to predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boolit.errors import UserError
from boolit.lab.datasets.tables.prepared import Rows
from boolit.lab.datasets.tables.profile import MAX_DISTINCT, ColumnProfile, RawColumn
from boolit.saved.columns import Column, Floats
from boolit.saved.file import Label, TableTask

FEW = 20  # distinct whole numbers or fewer are classes, unless the user says otherwise
MAX_CLASSES = 1000
MOSTLY_DISTINCT = 0.5  # share of rows; texts that are more often distinct are identifiers, not categories


@dataclass(frozen=True)
class TargetColumn:
    """The target of every row: the index of its class, or a number; NaN where it is missing.

    Shape: ``values`` is ``(rows,)``.
    """

    name: str
    task: TableTask
    classes: tuple[Label, ...]
    values: Floats

    def scaling(self, train: Rows) -> tuple[float, float]:
        """Mean and standard deviation of a quantity over the training rows; 0 and 1 for classes."""
        if self.task == "classify":
            return 0.0, 1.0
        mean, scale = mean_and_scale(self.name, self.values[train])
        return float(mean), float(scale)


def fit_target(column: RawColumn, task: TableTask | None) -> TargetColumn:
    """The target in a column, for the given task or the one its values suggest."""
    distinct = np.unique(column.values[~np.isnan(column.values)])
    if len(distinct) < 2:
        raise UserError(
            f"the target {column.name!r} is the same in every row; there is nothing to predict, choose another column"
        )
    if column.type == "date":
        raise UserError(f"the target {column.name!r} holds dates; predict a class or a quantity, such as days")
    if task is None:
        few = len(distinct) <= FEW and bool((distinct == np.floor(distinct)).all())
        task = "regress" if column.type == "number" and not few else "classify"
    if task == "regress":
        if column.type != "number":
            raise UserError(f"the target {column.name!r} holds no numbers; use --task classify")
        return TargetColumn(column.name, task, (), np.array(column.values))
    if len(distinct) > MAX_CLASSES:
        raise UserError(
            f"the target {column.name!r} has {len(distinct)} classes, at most {MAX_CLASSES} work; use --task regress"
        )
    indices = np.where(np.isnan(column.values), np.nan, np.searchsorted(distinct, column.values))
    return TargetColumn(column.name, task, tuple(_label(column, float(value)) for value in distinct), indices)


def _label(column: RawColumn, value: float) -> Label:
    if column.type == "text":
        return column.levels[int(value)]
    if column.type == "flag":
        return bool(value)
    return int(value) if value == int(value) else value


@dataclass(frozen=True)
class FittedColumn:
    """A column as the model reads it, and what maps the raw numbers on disk to that column's."""

    column: Column
    source: RawColumn
    recode: Floats | None = None

    def raw(self, first: int, last: int) -> Floats:
        """The raw numbers of some rows.

        Shape: ``(last − first,)``.
        """
        values = np.array(self.source.values[first:last])
        if self.recode is not None:
            known = ~np.isnan(values)
            values[known] = self.recode[values[known].astype(np.int64)]
        return values

    def scaling(self, train: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the features over the training rows; 0 and 1 for those that are no quantities.

        Shape: ``(features,)`` twice.
        """
        measured = np.array(self.column.measured)
        mean, scale = np.zeros(len(measured)), np.ones(len(measured))
        if measured.any():
            features = self.column.encode(self.source.values[train])[:, measured]
            mean[measured], scale[measured] = mean_and_scale(self.column.name, features)
        return mean, scale


def unused_reason(profile: ColumnProfile, levels: int) -> str | None:
    """Why a text column is not used; None if it is."""
    if profile.type != "text":
        return None
    if profile.distinct is None:
        return f"more than {MAX_DISTINCT} different texts"
    known, distinct = profile.rows - profile.missing, len(profile.distinct)
    if distinct > max(levels, MOSTLY_DISTINCT * known):
        return f"{distinct} different texts in {known} rows, as names have"
    return None


def fit_column(source: RawColumn, train: Rows, levels: int) -> FittedColumn | str:
    """A column fitted to the training rows, or why it is not used."""
    values = source.values[train]
    known = values[~np.isnan(values)]
    if len(known) == 0 or (known[0] == known).all():
        return "the same in all training rows"
    if source.type == "number" and source.values[0] in (0, 1) and (np.diff(source.values) == 1).all():
        return "the numbers of the rows"
    missing = len(known) < len(values)
    if source.type == "text":
        return _fit_category(source, known, missing, levels)
    fill = float(np.median(known))
    if source.type == "date":
        return FittedColumn(Column(source.name, "date", fill, missing), source)
    if source.type == "flag" or bool(np.isin(known, (0, 1)).all()):
        return FittedColumn(Column(source.name, "flag", round(fill), missing), source)
    return FittedColumn(Column(source.name, "number", fill, missing), source)


def _fit_category(source: RawColumn, known: Floats, missing: bool, levels: int) -> FittedColumn:
    """The most frequent texts become levels, ties in alphabetical order; the others share one feature."""
    counts = np.bincount(known.astype(np.int64), minlength=len(source.levels))
    kept = np.argsort(-counts, kind="stable")[: min(levels, int((counts > 0).sum()))]
    recode = np.full(len(source.levels), float(len(kept)))
    recode[kept] = np.arange(len(kept))
    other = bool(counts.sum() > counts[kept].sum())
    return FittedColumn(
        Column(source.name, "category", 0.0, missing, tuple(source.levels[place] for place in kept), other), source, recode
    )


def mean_and_scale(name: str, values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation along the first axis; a deviation of 0 becomes 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = values.mean(0), values.std(0)
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise UserError(f"column {name!r} has numbers too large to square; give it in a larger unit")
    return mean, np.where(deviation > 0, deviation, 1)
