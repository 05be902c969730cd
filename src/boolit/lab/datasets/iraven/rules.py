"""The configurations of I-RAVEN, and the rules along the rows of a matrix.

A configuration has components with slots for entities and ranges of levels. Rules say which levels and slots follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Literal, TypeVar

from boolit.lab.common.random import derive

LOOKS = ("Type", "Size", "Color")
TYPES = ("none", "triangle", "square", "pentagon", "hexagon", "circle")  # level 0 does not occur
SIZES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of half the extent of the slot
COLORS = (255, 224, 196, 168, 140, 112, 84, 56, 28, 0)  # gray of the interior; 255 is transparent
ANGLES = (-135, -90, -45, 0, 45, 90, 135, 180)  # degrees, drawn at random
LEVELS = {"Type": range(1, len(TYPES)), "Size": range(len(SIZES)), "Color": range(len(COLORS))}


Slot = tuple[float, float, float]  # row and column of an entity's center, and its extent, as fractions of the panel's side


@dataclass(frozen=True)
class Component:
    """A part of the panel with its own rules. Level n of Number means n + 1 entities."""

    slots: tuple[Slot, ...]
    limits: Mapping[str, range] = field(hash=False)


@dataclass(frozen=True)
class Layout:
    """Components in the order in which they are drawn, and the line between them."""

    components: tuple[Component, ...]
    line: Literal["vertical", "horizontal"] | None = None


def _component(*slots: Slot, **limits: range) -> Component:
    return Component(slots, {"Number": range(len(slots)), **LEVELS, **limits})


def _grid(centers: tuple[float, ...], extent: float, **limits: range) -> Component:
    return _component(*((row, column, extent) for row, column in product(centers, centers)), **limits)


_OUT = _component((0.5, 0.5, 1.0), Size=range(3, 6), Color=range(1))
_LEFT, _RIGHT = _component((0.5, 0.25, 0.5)), _component((0.5, 0.75, 0.5))
_UP, _DOWN = _component((0.25, 0.5, 0.5)), _component((0.75, 0.5, 0.5))

LAYOUTS: Mapping[str, Layout] = {
    "center_single": Layout((_component((0.5, 0.5, 1.0)),)),
    "distribute_four": Layout((_grid((0.25, 0.75), 0.5),)),
    "distribute_nine": Layout((_grid((0.16, 0.5, 0.83), 0.33),)),
    "in_center_single_out_center_single": Layout((_OUT, _component((0.5, 0.5, 0.33)))),
    "in_distribute_four_out_center_single": Layout((_OUT, _grid((0.42, 0.58), 0.15, Size=range(2, 6)))),
    "left_center_single_right_center_single": Layout((_LEFT, _RIGHT), "vertical"),
    "up_center_single_down_center_single": Layout((_UP, _DOWN), "horizontal"),
}

T = TypeVar("T")
Row = tuple[T, ...]  # of three panels
Rows = tuple[Row[T], ...]  # three of them
Slots = tuple[int, ...]

GROUPS = ("Number/Position", *LOOKS)
STEPS = (-2, -1, 1, 2)
SIGNS = (-1, 1)


class StableRandom:
    """Random choices that are equal in every Python version: they only use ``random.Random.random``."""

    def __init__(self, seed: int, *words: str | int) -> None:
        self._uniform = Random(derive(seed, *words)).random

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[int(self._uniform() * len(items))]

    def permutation(self, items: Iterable[T]) -> list[T]:
        """Return all items in random order."""
        return sorted(items, key=lambda _: self._uniform())


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule along the rows. The value is the step of a progression, the sign of an arithmetic rule, and otherwise 0."""

    name: Literal["Constant", "Progression", "Arithmetic", "Distribute_Three"]
    attribute: str  # one of LOOKS, "Number" or "Position"; of Constant also "Number/Position"
    value: int = 0


@cache
def admissible_rules(component: Component, group: str) -> tuple[Rule, ...]:
    """Return the rules that a component admits, each repeated according to its weight.

    All kinds of rules in a group have equal weights, and so have all values of a kind; those with an empty range are left out.
    As the groups do not restrict each other, this is equivalent to drawing all rules again until none is empty.
    """
    attributes = group.split("/")
    kinds = [[Rule("Constant", group)]]
    for attribute in attributes:
        kinds.append([Rule("Progression", attribute, step) for step in STEPS])
        kinds.append([Rule("Distribute_Three", attribute)])
        if attribute != "Type":
            kinds.append([Rule("Arithmetic", attribute, sign) for sign in SIGNS])
    weighted = (rule for kind in kinds for rule in kind * (len(STEPS) // len(kind)))
    return tuple(rule for rule in weighted if first_levels(rule, component.limits[attributes[0]]))


def first_levels(rule: Rule, limits: range) -> range:
    """Return the levels of a row's first panel for which the rule stays within the limits.

    A rule on Position restricts the Number of entities.
    """
    low, high, on_position = limits[0], limits[-1], rule.attribute == "Position"
    if rule.name == "Constant":
        return limits
    if rule.name == "Progression":
        span = 2 * abs(rule.value)
        return limits[:-span] if rule.value > 0 or on_position else limits[span:]
    if rule.name == "Distribute_Three":
        return limits[: len(limits) - on_position] if len(limits) >= 3 else range(0)
    if on_position:
        return range(low if rule.value > 0 else (high + 2) // 2 - 1, high)
    if high == low:
        return range(0)
    more = offset(rule.attribute)
    return range(low, high - low - more + 1) if rule.value > 0 else range(2 * low + more, high + 1)


def offset(attribute: str) -> int:
    """Return what arithmetic on levels adds: Number and Size count from 1 at level 0, Color from 0."""
    return 0 if attribute == "Color" else 1


def draw_levels(rule: Rule, limits: range, rng: StableRandom) -> Rows[int]:
    """Draw the level of every panel under a rule other than Constant."""
    if rule.name == "Distribute_Three":
        return _distribute(rng.permutation(limits)[:3], rng)
    if rule.name == "Progression":
        starts = [rng.choice(first_levels(rule, limits)) for _ in range(3)]
        return tuple((start, start + rule.value, start + 2 * rule.value) for start in starts)
    # With a second Color level of 0 in the first two rows, a sum could not be told from a difference.
    first = _draw_sum(rule, limits, limits[0], rng)
    ambiguous = offset(rule.attribute) == 0 and first[1] == 0
    second = _draw_sum(rule, limits, 1 if ambiguous else limits[0], rng)
    return first, second, _draw_sum(rule, limits, limits[0], rng)


def _distribute(values: list[T], rng: StableRandom) -> Rows[T]:
    """Put three values in the first row, and rotate them in the other two."""
    a, b, c = values
    return (a, b, c), *rng.permutation([(b, c, a), (c, a, b)])


def _draw_sum(rule: Rule, limits: range, least: int, rng: StableRandom) -> Row[int]:
    """Draw a row of a sum or difference whose second level is at least ``least``."""
    low, high, more = limits[0], limits[-1], offset(rule.attribute)
    if rule.value > 0:
        first = rng.choice(range(low, high - least - more + 1))
        most = high - first - more
    else:
        first = rng.choice(range(low + least + more, high + 1))
        most = first - low - more
    second = rng.choice(range(least, most + 1))
    return first, second, first + rule.value * (second + more)


@cache
def slot_sets(slots: int, number: int) -> tuple[Slots, ...]:
    """Return all ways to occupy a number of slots."""
    return tuple(combinations(range(slots), number))


def draw_slots(rule: Rule, component: Component, rng: StableRandom) -> Rows[Slots]:
    """Draw the occupied slots of every panel; entities that persist along a row keep their place in the tuples."""
    slots, limits = len(component.slots), component.limits["Number"]
    if rule.attribute == "Number":
        levels = draw_levels(rule, limits, rng)
        return tuple(tuple(rng.choice(slot_sets(slots, level + 1)) for level in row) for row in levels)
    numbers = first_levels(rule, limits)
    if rule.name == "Distribute_Three":
        return _distribute(rng.permutation(slot_sets(slots, rng.choice(numbers) + 1))[:3], rng)
    return tuple(_draw_slot_row(rule, slots, numbers, rng) for _ in range(3))


def _draw_slot_row(rule: Rule, slots: int, numbers: range, rng: StableRandom) -> Row[Slots]:
    """Draw a row that shifts all slots (by 0 if they stay), or whose third set is a union or difference of the others.

    A union adds a slot to the first set; a difference keeps at least one of it.

    NOTE[paper]: the size of the second set is not given; it is drawn as for the first.
    """
    first = rng.choice(slot_sets(slots, rng.choice(numbers) + 1))
    if rule.name != "Arithmetic":
        return tuple(tuple((slot + panel * rule.value) % slots for slot in first) for panel in range(3))
    while True:
        second = rng.choice(slot_sets(slots, rng.choice(numbers) + 1))
        if rule.value > 0 and not set(second) <= set(first):
            return first, second, tuple(sorted({*first, *second}))
        if rule.value < 0 and not set(first) <= set(second):
            return first, second, tuple(sorted(set(first) - set(second)))
