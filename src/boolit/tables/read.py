"""Read tables from CSV, TSV and Parquet files with pandas."""

from __future__ import annotations

import bz2
import csv
import difflib
import gzip
import io
import lzma
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pandas as pd

from boolit.errors import UserError

SUFFIXES = (".csv", ".tsv", ".parquet")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
SEPARATORS = ",;\t|"
HEAD_BYTES = 2**20
SNIFFED_LINES = 20


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table from a CSV, TSV or Parquet file; text files may be compressed (``.gz``, ``.bz2``, ``.xz``).

    Every value of a text file stays text, so that codes such as ``007`` survive; `TablePreparation` recognizes numbers and
    dates. The separator of a CSV file (comma, semicolon, tab or bar) is detected. Column names are stripped.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if not path.is_file():
        raise UserError(f"{path} is not a file; give a {', '.join(SUFFIXES)} file")
    suffix = table_suffix(path)
    if suffix is None:
        raise UserError(f"{path} has no known suffix; give a {', '.join(SUFFIXES)} file")
    try:
        frame = pd.read_parquet(path) if suffix.startswith(".parquet") else _read_text(path)
    except UserError:
        raise
    except Exception as error:  # damaged files raise many kinds of errors
        raise UserError(f"{path} cannot be read as a table ({' '.join(str(error).split())[:200]})") from None
    frame.columns = pd.Index([str(name).strip() for name in frame.columns])
    if duplicated := frame.columns[frame.columns.duplicated()].tolist():
        raise UserError(f"{path} has two columns named {duplicated[0]!r}; rename one of them")
    return frame.reset_index(drop=True)


def table_suffix(path: Path) -> str | None:
    """Return the suffix that says how a table is stored, such as ``.csv.gz``, or None."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in SUFFIXES:
        return suffixes[-1]
    return "".join(suffixes) if len(suffixes) == 2 and suffixes[0] in SUFFIXES and suffixes[1] in OPENERS else None


def check_columns(names: Iterable[str], known: Iterable[str], place: str) -> None:
    """Raise `UserError` with the closest known column if one of the names is missing."""
    known = list(known)
    for name in [name for name in names if name not in known]:
        close = difflib.get_close_matches(name, known, 1) or [column for column in known if column.lower() == name.lower()]
        if close:
            raise UserError(f"{place} has no column {name!r}; did you mean {close[0]!r}?")
        listed = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        raise UserError(f"{place} has no column {name!r}; it has {listed}")


def _read_text(path: Path) -> pd.DataFrame:
    with _open(path) as file:
        head = file.read(HEAD_BYTES)
    if b"\0" in head:
        raise UserError(f"{path} is a binary file; export the table as CSV or Parquet")
    if not head.strip():
        raise UserError(f"{path} is empty")
    text = head.decode("utf-8-sig", errors="replace")
    separator = "\t" if ".tsv" in (table_suffix(path) or "") else detect_separator(text)
    header = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    if len(header) > 1 and pd.to_numeric(pd.Series(header), errors="coerce").notna().all():
        raise UserError(f"the first line of {path} holds numbers instead of column names; add a header line")
    try:
        frame = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False)
    except UnicodeDecodeError:
        raise UserError(f"line {_undecodable_line(path)} of {path} is not UTF-8; save the file as UTF-8") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        message = " ".join(str(error).removeprefix("Error tokenizing data. C error: ").split())
        raise UserError(f"{path} cannot be read as a table with the separator {separator!r} ({message})") from None
    if (frame.iloc[:, -1] == "").any():  # pandas fills up short rows with empty cells
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter=separator)
            for row in rows:
                if row and len(row) < frame.shape[1]:
                    raise UserError(f"line {rows.line_num} of {path} has {len(row)} fields instead of {frame.shape[1]}")
    return frame.set_axis(header, axis=1)  # pandas renames the second of two equal names


def detect_separator(head: str) -> str:
    r"""Return the separator that splits the header and the line after it into most fields.

    Example:
        >>> detect_separator("a;b\n1,5;2\n")
        ';'
    """

    def fields(separator: str) -> int:
        with suppress(csv.Error):
            reader = csv.reader(io.StringIO(head, newline=""), delimiter=separator)
            counts = [len(row) for row in islice(reader, SNIFFED_LINES) if row]
            return counts[0] if len(set(counts[:2])) == 1 else 1
        return 0

    return max(SEPARATORS, key=fields)


def _undecodable_line(path: Path) -> int:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _open(path: Path) -> IO[bytes]:
    opener: Any = OPENERS.get(path.suffix.lower(), open)
    return cast(IO[bytes], opener(path, "rb"))
