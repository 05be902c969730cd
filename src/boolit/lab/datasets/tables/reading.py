"""Opening a table, a piece at a time: CSV, TSV, Parquet or .npz."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from boolit.lab.common.errors import UserError
from boolit.lab.common.files import BoundedReader, TooLargeError, name_bytes, read_array, regular_file, unpacked_limit

# Opening a table: CSV, TSV, Parquet or .npz, read a piece at a time.

Pieces = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]

COMPRESSED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class TableFile:
    """A table on disk: its columns' names, and its rows in pieces, as often as one likes.

    ``pieces`` takes the names of the columns wanted. In a text file every value is a text.
    """

    path: Path
    names: tuple[str, ...]
    pieces: Pieces


def open_table(path: Path) -> TableFile:
    """The table in a file, whose kind its name tells."""
    from boolit.lab.datasets.tables.text import text_table

    if not path.exists():
        raise UserError(f"there is no table {path}; check the path")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the file of a table")
    regular_file(path, "give the file of a table")
    if name_bytes(str(path)) != str(path).encode(errors="replace"):
        raise UserError(f"the name of {path} is not UTF-8, as those of tables must be; rename it")
    openers = {".csv": text_table, ".tsv": text_table, ".parquet": parquet_table, ".npz": npz_table}
    endings = [suffix.lower() for suffix in path.suffixes]
    ending = endings[-2] if len(endings) > 1 and endings[-1] in COMPRESSED else endings[-1] if endings else ""
    if ending not in openers:
        raise UserError(f"{path} is none of {', '.join(openers)}; convert it to one of them")
    return checked(openers[ending](path))


def checked(table: TableFile) -> TableFile:
    """The table, if its columns can be told apart."""
    seen: set[str] = set()
    for name in table.names:
        if name in seen:
            raise UserError(f"{table.path} has two columns named {name!r}; rename one of them")
        seen.add(name)
    if not table.names:
        raise UserError(f"{table.path} has no columns; give a table with a header")
    return table


# Tables whose columns have types already: Parquet and numpy's .npz.

ROWS_AT_ONCE = 2**16
DIRECTORY = 2**24  # bytes of an .npz file's list of arrays
LONGEST_REASON = 200  # characters


def parquet_table(path: Path) -> TableFile:
    """The table in a Parquet file, whose row groups unpack to a bounded number of bytes each."""
    try:
        with pq.ParquetFile(path) as file:
            names, about = tuple(file.schema_arrow.names), file.metadata
        stated = max((about.row_group(group).total_byte_size for group in range(about.num_row_groups)), default=0)
        if stated > (most := unpacked_limit(path.stat().st_size)):
            raise TooLargeError(f"a row group states {stated:,} bytes, more than the {most:,} that are read")
    except Exception as error:  # a damaged file may fail with any exception
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise UserError(f"{path} is no readable Parquet file ({reason}); write it again") from None
    return TableFile(path, names, partial(_parquet_pieces, path))


def npz_table(path: Path) -> TableFile:
    """The arrays of an .npz file: one with a single axis is a column, one with two is a column for each of its second."""
    try:
        arrays = _npz_arrays(path)
    except Exception as error:  # a damaged archive may fail with any exception
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise UserError(f"{path} is no readable .npz of plain arrays ({reason}); save it with numpy.savez") from None
    columns = [(name, column) for key, array in arrays.items() for name, column in _columns(path, key, array)]
    lengths = {name: len(column) for name, column in columns}
    if len(set(lengths.values())) > 1:
        raise UserError(f"the arrays of {path} have different numbers of rows ({lengths}); save them with the same")
    return TableFile(path, tuple(name for name, _ in columns), partial(_npz_pieces, dict(columns)))


def _npz_arrays(path: Path) -> dict[str, np.ndarray]:
    left = unpacked_limit(path.stat().st_size)
    arrays = {}
    with path.open("rb") as file, ZipFile(cast(IO[bytes], reader := BoundedReader(file, 2**62, DIRECTORY))) as archive:
        reader.at_once = left  # from here on by its arrays
        for name in archive.namelist():
            with archive.open(name) as member:
                array = arrays[name.removesuffix(".npy")] = read_array(member, left)
            left -= array.nbytes
    return arrays


def _columns(path: Path, key: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if array.ndim not in (1, 2) or array.dtype.kind not in "biufUM":
        rule = "one or two axes of numbers, booleans, texts or dates"
        raise UserError(f"the array {key!r} of {path} is {array.dtype} of shape {array.shape}; a column has {rule}")
    if array.ndim == 1:
        yield key, array
    else:
        yield from ((f"{key}{place}", array[:, place]) for place in range(array.shape[1]))


def _parquet_pieces(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            for piece in file.iter_batches(ROWS_AT_ONCE, columns=list(names)):
                yield piece.select(list(names))
    except Exception as error:  # a damaged file may fail with any exception
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise UserError(f"{path} is a damaged Parquet file ({reason}); write it again") from None


def _npz_pieces(columns: dict[str, np.ndarray], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    rows = len(next(iter(columns.values()), ()))
    for first in range(0, rows, ROWS_AT_ONCE):
        piece = {name: columns[name][first : first + ROWS_AT_ONCE] for name in names}
        yield pa.record_batch({name: pa.array(values) for name, values in piece.items()})
