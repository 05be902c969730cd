"""Entities, panels and problems as symbols, and the nine panels of one component drawn under its rules."""

from __future__ import annotations

from dataclasses import dataclass

from boolit.lab.datasets.raven.configurations import ALL_ANGLES, FIELDS, LOOKS, UNIFORM, Attribute, Look, PanelComponent
from boolit.lab.datasets.raven.rng import StableRandom
from boolit.lab.datasets.raven.rules import Row, Rows, Rule, Slots, draw_levels, draw_slots


@dataclass(frozen=True, slots=True)
class Entity:
    """One shape: its slot in its component, and the levels of its attributes (the angle's is an index)."""

    slot: int
    type: int
    size: int
    colour: int
    angle: int


Entities = tuple[Entity, ...]  # those of one component, ordered by slot
Panel = tuple[Entities, ...]  # the entities of each component
Appearance = tuple[int, ...]  # type, size, colour, angle
Modified = tuple[int, Attribute]  # the number of a component and its attribute


@dataclass(frozen=True)
class Problem:
    """Eight panels of a 3x3 matrix, row by row, and eight candidates for the ninth.

    Rules are listed for each component, in the order Number/Position, Type, Size, Color. ``modified`` is what the tree of
    candidates changes.
    """

    configuration: str
    context: tuple[Panel, ...]
    candidates: tuple[Panel, ...]
    target: int
    rules: tuple[tuple[Rule, ...], ...]
    modified: tuple[Modified, ...]


@dataclass(frozen=True, slots=True)
class ComponentMatrix:
    """One component of a matrix: its rules, whether the entities of a panel are copies of one, and its nine panels."""

    component: PanelComponent
    rules: tuple[Rule, ...]
    uniform: bool
    rows: Rows[Entities]

    @property
    def answer(self) -> Entities:
        return self.rows[2][2]


def occupied_slots(entities: Entities) -> Slots:
    """The slots of the entities."""
    return tuple(entity.slot for entity in entities)


def entity_levels(entities: Entities, look: Look) -> tuple[int, ...]:
    """The one level that all entities share, or the sorted levels of all of them.

    Example:
        >>> entity_levels((Entity(0, 5, 2, 7, 3), Entity(1, 1, 2, 7, 3)), "Type")
        (1, 5)
        >>> entity_levels((Entity(0, 5, 2, 7, 3), Entity(1, 1, 2, 7, 3)), "Size")
        (2,)
    """
    ordered = sorted(getattr(entity, FIELDS[look]) for entity in entities)
    return (ordered[0],) if ordered[0] == ordered[-1] else tuple(ordered)


def entities_persist(rule: Rule) -> bool:
    """Whether the panels of a row have the same entities under this rule for Number and Position."""
    return rule.name == "Constant" or (rule.attribute == "Position" and rule.name != "Arithmetic")


def draw_matrix(component: PanelComponent, rules: tuple[Rule, ...], rng: StableRandom) -> ComponentMatrix:
    """Draws the panels of a component under its rules for Number/Position, Type, Size and Color.

    Rows are independent. A rule other than Constant gives all entities of a panel the same level. Under Constant, entities keep
    their levels as long as they persist; where a rule for Number or Position makes new ones, these are copies in a uniform
    component, and random in another.
    """
    uniform = rng.choice(UNIFORM)
    slots = draw_slots(rules[0], component, rng)
    free: Rows[int | None] = ((None,) * 3,) * 3
    levels = [
        free if rule.name == "Constant" else draw_levels(rule, component.limits[look], rng)
        for look, rule in zip(LOOKS, rules[1:], strict=True)
    ]

    def row(number: int) -> Row[Entities]:
        appearances = _draw_appearances(len(slots[number][0]), uniform, component, rng)
        panels = []
        for panel, own in enumerate(slots[number]):
            if panel and not entities_persist(rules[0]):
                appearances = appearances[:1] * len(own) if uniform else _draw_appearances(len(own), uniform, component, rng)
            panels.append(_place(own, appearances, [rows[number][panel] for rows in levels]))
        return tuple(panels)

    return ComponentMatrix(component, rules, uniform, tuple(row(number) for number in range(3)))


def _draw_appearances(number: int, uniform: bool, component: PanelComponent, rng: StableRandom) -> list[Appearance]:
    ranges = [*(component.limits[look] for look in LOOKS), ALL_ANGLES]
    different = [tuple(rng.randint(*limits) for limits in ranges) for _ in range(1 if uniform else number)]
    return different * number if uniform else different


def _place(slots: Slots, appearances: list[Appearance], levels: list[int | None]) -> Entities:
    """Entities in their slots, with the level of each attribute that a rule governs."""
    pairs = sorted(zip(slots, appearances, strict=True))
    return tuple(
        Entity(slot, *(own if level is None else level for own, level in zip(appearance, [*levels, None], strict=True)))
        for slot, appearance in pairs
    )
