"""What a rule is, and how likely each is for a component."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from boolit.lab.datasets.raven.configurations import LOOKS, Component, LevelAttribute, Range

RuleName = Literal["Constant", "Progression", "Arithmetic", "Distribute_Three"]
Governed = Literal["Number", "Position", "Number/Position", "Type", "Size", "Color"]
Group = Literal["Number/Position", "Type", "Size", "Color"]

GROUPS: tuple[Group, ...] = ("Number/Position", *LOOKS)
STEPS = (-2, -1, 1, 2)
SIGNS = (-1, 1)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule along the rows. The value is a progression's step, ±1 for an arithmetic's sign, and otherwise 0."""

    name: RuleName
    attribute: Governed
    value: int = 0


def first_levels(rule: Rule, limits: Range) -> Range:
    """The levels the first panel of a row may have, so that the rule stays within the limits; an empty range if there are none.

    A rule on Position restricts the Number of entities.

    Example:
        >>> first_levels(Rule("Progression", "Number", -2), (0, 8))
        (4, 8)
    """
    low, high = limits
    if rule.name == "Progression":
        span = 2 * abs(rule.value)
        return (low, high - span) if rule.value > 0 or rule.attribute == "Position" else (low + span, high)
    if rule.name == "Arithmetic":
        return _operands(rule, limits)
    if rule.name == "Distribute_Three":
        enough = high - low >= 2
        return (low, high - (rule.attribute == "Position")) if enough else (low, low - 1)
    return limits


def offset(attribute: Governed) -> int:
    """What arithmetic on levels adds: Number and Size count from 1 at level 0, Color from 0."""
    return 0 if attribute == "Color" else 1


def _operands(rule: Rule, limits: Range) -> Range:
    low, high = limits
    if rule.attribute == "Position":
        return (low if rule.value > 0 else (high + 2) // 2 - 1, high - 1)
    if high == low:
        return low, low - 1
    return (low, high - low - offset(rule.attribute)) if rule.value > 0 else (2 * low + offset(rule.attribute), high)


@cache
def admissible(component: Component, group: Group) -> tuple[Rule, ...]:
    """The rules a component admits, each as often as its weight says.

    Every kind of rule in a group weighs the same, and so does every value of a kind; those with an empty range are then
    left out. As the groups do not restrict each other, that is what drawing all rules again until none is empty comes to.
    """
    restricted: LevelAttribute = "Number" if group == "Number/Position" else group
    weighted = [rule for kind in _kinds(group) for rule in kind * (len(STEPS) // len(kind))]
    return tuple(rule for rule in weighted if _possible(rule, component.limits[restricted]))


def _possible(rule: Rule, limits: Range) -> bool:
    low, high = first_levels(rule, limits)
    return low <= high


def _kinds(group: Group) -> list[list[Rule]]:
    attributes: tuple[Governed, ...] = ("Number", "Position") if group == "Number/Position" else (group,)
    kinds = [[Rule("Constant", group)]]
    for attribute in attributes:
        kinds.append([Rule("Progression", attribute, step) for step in STEPS])
        kinds.append([Rule("Distribute_Three", attribute)])
        if attribute != "Type":
            kinds.append([Rule("Arithmetic", attribute, sign) for sign in SIGNS])
    return kinds
