"""What is wrong with a study, in one line: where it is written, what is there, and the rule."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from boolit.lab.datasets import source_type
from boolit.lab.models import family_type
from boolit.lab.runs import Metric
from boolit.lab.studies.overrides import Location, shorten
from boolit.lab.studies.schema import Study, Sweep
from boolit.lab.training import Recipe

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


TELLING = ("extra_forbidden", "too_short", "too_long")  # of a value that has the right type


def first_error(error: ValidationError, raw: dict[str, Any], within: Location = ()) -> tuple[Location, str]:
    """Where the first mistake is in the tables, and the rule it breaks, in one line."""
    # A value that fits none of several types is one mistake with one entry per type: the entry that got furthest tells most.
    details = max(error.errors(), key=lambda entry: (entry["type"] in TELLING, len(entry["loc"])))
    location = (*within, *_in_file(details["loc"], raw if not within else {}))
    return location, _rule(details, location, raw)


def _in_file(location: Sequence[str | int], raw: Any) -> Location:
    """The part of pydantic's location that is in the file: it also names the members of unions."""
    path: list[str | int] = []
    for part in location:
        if isinstance(raw, dict) and isinstance(part, str):
            path.append(part)
            raw = raw.get(part)
        elif isinstance(raw, list) and isinstance(part, int):
            path.append(part)
            raw = raw[part] if part < len(raw) else None
    return tuple(path)


def _rule(details: ErrorDetails, location: Location, raw: dict[str, Any]) -> str:
    name = ".".join(map(str, location)) or "the study"
    if details["type"] == "missing":
        return f"{name} is missing; add it"
    if details["type"] == "extra_forbidden":
        return f"{name} is no known key; {_known_keys(location, raw)}"
    message = details["msg"].removeprefix("Value error, ").replace("Input should be", "it should be", 1)
    if details["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name} is {shorten(repr(details['input']))}; {message}"


def _known_keys(location: Location, raw: dict[str, Any]) -> str:
    *table, key = map(str, location)
    known = list(_model(table, raw).model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(known)}"


def _model(table: Sequence[str], raw: dict[str, Any]) -> type[BaseModel]:
    if table[:1] == ["data"]:
        own = raw["data"]["of"] if table[1:2] == ["of"] else raw["data"]  # data made of other data
        return source_type(own["name"])
    if table[:1] == ["model"]:
        return family_type(raw["model"]["name"])
    models: dict[str, type[BaseModel]] = {"sweep": Sweep, "training": Recipe, "metric": Metric, "hparams": Recipe}
    return models.get(table[0], Study) if table else Study
