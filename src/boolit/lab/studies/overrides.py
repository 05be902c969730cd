"""What is laid over a study's tables: a profile, a file of hyper-parameters, and ``--set key=value``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from boolit.errors import UserError

MOST_LEVELS = 16  # of tables and lists within each other
MOST_ENTRIES = 10_000  # of one list or table
MOST_CHARACTERS = 10_000
LARGEST = 2**53  # beyond it a float is no longer every whole number
MOST_TEXT = 4 * 2**20  # bytes of a file

Location = tuple[str | int, ...]


def broken_limit(value: Any, location: Location = ()) -> tuple[Location, str] | None:
    """Where a value breaks a limit, and which; None if it breaks none.

    Example:
        >>> broken_limit({"sweep": {"seeds": 10**20}})
        (('sweep', 'seeds'), 'a whole number is at most 9007199254740992')
    """
    if len(location) > MOST_LEVELS:
        return location, f"tables and lists are at most {MOST_LEVELS} levels deep"
    if isinstance(value, int) and abs(value) > LARGEST:
        return location, f"a whole number is at most {LARGEST}"
    if isinstance(value, str) and (problem := _text_error(value)):
        return location, problem
    if isinstance(value, dict | list) and len(value) > MOST_ENTRIES:
        return location, f"a list or table has at most {MOST_ENTRIES:,} entries, not {len(value):,}"
    if isinstance(value, dict):
        wrong = next((_text_error(name) for name in value if _text_error(name)), None)
        if wrong:
            return location, f"in a key, {wrong}"
        return _first(value.items(), location)
    return _first(enumerate(value), location) if isinstance(value, list) else None


def _first(entries: Any, location: Location) -> tuple[Location, str] | None:
    return next((found for name, value in entries if (found := broken_limit(value, (*location, name)))), None)


def _text_error(text: str) -> str | None:
    if len(text) > MOST_CHARACTERS:
        return f"a text has at most {MOST_CHARACTERS:,} characters, not {len(text):,}"
    if "\0" in text:
        return "a text has no NUL"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "a text is valid Unicode"
    return None


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Tables = dict[str, Any]

_BARE_WORD = re.compile(r"[A-Za-z_][\w+.-]*")
_ALTERNATIVES = {"params": "width", "width": "params"}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tables:
    """``base`` with what ``over`` says instead; tables are merged, anything else is replaced.

    A size given as ``params`` replaces one given as ``width``, and the other way round.

    Example:
        >>> merge({"training": {"epochs": 9, "batch": 8}}, {"training": {"epochs": 1}})
        {'training': {'epochs': 1, 'batch': 8}}
    """
    dropped = {_ALTERNATIVES[name] for name in over if name in _ALTERNATIVES and _ALTERNATIVES[name] not in over}
    result = {name: value for name, value in base.items() if name not in dropped}
    for name, value in over.items():
        before = result.get(name)
        result[name] = merge(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return result


def parse_set(text: str) -> tuple[tuple[str, ...], Tables]:
    """A ``key=value`` of the command line as a path and nested tables; the value is TOML, or a bare word.

    Example:
        >>> parse_set("training.epochs=3")
        (('training', 'epochs'), {'training': {'epochs': 3}})
        >>> parse_set("data.name=xor")[1]
        {'data': {'name': 'xor'}}
    """
    key, equals, value = text.partition("=")
    path = tuple(part.strip().strip("\"'") for part in key.split("."))
    if not equals or not all(path) or len(path) > MOST_LEVELS:
        raise UserError(f"--set {shorten(text)}: write key=value with a dotted key, such as training.epochs=20")
    tables: Any = _value(value.strip(), text)
    for part in reversed(path):
        tables = {part: tables}
    return path, tables


def _value(value: str, text: str) -> Any:
    try:
        return parse_toml(f"value = {value}")["value"]
    except ValueError:
        if _BARE_WORD.fullmatch(value):
            return value
        rule = "is no TOML value; quote strings and put lists in brackets"
        raise UserError(f"--set {shorten(text)}: {shorten(repr(value))} {rule}") from None


def parse_toml(text: str) -> Tables:
    """The tables of a TOML text; whatever is wrong with it is a ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its tables and lists are nested too deeply") from None


def shorten(text: str, most: int = 200) -> str:
    """A text for an error's line, its middle left out where it is long.

    Example:
        >>> shorten("abcdefghij", 5)
        'ab…ij'
    """
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"
