"""What a problem's file says besides pictures and answer: its rules, and the tree of its layout, in RAVEN's notation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boolit.lab.raven._shapes import Bytes
from boolit.lab.raven.configurations import Component, Configuration
from boolit.lab.raven.rules import Rule

MOST_RULES = 8  # four a component
META = ("Constant", "Progression", "Arithmetic", "Distribute_Three", "Number", "Position", "Type", "Size", "Color")
STRUCTURES = ("Singleton", "Left_Right", "Up_Down", "Out_In")
COMPONENTS = ("Left", "Right", "Up", "Down", "Out", "In", "Grid")
LAYOUTS = ("Center_Single", "Distribute_Four", "Distribute_Nine")
PLACED_LAYOUTS = (
    *(f"{part}_Center_Single" for part in ("Left", "Right", "Up", "Down", "Out", "In")),
    "In_Distribute_Four",
)
META_STRUCTURE = (*STRUCTURES, *COMPONENTS, *LAYOUTS, *PLACED_LAYOUTS)
LAYOUT_OF_SLOTS = {1: "Center_Single", 4: "Distribute_Four", 9: "Distribute_Nine"}
END = "/"  # of a node and all below it


def meta_matrix(rules: tuple[tuple[Rule, ...], ...]) -> Bytes:
    """A row for each rule, those of the first component first, with ones in the columns of its name and its attributes.

    Shape: ``(8, 9)``; with one component the last four rows are zero.

    Example:
        >>> meta_matrix(((Rule("Constant", "Number/Position"), Rule("Progression", "Size", -1)),))[:2].tolist()
        [[1, 0, 0, 0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 1, 0]]
    """
    matrix = np.zeros((MOST_RULES, len(META)), np.uint8)
    for row, rule in enumerate(rule for group in rules for rule in group):
        for word in (rule.name, *rule.attribute.split("/")):
            matrix[row, META.index(word)] = 1
    return matrix


def structure(configuration: Configuration) -> list[str]:
    """The tree of scene, structure, components and layouts, each node before those below it and ended by a ``/``.

    Example:
        >>> from boolit.lab.raven.configurations import CONFIGURATIONS
        >>> " ".join(structure(CONFIGURATIONS["distribute_nine"]))
        'Scene Singleton Grid Distribute_Nine / / / /'
    """
    parts = configuration.components
    kind = "_".join(part.name for part in parts) if len(parts) > 1 else "Singleton"
    return ["Scene", kind, *(word for part in parts for word in _component(part, placed=len(parts) > 1)), END, END]


def meta_structure(configuration: Configuration) -> Bytes:
    """Which of the 21 names of structures, components and layouts occur in the tree.

    Shape: ``(21,)``.
    """
    words = structure(configuration)
    return np.array([name in words for name in META_STRUCTURE], np.uint8)


def _component(part: Component, placed: bool) -> Iterator[str]:
    layout = LAYOUT_OF_SLOTS[len(part.slots)]
    yield from (part.name, f"{part.name}_{layout}" if placed else layout, END, END)
