"""A column of a table and the features a network reads of it.

A column is first turned into *raw* numbers, one a row: a number itself, 0 or 1 of a flag, the days since 1970 of a date, the
place of a text among the levels of a category (one past the last for any other text); missing is always NaN. Raw numbers then
become features, which are never missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["number", "flag", "date", "category"]
Floats = npt.NDArray[np.float64]

DATE_PARTS = ("days since 1970", "month", "weekday", "hour")
OTHER, MISSING = "any other", "missing"


@dataclass(frozen=True)
class Column:
    """What was learnt about a column from the training rows.

    ``fill`` stands for a missing value, which ``missing`` says a feature tells of. A category's ``levels`` each have a feature,
    and with ``other`` there is one for all further texts.
    """

    name: str
    kind: Kind
    fill: float = 0.0
    missing: bool = False
    levels: tuple[str, ...] = ()
    other: bool = False

    @property
    def features(self) -> list[str]:
        """The names of its features.

        Example:
            >>> Column("colour", "category", levels=("red", "blue"), other=True).features
            ['colour = red', 'colour = blue', 'colour any other']
            >>> Column("age", "number", missing=True).features
            ['age', 'age missing']
        """
        own = {
            "category": [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} {OTHER}"] * self.other,
            "date": [f"{self.name} {part}" for part in DATE_PARTS],
        }.get(self.kind, [self.name])
        return own + [f"{self.name} {MISSING}"] * self.missing

    @property
    def measured(self) -> list[bool]:
        """Which of its features are quantities, to be standardised; the others are 0 or 1 and stay so."""
        own = len(self.features) - self.missing
        return [self.kind in ("number", "date")] * own + [False] * self.missing

    def encoded(self, raw: Floats) -> Floats:
        """Features from raw numbers.

        Shape: ``(rows,)`` to ``(rows, features)``.

        Example:
            >>> Column("age", "number", fill=40.0, missing=True).encoded(np.array([21.0, np.nan]))
            array([[21.,  0.],
                   [40.,  1.]])
        """
        absent = np.isnan(raw)
        if self.kind == "category":
            own = raw[:, None] == np.arange(len(self.levels) + self.other)
        else:
            filled = np.where(absent, self.fill, raw)
            own = date_parts(filled) if self.kind == "date" else filled[:, None]
        return np.concatenate([own, absent[:, None]] if self.missing else [own], axis=1, dtype=np.float64)


def date_parts(days: Floats) -> Floats:
    """Days since 1970, the month from 1, the weekday from Monday as 0, and the hour.

    Shape: ``(rows,)`` to ``(rows, 4)``.

    Example:
        >>> date_parts(np.array([0.5]))  # noon of 1 January 1970, a Thursday
        array([[ 0.5,  1. ,  3. , 12. ]])
    """
    whole = np.floor(days)
    months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return np.stack([days, months % 12 + 1, (whole + 3) % 7, np.floor((days - whole) * 24)], axis=1)


def encoded(columns: Sequence[Column], raws: Sequence[Floats]) -> Floats:
    """The features of all columns side by side.

    Shape: ``(rows,)`` each, to ``(rows, features)``.
    """
    return np.concatenate([column.encoded(raw) for column, raw in zip(columns, raws, strict=True)], axis=1)


def column_entry(column: Column) -> dict[str, Any]:
    """A column as JSON has it."""
    return {**vars(column), "levels": list(column.levels)}
