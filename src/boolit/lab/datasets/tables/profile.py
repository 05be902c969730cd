"""What a column holds, gathered piece by piece; and the whole table as raw numbers on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boolit.lab.common.errors import UserError
from boolit.lab.common.progress import Advance
from boolit.lab.datasets.tables.reading import TableFile
from boolit.lab.datasets.tables.text import cleaned
from boolit.saved.columns import FALSE_WORDS, TRUE_WORDS, Floats, days, finite

# What a column holds, gathered piece by piece: numbers, flags, dates or texts, and how many are missing.

Found = Literal["number", "flag", "date", "text", "empty"]

MOST_DISTINCT = 10_000  # texts; a column with more can only be a name or a remark

_TYPES: list[tuple[Found, tuple[str, ...]]] = [
    ("flag", ("is_boolean",)),
    ("number", ("is_integer", "is_floating", "is_decimal")),
    ("date", ("is_date", "is_timestamp")),
    ("text", ("is_string", "is_large_string", "is_string_view")),
    ("empty", ("is_null",)),
]


class Evidence:
    """What the pieces of one column have shown so far.

    ``distinct`` holds its different texts, or None once they are too many. Of a ``literal`` column, texts that are no numbers
    stay texts, whatever they may mean: they are the labels the user knows.
    """

    def __init__(self, name: str, literal: bool = False) -> None:
        self.name, self.literal = name, literal
        self.rows = self.missing = 0
        self.distinct: set[str] | None = set()
        self._typed: Found = "empty"
        self._numbers = self._dates = True

    def add(self, column: pa.Array) -> None:
        """Takes note of a piece."""
        found = type_of(self.name, column.type)
        column = plain(column)
        self.rows += len(column)
        self.missing += column.null_count
        self._typed = found if self._typed == "empty" else self._typed
        if found == "text" and column.null_count < len(column):
            self._add_texts(column.drop_null())

    def _add_texts(self, texts: pa.Array) -> None:
        self._numbers = self._numbers and numbers(texts) is not None
        self._dates = self._dates and not self._numbers and times(texts) is not None
        if self.distinct is not None:
            self.distinct.update(texts.unique().to_pylist())
            self.distinct = self.distinct if len(self.distinct) <= MOST_DISTINCT else None

    @property
    def found(self) -> Found:
        """What all pieces together say."""
        if self.missing == self.rows:
            return "empty"
        if self._typed != "text":
            return self._typed
        if self._numbers:
            return "number"
        if self.literal:
            return "text"
        if self._dates:
            return "date"
        words = {text.lower() for text in self.distinct or ("?",)}
        return "flag" if words <= {*TRUE_WORDS, *FALSE_WORDS} else "text"


def type_of(name: str, kind: pa.DataType) -> Found:
    """What a pyarrow type holds."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    for found, tests in _TYPES:
        if any(getattr(pa.types, test)(kind) for test in tests):
            return found
    raise UserError(f"column {name!r} is of the type {kind}, not numbers, booleans, dates or texts; leave it out with --drop")


def plain(column: pa.Array) -> pa.Array:
    """A column without dictionary and with texts cleaned."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return cleaned(column.cast(pa.string())) if type_of("", column.type) == "text" else column


def numbers(texts: pa.Array) -> pa.Array | None:
    """Texts as float64, if all of them are numbers."""
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        return None


def times(texts: pa.Array) -> pa.Array | None:
    """Texts as moments, if all of them are ISO 8601 dates or times; those with a zone become UTC.

    Example:
        >>> times(pa.array(["2020-02-29"])).to_pylist()
        [datetime.datetime(2020, 2, 29, 0, 0)]
    """
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
    return None


# A whole table as raw numbers on disk, column after column, so that no step needs more than a column in memory.


@dataclass(frozen=True)
class RawColumn:
    """Its raw numbers on disk; those of a text are places in ``levels``, its different texts in order.

    Shape: ``values`` is ``(rows,)``.
    """

    name: str
    found: Found
    levels: tuple[str, ...]
    values: Floats


def gathered(table: TableFile, names: Sequence[str], target: str, step: Advance) -> dict[str, Evidence]:
    """What the columns hold, from all rows."""
    evidence = {name: Evidence(name, literal=name == target) for name in names}
    for piece in table.pieces(names):
        for name, column in zip(names, piece.columns, strict=True):
            evidence[name].add(column)
        step(piece.num_rows)
    return evidence


def written(table: TableFile, columns: Sequence[Evidence], rows: int, path: Path, step: Advance) -> list[RawColumn]:
    """The columns, written to a file as float64."""
    matrix: Floats = np.memmap(path, np.float64, "w+", shape=(len(columns), rows))
    levels = [level_list(column) for column in columns]
    first = 0
    for piece in table.pieces([column.name for column in columns]):
        for place, column in enumerate(columns):
            values = raw_piece(column.found, piece.column(place), levels[place])
            matrix[place, first : first + piece.num_rows] = values
        first += piece.num_rows
        step(piece.num_rows)
    if first != rows:
        raise UserError(f"{table.path} changed while it was read; try again when nothing writes to it")
    return [RawColumn(c.name, c.found, levels[place], matrix[place]) for place, c in enumerate(columns)]


def level_list(column: Evidence) -> tuple[str, ...]:
    """The different texts of a column of texts, in order."""
    return tuple(sorted(column.distinct or ())) if column.found == "text" else ()


def raw_piece(found: Found, column: pa.Array, levels: Sequence[str]) -> Floats:
    """The raw numbers of a piece of a column.

    Example:
        >>> raw_piece("text", pa.array(["red", None, "blue"]), ("blue", "red"))
        array([ 1., nan,  0.])
    """
    column = plain(column)
    texts = type_of("", column.type) == "text"
    if found == "text":
        return _floats(pc.index_in(column, pa.array(levels, pa.string())))
    if found == "flag":
        return _floats(_truths(column) if texts else column.cast(pa.uint8()))
    if found == "date":
        return days(_moments(times(column) if texts else column))
    return finite(_floats(numbers(column) if texts else column))


def _truths(column: pa.Array) -> pa.Array:
    words = pa.array([*FALSE_WORDS, *TRUE_WORDS])
    return pc.cast(pc.greater_equal(pc.index_in(pc.utf8_lower(column), words), len(FALSE_WORDS)), pa.uint8())


def _moments(column: pa.Array) -> npt.NDArray[np.datetime64]:
    moments: npt.NDArray[np.datetime64] = column.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
    return moments


def _floats(column: pa.Array) -> Floats:
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values
