"""A solver that does not see the matrix is at chance on I-RAVEN, and far above it where each wrong candidate has one change.

It takes what most candidates have in common. That solves RAVEN, where every wrong candidate is the answer with one attribute
changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from math import sqrt

from boolit.lab.datasets.iraven.problems import (
    Panel,
    Problem,
    occupied_slots,
)
from boolit.lab.datasets.iraven.rules import LAYOUTS, LOOKS

CHANCE = 1 / 8


def most_common(candidates: Sequence[Panel]) -> list[int]:
    """The candidates whose values of number, position, type, size and color are the most frequent, taken together."""
    values = [list(attribute_values(candidate)) for candidate in candidates]
    frequencies = Counter(value for own in values for value in own)
    scores = [sum(frequencies[value] for value in own) for own in values]
    return [index for index, score in enumerate(scores) if score == max(scores)]


def attribute_values(panel: Panel) -> Iterator[Hashable]:
    for number, entities in enumerate(panel):
        yield number, "Number", len(entities)
        yield number, "Position", occupied_slots(entities)
        for look in LOOKS:
            yield number, look, tuple(sorted({getattr(entity, look.lower()) for entity in entities}))


def accuracy(problems: list[tuple[int, Sequence[Panel]]]) -> float:
    """Of a random choice among the most common candidates, on average over the choices."""
    tied = [(target, most_common(candidates)) for target, candidates in problems]
    return sum((target in found) / len(found) for target, found in tied) / len(problems)


def test_at_chance(problems: list[Problem]) -> None:
    """Where no component has several slots, three halves cross, and no candidate stands out at all."""
    standard_error = sqrt(CHANCE * (1 - CHANCE) / len(problems))
    several = any(len(part.slots) > 1 for part in LAYOUTS[problems[0].configuration].components)
    found = accuracy([(problem.target, problem.candidates) for problem in problems])
    assert abs(found - CHANCE) <= (3 * standard_error if several else 0)
