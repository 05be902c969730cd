"""Solving a problem: by deducing its rules from the eight panels, or blindly by what most candidates have in common.

For every component and every group of attributes, all rules with all their values are tried on the eight panels. Each that
the first two rows obey, and that the beginning of the third does not contradict, predicts something of the last panel: its
number of entities, its slots, or its level of type, size or colour. A candidate is an answer if in every group it is what
one of the rules predicts. No rule takes precedence over another: in a good problem a single candidate is left all the same.

Noise does not matter. Angles are not looked at. Where the entities of a panel differ in an attribute, the levels of all of them
are its value, which only Constant can govern. Where no rule fits type, size or colour in a component with several slots, every
panel has entities of its own, and any candidate will do.

It answers RAVEN better than chance, because there every wrong candidate is the answer with one attribute changed; on I-RAVEN
it must not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from boolit.lab.datasets.raven.configurations import LOOKS, Component, Look, Range, configuration_named
from boolit.lab.datasets.raven.levels import Row
from boolit.lab.datasets.raven.panels import Entities, Panel, Problem, levels, occupied
from boolit.lab.datasets.raven.rng import Chance
from boolit.lab.datasets.raven.rules import SIGNS, STEPS, offset

# What the last panel must be, going by the eight before it: one prediction for every rule that they all obey.

H = TypeVar("H", bound=Hashable)
Context = tuple[Row[H], Row[H], tuple[H, H]]  # two rows, and what there is of the third
Step = Callable[[H, H], H | None]  # the third of a row from the two before it, or None if they do not obey the rule


def constant(context: Context[H]) -> set[H]:
    """Constant: one value along each row."""
    return {context[2][0]} if all(len(set(row)) == 1 for row in context) else set()


def distributed(context: Context[H]) -> set[H]:
    """Distribute_Three: the same three values in every row, turned round.

    Example:
        >>> distributed(((1, 5, 2), (2, 1, 5), (5, 2)))
        {1}
    """
    (a, b, c), second, third = context
    turns = {(b, c, a): (c, a, b), (c, a, b): (b, c, a)}
    last = turns.get(second)
    return {last[2]} if last and last[:2] == third and len({a, b, c}) == 3 else set()


def computed(context: Context[H], steps: Iterable[Step[H]]) -> set[H]:
    """Progression and Arithmetic: the third value is a function of the two before."""
    (a, b, c), (d, e, f), third = context
    obeyed = (step(*third) for step in steps if step(a, b) == c and step(d, e) == f)
    return {last for last in obeyed if last is not None}


def level_steps(limits: Range, more: int | None) -> Sequence[Step[int]]:
    """The functions of levels: progressions, and sums and differences with `more` added, unless it is None."""
    sums = [] if more is None else [partial(_sum, limits, more, sign) for sign in SIGNS]
    return [partial(_next, limits, value) for value in STEPS] + sums


def slot_steps(slots: int) -> Sequence[Step[frozenset[int]]]:
    """The functions of sets of slots: progressions, union and difference."""
    shifts = [partial(_shifted, slots, value) for value in STEPS]
    return [*shifts, lambda a, b: a | b, lambda a, b: (a - b) or None]


def _next(limits: Range, value: int, first: int, second: int) -> int | None:
    third = second + value
    return third if second - first == value and limits[0] <= third <= limits[1] else None


def _sum(limits: Range, more: int, sign: int, first: int, second: int) -> int | None:
    third = first + sign * (second + more)
    return third if limits[0] <= third <= limits[1] else None


def _shifted(slots: int, value: int, first: frozenset[int], second: frozenset[int]) -> frozenset[int] | None:
    if {(slot + value) % slots for slot in first} != second:
        return None
    return frozenset((slot + value) % slots for slot in second)


# Solves a problem by what is seen: deduces the rules from the eight panels and looks which candidates obey them.


def solve(problem: Problem) -> list[int]:
    """The candidates that obey a rule of the context in everything.

    Example:
        >>> from boolit.lab.datasets.raven.problems import problem
        >>> example = problem("center_single", seed=1234, index=0)
        >>> solve(example) == [example.target]
        True
    """
    left = list(range(len(problem.candidates)))
    for number, component in enumerate(configuration_named(problem.configuration).components):
        context = [panel[number] for panel in problem.context]
        tests = [_placement(component, context), *(_look(look, component, context) for look in LOOKS)]
        left = [index for index in left if all(passes(problem.candidates[index][number]) for passes in tests)]
    return left


def _placement(component: Component, context: list[Entities]) -> Callable[[Entities], bool]:
    """Whether a panel has the number or the slots that a rule predicts."""
    slots = _in_rows([_slots(panel) for panel in context])
    numbers = _in_rows([len(panel) - 1 for panel in context])
    good_slots = constant(slots) | computed(slots, slot_steps(len(component.slots)))
    if len({len(occupied) for occupied in slots[0]}) == 1:
        good_slots |= distributed(slots)
    good_numbers = computed(numbers, level_steps(component.limits["Number"], offset("Number"))) | distributed(numbers)
    return lambda panel: _slots(panel) in good_slots or len(panel) - 1 in good_numbers


def _look(look: Look, component: Component, context: list[Entities]) -> Callable[[Entities], bool]:
    """Whether a panel has the type, size or colour that a rule predicts, or no rule fits because it is noise."""
    seen = [levels(panel, look) for panel in context]
    good = constant(_in_rows(seen))
    if all(len(several) == 1 for several in seen):
        shared = _in_rows([level for (level,) in seen])
        more = None if look == "Type" else offset(look)
        predicted = computed(shared, level_steps(component.limits[look], more)) | distributed(shared)
        good |= {(level,) for level in predicted}
    noise = not good and len(component.slots) > 1
    return lambda panel: noise or levels(panel, look) in good


def _in_rows(seen: list[H]) -> Context[H]:
    a, b, c, d, e, f, g, h = seen
    return (a, b, c), (d, e, f), (g, h)


def _slots(panel: Entities) -> frozenset[int]:
    return frozenset(occupied(panel))


# A solver that does not see the matrix: it takes what most candidates have in common.


def majority(candidates: Sequence[Panel], chance: Chance) -> int:
    """One of the favourites."""
    return chance.choice(favourites(candidates))


def favourites(candidates: Sequence[Panel]) -> list[int]:
    """The candidates whose values of number, position, type, size and colour are the most frequent, taken together.

    An answer among n of them is found with the chance 1/n: the mean of that over many problems is the solver's accuracy,
    without the luck of its draws.

    Example:
        >>> from boolit.lab.datasets.raven.panels import Entity
        >>> square, circle = (Entity(0, 2, 5, 0, 3),), (Entity(0, 5, 5, 0, 3),)
        >>> favourites([(circle,), (square,), (circle,), (circle,)])
        [0, 2, 3]
    """
    values = [list(_values(candidate)) for candidate in candidates]
    frequencies = Counter(value for own in values for value in own)
    scores = [sum(frequencies[value] for value in own) for own in values]
    return [index for index, score in enumerate(scores) if score == max(scores)]


def _values(panel: Panel) -> Iterator[Hashable]:
    for number, entities in enumerate(panel):
        yield number, "Number", len(entities)
        yield number, "Position", occupied(entities)
        for look in LOOKS:
            yield number, look, levels(entities, look)
