"""The seven configurations of I-RAVEN: components, their slots on the panel, and the levels they admit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

Attribute = Literal["Number", "Position", "Type", "Size", "Color"]
LevelAttribute = Literal["Number", "Type", "Size", "Color"]
Look = Literal["Type", "Size", "Color"]
Range = tuple[int, int]  # the lowest and the highest level, both included

LOOKS: tuple[Look, ...] = ("Type", "Size", "Color")
TYPES = ("none", "triangle", "square", "pentagon", "hexagon", "circle")  # level 0 does not occur
SIZES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of half the extent of the slot
COLORS = (255, 224, 196, 168, 140, 112, 84, 56, 28, 0)  # grey of the interior; 255 is transparent
ANGLES = (-135, -90, -45, 0, 45, 90, 135, 180)  # degrees, drawn at random
ALL_TYPES: Range = (1, len(TYPES) - 1)
ALL_SIZES: Range = (0, len(SIZES) - 1)
ALL_COLORS: Range = (0, len(COLORS) - 1)
ALL_ANGLES: Range = (0, len(ANGLES) - 1)


class Slot(NamedTuple):
    """A place for an entity: row and column of its center, and its extent, as fractions of the panel's side."""

    row: float
    column: float
    extent: float


@dataclass(frozen=True)
class Component:
    """A part of the panel with its own rules. Level n of Number means n + 1 entities."""

    name: str
    slots: tuple[Slot, ...]
    limits: Mapping[LevelAttribute, Range] = field(hash=False)


@dataclass(frozen=True)
class Layout:
    """Components in the order in which they are drawn, and the line between them; ``title`` is the paper's (tab:sran)."""

    name: str
    title: str
    components: tuple[Component, ...]
    line: Literal["vertical", "horizontal"] | None = None


def _component(name: str, *slots: Slot, size: Range = ALL_SIZES, color: Range = ALL_COLORS) -> Component:
    return Component(name, slots, {"Number": (0, len(slots) - 1), "Type": ALL_TYPES, "Size": size, "Color": color})


def _grid(name: str, centers: tuple[float, ...], extent: float, size: Range = ALL_SIZES) -> Component:
    return _component(name, *(Slot(row, column, extent) for row, column in product(centers, centers)), size=size)


_OUT = _component("Out", Slot(0.5, 0.5, 1.0), size=(3, 5), color=(0, 0))
_LEFT, _RIGHT = _component("Left", Slot(0.5, 0.25, 0.5)), _component("Right", Slot(0.5, 0.75, 0.5))
_UP, _DOWN = _component("Up", Slot(0.25, 0.5, 0.5)), _component("Down", Slot(0.75, 0.5, 0.5))

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout("center_single", "Center", (_component("Grid", Slot(0.5, 0.5, 1.0)),)),
        Layout("distribute_four", "2×2G", (_grid("Grid", (0.25, 0.75), 0.5),)),
        Layout("distribute_nine", "3×3G", (_grid("Grid", (0.16, 0.5, 0.83), 0.33),)),
        Layout("in_center_single_out_center_single", "O-IC", (_OUT, _component("In", Slot(0.5, 0.5, 0.33)))),
        Layout("in_distribute_four_out_center_single", "O-IG", (_OUT, _grid("In", (0.42, 0.58), 0.15, size=(2, 5)))),
        Layout("left_center_single_right_center_single", "L-R", (_LEFT, _RIGHT), "vertical"),
        Layout("up_center_single_down_center_single", "U-D", (_UP, _DOWN), "horizontal"),
    )
}
