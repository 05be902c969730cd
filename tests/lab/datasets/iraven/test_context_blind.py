"""A solver that does not see the matrix is at chance on I-RAVEN, and far above it where each wrong candidate has one change.

It takes what most candidates have in common. That solves RAVEN, where every wrong candidate is the answer with one attribute
changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from math import sqrt

from boolit.lab.datasets.iraven.problems import (
    Entity,
    Panel,
    Problem,
    draw_matrix,
    look_change,
    make_problem,
    occupied_slots,
)
from boolit.lab.datasets.iraven.rules import LAYOUTS, LOOKS, Rule, StableRandom

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


def test_the_most_common_candidates_share_most_values() -> None:
    square, circle = (Entity(0, 2, 5, 0, 3),), (Entity(0, 5, 5, 0, 3),)
    assert most_common([(circle,), (square,), (circle,), (circle,)]) == [0, 2, 3]


def test_at_chance(problems: list[Problem]) -> None:
    """Where no component has several slots, three halves cross, and no candidate stands out at all."""
    standard_error = sqrt(CHANCE * (1 - CHANCE) / len(problems))
    several = any(len(part.slots) > 1 for part in LAYOUTS[problems[0].configuration].components)
    found = accuracy([(problem.target, problem.candidates) for problem in problems])
    assert abs(found - CHANCE) <= (3 * standard_error if several else 0)


def test_with_three_changes_every_candidate_is_as_common() -> None:
    assert most_common(make_problem("center_single", 1234, 0).candidates) == list(range(8))


def one_change_each(seed: int) -> list[Panel]:
    """An answer set as RAVEN has it: the answer, and seven others with one attribute changed."""
    rng = StableRandom(seed)
    rules = (Rule("Constant", "Number/Position"), *(Rule("Constant", look) for look in LOOKS))
    found = draw_matrix(LAYOUTS["center_single"].components[0], rules, rng)
    changed = [look_change(found, look, rng)(found.answer) for look in (LOOKS * 3)[:7]]
    return [(found.answer,), *((entities,) for entities in changed)]


def test_far_above_chance_where_one_attribute_is_changed() -> None:
    assert accuracy([(0, one_change_each(seed)) for seed in range(100)]) > 0.9
