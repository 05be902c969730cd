"""The seven layouts of I-RAVEN: components, their slots on the panel, and the levels they admit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

from boolit.errors import UserError

Attribute = Literal["Number", "Position", "Type", "Size", "Color"]
LevelAttribute = Literal["Number", "Type", "Size", "Color"]
Look = Literal["Type", "Size", "Color"]
Range = tuple[int, int]  # the lowest and the highest level, both included

LOOKS: tuple[Look, ...] = ("Type", "Size", "Color")
FIELDS: Mapping[Look, str] = {"Type": "type", "Size": "size", "Color": "colour"}  # of an entity

TYPES = ("none", "triangle", "square", "pentagon", "hexagon", "circle")  # level 0 occurs nowhere
SIZES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of half the slot's extent
COLOURS = (255, 224, 196, 168, 140, 112, 84, 56, 28, 0)  # grey of the interior; 255 is none
ANGLES = (-135, -90, -45, 0, 45, 90, 135, 180)  # degrees; noise

ALL_SIZES: Range = (0, len(SIZES) - 1)
ALL_COLOURS: Range = (0, len(COLOURS) - 1)
ALL_TYPES: Range = (1, len(TYPES) - 1)
ALL_ANGLES: Range = (0, len(ANGLES) - 1)

UNIFORM = (False, False, False, True)  # whether all entities of a panel are copies of one; noise


class Slot(NamedTuple):
    """A place for an entity: row and column of its centre, and its extent, as fractions of the panel's side."""

    row: float
    column: float
    extent: float


@dataclass(frozen=True)
class PanelComponent:
    """A part of the panel with rules of its own. Level n of Number means n + 1 entities."""

    name: str
    slots: tuple[Slot, ...]
    limits: Mapping[LevelAttribute, Range] = field(hash=False)


@dataclass(frozen=True)
class Configuration:
    """Components in the order they are drawn, with the line between them; the title is the paper's (tab:sran)."""

    name: str
    title: str
    components: tuple[PanelComponent, ...]
    line: Literal["vertical", "horizontal"] | None = None


def _component(name: str, *slots: Slot, size: Range = ALL_SIZES, colour: Range = ALL_COLOURS) -> PanelComponent:
    return PanelComponent(name, slots, {"Number": (0, len(slots) - 1), "Type": ALL_TYPES, "Size": size, "Color": colour})


def _grid(name: str, centres: tuple[float, ...], extent: float, size: Range = ALL_SIZES) -> PanelComponent:
    return _component(name, *(Slot(row, column, extent) for row, column in product(centres, centres)), size=size)


_OUT = _component("Out", Slot(0.5, 0.5, 1.0), size=(3, 5), colour=(0, 0))

CONFIGURATIONS: Mapping[str, Configuration] = {
    configuration.name: configuration
    for configuration in (
        Configuration("center_single", "Center", (_component("Grid", Slot(0.5, 0.5, 1.0)),)),
        Configuration("distribute_four", "2×2G", (_grid("Grid", (0.25, 0.75), 0.5),)),
        Configuration("distribute_nine", "3×3G", (_grid("Grid", (0.16, 0.5, 0.83), 0.33),)),
        Configuration("in_center_single_out_center_single", "O-IC", (_OUT, _component("In", Slot(0.5, 0.5, 0.33)))),
        Configuration("in_distribute_four_out_center_single", "O-IG", (_OUT, _grid("In", (0.42, 0.58), 0.15, size=(2, 5)))),
        Configuration(
            "left_center_single_right_center_single",
            "L-R",
            (_component("Left", Slot(0.5, 0.25, 0.5)), _component("Right", Slot(0.5, 0.75, 0.5))),
            "vertical",
        ),
        Configuration(
            "up_center_single_down_center_single",
            "U-D",
            (_component("Up", Slot(0.25, 0.5, 0.5)), _component("Down", Slot(0.75, 0.5, 0.5))),
            "horizontal",
        ),
    )
}


def configuration_named(name: str) -> Configuration:
    """The configuration of that name, or an error that lists them.

    Example:
        >>> configuration_named("distribute_nine").title
        '3×3G'
    """
    if name not in CONFIGURATIONS:
        raise UserError(f"{name!r} is not a configuration of I-RAVEN: take one of {', '.join(CONFIGURATIONS)}")
    return CONFIGURATIONS[name]
