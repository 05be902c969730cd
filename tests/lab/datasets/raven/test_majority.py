"""A solver that sees no matrix is at chance on I-RAVEN, and far above it where every wrong candidate has one thing changed."""

from __future__ import annotations

from math import sqrt

from boolit.lab.datasets.raven.configurations import CONFIGURATIONS, Look
from boolit.lab.datasets.raven.matrix import strand
from boolit.lab.datasets.raven.panels import Panel, Problem
from boolit.lab.datasets.raven.problems import look_change, problem
from boolit.lab.datasets.raven.rng import Chance
from boolit.lab.datasets.raven.rules import Rule
from boolit.lab.datasets.raven.solver import favourites, majority

CHANCE = 1 / 8


def accuracy(problems: list[Problem]) -> float:
    """What it comes to on average over the draws among favourites."""
    favoured = [(found.target, favourites(found.candidates)) for found in problems]
    return sum((target in tied) / len(tied) for target, tied in favoured) / len(problems)


def test_at_chance(problems: list[Problem]) -> None:
    """Where no component has several slots, three halves cross, and no candidate stands out at all."""
    standard_error = sqrt(CHANCE * (1 - CHANCE) / len(problems))
    several = any(len(part.slots) > 1 for part in CONFIGURATIONS[problems[0].configuration].components)
    assert abs(accuracy(problems) - CHANCE) <= (3 * standard_error if several else 0)


def test_draws_are_among_the_favourites_and_all_of_them() -> None:
    found = problem("center_single", 1234, 0)
    assert {majority(found.candidates, Chance(seed)) for seed in range(200)} == set(range(8))


def one_change_each(seed: int) -> list[Panel]:
    """An answer set as RAVEN has it: the answer, and seven others with one attribute changed."""
    looks: tuple[Look, ...] = ("Type", "Size", "Color")
    component = CONFIGURATIONS["center_single"].components[0]
    chance = Chance(seed)
    rules = (Rule("Constant", "Number/Position"), *(Rule("Constant", look) for look in looks))
    found = strand(component, rules, chance)
    changed = [look_change(found, look, chance)(found.answer) for look in (looks * 3)[:7]]
    return [(found.answer,), *((entities,) for entities in changed)]


def test_far_above_chance_where_one_attribute_is_changed() -> None:
    samples = 100
    right = sum(majority(one_change_each(seed), Chance(seed)) == 0 for seed in range(samples))
    assert right / samples > 0.9
