"""Entities, panels and problems, as symbols."""

from __future__ import annotations

from dataclasses import dataclass

from boolit.lab.datasets.raven.configurations import FIELDS, Attribute, Look
from boolit.lab.datasets.raven.rules import Rule


@dataclass(frozen=True, slots=True)
class Entity:
    """One figure: its slot among its component's, and the levels of its attributes (the angle's is an index)."""

    slot: int
    type: int
    size: int
    colour: int
    angle: int


Entities = tuple[Entity, ...]  # those of one component, ordered by slot
Panel = tuple[Entities, ...]  # the entities of each component
Slots = tuple[int, ...]
Modified = tuple[int, Attribute]  # the number of a component and its attribute


def occupied(entities: Entities) -> Slots:
    """The slots that the entities are in."""
    return tuple(entity.slot for entity in entities)


def levels(entities: Entities, look: Look) -> tuple[int, ...]:
    """The one level that all entities share, or the levels of all of them, in order of size.

    Example:
        >>> levels((Entity(0, 5, 2, 7, 3), Entity(1, 1, 2, 7, 3)), "Type")
        (1, 5)
        >>> levels((Entity(0, 5, 2, 7, 3), Entity(1, 1, 2, 7, 3)), "Size")
        (2,)
    """
    ordered = sorted(getattr(entity, FIELDS[look]) for entity in entities)
    return (ordered[0],) if ordered[0] == ordered[-1] else tuple(ordered)


@dataclass(frozen=True)
class Problem:
    """Eight panels of a 3x3 matrix, row by row, and eight candidates for the ninth.

    Rules are listed for each component, in the order Number/Position, Type, Size, Color. Modified is what the tree of
    the candidates changes.
    """

    configuration: str
    context: tuple[Panel, ...]
    candidates: tuple[Panel, ...]
    target: int
    rules: tuple[tuple[Rule, ...], ...]
    modified: tuple[Modified, ...]
