"""Tables as text: separators, quotes and decimal commas, and what is wrong with a file, with the line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from boolit.lab.common.errors import UserError
from boolit.lab.datasets.tables.reading import TableFile
from boolit.saved.columns import MISSING_WORDS

# What is wrong with a text file, with the line: pyarrow, which reads in pieces, often cannot name it.

_RAGGED = re.compile(r"Expected (\d+) columns, got (\d+)")


@contextmanager
def explained(path: Path, separator: str, longest_row: int) -> Iterator[None]:
    """Around reading: a mistake in the file becomes one sentence."""
    try:
        yield
    except Exception as error:  # pyarrow raises many kinds
        raise _problem(path, separator, " ".join(str(error).split()), longest_row) from None


def _problem(path: Path, separator: str, message: str, longest_row: int) -> UserError:
    if "straddl" in message:
        rule = f"has a row of more than {longest_row:,} bytes, or a quote that is never closed"
        return UserError(f"{path} {rule}; shorten or mend it")
    if "UTF8" in message:
        return UserError(f"line {_undecodable(path) or '?'} of {path} is not UTF-8; save the file as UTF-8")
    if ragged := _RAGGED.search(message):
        expected = int(ragged[1])
        line, found = _ragged(path, separator, expected)
        where = f"line {line or '?'} of {path} has {found or ragged[2]} fields instead of {expected}"
        return UserError(f"{where}; mend it, or quote the values that hold a {separator!r}")
    return UserError(f"{path} cannot be read as a table ({message}); check the file")


def _undecodable(path: Path) -> int:
    with suppress(pa.ArrowException, OSError), pa.input_stream(path, compression="detect") as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _ragged(path: Path, separator: str, expected: int) -> tuple[int, int]:
    """The line on which the first row of another length ends, and its length."""
    unreadable = suppress(csv.Error, pa.ArrowException, OSError)  # another mistake, before the one that is looked for
    with unreadable, pa.input_stream(path, compression="detect") as stream:
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", errors="replace", newline="")
        rows = csv.reader(text, delimiter=separator)
        for row in rows:
            if row and len(row) != expected:
                return rows.line_num, len(row)
    return 0, 0


# Tables as text: CSV with commas, semicolons, tabs or bars, which is seen from the first lines.

HEAD_BYTES = 2**20
BLOCK_BYTES = 2**22  # also the longest row
SEPARATORS = ",;\t|"
SNIFFED_LINES = 20
DECIMAL_COMMA = r"^\s*([+-]?\d+),(\d+)\s*$"


def text_table(path: Path) -> TableFile:
    """The table in a text file."""
    head = _head(path)
    separator = "\t" if ".tsv" in path.suffixes else separator_of(head)
    try:
        raw = next(_rows(head, separator), [])
    except csv.Error as error:
        raise UserError(f"the first line of {path} does not hold the names of columns ({error}); add a header line") from None
    if len(raw) > 1 and all(map(_is_number, raw)):
        raise UserError(f"the first line of {path} holds numbers, not the names of columns; add a header line")
    names = tuple(name.strip() for name in raw)
    return TableFile(path, names, partial(_pieces, path, separator, dict(zip(names, raw, strict=True))))


def separator_of(head: str) -> str:
    """The separator that cuts the first lines into most fields, the same number in all.

    Example:
        >>> separator_of("a;b\\n1,5;2\\n")
        ';'
    """

    def fields(separator: str) -> int:
        try:
            counts = [len(row) for row in islice(_rows(head, separator), SNIFFED_LINES) if row]
        except csv.Error:  # a field of more than 131,072 characters: this one does not cut it
            return 0
        # A ragged line further down must not hide what the header and the line after it agree on.
        return counts[0] if len(set(counts[:2])) == 1 else 1

    return max(SEPARATORS, key=fields)


def _rows(head: str, separator: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(head, newline=""), delimiter=separator)  # lines may end in CR alone


def _head(path: Path) -> str:
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


def _pieces(path: Path, separator: str, raw_of: dict[str, str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = [raw_of[name] for name in names]
    with explained(path, separator, BLOCK_BYTES), pa.input_stream(path, compression="detect") as stream:
        reader = arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted),
        )
        for piece in reader:
            yield pa.record_batch([_with_points(column, separator) for column in piece.columns], names=list(names))


def _with_points(column: pa.Array, separator: str) -> pa.Array:
    """Beside semicolons a decimal comma becomes a point."""
    return pc.replace_substring_regex(column, DECIMAL_COMMA, r"\1.\2") if separator == ";" else column


def cleaned(column: pa.Array) -> pa.Array:
    """Trimmed texts, missing where they are empty or a word for it.

    Example:
        >>> cleaned(pa.array([" red", "NA", ""])).to_pylist()
        ['red', None, None]
    """
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(trimmed, pa.array(MISSING_WORDS)), pa.scalar(None, pa.string()), trimmed)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
