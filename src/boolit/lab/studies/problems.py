"""Turning what pydantic found wrong into one line: where it is written, what is there, and the rule."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from boolit.lab.data import source_type
from boolit.lab.models import family_type
from boolit.lab.studies.overrides import shorten
from boolit.lab.studies.schema import Metric, Study, Sweep
from boolit.lab.training import Recipe

TELLING = ("extra_forbidden", "too_short", "too_long")  # of a value that has the right type
Location = tuple[str | int, ...]


def first_problem(error: ValidationError, raw: dict[str, Any], within: Location = ()) -> tuple[Location, str]:
    """Where the first mistake is in the tables, and the rule it breaks, in one line."""
    # A value that fits none of several types is one mistake with one entry a type: the entry that got furthest tells most.
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
