"""What an entity may look like: the value sets of I-RAVEN, by level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Attribute = Literal["Number", "Position", "Type", "Size", "Color"]
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
