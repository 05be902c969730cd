"""Which slots are occupied along the three rows under a rule for Number and Position."""

from __future__ import annotations

from functools import cache
from itertools import combinations

from boolit.lab.raven.attributes import Range
from boolit.lab.raven.chance import Chance
from boolit.lab.raven.configurations import Component
from boolit.lab.raven.courses import Row, Rows, along, distributed, level_rows
from boolit.lab.raven.panels import Slots
from boolit.lab.raven.rules import Rule, first_levels


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
