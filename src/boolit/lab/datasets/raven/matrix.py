"""The nine panels of one component: what its rules leave open is drawn, and the rest follows."""

from __future__ import annotations

from dataclasses import dataclass

from boolit.lab.datasets.raven.configurations import ALL_ANGLES, LOOKS, UNIFORM, Component, Look
from boolit.lab.datasets.raven.levels import Row, Rows, along, level_rows, slot_rows
from boolit.lab.datasets.raven.panels import Entities, Entity, Slots
from boolit.lab.datasets.raven.rng import Chance
from boolit.lab.datasets.raven.rules import Rule

Appearance = tuple[int, ...]  # type, size, colour, angle
Given = tuple[int | None, ...]  # type, size and colour of a panel, where a rule says them


@dataclass(frozen=True, slots=True)
class Strand:
    """One component of a matrix: its rules, whether the entities of a panel are copies of one, and its nine panels."""

    component: Component
    rules: tuple[Rule, ...]
    uniform: bool
    rows: Rows[Entities]

    @property
    def answer(self) -> Entities:
        return self.rows[2][2]


def persistent(rule: Rule) -> bool:
    """Whether the same entities go along a row under this rule for Number and Position."""
    return rule.name == "Constant" or (rule.attribute == "Position" and rule.name != "Arithmetic")


def strand(component: Component, rules: tuple[Rule, ...], chance: Chance) -> Strand:
    """Draws the panels of a component under its rules for Number/Position, Type, Size and Color.

    Every row begins anew. A rule other than Constant gives all entities of a panel the same level. Under Constant, entities
    keep what they have as long as they persist; where a rule for Number or Position makes new ones, these are copies in a
    uniform component, and anything in another.
    """
    uniform = chance.choice(UNIFORM)
    places = slot_rows(rules[0], component, chance)
    courses = [_course(rule, look, component, chance) for look, rule in zip(LOOKS, rules[1:], strict=True)]

    def row(number: int) -> Row[Entities]:
        looks = _appearances(len(places[number][0]), uniform, component, chance)
        panels = []
        for panel, slots in enumerate(places[number]):
            if panel and not persistent(rules[0]):
                looks = looks[:1] * len(slots) if uniform else _appearances(len(slots), uniform, component, chance)
            panels.append(_placed(slots, looks, tuple(course[number][panel] for course in courses)))
        return panels[0], panels[1], panels[2]

    return Strand(component, rules, uniform, along(row, (0, 1, 2)))


def _course(rule: Rule, look: Look, component: Component, chance: Chance) -> Rows[int] | Rows[None]:
    if rule.name == "Constant":
        return ((None,) * 3,) * 3
    return level_rows(rule, component.limits[look], chance)


def _appearances(number: int, uniform: bool, component: Component, chance: Chance) -> list[Appearance]:
    ranges = [*(component.limits[look] for look in LOOKS), ALL_ANGLES]
    different = [tuple(map(chance.level, ranges)) for _ in range(1 if uniform else number)]
    return different * number if uniform else different


def _placed(slots: Slots, looks: list[Appearance], given: Given) -> Entities:
    pairs = sorted(zip(slots, looks, strict=True))
    type_, size, colour = given
    return tuple(
        Entity(
            slot,
            look[0] if type_ is None else type_,
            look[1] if size is None else size,
            look[2] if colour is None else colour,
            look[3],
        )
        for slot, look in pairs
    )
