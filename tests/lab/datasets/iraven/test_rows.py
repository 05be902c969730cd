"""The nine panels obey their rules to the letter, and nothing else holds them together."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from scipy.stats import binomtest, chisquare

from boolit.lab.datasets.iraven.problems import ComponentMatrix, Entities, Problem, draw_matrix
from boolit.lab.datasets.iraven.rules import LAYOUTS, Rule, StableRandom

GRID = LAYOUTS["distribute_nine"].components[0]
CONSTANT = tuple(Rule("Constant", look) for look in ("Type", "Size", "Color"))
FIELD = {"Type": "type", "Size": "size", "Color": "color"}
COUNTED_FROM = {"Number": 0, "Size": 1, "Color": 0}  # what a level of 0 counts in arithmetic; Number is a true count here


def matrix(found: Problem, component: int) -> list[list[Entities]]:
    panels = [panel[component] for panel in (*found.context, found.candidates[found.target])]
    return [panels[0:3], panels[3:6], panels[6:9]]


def drawn(place: Rule, *, uniform: bool, samples: int) -> list[ComponentMatrix]:
    matrices = (draw_matrix(GRID, (place, *CONSTANT), StableRandom(seed)) for seed in range(100 * samples))
    return [found for found, _ in zip((found for found in matrices if found.uniform == uniform), range(samples), strict=False)]


def latin(rows: list[list[object]]) -> bool:
    """Three different values, each once in every row and every column."""
    columns = list(zip(*rows, strict=True))
    return len(set(rows[0])) == 3 and all(set(line) == set(rows[0]) for line in (*rows, *columns))


def check_levels(rule: Rule, rows: list[list[int]], start: int) -> None:
    if rule.name == "Distribute_Three":
        assert latin(rows)  # type: ignore[arg-type]
        return
    for first, second, third in rows:
        if rule.name == "Progression":
            assert second - first == third - second == rule.value
        else:
            assert third + start == (first + start) + rule.value * (second + start)


def check_place(rule: Rule, rows: list[list[Entities]], slots: int) -> None:
    if rule.attribute == "Number":
        check_levels(rule, [[len(panel) for panel in row] for row in rows], COUNTED_FROM["Number"])
        return
    sets = [[frozenset(entity.slot for entity in panel) for panel in row] for row in rows]
    if rule.name == "Distribute_Three":
        assert latin(sets)  # type: ignore[arg-type]
        assert len({len(occupied) for row in sets for occupied in row}) == 1
        return
    for first, second, third in sets:
        if rule.name == "Constant":
            assert first == second == third
        elif rule.name == "Progression":
            assert second == {(slot + rule.value) % slots for slot in first}
            assert third == {(slot + rule.value) % slots for slot in second}
        elif rule.value > 0:
            assert third == first | second != first
        else:
            assert third == first - second != set()


def check_look(rule: Rule, rows: list[list[Entities]]) -> None:
    levels = [[{getattr(entity, FIELD[rule.attribute]) for entity in panel} for panel in row] for row in rows]
    assert all(len(shared) == 1 for row in levels for shared in row)
    check_levels(rule, [[shared.pop() for shared in row] for row in levels], COUNTED_FROM.get(rule.attribute, 0))


def check_constant(rule: Rule, place: Rule, rows: list[list[Entities]], slots: int) -> None:
    """Entities that persist along a row keep their level; which one is which, Progression and Constant say."""
    if place.name not in ("Constant", "Progression") or place.attribute == "Number":
        return
    for row in rows:
        known = [{entity.slot: getattr(entity, FIELD[rule.attribute]) for entity in panel} for panel in row]
        for before, after in pairwise(known):
            assert after == {(slot + place.value) % slots: level for slot, level in before.items()}


def test_every_row_obeys_every_rule(problems: list[Problem]) -> None:
    for found in problems:
        for number, component in enumerate(LAYOUTS[found.configuration].components):
            place, *looks = found.rules[number]
            rows = matrix(found, number)
            check_place(place, rows, len(component.slots))
            for rule in looks:
                if rule.name == "Constant":
                    check_constant(rule, place, rows, len(component.slots))
                else:
                    check_look(rule, rows)


def test_entities_are_in_range_and_ordered_by_slot(problems: list[Problem]) -> None:
    components = LAYOUTS[problems[0].configuration].components
    for found in problems[:100]:
        assert (len(found.context), len(found.candidates), len(found.rules)) == (8, 8, len(components))
        for panel, (number, component) in product(found.context + found.candidates, enumerate(components)):
            slots = [entity.slot for entity in panel[number]]
            assert slots == sorted(set(slots))
            assert set(slots) <= set(range(len(component.slots)))
            assert slots
            for entity in panel[number]:
                assert 0 <= entity.angle < 8
                for look, field in FIELD.items():
                    assert getattr(entity, field) in component.limits[look]


def test_a_quarter_of_the_components_is_uniform() -> None:
    place = Rule("Constant", "Number/Position")
    uniform = sum(draw_matrix(GRID, (place, *CONSTANT), StableRandom(seed)).uniform for seed in range(2000))
    assert binomtest(uniform, 2000, 0.25).pvalue > 1e-3


@pytest.mark.parametrize("place", [Rule("Progression", "Number", 1), Rule("Arithmetic", "Position", 1)])
def test_new_entities_are_copies_in_a_uniform_component_only(place: Rule) -> None:
    for found in drawn(place, uniform=True, samples=30):
        for row in found.rows:
            assert len({(entity.type, entity.size, entity.color, entity.angle) for panel in row for entity in panel}) == 1
    different = drawn(place, uniform=False, samples=30)
    assert all(len({entity.color for panel in found.rows[0] for entity in panel}) > 1 for found in different)


def test_persistent_entities_keep_everything_but_their_slot() -> None:
    for found in drawn(Rule("Distribute_Three", "Position"), uniform=False, samples=30):
        for row in found.rows:
            assert len({tuple((e.type, e.size, e.color, e.angle) for e in panel) for panel in row}) == 1


def test_every_row_begins_anew() -> None:
    found = drawn(Rule("Constant", "Number/Position"), uniform=False, samples=200)
    assert sum(one == two for (one, *_), (two, *_), _ in (one.rows for one in found)) < 5


def test_first_panels_are_uniform_over_numbers_and_slots() -> None:
    panels = [row[0] for found in drawn(Rule("Constant", "Number/Position"), uniform=False, samples=500) for row in found.rows]
    numbers = [sum(len(panel) == number for panel in panels) for number in range(1, 10)]
    slots = [sum(entity.slot == slot for panel in panels for entity in panel) for slot in range(9)]
    angles = [sum(panel[0].angle == angle for panel in panels) for angle in range(8)]
    assert min(chisquare(counts).pvalue for counts in (numbers, slots, angles)) > 1e-3
