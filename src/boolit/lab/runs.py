"""A run and what it leaves: the two words every room of the lab shares."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel

JSON: TypeAlias = "bool | int | float | str | list[JSON] | tuple[JSON, ...] | Mapping[str, JSON] | None"
State: TypeAlias = Literal["finished", "diverged"]

KEY_DIGITS = 16
STATES: tuple[State, ...] = get_args(State)

LABELS = ("study", "profile", "metric", "search", "budget")  # who asked for a run and how it is judged: not in its key
PLACES = ("path", "weights")  # where data lies: not in a key where its digest is


def canonical(config: Mapping[str, JSON]) -> str:
    """The one JSON text of a configuration: keys sorted, no spaces, no NaN.

    Example:
        >>> canonical({"seed": 1, "activation": "or_ail"})
        '{"activation":"or_ail","seed":1}'
    """
    try:
        return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a run's configuration holds plain, finite JSON values only ({error}); convert them first") from None


def options(table: BaseModel) -> dict[str, Any]:
    """What a configuration says of data, a model or a recipe: its name, and the options that are not at their default.

    So an option that is added later changes no key. (Where a default changes, the configuration's ``arithmetic`` must.)
    """
    fields, plain = type(table).model_fields, table.model_dump(mode="json")
    chosen = {name: own for name, own in table if name == "name" or own != fields[name].get_default(call_default_factory=True)}
    return {name: options(own) if isinstance(own, BaseModel) else plain[name] for name, own in chosen.items()}


def identity(config: Mapping[str, JSON]) -> dict[str, JSON]:
    """What a run's result depends on: its configuration without `LABELS`, and without the place of data that has a digest.

    Example:
        >>> identity({"study": "mine", "data": {"name": "table", "path": "a.csv", "digest": "5f"}, "seed": 1})
        {'data': {'name': 'table', 'digest': '5f'}, 'seed': 1}
    """
    kept = {name: value for name, value in config.items() if name not in LABELS}
    return kept | {"data": _without_place(kept["data"])} if "data" in kept else kept


def _without_place(data: JSON) -> JSON:
    if not isinstance(data, Mapping):
        return data
    hidden = PLACES if "digest" in data else ()
    return {name: _without_place(value) for name, value in data.items() if name not in hidden}


def key_of(config: Mapping[str, JSON]) -> str:
    """The key of a configuration: 64 bits of the hash of its `identity`; a store may hold millions of runs without a clash."""
    return hashlib.sha256(canonical(identity(config)).encode()).hexdigest()[:KEY_DIGITS]


@dataclass(frozen=True, eq=False)
class Run:
    """One training, fully determined by its configuration: two runs are equal if their keys are.

    Its key is a hash of what the result depends on (`identity`), so studies that share a run train it once.

    Example:
        >>> Run({"activation": "relu", "seed": 1}).key == Run({"seed": 1, "activation": "relu"}).key
        True
    """

    config: Mapping[str, JSON]

    @cached_property
    def key(self) -> str:
        """What the store knows the run by: equal trainings have equal keys, in whatever order they were written."""
        return key_of(self.config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class Record:
    """What a run left: its final figures, its curves, and where and how long it was trained.

    A figure that is not a number or infinite (a diverged run has some) is allowed and is kept as it is.
    """

    key: str
    config: Mapping[str, JSON]
    state: State
    metrics: Mapping[str, float]
    history: Mapping[str, list[float]] = field(default_factory=dict)
    environment: Mapping[str, JSON] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"a record's state is one of {', '.join(STATES)}, not {self.state!r}")
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(f"a record's seconds are finite and at least 0, not {self.seconds!r}")
