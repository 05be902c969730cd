"""Tables as text: CSV with commas, semicolons, tabs or bars, read by pyarrow, and the line of what is wrong with a file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from boolit.errors import UserError

Names = tuple[str, ...]
Batches = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]

HEAD_BYTES = 2**20
BLOCK_BYTES = 2**22  # also the longest row
SEPARATORS = ",;\t|"
SNIFFED_LINES = 20
DECIMAL_COMMA = r"^\s*([+-]?\d+),(\d+)\s*$"


def open_text(path: Path) -> tuple[Names, Batches]:
    """Opens a text file."""
    head = _read_head(path)
    separator = "\t" if ".tsv" in path.suffixes else detect_separator(head)
    try:
        raw = next(_rows(head, separator), [])
    except csv.Error as error:
        raise UserError(f"the first line of {path} does not hold the names of columns ({error}); add a header line") from None
    if len(raw) > 1 and all(map(_is_number, raw)):
        raise UserError(f"the first line of {path} holds numbers, not the names of columns; add a header line")
    names = tuple(name.strip() for name in raw)
    return names, partial(_batches, path, separator, dict(zip(names, raw, strict=True)))


def detect_separator(head: str) -> str:
    """The separator that gives the first lines most fields.

    Example:
        >>> detect_separator("a;b\\n1,5;2\\n")
        ';'
    """

    def field_count(separator: str) -> int:
        try:
            counts = [len(row) for row in islice(_rows(head, separator), SNIFFED_LINES) if row]
        except csv.Error:  # a field of more than 131,072 characters
            return 0
        # Only the header and the next line must agree: a ragged line further down is reported when it is read.
        return counts[0] if len(set(counts[:2])) == 1 else 1

    return max(SEPARATORS, key=field_count)


def _rows(head: str, separator: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(head, newline=""), delimiter=separator)  # lines may end in CR alone


def _read_head(path: Path) -> str:
    try:
        with pa.input_stream(path, compression="detect") as stream:
            head: bytes = stream.read(HEAD_BYTES)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read ({error}); check the file") from None
    if b"\0" in head:
        raise UserError(f"{path} is a binary file, not text; export the table as CSV, or name it by what it is")
    if not head.strip():
        raise UserError(f"{path} is empty; give a table with a header and rows")
    if len(head) == HEAD_BYTES and b"\n" not in head and b"\r" not in head:
        raise UserError(f"the first line of {path} has more than {HEAD_BYTES:,} bytes; give a table with a shorter header")
    return head.decode("utf-8-sig", errors="replace")


def _batches(path: Path, separator: str, raw_of: dict[str, str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    raw_names = [raw_of[name] for name in names]
    with _user_errors(path, separator), pa.input_stream(path, compression="detect") as stream:
        reader = arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(raw_names, pa.string()), include_columns=raw_names),
        )
        for batch in reader:
            columns = batch.columns
            if separator == ";":  # numbers may have decimal commas
                columns = [pc.replace_substring_regex(column, DECIMAL_COMMA, r"\1.\2") for column in columns]
            yield pa.record_batch(columns, names=list(names))


@contextmanager
def _user_errors(path: Path, separator: str) -> Iterator[None]:
    """Turns an error of pyarrow, which reads in blocks and often cannot name the line, into one that does."""
    try:
        yield
    except Exception as error:  # pyarrow raises many kinds
        raise UserError(_explain(path, separator, " ".join(str(error).split()))) from None


def _explain(path: Path, separator: str, message: str) -> str:
    if "straddl" in message:
        return f"{path} has a row of more than {BLOCK_BYTES:,} bytes, or a quote that is never closed; shorten or mend it"
    if "UTF8" in message:
        return f"line {_undecodable_line(path) or '?'} of {path} is not UTF-8; save the file as UTF-8"
    if ragged := re.search(r"Expected (\d+) columns, got (\d+)", message):
        expected = int(ragged[1])
        line, found = _ragged_line(path, separator, expected)
        where = f"line {line or '?'} of {path} has {found or ragged[2]} fields instead of {expected}"
        return f"{where}; mend it, or quote the values that hold a {separator!r}"
    return f"{path} cannot be read as a table ({message}); check the file"


def _undecodable_line(path: Path) -> int:
    with suppress(pa.ArrowException, OSError), pa.input_stream(path, compression="detect") as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _ragged_line(path: Path, separator: str, expected: int) -> tuple[int, int]:
    """The line on which the first row of another length ends, and its length."""
    unreadable = suppress(csv.Error, pa.ArrowException, OSError)  # another mistake, before this one
    with unreadable, pa.input_stream(path, compression="detect") as stream:
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", errors="replace", newline="")
        rows = csv.reader(text, delimiter=separator)
        for row in rows:
            if row and len(row) != expected:
                return rows.line_num, len(row)
    return 0, 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
