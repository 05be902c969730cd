"""The rules a component admits, the ranges they leave for the first panel, and how they go along the rows."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from boolit.lab.datasets.iraven.rules import (
    GROUPS,
    LAYOUTS,
    Component,
    Rule,
    StableRandom,
    admissible_rules,
    draw_levels,
    first_levels,
)

EMPTY = None
NUMBER_RANGES = {  # by slots: the table of the generator's published description
    4: {
        ("Progression", "Number", 1): (0, 1),
        ("Progression", "Number", -1): (2, 3),
        ("Progression", "Number", 2): EMPTY,
        ("Progression", "Number", -2): EMPTY,
        ("Progression", "Position", 1): (0, 1),
        ("Progression", "Position", -1): (0, 1),
        ("Progression", "Position", 2): EMPTY,
        ("Progression", "Position", -2): EMPTY,
        ("Arithmetic", "Number", 1): (0, 2),
        ("Arithmetic", "Number", -1): (1, 3),
        ("Arithmetic", "Position", 1): (0, 2),
        ("Arithmetic", "Position", -1): (1, 2),
        ("Distribute_Three", "Number", 0): (0, 3),
        ("Distribute_Three", "Position", 0): (0, 2),
        ("Constant", "Number/Position", 0): (0, 3),
    },
    9: {
        ("Progression", "Number", 1): (0, 6),
        ("Progression", "Number", -1): (2, 8),
        ("Progression", "Number", 2): (0, 4),
        ("Progression", "Number", -2): (4, 8),
        ("Progression", "Position", 1): (0, 6),
        ("Progression", "Position", -1): (0, 6),
        ("Progression", "Position", 2): (0, 4),
        ("Progression", "Position", -2): (0, 4),
        ("Arithmetic", "Number", 1): (0, 7),
        ("Arithmetic", "Number", -1): (1, 8),
        ("Arithmetic", "Position", 1): (0, 7),
        ("Arithmetic", "Position", -1): (4, 7),
        ("Distribute_Three", "Number", 0): (0, 8),
        ("Distribute_Three", "Position", 0): (0, 7),
        ("Constant", "Number/Position", 0): (0, 8),
    },
}
KINDS = {"Number/Position": 7, "Type": 3, "Size": 4, "Color": 4}
VALUES = {"Progression": 4, "Arithmetic": 2, "Distribute_Three": 1, "Constant": 1}


def first_component(configuration: str) -> Component:
    return LAYOUTS[configuration].components[0]


def names(rules: tuple[Rule, ...]) -> set[tuple[str, str, int]]:
    return {(rule.name, rule.attribute, rule.value) for rule in rules}


@pytest.mark.parametrize("slots", [4, 9])
def test_number_ranges_are_the_published_ones(slots: int) -> None:
    for rule, expected in NUMBER_RANGES[slots].items():
        levels = first_levels(Rule(*rule), range(slots))  # type: ignore[arg-type]
        assert ((levels[0], levels[-1]) if levels else EMPTY) == expected, rule


@pytest.mark.parametrize(("configuration", "slots"), [("distribute_four", 4), ("distribute_nine", 9)])
def test_rules_with_an_empty_range_are_not_admitted(configuration: str, slots: int) -> None:
    possible = {rule for rule, limits in NUMBER_RANGES[slots].items() if limits is not EMPTY}
    assert names(admissible_rules(first_component(configuration), "Number/Position")) == possible


def test_one_slot_admits_constant_alone() -> None:
    for configuration in LAYOUTS.values():
        for part in configuration.components:
            if len(part.slots) == 1:
                assert names(admissible_rules(part, "Number/Position")) == {("Constant", "Number/Position", 0)}


def test_the_outer_component_has_one_color_and_three_sizes() -> None:
    out = first_component("in_center_single_out_center_single")
    assert names(admissible_rules(out, "Color")) == {("Constant", "Color", 0)}
    steps = {("Progression", "Size", -1), ("Progression", "Size", 1)}
    assert names(admissible_rules(out, "Size")) == steps | {("Distribute_Three", "Size", 0), ("Constant", "Size", 0)}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("configuration", LAYOUTS)
def test_weights_are_those_of_rejection(configuration: str, group: str) -> None:
    """A kind uniformly, then its value uniformly, on condition that it is possible."""
    for part in LAYOUTS[configuration].components:
        weighted = admissible_rules(part, group)
        prior = {rule: Fraction(1, KINDS[group] * VALUES[rule.name]) for rule in weighted}
        for rule, times in Counter(weighted).items():
            assert Fraction(times, len(weighted)) == prior[rule] / sum(prior.values())


def test_type_has_no_arithmetic() -> None:
    assert {name for name, _, _ in names(admissible_rules(first_component("center_single"), "Type"))} == {
        "Constant",
        "Progression",
        "Distribute_Three",
    }


@pytest.mark.parametrize("group", ["Type", "Size", "Color"])
@pytest.mark.parametrize("configuration", LAYOUTS)
def test_levels_stay_within_the_limits_and_use_the_whole_first_range(configuration: str, group: str) -> None:
    for part in LAYOUTS[configuration].components:
        limits = part.limits[group]
        for rule in set(admissible_rules(part, group)) - {Rule("Constant", group)}:
            rows_of_draws = [draw_levels(rule, limits, StableRandom(seed)) for seed in range(200)]
            assert all(level in limits for rows in rows_of_draws for row in rows for level in row)
            assert {row[0] for rows in rows_of_draws for row in rows} == set(first_levels(rule, limits))


@pytest.mark.parametrize("sign", [-1, 1])
def test_color_guard(sign: int) -> None:
    """A sum of colors adds something in row 1 or 2, and yet may add nothing in any one row."""
    rows_of_draws = [draw_levels(Rule("Arithmetic", "Color", sign), range(10), StableRandom(seed)) for seed in range(2000)]
    seconds = [(first[1], second[1], third[1]) for first, second, third in rows_of_draws]
    assert not [found for found in seconds if found[:2] == (0, 0)]
    assert all(any(found[row] == 0 for found in seconds) for row in range(3))
    guarded = {second[0] for first, second, _ in rows_of_draws if first[1] == 0}
    assert guarded == set(range(9) if sign > 0 else range(1, 10))
