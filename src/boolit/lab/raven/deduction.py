"""What the last panel must be, going by the eight before it: one prediction for every rule that they all obey."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from boolit.lab.raven.attributes import Range
from boolit.lab.raven.courses import Row
from boolit.lab.raven.rules import SIGNS, STEPS

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
