"""One number of the paper against ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = int | float | str


@dataclass(frozen=True)
class Check:
    """What the paper says, what we get, and how far apart they may be.

    ``expected`` is what ours must be where that is not what the paper prints: a count the paper rounds to thousands, or
    the right value where the paper slips (``slip``; the note then says how).

    Example:
        >>> Check("mean of OR_AIL", paper=0.68104, ours=0.6810370722, tolerance=5e-6).ok
        True
    """

    name: str
    paper: Value
    ours: Value
    expected: Value | None = None
    tolerance: float = 0.0
    slip: bool = False
    note: str = ""

    @property
    def target(self) -> Value:
        """What ours is compared with."""
        return self.paper if self.expected is None else self.expected

    @property
    def ok(self) -> bool:
        """Whether ours is the target, up to the tolerance; NaN never is."""
        if isinstance(self.target, str) or isinstance(self.ours, str):
            return self.target == self.ours
        return abs(self.ours - self.target) <= self.tolerance


def agreed(**ways: Value) -> Value:
    """The value all ways of computing it give; where they differ, a text that says which gave what (and fails a check).

    Example:
        >>> agreed(formula=8, built=8)
        8
        >>> agreed(formula=8, built=9)
        'formula 8, built 9'
    """
    values = list(ways.values())
    if all(value == values[0] for value in values):
        return values[0]
    return ", ".join(f"{way} {value}" for way, value in ways.items())


def uniform(values: dict[str, str]) -> str:
    """The value all entries share; where they differ, the commonest and the exceptions to it.

    Example:
        >>> uniform({"relu": "1→1", "tanh": "1→1", "max": "2→1"})
        '1→1, but max 2→1'
    """
    held = list(values.values())
    common = max(dict.fromkeys(held), key=held.count)
    others = [f"{name} {value}" for name, value in values.items() if value != common]
    return ", but ".join([common, *others[:1]]) + (f" and {len(others) - 1} more" if len(others) > 1 else "")
