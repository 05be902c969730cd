"""What a value of a study may be at all, whatever its key: checked before anything is made of it."""

from __future__ import annotations

from typing import Any

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
    if isinstance(value, str) and (problem := _text_problem(value)):
        return location, problem
    if isinstance(value, dict | list) and len(value) > MOST_ENTRIES:
        return location, f"a list or table has at most {MOST_ENTRIES:,} entries, not {len(value):,}"
    if isinstance(value, dict):
        wrong = next((_text_problem(name) for name in value if _text_problem(name)), None)
        if wrong:
            return location, f"in a key, {wrong}"
        return _first(value.items(), location)
    return _first(enumerate(value), location) if isinstance(value, list) else None


def _first(entries: Any, location: Location) -> tuple[Location, str] | None:
    return next((found for name, value in entries if (found := broken_limit(value, (*location, name)))), None)


def _text_problem(text: str) -> str | None:
    if len(text) > MOST_CHARACTERS:
        return f"a text has at most {MOST_CHARACTERS:,} characters, not {len(text):,}"
    if "\0" in text:
        return "a text has no NUL"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "a text is valid Unicode"
    return None
