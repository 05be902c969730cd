"""Which line of a TOML file says what: so that an error can name it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Path = tuple[str, ...]

_HEADER = re.compile(r"^\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_STRINGS = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*')


def line_numbers(text: str) -> dict[Path, int]:
    """The line, from 1, of every table and every key of a TOML text; keys of inline tables are on their key's line.

    Example:
        >>> line_numbers("[training]\\nepochs = 3\\n")
        {('training',): 1, ('training', 'epochs'): 2}
    """
    found: dict[Path, int] = {}
    table: Path = ()
    for number, line in _statements(text):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault(table + _parts(key[1]), number)
    return found


def line_of(numbers: dict[Path, int], location: Sequence[str | int]) -> int:
    """The line of a location, or of the nearest table around it; 1 if there is none.

    Example:
        >>> line_of({("training",): 4}, ("training", "epochs"))
        4
    """
    path = tuple(str(part) for part in location)
    while path and path not in numbers:
        path = path[:-1]
    return numbers.get(path, 1)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The lines on which a statement begins: those within a long string or an array are left out."""
    depth, quote = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not depth and not quote:
            yield number, line
        depth, quote = _after(line, depth, quote)


def _after(line: str, depth: int, quote: str) -> tuple[int, str]:
    """How many brackets and which long quote are open at the end of a line."""
    if not depth and not quote and _HEADER.match(line):
        return 0, ""
    rest = line
    while rest:
        if quote:
            _, closed, rest = rest.partition(quote)
            if closed:
                quote = ""
            continue
        token = _STRINGS.search(rest)
        plain = rest[: token.start()] if token else rest
        depth = max(0, depth + sum(plain.count(c) for c in "[{") - sum(plain.count(c) for c in "]}"))
        rest = rest[token.end() :] if token else ""
        if token and token[0] in ('"""', "'''"):
            quote = token[0]
    return depth, quote


def _parts(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
