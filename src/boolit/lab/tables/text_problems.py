"""What is wrong with a text file, with the line: pyarrow, which reads in pieces, often cannot name it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from boolit.lab.errors import UserError

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
