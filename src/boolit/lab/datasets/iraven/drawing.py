"""Panels as images: 160 × 160 bytes, black ink on white.

A shape has two layers, outline and fill, with the share of every pixel that they cover. They are drawn upright and rotated
about the center of the slot with bilinear interpolation. Rotating and filling are linear, so one pair of layers serves all
greys. Every entity hides those before it wherever it has ink; level 0 of the color has no fill. The line between two components
comes last.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.ndimage import affine_transform

from boolit.lab.datasets.iraven.problems import Panel, Problem
from boolit.lab.datasets.iraven.rules import ANGLES, COLORS, LAYOUTS, SIZES, Layout

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float64]

SIDE = 160
FULL = 255
TRIANGLE, SQUARE, PENTAGON, HEXAGON, CIRCLE = range(1, 6)
CORNERS = {TRIANGLE: 3, PENTAGON: 5, HEXAGON: 6}
HALF_STROKE = 1.0  # outlines are 2 pixels thick
MARGIN = 4  # pixels around a shape: half the stroke, truncation, interpolation, and an empty one
ROUNDING = (0.5, 1e-6)  # of outline and fill, so that their sum is at most 255
CACHED = 4096  # pairs of layers; a configuration has at most 240 per slot
# Ink by the share of a pixel that a fill covers.
FILLS = {FULL - gray: (np.arange(FULL + 1) * (FULL - gray) // FULL).astype(np.uint8) for gray in COLORS}


class Frame(NamedTuple):
    """A slot in pixels: the fractional parts of its center's row and column, and half its extent."""

    row: float
    column: float
    unit: float


@lru_cache(maxsize=CACHED)
def draw_layers(shape: int, size: float, degrees: int, frame: Frame) -> tuple[Bytes, Bytes, int, int]:
    """Return the shares of pixels that outline and fill cover, from 0 to 255, and their first pixel relative to the center's.

    They are cropped to the ink; angles are counter-clockwise.
    """
    upright = _draw_upright(shape, size, frame)
    middle = upright[0].shape[0] // 2
    rotated = (_rotate(layer, degrees, (middle + frame.row, middle + frame.column)) for layer in upright)
    outline, fill = ((FULL * layer + part).astype(np.uint8) for layer, part in zip(rotated, ROUNDING, strict=True))
    rows, columns = (np.flatnonzero((outline | fill).any(axis)) for axis in (1, 0))
    crop = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    return outline[crop].copy(), fill[crop].copy(), int(rows[0]) - middle, int(columns[0]) - middle


@lru_cache(maxsize=512)
def _draw_upright(shape: int, size: float, frame: Frame) -> tuple[Floats, Floats]:
    """Draw the share of every pixel that outline and fill cover; the outline is on top."""
    reach = math.ceil(frame.unit * size) + MARGIN
    steps = np.arange(-reach, reach + 1, dtype=np.float64)
    pixels = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1)
    if shape == CIRCLE:
        radius, from_center = int(frame.unit * size), np.hypot(pixels[..., 0], pixels[..., 1])
        distance, inside = np.abs(from_center - radius), (from_center < radius).astype(np.float64)
    else:
        distance, inside = _polygon(pixels, vertices(shape, size, frame))
    outline = np.clip(HALF_STROKE + 0.5 - distance, 0, 1)
    return outline, inside * (1 - outline)


def vertices(shape: int, size: float, frame: Frame) -> Floats:
    """Return the corners of a polygon relative to the pixel of the center, clockwise, apex up, truncated to whole pixels.

    Shape: ``(corners, 2)``, rows and columns.
    """
    if shape == SQUARE:
        half = int(frame.unit * size / math.sqrt(2))
        offsets = np.array([(-half, -half), (-half, half), (half, half), (half, -half)], np.float64)
    else:
        radius, turns = int(frame.unit * size), np.arange(CORNERS[shape]) * (2 * math.pi / CORNERS[shape])
        offsets = radius * np.stack([-np.cos(turns), np.sin(turns)], 1)
    center = np.array([frame.row, frame.column])
    whole: Floats = np.floor((center + offsets).round(9))  # rounded so that a corner meant to be on a pixel is
    return whole


def _polygon(pixels: Floats, corners: Floats) -> tuple[Floats, Floats]:
    """Return every pixel's distance from the outline of a convex polygon, and whether it is inside."""
    edges = np.roll(corners, -1, 0) - corners
    offset = pixels[..., None, :] - corners
    fraction = np.clip((offset * edges).sum(-1) / np.square(edges).sum(-1), 0, 1)
    nearest = offset - fraction[..., None] * edges
    distance: Floats = np.hypot(nearest[..., 0], nearest[..., 1]).min(-1)
    right = edges[:, 1] * offset[..., 0] - edges[:, 0] * offset[..., 1]  # of the edge, clockwise
    inside: Floats = (right.min(-1) > 0).astype(np.float64)
    return distance, inside


def _rotate(layer: Floats, degrees: int, center: tuple[float, float]) -> Floats:
    if degrees == 0:
        return layer
    radians = math.radians(degrees)
    cosine, sine = round(math.cos(radians), 15), round(math.sin(radians), 15)  # exactly 0 and 1 for right angles
    back = np.array([[cosine, sine], [-sine, cosine]])
    rotated: Floats = affine_transform(layer, back, np.array(center) - back @ np.array(center), order=1)
    return rotated


def draw_panel(panel: Panel, layout: Layout) -> Bytes:
    """Draw a panel. Shape: ``(160, 160)``."""
    ink = np.zeros((SIDE, SIDE), np.uint8)
    for component, entities in zip(layout.components, panel, strict=True):
        for entity in entities:
            row, column, extent = component.slots[entity.slot]
            (row, top), (column, left) = math.modf(row * SIDE), math.modf(column * SIDE)
            frame = Frame(row, column, extent * SIDE / 2)
            outline, fill, above, beside = draw_layers(entity.type, SIZES[entity.size], ANGLES[entity.angle], frame)
            gray = COLORS[entity.color]
            new = outline + FILLS[FULL - gray].take(fill) if gray < FULL else outline
            below = ink[int(top) + above :, int(left) + beside :][: new.shape[0], : new.shape[1]]
            np.copyto(below, new, where=new > 0)
    if layout.line == "vertical":
        ink[:, SIDE // 2] = FULL
    elif layout.line == "horizontal":
        ink[SIDE // 2, :] = FULL
    return FULL - ink


def draw_problem(problem: Problem) -> Bytes:
    """Draw the context of a problem and then its candidates. Shape: ``(16, 160, 160)``."""
    layout = LAYOUTS[problem.configuration]
    return np.stack([draw_panel(panel, layout) for panel in (*problem.context, *problem.candidates)])
