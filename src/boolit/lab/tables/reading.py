"""Opening a table: CSV, TSV, Parquet or .npz, read a piece at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from boolit.lab.errors import UserError
from boolit.lab.files import name_bytes, regular_file

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
    from boolit.lab.tables.arrays import npz_table, parquet_table
    from boolit.lab.tables.text import text_table

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
