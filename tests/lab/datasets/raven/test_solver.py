"""The solver finds the answer by the panels alone, and nothing but the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boolit.lab.datasets.raven.matrix import Entity, Panel, Problem
from boolit.lab.datasets.raven.problems import draft_problem, make_problem
from boolit.lab.datasets.raven.solver import solve


def swapped(found: Problem, index: int, panel: Panel) -> Problem:
    return replace(found, candidates=found.candidates[:index] + (panel,) + found.candidates[index + 1 :])


def single(size: int, kind: int = 2, colour: int = 0) -> Panel:
    return ((Entity(0, kind, size, colour, 3),),)


def rows_of(values: list[int], candidates: list[int]) -> Problem:
    """A problem of one figure whose sizes are these."""
    context = tuple(map(single, values))
    return Problem("center_single", context, tuple(map(single, candidates)), 0, (), ())


def test_the_target_is_the_only_answer(problems: list[Problem]) -> None:
    for found in problems:
        assert solve(found) == [found.target]


def test_it_does_not_read_what_it_is_to_find(problems: list[Problem]) -> None:
    for found in problems[:20]:
        assert solve(replace(found, rules=(), modified=(), target=-1)) == [found.target]


def test_a_tampered_answer_is_refused_and_a_copy_of_it_taken(problems: list[Problem]) -> None:
    for found in problems[:30]:
        answer = found.candidates[found.target]
        wrong = (found.target + 1) % 8
        assert solve(swapped(found, wrong, answer)) == sorted([wrong, found.target])
        assert solve(swapped(found, found.target, found.candidates[wrong])) == []


def test_angles_do_not_matter(problems: list[Problem]) -> None:
    def turned(panel: Panel) -> Panel:
        return tuple(tuple(replace(entity, angle=(3 * entity.angle + entity.slot) % 8) for entity in part) for part in panel)

    for found in problems[:20]:
        other = replace(found, context=tuple(map(turned, found.context)), candidates=tuple(map(turned, found.candidates)))
        assert solve(other) == [found.target]


@pytest.mark.parametrize(
    ("sizes", "candidates", "answers"),
    [
        ([0, 1, 2, 1, 2, 3, 3, 4], [5, 4, 3], [0]),  # a progression
        ([4, 2, 0, 5, 3, 1, 4, 2], [1, 0, 2], [1]),  # a progression downwards
        ([0, 1, 2, 0, 2, 3, 1, 2], [3, 4, 5], [1]),  # sums of levels counted from 1
        ([3, 0, 2, 5, 2, 2, 4, 2], [2, 1, 0], [1]),  # differences
        ([0, 4, 1, 4, 1, 0, 1, 0], [0, 1, 4], [2]),  # three values turned round
        ([3, 3, 3, 1, 1, 1, 5, 5], [1, 5, 3], [1]),  # nothing changes
        ([0, 1, 2, 0, 1, 2, 1, 2], [3, 4, 5], [0, 1]),  # a progression and sums alike
        ([0, 1, 2, 3, 4, 5, 4, 5], [3, 4, 5], []),  # a progression that nothing can complete
        ([0, 4, 1, 1, 0, 0, 1, 0], [0, 1, 4], []),  # no rule
    ],
)
def test_by_hand(sizes: list[int], candidates: list[int], answers: list[int]) -> None:
    assert solve(rows_of(sizes, candidates)) == answers


@pytest.mark.parametrize(
    ("places", "candidates", "answers"),
    [
        (["0", "1", "2", "01", "12", "23", "02", "13"], ["02", "03", "0"], [0]),  # shifted by one, round the four slots
        (["0", "01", "01", "3", "13", "13", "2", "01"], ["012", "12", "013"], [0]),  # unions
        (["01", "1", "0", "012", "3", "012", "123", "12"], ["3", "1", "0"], [0]),  # differences
        (["01", "23", "02", "23", "02", "01", "02", "01"], ["23", "02", "03"], [0]),  # three places turned round
        (["0", "13", "012", "3", "02", "013", "12", "013"], ["0123", "012", "01"], [0]),  # one more each
        (["0", "2", "13", "01", "3", "123", "2", "3"], ["03", "12", "123"], [0, 1]),  # as many as both; which ones is open
    ],
)
def test_places_by_hand(places: list[str], candidates: list[str], answers: list[int]) -> None:
    def panel(slots: str) -> Panel:
        return (tuple(Entity(int(slot), 2, 3, 4, 5) for slot in slots),)

    found = Problem("distribute_four", tuple(map(panel, places)), tuple(map(panel, candidates)), 0, (), ())
    assert solve(found) == answers


def test_noise_in_several_slots_is_no_rule() -> None:
    """Types that differ without order, under a number that grows: any types will do."""

    def panel(*types: int) -> Panel:
        return (tuple(Entity(slot, kind, 3, 4, 5) for slot, kind in enumerate(types)),)

    context = (
        panel(1, 2),
        panel(5, 3, 3),
        panel(1, 1, 4, 2),
        panel(3),
        panel(4, 5),
        panel(1, 2, 4),
        panel(5, 4),
        panel(1, 2, 3),
    )
    candidates = (panel(1, 1, 1, 1), panel(5, 4, 3, 2), panel(1, 2, 3))
    assert solve(Problem("distribute_four", context, candidates, 0, (), ())) == [0, 1]


def test_ambiguous_drafts_are_rare_and_drawn_again() -> None:
    drafts = [draft_problem("up_center_single_down_center_single", 1, index, 0) for index in range(240)]
    ambiguous = [index for index, found in enumerate(drafts) if solve(found) != [found.target]]
    assert 0 < len(ambiguous) < 12
    for index, found in enumerate(drafts):
        kept = make_problem("up_center_single_down_center_single", 1, index)
        assert (kept == found) == (index not in ambiguous)
