"""The column to predict: classes or a quantity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boolit.lab.errors import UserError
from boolit.lab.tables.raw import RawColumn
from boolit.saved.columns import Floats
from boolit.saved.description import Label, TableTask

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
