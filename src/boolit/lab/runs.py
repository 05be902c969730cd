"""A run and what it leaves: the two words every room of the lab shares."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, get_args

JSON: TypeAlias = "bool | int | float | str | list[JSON] | tuple[JSON, ...] | Mapping[str, JSON] | None"
State: TypeAlias = Literal["finished", "diverged"]

KEY_DIGITS = 16
STATES: tuple[State, ...] = get_args(State)


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


def key_of(config: Mapping[str, JSON]) -> str:
    """The key of a configuration: 64 bits of its hash, so that a store may hold millions of runs without a clash."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:KEY_DIGITS]


@dataclass(frozen=True, eq=False)
class Run:
    """One training, fully determined by its configuration: two runs are equal if their keys are.

    Example:
        >>> Run({"activation": "relu", "seed": 1}).key == Run({"seed": 1, "activation": "relu"}).key
        True
    """

    config: Mapping[str, JSON]

    @cached_property
    def key(self) -> str:
        """What the store knows the run by: equal configurations have equal keys, in whatever order they were written."""
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
