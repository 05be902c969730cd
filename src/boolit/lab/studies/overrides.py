"""What is laid over a study's tables: a profile, a file of hyper-parameters, and ``--set key=value``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from boolit.lab.errors import UserError
from boolit.lab.studies.limits import MOST_LEVELS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Tables = dict[str, Any]

_BARE_WORD = re.compile(r"[A-Za-z_][\w+.-]*")
_ALTERNATIVES = {"params": "width", "width": "params"}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tables:
    """``base`` with what ``over`` says instead; tables are merged, anything else is replaced.

    A size given as ``params`` replaces one given as ``width``, and the other way round.

    Example:
        >>> merged({"training": {"epochs": 9, "batch": 8}}, {"training": {"epochs": 1}})
        {'training': {'epochs': 1, 'batch': 8}}
    """
    dropped = {_ALTERNATIVES[name] for name in over if name in _ALTERNATIVES and _ALTERNATIVES[name] not in over}
    result = {name: value for name, value in base.items() if name not in dropped}
    for name, value in over.items():
        before = result.get(name)
        result[name] = merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return result


def assignment(text: str) -> tuple[tuple[str, ...], Tables]:
    """A ``key=value`` of the command line as a path and nested tables; the value is TOML, or a bare word.

    Example:
        >>> assignment("training.epochs=3")
        (('training', 'epochs'), {'training': {'epochs': 3}})
        >>> assignment("data.name=xor")[1]
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
