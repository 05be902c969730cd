"""Raw numbers of a column, whatever its values come as: lists, numpy arrays, columns of pyarrow or pandas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from boolit.saved.columns import Column, Floats, Kind
from boolit.saved.errors import SavedModelError

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
        raise SavedModelError(f"the columns have {sorted(lengths)} rows; give each one value a row, the same number in all")
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
