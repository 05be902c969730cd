"""What a saved model says of itself, as JSON; and the checks on a text that may come from anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from boolit.saved.columns import Column, Kind, column_entry

Label: TypeAlias = "str | int | float | bool"
TableTask = Literal["classify", "regress"]

FORMAT = 2
LONGEST_TEXT = 2**25  # characters of JSON; 15,000 columns of 20 levels have a third of that


@dataclass(frozen=True)
class Description:
    """Columns, target and network of a model; ``about`` is whatever else is worth knowing, for people."""

    columns: tuple[Column, ...]
    target: str
    task: TableTask
    classes: tuple[Label, ...]
    activation: str
    widths: tuple[int, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        """The names of all features, in order."""
        return [name for column in self.columns for name in column.features]

    @property
    def outputs(self) -> int:
        """How many numbers the network answers with: one for a quantity and for two classes."""
        return len(self.classes) if len(self.classes) > 2 else 1


def description_text(description: Description) -> str:
    """A description as JSON."""
    entry = {
        **vars(description),
        "columns": [column_entry(column) for column in description.columns],
        "format": FORMAT,
    }
    return json.dumps(entry, ensure_ascii=False, allow_nan=False)


def described(text: str) -> Description:
    """The description in a JSON text; a ValueError says what is wrong with it.

    Example:
        >>> described("{}")
        Traceback (most recent call last):
        ValueError: its format is None, this version of boolit reads 2
    """
    _demand(len(text) <= LONGEST_TEXT, f"its description has {len(text):,} characters, more than {LONGEST_TEXT:,}")
    try:
        entry = json.loads(text)
    except RecursionError:
        raise ValueError("its description is nested too deeply") from None
    _demand(isinstance(entry, dict), "its description is no table")
    _demand(entry.get("format") == FORMAT, f"its format is {entry.get('format')!r}, this version of boolit reads {FORMAT}")
    columns = tuple(_column(each) for each in _list(entry, "columns"))
    classes = tuple(_list(entry, "classes"))
    _demand(len(columns) > 0, "it has no columns")
    widths = tuple(_list(entry, "widths"))
    task = entry.get("task")
    _demand(task in get_args(TableTask), f"its task is {task!r}")
    _demand(all(isinstance(label, (str, int, float)) for label in classes), "its classes are not plain values")
    _demand((len(classes) >= 2) == (task == "classify"), f"it has {len(classes)} classes, which does not fit its task")
    _demand(all(type(width) is int and width > 0 for width in widths), "its widths are not positive whole numbers")
    about = entry.get("about", {})
    _demand(isinstance(about, dict), "what it says about itself is no table")
    return Description(columns, _word(entry, "target"), task, classes, _word(entry, "activation"), widths, about)


def _column(entry: Any) -> Column:
    _demand(isinstance(entry, dict), "one of its columns is no table")
    levels, fill, kind = tuple(_list(entry, "levels")), entry.get("fill"), entry.get("kind")
    _demand(kind in get_args(Kind), f"one of its columns is of the kind {kind!r}")
    _demand(all(isinstance(level, str) for level in levels), "the levels of one of its columns are not texts")
    _demand(isinstance(fill, (int, float)) and math.isfinite(fill), "what fills one of its columns is no number")
    flags = [entry.get(name) for name in ("missing", "other")]
    _demand(all(isinstance(flag, bool) for flag in flags), "one of its columns does not say what it has features for")
    return Column(_word(entry, "name"), kind, float(fill), flags[0], levels, flags[1])


def _list(entry: dict[str, Any], name: str) -> list[Any]:
    value = entry.get(name)
    _demand(isinstance(value, list), f"its {name} are no list")
    return list(value or [])


def _word(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    _demand(isinstance(value, str), f"its {name} is no text")
    return str(value)


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
