"""The generated problems are solved by a solver that deduces the rules from the eight panels.

For every component and every group of attributes, all rules with all their values are tried on the eight panels. Each that
the first two rows obey, and that the beginning of the third does not contradict, predicts something of the last panel: its
number of entities, its slots, or its level of type, size or color. A candidate is an answer if in every group it is what
one of the rules predicts. No rule takes precedence over another: in a good problem a single candidate is left all the same.

Noise does not matter. Angles are ignored. Where the entities of a panel differ in an attribute, the levels of all of them are
its value, which only Constant can govern. Where no rule fits type, size or color in a component with several slots, every
panel has entities of its own, and any candidate will do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TypeVar

from boolit.lab.datasets.iraven.problems import Entities, Problem, occupied_slots
from boolit.lab.datasets.iraven.rules import LAYOUTS, LOOKS, SIGNS, STEPS, Component, Row, offset

H = TypeVar("H", bound=Hashable)
Context = tuple[Row[H], Row[H], tuple[H, H]]  # two rows, and the first two values of the third
Step = Callable[[H, H], H | None]  # the third value of a row from the first two, or None if they do not obey the rule


def solve(problem: Problem) -> list[int]:
    """Return the candidates that obey a rule of the context in every group of attributes."""
    left = list(range(len(problem.candidates)))
    for number, component in enumerate(LAYOUTS[problem.configuration].components):
        context = [panel[number] for panel in problem.context]
        tests = [_placement_test(component, context), *(_look_test(look, component, context) for look in LOOKS)]
        left = [index for index in left if all(passes(problem.candidates[index][number]) for passes in tests)]
    return left


def entity_levels(entities: Entities, look: str) -> tuple[int, ...]:
    """Return the level that all entities share, or the sorted levels of all of them."""
    ordered = sorted(getattr(entity, look.lower()) for entity in entities)
    return (ordered[0],) if ordered[0] == ordered[-1] else tuple(ordered)


def _placement_test(component: Component, context: list[Entities]) -> Callable[[Entities], bool]:
    """Whether a panel has the number or the slots that a rule predicts."""
    slots = _in_rows([frozenset(occupied_slots(panel)) for panel in context])
    numbers = _in_rows([len(panel) - 1 for panel in context])
    good_slots = _predict_constant(slots) | _predict_steps(slots, _slot_steps(len(component.slots)))
    if len({len(occupied) for occupied in slots[0]}) == 1:
        good_slots |= _predict_distribute_three(slots)
    steps = _level_steps(component.limits["Number"], offset("Number"))
    good_numbers = _predict_steps(numbers, steps) | _predict_distribute_three(numbers)
    return lambda panel: frozenset(occupied_slots(panel)) in good_slots or len(panel) - 1 in good_numbers


def _look_test(look: str, component: Component, context: list[Entities]) -> Callable[[Entities], bool]:
    """Whether a panel has the type, size or color that a rule predicts, or no rule fits because it is noise."""
    levels = [entity_levels(panel, look) for panel in context]
    good = _predict_constant(_in_rows(levels))
    if all(len(several) == 1 for several in levels):
        shared = _in_rows([level for (level,) in levels])
        steps = _level_steps(component.limits[look], None if look == "Type" else offset(look))
        good |= {(level,) for level in _predict_steps(shared, steps) | _predict_distribute_three(shared)}
    noise = not good and len(component.slots) > 1
    return lambda panel: noise or entity_levels(panel, look) in good


def _in_rows(values: list[H]) -> Context[H]:
    a, b, c, d, e, f, g, h = values
    return (a, b, c), (d, e, f), (g, h)


def _predict_constant(context: Context[H]) -> set[H]:
    return {context[2][0]} if all(len(set(row)) == 1 for row in context) else set()


def _predict_distribute_three(context: Context[H]) -> set[H]:
    """The same three values in every row, rotated."""
    (a, b, c), second, third = context
    rotations = {(b, c, a): (c, a, b), (c, a, b): (b, c, a)}
    last = rotations.get((second[0], second[1], second[2]))
    return {last[2]} if last and last[:2] == third and len({a, b, c}) == 3 else set()


def _predict_steps(context: Context[H], steps: Iterable[Step[H]]) -> set[H]:
    """Progression and Arithmetic: the third value is a function of the first two."""
    (a, b, c), (d, e, f), third = context
    predicted = (step(*third) for step in steps if step(a, b) == c and step(d, e) == f)
    return {last for last in predicted if last is not None}


def _level_steps(limits: range, more: int | None) -> list[Step[int]]:
    """Functions of levels: progressions, and sums and differences with ``more`` added, unless it is None."""
    sums = [] if more is None else [partial(_sum, limits, more, sign) for sign in SIGNS]
    return [*(partial(_next, limits, value) for value in STEPS), *sums]


def _next(limits: range, value: int, first: int, second: int) -> int | None:
    third = second + value
    return third if second - first == value and third in limits else None


def _sum(limits: range, more: int, sign: int, first: int, second: int) -> int | None:
    third = first + sign * (second + more)
    return third if third in limits else None


def _slot_steps(slots: int) -> list[Step[frozenset[int]]]:
    """Functions of sets of slots: progressions, union and difference."""
    shifts = [partial(_shift, slots, value) for value in STEPS]
    return [*shifts, lambda a, b: a | b, lambda a, b: (a - b) or None]


def _shift(slots: int, value: int, first: frozenset[int], second: frozenset[int]) -> frozenset[int] | None:
    if {(slot + value) % slots for slot in first} != second:
        return None
    return frozenset((slot + value) % slots for slot in second)


def test_the_target_is_an_answer_and_almost_always_the_only_one(problems: list[Problem]) -> None:
    answers = [solve(found) for found in problems]
    assert all(found.target in answer for found, answer in zip(problems, answers, strict=True))
    assert sum(len(answer) > 1 for answer in answers) <= 0.05 * len(problems)
