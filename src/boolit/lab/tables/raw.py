"""A whole table as raw numbers on disk, column after column, so that no step needs more than a column in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boolit.lab.errors import UserError
from boolit.lab.tables.evidence import Evidence, Found, numbers, plain, times, type_of
from boolit.lab.tables.progress import Step
from boolit.lab.tables.reading import TableFile
from boolit.saved.columns import Floats
from boolit.saved.values import FALSE_WORDS, TRUE_WORDS, days, finite


@dataclass(frozen=True)
class RawColumn:
    """Its raw numbers on disk; those of a text are places in ``levels``, its different texts in order.

    Shape: ``values`` is ``(rows,)``.
    """

    name: str
    found: Found
    levels: tuple[str, ...]
    values: Floats


def gathered(table: TableFile, names: Sequence[str], target: str, step: Step) -> dict[str, Evidence]:
    """What the columns hold, from all rows."""
    evidence = {name: Evidence(name, literal=name == target) for name in names}
    for piece in table.pieces(names):
        for name, column in zip(names, piece.columns, strict=True):
            evidence[name].add(column)
        step(piece.num_rows)
    return evidence


def written(table: TableFile, columns: Sequence[Evidence], rows: int, path: Path, step: Step) -> list[RawColumn]:
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
