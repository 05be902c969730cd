"""The candidates: leaves of a tree that changes some attributes of the answer and no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from boolit.lab.datasets.iraven.problems import ComponentMatrix, Entities, Panel, Problem, answer_set, draw_matrix, make_problem
from boolit.lab.datasets.iraven.rules import LAYOUTS, Rule, StableRandom

FIELD = {"Type": "type", "Size": "size", "Color": "color"}


def without_angles(panel: Panel) -> Panel:
    return tuple(tuple(replace(entity, angle=0) for entity in entities) for entities in panel)


def seen(entities: Entities, attribute: str) -> object:
    if attribute == "Number":
        return len(entities)
    if attribute == "Position":
        return tuple(entity.slot for entity in entities)
    return tuple(getattr(entity, FIELD[attribute]) for entity in entities)


def grid_matrix(configuration: str, place: Rule, *looks: Any, uniform: bool, seed: int) -> ComponentMatrix:
    component = LAYOUTS[configuration].components[-1]
    rules = (place, *(Rule(name, attribute) for name, attribute in zip(looks, FIELD, strict=True)))
    found = (draw_matrix(component, rules, StableRandom(seed, attempt)) for attempt in range(100))
    return next(one for one in found if one.uniform == uniform)


def test_all_candidates_differ_in_more_than_noise(problems: list[Problem]) -> None:
    for found in problems:
        assert len({without_angles(candidate) for candidate in found.candidates}) == 8


def test_candidates_differ_in_the_modified_attributes_alone(problems: list[Problem]) -> None:
    """A change of Number also has other slots, and entities that are copies of the ones there were."""
    for found in problems:
        answer = found.candidates[found.target]
        for candidate in found.candidates:
            for number, (entities, right) in enumerate(zip(candidate, answer, strict=True)):
                allowed = {attribute for component, attribute in found.modified if component == number}
                if len(entities) != len(right):
                    assert "Number" in allowed
                    for look in {"Type", "Size", "Color"} - allowed:
                        assert set(seen(entities, look)) <= set(seen(right, look))  # type: ignore[call-overload]
                else:
                    different = {
                        attribute for attribute in ("Position", *FIELD) if seen(entities, attribute) != seen(right, attribute)
                    }
                    assert different <= allowed


def test_what_no_rule_governs_is_not_modified(problems: list[Problem]) -> None:
    for found in problems:
        for number, attribute in found.modified:
            assert attribute != "Position" or found.rules[number][0].attribute != "Number"
            limits = LAYOUTS[found.configuration].components[number].limits
            if attribute != "Position":
                assert len(limits[attribute]) > 1
        assert len(set(found.modified)) == len(found.modified)


def test_three_changes_split_the_candidates_in_halves(problems: list[Problem]) -> None:
    for found in problems:
        if len(found.modified) < 3:
            continue
        answer = found.candidates[found.target]
        paired = {("Number", number) for number, attribute in found.modified if attribute == "Number"}
        for number, attribute in found.modified:
            if attribute == "Number" or not paired:
                values = Counter(seen(candidate[number], attribute) for candidate in found.candidates)
                assert sorted(values.values()) == [4, 4]
                assert seen(answer[number], attribute) in values


def test_without_noise_a_single_slot_differs_in_three_binary_choices() -> None:
    found = make_problem("center_single", 0, 0)
    assert sorted(attribute for _, attribute in found.modified) == ["Color", "Size", "Type"]


def test_number_and_position_both_change_into_four_different_places() -> None:
    met = 0
    for index in range(150):
        found = make_problem("distribute_four", 5, index)
        if {"Number", "Position"} <= {attribute for _, attribute in found.modified} and len(found.modified) == 3:
            met += 1
            places = Counter(seen(candidate[0], "Position") for candidate in found.candidates)
            numbers = Counter(seen(candidate[0], "Number") for candidate in found.candidates)
            assert sorted(places.values()) == [2, 2, 2, 2]
            assert sorted(numbers.values()) == [4, 4]
    assert met > 10


@pytest.mark.parametrize("configuration", ["distribute_four", "distribute_nine"])
def test_number_alone_changes_seven_times(configuration: str) -> None:
    for seed in range(60):
        place = Rule("Distribute_Three", "Number")
        found = grid_matrix(configuration, place, "Constant", "Constant", "Constant", uniform=False, seed=seed)
        candidates, modified = answer_set([found], StableRandom(seed))
        assert modified == ((0, "Number"),)
        check_numbers(candidates, 7)


@pytest.mark.parametrize("configuration", ["distribute_four", "distribute_nine"])
def test_number_and_position_alone(configuration: str) -> None:
    """One other place for as many entities, and six other numbers."""
    for seed in range(60):
        place = Rule("Arithmetic", "Position", -1)
        found = grid_matrix(configuration, place, "Constant", "Constant", "Constant", uniform=False, seed=seed)
        candidates, modified = answer_set([found], StableRandom(seed))
        assert modified == ((0, "Position"), (0, "Number"))
        check_numbers(candidates, 6)


@pytest.mark.parametrize("configuration", ["distribute_four", "distribute_nine"])
def test_number_and_another_attribute_alone(configuration: str) -> None:
    for seed in range(60):
        place = Rule("Distribute_Three", "Number")
        found = grid_matrix(configuration, place, "Constant", "Distribute_Three", "Constant", uniform=False, seed=seed)
        candidates, modified = answer_set([found], StableRandom(seed))
        assert modified == ((0, "Size"), (0, "Number"))
        numbers = Counter(len(candidate[0]) for candidate in candidates)
        sizes = Counter(candidate[0][0].size for candidate in candidates)
        assert sorted(numbers.values()) == [2, 2, 2, 2]
        assert sorted(sizes.values()) == [4, 4]


def check_numbers(candidates: list[Panel], new: int) -> None:
    """No number is used again before all were, and no set of slots twice."""
    answer, *others = [candidate[0] for candidate in candidates]
    changed = [entities for entities in others if len(entities) != len(answer)]
    assert len(changed) == new
    assert len({seen(entities, "Position") for entities in (answer, *others)}) == 8
    uses = Counter(len(entities) for entities in changed)
    slots = 4 if max(entity.slot for candidate in candidates for entity in candidate[0]) < 4 else 9
    assert len(uses) == min(new, slots - 1)


@pytest.mark.parametrize(("uniform", "rule"), [(True, "Constant"), (False, "Distribute_Three")])
def test_a_shared_level_is_changed_for_all_entities_alike(uniform: bool, rule: Any) -> None:
    for seed in range(40):
        place = Rule("Constant", "Number/Position")
        found = grid_matrix("distribute_nine", place, rule, rule, rule, uniform=uniform, seed=seed)
        candidates, _ = answer_set([found], StableRandom(seed))
        for look in FIELD:
            assert all(len(set(seen(candidate[0], look))) == 1 for candidate in candidates)  # type: ignore[call-overload]


def test_levels_of_their_own_are_all_changed() -> None:
    changes = 0
    for seed in range(40):
        place = Rule("Constant", "Number/Position")
        found = grid_matrix("distribute_nine", place, "Constant", "Constant", "Constant", uniform=False, seed=seed)
        candidates, modified = answer_set([found], StableRandom(seed))
        answer = candidates[0][0]
        for entities in (candidate[0] for candidate in candidates if len(candidate[0]) == len(answer)):
            if (0, "Type") in modified and seen(entities, "Type") != seen(answer, "Type"):
                changes += 1
                assert all(new.type != old.type for new, old in zip(entities, answer, strict=True))
    assert changes > 20


@pytest.mark.parametrize(
    ("place", "uniform", "expected"),
    [
        (Rule("Progression", "Number", 1), False, {"Number"}),
        (Rule("Progression", "Number", 1), True, {"Number", "Type", "Size", "Color"}),
        (Rule("Progression", "Position", 1), False, {"Number", "Position", "Type", "Size", "Color"}),
        (Rule("Distribute_Three", "Position"), False, {"Number", "Position", "Type", "Size", "Color"}),
        (Rule("Arithmetic", "Position", -1), False, {"Number", "Position"}),
        (Rule("Arithmetic", "Position", -1), True, {"Number", "Position", "Type", "Size", "Color"}),
    ],
)
def test_what_may_change(place: Rule, uniform: bool, expected: set[str]) -> None:
    met = set()
    for seed in range(60):
        found = grid_matrix("distribute_nine", place, "Constant", "Constant", "Constant", uniform=uniform, seed=seed)
        met |= {attribute for _, attribute in answer_set([found], StableRandom(seed))[1]}
    assert met == expected
