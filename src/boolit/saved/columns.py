"""Columns of a table: raw numbers from whatever holds the values, and the features a network reads of them.

A column is first turned into *raw* numbers, one per row: a number itself, 0 or 1 of a flag, the days since 1970 of a date, the
place of a text among the levels of a category (one past the last for any other text); missing is always NaN. Raw numbers then
become features, which are never missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from boolit.saved import SavedModelError

# Raw numbers of a column, whatever its values come as: lists, numpy arrays, columns of pyarrow or pandas.

Values = npt.NDArray[Any]

MISSING_WORDS = ("", "?", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>")
TRUE_WORDS, FALSE_WORDS = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
MICROSECONDS_A_DAY = 24 * 60 * 60 * 1_000_000

_TRUTHS: dict[str, float] = dict.fromkeys((*TRUE_WORDS, "1", "1.0"), 1.0) | dict.fromkeys((*FALSE_WORDS, "0", "0.0"), 0.0)


def raw_columns(columns: Sequence[Column], table: Any) -> list[Floats]:
    """The raw numbers of every column of a table.

    ``table`` is a 2-D array with the columns in their order, or anything with columns by name: a dict, a pyarrow table, a
    pandas frame.
    """
    found = _positional(columns, table) if _is_matrix(table) else _named(columns, table)
    lengths = {values.shape[0] if values.ndim == 1 else -1 for values in found}
    if len(lengths) != 1 or -1 in lengths:
        raise SavedModelError(f"the columns have {sorted(lengths)} rows; give each one value per row, the same number in all")
    return [raw_values(column, values) for column, values in zip(columns, found, strict=True)]


def raw_values(column: Column, values: Values) -> Floats:
    """The raw numbers of one column.

    Example:
        >>> raw_values(Column("colour", "category", levels=("red",), other=True), np.array(["red", "pink", None]))
        array([ 0.,  1., nan])
    """
    if column.kind == "category":
        places = {level: float(place) for place, level in enumerate(column.levels)}
        return np.array([math.nan if is_missing(v) else places.get(_text(v), float(len(places))) for v in values.tolist()])
    try:
        return _READERS[column.kind](values)
    except (ValueError, TypeError, OverflowError) as error:
        raise SavedModelError(
            f"column {column.name!r} holds {column.kind}s, but one of its values is none ({error}); mend it or leave it empty"
        ) from None


def is_missing(value: Any) -> bool:
    """Whether a value says that there is none: None, NaN, an empty text, or a word for it such as NA."""
    return value is None or (value != value) is True or (isinstance(value, str) and value.strip() in MISSING_WORDS)


def days(times: npt.NDArray[np.datetime64]) -> Floats:
    """Days since 1970 with their fraction; NaN for no time.

    Example:
        >>> days(np.array(["1970-01-02T12:00", "NaT"], dtype="datetime64[us]"))
        array([1.5, nan])
    """
    exact = times.astype("datetime64[us]")
    return np.where(np.isnat(exact), np.nan, exact.astype(np.int64) / MICROSECONDS_A_DAY)


def finite(numbers: Floats) -> Floats:
    """Infinities are no measurements: they count as missing."""
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _numbers(values: Values) -> Floats:
    if values.dtype.kind in "iufb":
        return finite(values.astype(np.float64))
    return finite(np.array([math.nan if is_missing(v) else float(v) for v in values.tolist()], dtype=np.float64))


def _flags(values: Values) -> Floats:
    if values.dtype.kind in "iufb":
        numbers = values.astype(np.float64)
        if not np.isin(known := numbers[~np.isnan(numbers)], (0, 1)).all():
            raise ValueError(f"{known[~np.isin(known, (0, 1))][0]:g} is neither true nor false")
        return numbers
    return np.array([math.nan if is_missing(v) else _truth(v) for v in values.tolist()], dtype=np.float64)


def _truth(value: Any) -> float:
    truth = _TRUTHS.get(_text(value).lower())
    if truth is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return truth


def _dates(values: Values) -> Floats:
    if values.dtype.kind == "M":
        return days(values)
    return days(np.array([None if is_missing(v) else _zoneless(v) for v in values.tolist()], dtype="datetime64[us]"))


def _zoneless(value: Any) -> Any:
    """numpy knows no time zones: UTC's Z is left off."""
    return value.strip().removesuffix("Z") if isinstance(value, str) else value


_READERS: dict[Kind, Callable[[Values], Floats]] = {"number": _numbers, "flag": _flags, "date": _dates}


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else str(value)


def _is_matrix(table: Any) -> bool:
    return not isinstance(table, Mapping) and not hasattr(table, "columns") and hasattr(table, "__array__")


def _positional(columns: Sequence[Column], table: Any) -> list[Values]:
    matrix = np.asarray(table)
    if matrix.ndim != 2 or matrix.shape[1] != len(columns):
        names = ", ".join(column.name for column in columns)
        raise SavedModelError(f"an array of shape {matrix.shape} has not the {len(columns)} columns of the model: {names}")
    return [matrix[:, place] for place in range(len(columns))]


def _named(columns: Sequence[Column], table: Any) -> list[Values]:
    names = set(_names(table))
    for column in columns:
        if column.name not in names:
            wanted = ", ".join(column.name for column in columns)
            raise SavedModelError(f"the table has no column {column.name!r}; the model reads {wanted}")
    return [np.asarray(table[column.name]) for column in columns]


def _names(table: Any) -> Iterable[str]:
    for attribute in ("column_names", "columns"):  # pyarrow's and pandas' words
        if hasattr(table, attribute):
            return list(getattr(table, attribute))
    if isinstance(table, Mapping):
        return list(table)
    raise SavedModelError(
        f"a table is a dict of columns, a 2-D array, or a pyarrow or pandas table, not {type(table).__name__}"
    )


# A column of a table and the features a network reads of it.

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

    def encode(self, raw: Floats) -> Floats:
        """Features from raw numbers.

        Shape: ``(rows,)`` to ``(rows, features)``.

        Example:
            >>> Column("age", "number", fill=40.0, missing=True).encode(np.array([21.0, np.nan]))
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


def encode_features(columns: Sequence[Column], raws: Sequence[Floats]) -> Floats:
    """The features of all columns side by side.

    Shape: ``(rows,)`` each, to ``(rows, features)``.
    """
    return np.concatenate([column.encode(raw) for column, raw in zip(columns, raws, strict=True)], axis=1)


def column_entry(column: Column) -> dict[str, Any]:
    """A column as JSON has it."""
    return {**vars(column), "levels": list(column.levels)}
