"""Panels as pictures: 160 × 160 bytes, black ink on white.

Every entity lies on top of those before it, and wherever it has ink it hides them; level 0 of the colour is no ink, so that
what is below shows. The line between two components comes last.
"""

from __future__ import annotations

import math

import numpy as np

from boolit.lab.raven._shapes import FULL, Bytes, Frame, Layers, layers
from boolit.lab.raven.attributes import ANGLES, COLOURS, SIZES
from boolit.lab.raven.configurations import CONFIGURATIONS, Configuration, Slot
from boolit.lab.raven.panels import Entity, Panel, Problem

SIDE = 160
# By the ink of a fill and what it covers of a pixel: a table, as there are some hundred thousand of these products a problem.
FILLS = {FULL - grey: (np.arange(FULL + 1) * (FULL - grey) // FULL).astype(np.uint8) for grey in COLOURS}


def drawn(panel: Panel, configuration: Configuration) -> Bytes:
    """The picture of a panel.

    Shape: ``(160, 160)``.
    """
    ink = np.zeros((SIDE, SIDE), np.uint8)
    for component, entities in zip(configuration.components, panel, strict=True):
        for entity in entities:
            _put(ink, entity, component.slots[entity.slot])
    if configuration.line == "vertical":
        ink[:, SIDE // 2] = FULL
    elif configuration.line == "horizontal":
        ink[SIDE // 2, :] = FULL
    return FULL - ink


def pictures(problem: Problem) -> Bytes:
    """The pictures of a problem's context and then of its candidates.

    Shape: ``(16, 160, 160)``.
    """
    configuration = CONFIGURATIONS[problem.configuration]
    return np.stack([drawn(panel, configuration) for panel in (*problem.context, *problem.candidates)])


def _put(ink: Bytes, entity: Entity, slot: Slot) -> None:
    row, column, extent = slot
    (row, top), (column, left) = math.modf(row * SIDE), math.modf(column * SIDE)
    shape = layers(entity.type, SIZES[entity.size], ANGLES[entity.angle], Frame(row, column, extent * SIDE / 2))
    own = _filled(shape, FULL - COLOURS[entity.colour])
    top, left = int(top) + shape.top, int(left) + shape.left
    below = ink[top : top + own.shape[0], left : left + own.shape[1]]
    np.copyto(below, own, where=own > 0)


def _filled(shape: Layers, ink: int) -> Bytes:
    return shape.outline + FILLS[ink].take(shape.fill) if ink else shape.outline
