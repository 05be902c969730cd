"""What the training rows tell about a column, and the column to predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boolit.lab.common.errors import UserError
from boolit.lab.datasets.tables.prepared import Rows
from boolit.lab.datasets.tables.profile import MOST_DISTINCT, Evidence, RawColumn
from boolit.saved.columns import Column, Floats
from boolit.saved.file import Label, TableTask

# The column to predict: classes or a quantity.

FEW = 20  # different whole numbers are taken as classes, unless the user says otherwise
MOST_CLASSES = 1000


@dataclass(frozen=True)
class Target:
    """The target of every row: a place among the classes, or a number; NaN where it is missing.

    Shape: ``values`` is ``(rows,)``.
    """

    name: str
    task: TableTask
    classes: tuple[Label, ...]
    values: Floats


def target_of(column: RawColumn, task: TableTask | None) -> Target:
    """The target in a column, for the task asked for or the one that fits."""
    known = column.values[~np.isnan(column.values)]
    distinct = np.unique(known)
    if len(distinct) < 2:
        raise UserError(
            f"the target {column.name!r} is the same in every row; there is nothing to predict, choose another column"
        )
    if column.found == "date":
        raise UserError(f"the target {column.name!r} holds dates; predict a class or a quantity, such as days")
    task = task or _natural(column, distinct)
    if task == "regress":
        if column.found != "number":
            raise UserError(f"the target {column.name!r} holds no numbers; use --task classify")
        return Target(column.name, task, (), np.array(column.values))
    if len(distinct) > MOST_CLASSES:
        raise UserError(
            f"the target {column.name!r} has {len(distinct)} classes, at most {MOST_CLASSES} work; use --task regress"
        )
    places = np.where(np.isnan(column.values), np.nan, np.searchsorted(distinct, column.values))
    return Target(column.name, task, _labels(column, distinct), places)


def _natural(column: RawColumn, distinct: Floats) -> TableTask:
    few = len(distinct) <= FEW and bool((distinct == np.floor(distinct)).all())
    return "regress" if column.found == "number" and not few else "classify"


def _labels(column: RawColumn, distinct: Floats) -> tuple[Label, ...]:
    if column.found == "text":
        return tuple(column.levels[int(place)] for place in distinct)
    if column.found == "flag":
        return tuple(bool(value) for value in distinct)
    return tuple(int(value) if value == int(value) else float(value) for value in distinct)


def strata(target: Target, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What the splits are to have equal shares of: the classes; nothing for a quantity."""
    if target.task == "regress":
        return np.zeros(len(rows), np.int64)
    return target.values[rows].astype(np.int64)


# What the training rows tell about a column: its levels, what fills its gaps, or that it is of no use.

MOSTLY_DISTINCT = 0.5  # of the rows: such texts are names or numbers of things, not categories


@dataclass(frozen=True)
class Fitted:
    """A column as the model reads it, and what turns the raw numbers on disk into that column's."""

    column: Column
    source: RawColumn
    recode: Floats | None = None

    def raw(self, first: int, last: int) -> Floats:
        """The raw numbers of some rows.

        Shape: ``(last − first,)``.
        """
        values = np.array(self.source.values[first:last])
        if self.recode is None:
            return values
        known = ~np.isnan(values)
        values[known] = self.recode[values[known].astype(np.int64)]
        return values


def useless(evidence: Evidence, levels: int) -> str | None:
    """Why a column of texts is not used; None if it is."""
    if evidence.found != "text":
        return None
    if evidence.distinct is None:
        return f"more than {MOST_DISTINCT} different texts"
    known, distinct = evidence.rows - evidence.missing, len(evidence.distinct)
    if distinct > max(levels, MOSTLY_DISTINCT * known):
        return f"{distinct} different texts in {known} rows, as names have"
    return None


def fitted(source: RawColumn, train: Rows, levels: int) -> Fitted | str:
    """A column fitted to the training rows, or why it is not used."""
    values = source.values[train]
    known = values[~np.isnan(values)]
    if len(known) == 0 or (known[0] == known).all():
        return "the same in all training rows"
    if source.found == "number" and _counts_rows(source.values):
        return "the numbers of the rows"
    missing = len(known) < len(values)
    if source.found == "text":
        return _category(source, known, missing, levels)
    if source.found == "date":
        return Fitted(Column(source.name, "date", float(np.median(known)), missing), source)
    flag = source.found == "flag" or bool(np.isin(known, (0, 1)).all())
    fill = float(np.median(known))
    return Fitted(Column(source.name, "flag" if flag else "number", round(fill) if flag else fill, missing), source)


def _category(source: RawColumn, known: Floats, missing: bool, levels: int) -> Fitted:
    """The most frequent texts become levels, of equals the first by the alphabet; the others share one feature."""
    counts = np.bincount(known.astype(np.int64), minlength=len(source.levels))
    order = np.argsort(-counts, kind="stable")
    kept = order[: min(levels, int((counts > 0).sum()))]
    recode = np.full(len(source.levels), float(len(kept)))
    recode[kept] = np.arange(len(kept))
    names = tuple(source.levels[place] for place in kept)
    other = bool(counts.sum() > counts[kept].sum())
    return Fitted(Column(source.name, "category", 0.0, missing, names, other), source, recode)


def _counts_rows(values: Floats) -> bool:
    return bool(values[0] in (0, 1) and (np.diff(values) == 1).all())


def moments(fits: Fitted, train: Rows) -> tuple[Floats, Floats]:
    """Mean and standard deviation of a column's features over the training rows; 0 and 1 of those that are no quantities.

    Shape: ``(features,)`` twice.
    """
    measured = np.array(fits.column.measured)
    mean, scale = np.zeros(len(measured)), np.ones(len(measured))
    if measured.any():
        features = fits.column.encode(fits.source.values[train])[:, measured]
        with np.errstate(over="ignore", invalid="ignore"):
            mean[measured], deviation = features.mean(0), features.std(0)
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
            raise UserError(f"column {fits.column.name!r} has numbers too large to square; give it in a larger unit")
        scale[measured] = np.where(deviation > 0, deviation, 1)
    return mean, scale
