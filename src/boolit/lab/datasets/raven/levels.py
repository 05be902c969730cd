"""How the levels of an attribute, and the slots that are occupied, go along the three rows under a rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import TypeVar

from boolit.lab.datasets.raven.configurations import Component, Range
from boolit.lab.datasets.raven.panels import Slots
from boolit.lab.datasets.raven.rng import Chance
from boolit.lab.datasets.raven.rules import Rule, first_levels, offset

# How the levels of an attribute go along the three rows under a rule.

S = TypeVar("S")
T = TypeVar("T")
Row = tuple[T, T, T]
Rows = tuple[Row[T], Row[T], Row[T]]


def along(function: Callable[[S], T], row: Row[S]) -> Row[T]:
    """The function of each of three."""
    first, second, third = row
    return function(first), function(second), function(third)


def level_rows(rule: Rule, limits: Range, chance: Chance) -> Rows[int]:
    """The level of every panel under a rule other than Constant.

    Example:
        >>> from boolit.lab.datasets.raven.rng import Chance
        >>> level_rows(Rule("Progression", "Number", 2), (0, 4), Chance(0))
        ((0, 2, 4), (0, 2, 4), (0, 2, 4))
    """
    if rule.name == "Distribute_Three":
        return distributed(chance.several(range(limits[0], limits[1] + 1), 3), chance)
    if rule.name == "Arithmetic":
        return _sums(rule, limits, chance)
    starts = first_levels(rule, limits)
    return along(lambda start: (start, start + rule.value, start + 2 * rule.value), along(chance.level, (starts,) * 3))


def distributed(values: list[T], chance: Chance) -> Rows[T]:
    """Three values in the first row, and turned round in the two others."""
    a, b, c = values
    second, third = chance.shuffled([(b, c, a), (c, a, b)])
    return (a, b, c), second, third


def _sums(rule: Rule, limits: Range, chance: Chance) -> Rows[int]:
    """Rows of sums or differences.

    Where nothing is added in the first two rows, a sum cannot be told from a difference: Color, which can be 0, is not in both.
    """
    low = limits[0]
    first = _sum(rule, limits, low, chance)
    told_apart = offset(rule.attribute) > 0 or first[1] > 0
    second = _sum(rule, limits, low if told_apart else 1, chance)
    return first, second, _sum(rule, limits, low, chance)


def _sum(rule: Rule, limits: Range, least: int, chance: Chance) -> Row[int]:
    """One row whose second level is at least `least`; without that, its first one has the range of `first_levels`."""
    low, high = limits
    more = offset(rule.attribute)
    if rule.value > 0:
        first = chance.level((low, high - least - more))
        second = chance.level((least, high - first - more))
        return first, second, first + second + more
    first = chance.level((low + least + more, high))
    second = chance.level((least, first - low - more))
    return first, second, first - second - more


# Which slots are occupied along the three rows under a rule for Number and Position.


@cache
def slot_sets(slots: int, number: int) -> tuple[Slots, ...]:
    """All ways to occupy that many of the slots.

    Example:
        >>> slot_sets(3, 2)
        ((0, 1), (0, 2), (1, 2))
    """
    return tuple(combinations(range(slots), number))


def slot_rows(rule: Rule, component: Component, chance: Chance) -> Rows[Slots]:
    """The occupied slots of every panel; where entities persist along a row, the slots of each keep their place."""
    slots = len(component.slots)
    limits = component.limits["Number"]
    if rule.attribute == "Number":
        return along(lambda row: along(lambda level: _drawn(slots, level, chance), row), level_rows(rule, limits, chance))
    numbers = first_levels(rule, limits)
    if rule.name == "Distribute_Three":
        return distributed(chance.several(slot_sets(slots, chance.level(numbers) + 1), 3), chance)
    return along(lambda _: _row(rule, slots, numbers, chance), (0, 1, 2))


def _drawn(slots: int, level: int, chance: Chance) -> Slots:
    return chance.choice(slot_sets(slots, level + 1))


def _row(rule: Rule, slots: int, numbers: Range, chance: Chance) -> Row[Slots]:
    first = _drawn(slots, chance.level(numbers), chance)
    if rule.name == "Arithmetic":
        return _combined(rule, first, slots, numbers, chance)
    return first, _shifted(first, rule.value, slots), _shifted(first, 2 * rule.value, slots)


def _shifted(occupied: Slots, step: int, slots: int) -> Slots:
    return tuple((slot + step) % slots for slot in occupied)


def _combined(rule: Rule, first: Slots, slots: int, numbers: Range, chance: Chance) -> Row[Slots]:
    """A union that adds a slot to the first set, or a difference that leaves one of it.

    NOTE[paper]: how many slots the second set has is not said there; it is drawn as for the first.
    """
    while True:
        second = _drawn(slots, chance.level(numbers), chance)
        if rule.value > 0 and not set(second) <= set(first):
            return first, second, tuple(sorted({*first, *second}))
        if rule.value < 0 and not set(first) <= set(second):
            return first, second, tuple(sorted(set(first) - set(second)))
