"""Profiles of columns, made batch by batch: the type of their values; and the whole table as raw numbers on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boolit.errors import UserError
from boolit.lab.common.progress import Advance
from boolit.lab.datasets.tables.reading import TableFile
from boolit.saved.columns import FALSE_WORDS, MISSING_WORDS, TRUE_WORDS, Floats, days, finite

InferredType = Literal["number", "flag", "date", "text", "empty"]

MAX_DISTINCT = 10_000  # texts; a column with more can only be a name or a remark

_ARROW_TYPES: list[tuple[InferredType, tuple[str, ...]]] = [
    ("flag", ("is_boolean",)),
    ("number", ("is_integer", "is_floating", "is_decimal")),
    ("date", ("is_date", "is_timestamp")),
    ("text", ("is_string", "is_large_string", "is_string_view")),
    ("empty", ("is_null",)),
]


class ColumnProfile:
    """What the batches of one column have shown so far.

    ``distinct`` holds its different texts, or None once they are too many. In a ``literal`` column, texts that are no numbers
    stay texts, whatever else they could mean: they are the labels the user knows.
    """

    def __init__(self, name: str, literal: bool = False) -> None:
        self.name, self.literal = name, literal
        self.rows = self.missing = 0
        self.distinct: set[str] | None = set()
        self._arrow_type: InferredType = "empty"
        self._numbers = self._dates = True

    def add(self, column: pa.Array) -> None:
        """Adds a batch of values."""
        found = type_from_arrow(self.name, column.type)
        column = clean_column(column)
        self.rows += len(column)
        self.missing += column.null_count
        self._arrow_type = found if self._arrow_type == "empty" else self._arrow_type
        if found == "text" and column.null_count < len(column):
            texts = column.drop_null()
            self._numbers = self._numbers and parse_numbers(texts) is not None
            self._dates = self._dates and not self._numbers and parse_times(texts) is not None
            if self.distinct is not None:
                self.distinct.update(texts.unique().to_pylist())
                self.distinct = self.distinct if len(self.distinct) <= MAX_DISTINCT else None

    @property
    def type(self) -> InferredType:
        """The type that fits all batches."""
        if self.missing == self.rows:
            return "empty"
        if self._arrow_type != "text":
            return self._arrow_type
        if self._numbers:
            return "number"
        if self.literal:
            return "text"
        if self._dates:
            return "date"
        words = {text.lower() for text in self.distinct or ("?",)}
        return "flag" if words <= {*TRUE_WORDS, *FALSE_WORDS} else "text"


def type_from_arrow(name: str, kind: pa.DataType) -> InferredType:
    """What values of a pyarrow type are."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    for found, tests in _ARROW_TYPES:
        if any(getattr(pa.types, test)(kind) for test in tests):
            return found
    raise UserError(f"column {name!r} is of the type {kind}, not numbers, booleans, dates or texts; leave it out with --drop")


def clean_column(column: pa.Array) -> pa.Array:
    """A column without dictionary encoding; texts are trimmed, and missing where they are empty or a word for it.

    Example:
        >>> clean_column(pa.array([" red", "NA", ""])).to_pylist()
        ['red', None, None]
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if type_from_arrow("", column.type) != "text":
        return column
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.is_in(trimmed, pa.array(MISSING_WORDS)), pa.scalar(None, pa.string()), trimmed)


def parse_numbers(texts: pa.Array) -> pa.Array | None:
    """Texts as float64, if all of them are numbers."""
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        return None


def parse_times(texts: pa.Array) -> pa.Array | None:
    """Texts as timestamps, if all of them are ISO 8601 dates or times; those with a time zone become UTC.

    Example:
        >>> parse_times(pa.array(["2020-02-29"])).to_pylist()
        [datetime.datetime(2020, 2, 29, 0, 0)]
    """
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
    return None


@dataclass(frozen=True)
class RawColumn:
    """The raw numbers of a column, on disk; those of a text are indices into ``levels``, its sorted distinct texts.

    Shape: ``values`` is ``(rows,)``.
    """

    name: str
    type: InferredType
    levels: tuple[str, ...]
    values: Floats


def profile_columns(table: TableFile, names: Sequence[str], target: str, step: Advance) -> dict[str, ColumnProfile]:
    """The profiles of columns, from all rows."""
    profiles = {name: ColumnProfile(name, literal=name == target) for name in names}
    for batch in table.batches(names):
        for name, column in zip(names, batch.columns, strict=True):
            profiles[name].add(column)
        step(batch.num_rows)
    return profiles


def write_raw_columns(
    table: TableFile, profiles: Sequence[ColumnProfile], rows: int, path: Path, step: Advance
) -> list[RawColumn]:
    """Writes columns one after the other as float64, so that later steps need one column in memory at a time."""
    matrix: Floats = np.memmap(path, np.float64, "w+", shape=(len(profiles), rows))
    columns = [
        RawColumn(each.name, each.type, tuple(sorted(each.distinct or ())) if each.type == "text" else (), values)
        for each, values in zip(profiles, matrix, strict=True)
    ]
    first = 0
    for batch in table.batches([column.name for column in columns]):
        for column, values in zip(columns, batch.columns, strict=True):
            column.values[first : first + batch.num_rows] = raw_numbers(column.type, values, column.levels)
        first += batch.num_rows
        step(batch.num_rows)
    if first != rows:
        raise UserError(f"{table.path} changed while it was read; try again when nothing writes to it")
    return columns


def raw_numbers(kind: InferredType, column: pa.Array, levels: Sequence[str]) -> Floats:
    """The raw numbers of some values of a column.

    Example:
        >>> raw_numbers("text", pa.array(["red", None, "blue"]), ("blue", "red"))
        array([ 1., nan,  0.])
    """
    column = clean_column(column)
    texts = type_from_arrow("", column.type) == "text"
    if kind == "text":
        return _floats(pc.index_in(column, pa.array(levels, pa.string())))
    if kind == "flag" and texts:
        words = pa.array([*FALSE_WORDS, *TRUE_WORDS])
        return _floats(pc.cast(pc.greater_equal(pc.index_in(pc.utf8_lower(column), words), len(FALSE_WORDS)), pa.uint8()))
    if kind == "flag":
        return _floats(column.cast(pa.uint8()))
    if kind == "date":
        times: pa.Array = parse_times(column) if texts else column
        return days(times.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False))
    return finite(_floats(parse_numbers(column) if texts else column))


def _floats(column: pa.Array) -> Floats:
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values
