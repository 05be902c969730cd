"""How the levels of an attribute go along the three rows under a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from boolit.lab.raven.attributes import Range
from boolit.lab.raven.chance import Chance
from boolit.lab.raven.rules import Rule, first_levels, offset

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
        >>> from boolit.lab.raven.chance import Chance
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
