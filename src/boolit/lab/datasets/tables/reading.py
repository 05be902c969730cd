"""Opening a table, to be read batch by batch: CSV, TSV, Parquet or .npz."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from boolit.errors import UserError
from boolit.lab.common.files import name_bytes, regular_file
from boolit.lab.datasets.tables.bounded import BoundedReader, TooLargeError, read_array, unpacked_limit
from boolit.lab.datasets.tables.text import Batches, Names, open_text

COMPRESSED = (".gz", ".bz2", ".zst")
ROWS_AT_ONCE = 2**16
DIRECTORY = 2**24  # bytes of an .npz file's list of arrays
LONGEST_REASON = 200  # characters


@dataclass(frozen=True)
class TableFile:
    """A table on disk: the names of its columns, and ``batches``, which reads the columns with some names.

    In a text file every value is a text.
    """

    path: Path
    names: Names
    batches: Batches


def open_table(path: Path) -> TableFile:
    """Opens a table; the file's suffix says of which kind it is."""
    if not path.exists():
        raise UserError(f"there is no table {path}; check the path")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the file of a table")
    regular_file(path, "give the file of a table")
    if name_bytes(str(path)) != str(path).encode(errors="replace"):
        raise UserError(f"the name of {path} is not UTF-8, as those of tables must be; rename it")
    openers = {".csv": open_text, ".tsv": open_text, ".parquet": _open_parquet, ".npz": _open_npz}
    suffix = (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix.lower()
    if suffix not in openers:
        raise UserError(f"{path} is none of {', '.join(openers)}; convert it to one of them")
    table = TableFile(path, *openers[suffix](path))
    for name, count in Counter(table.names).items():
        if count > 1:
            raise UserError(f"{path} has two columns named {name!r}; rename one of them")
    if not table.names:
        raise UserError(f"{path} has no columns; give a table with a header")
    return table


def _open_parquet(path: Path) -> tuple[Names, Batches]:
    """Opens a Parquet file; the unpacked size of each row group is limited."""
    with _user_errors(path, "is no readable Parquet file", "write it again"):
        with pq.ParquetFile(path) as file:
            names, metadata = tuple(file.schema_arrow.names), file.metadata
        stated = max((metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)), default=0)
        if stated > (most := unpacked_limit(path.stat().st_size)):
            raise TooLargeError(f"a row group states {stated:,} bytes, more than the {most:,} that are read")
    return names, partial(_parquet_batches, path)


def _parquet_batches(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _user_errors(path, "is a damaged Parquet file", "write it again"), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(names)):
            yield batch.select(list(names))


def _open_npz(path: Path) -> tuple[Names, Batches]:
    """Opens an .npz file: a 1-D array is a column, a 2-D array one column for each of its columns."""
    with _user_errors(path, "is no readable .npz of plain arrays", "save it with numpy.savez"):
        arrays = _read_npz(path)
    columns = [(name, column) for key, array in arrays.items() for name, column in _columns(path, key, array)]
    lengths = {name: len(column) for name, column in columns}
    if len(set(lengths.values())) > 1:
        raise UserError(f"the arrays of {path} have different numbers of rows ({lengths}); save them with the same")
    return tuple(name for name, _ in columns), partial(_npz_batches, dict(columns))


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    left = unpacked_limit(path.stat().st_size)
    arrays = {}
    with path.open("rb") as file, ZipFile(cast(IO[bytes], reader := BoundedReader(file, 2**62, DIRECTORY))) as archive:
        reader.at_once = left  # the directory is read; from here on the arrays are what is limited
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


def _npz_batches(columns: dict[str, np.ndarray], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    rows = len(next(iter(columns.values()), ()))
    for first in range(0, rows, ROWS_AT_ONCE):
        yield pa.record_batch({name: pa.array(columns[name][first : first + ROWS_AT_ONCE]) for name in names})


@contextmanager
def _user_errors(path: Path, fault: str, fix: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a damaged file may fail with any exception
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise UserError(f"{path} {fault} ({reason}); {fix}") from None
