"""A page of problems of one configuration with their candidates and rules, the answer marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from boolit.lab.datasets.raven.configurations import Configuration, configuration_named
from boolit.lab.datasets.raven.drawing import SIDE, Bytes, draw_problem
from boolit.lab.datasets.raven.matrix import Problem
from boolit.lab.datasets.raven.problems import make_problem
from boolit.lab.datasets.raven.rules import Rule

DPI = 100
GAP = 8  # pixels between two panels
STEP = SIDE + GAP
MARGIN, BETWEEN = 24, 48  # around a page, and between a matrix and its candidates
COLUMNS = 4  # of candidates
HEADING, LINE = 40, 20
FONT, LARGE = 9.0, 40.0
CONTEXT = 8
FRAME, ANSWER = (154, 154, 154), (209, 73, 91)


def write_page(path: Path, configuration: str, seed: int, indices: Sequence[int]) -> None:
    """Writes the page of some problems as a PNG, at one pixel of the page per pixel of a panel."""
    kind = configuration_named(configuration)
    block = 3 * STEP + LINE * (len(kind.components) + 1) + MARGIN
    width = 2 * MARGIN + 3 * STEP + BETWEEN + COLUMNS * STEP
    page = _Page(width, HEADING + len(indices) * block + MARGIN)
    page.text(MARGIN, MARGIN - 6, f"{kind.title}: {kind.name}, seed {seed}", FONT + 3)
    for number, index in enumerate(indices):
        problem = make_problem(configuration, seed, index)
        _add_problem(page, problem, kind, f"problem {index}", HEADING + number * block)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save(path)


def rule_text(rule: Rule) -> str:
    """A rule in words.

    Example:
        >>> rule_text(Rule("Progression", "Size", 1)), rule_text(Rule("Arithmetic", "Color", -1))
        ('Size: Progression +1', 'Color: Arithmetic −')
    """
    if rule.name == "Progression":
        return f"{rule.attribute}: {rule.name} {rule.value:+d}".replace("-", "−")
    if rule.name == "Arithmetic":
        return f"{rule.attribute}: {rule.name} {'+' if rule.value > 0 else '−'}"
    return f"{rule.attribute}: {rule.name.replace('_', ' ')}"


class _Page:
    """Pixels with texts, placed from the upper left corner; matplotlib writes the texts and scales nothing."""

    def __init__(self, width: int, height: int) -> None:
        self._pixels = np.full((height, width, 3), 255, np.uint8)
        self._figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
        FigureCanvasAgg(self._figure)

    def image(self, left: int, top: int, panel: Bytes, marked: bool = False) -> None:
        thickness, colour = (3, ANSWER) if marked else (1, FRAME)
        self._pixels[top - thickness : top + SIDE + thickness, left - thickness : left + SIDE + thickness] = colour
        self._pixels[top : top + SIDE, left : left + SIDE] = panel[..., None]

    def text(self, left: float, top: float, text: str, size: float, align: Literal["left", "center"] = "left") -> None:
        below = self._pixels.shape[0] - top
        self._figure.text(left, below, text, transform=None, fontsize=size, va="center", ha=align, parse_math=False)

    def save(self, path: Path) -> None:
        self._figure.figimage(self._pixels)
        self._figure.savefig(path, dpi=DPI, format="png")


def _add_problem(page: _Page, problem: Problem, kind: Configuration, title: str, top: int) -> None:
    panels = draw_problem(problem)
    page.text(MARGIN, top + LINE / 2, f"{title}, answer {problem.target + 1}", FONT)
    for line, (component, rules) in enumerate(zip(kind.components, problem.rules, strict=True), 1):
        page.text(MARGIN, top + LINE * (line + 0.5), f"{component.name} — {'; '.join(map(rule_text, rules))}", FONT)
    top += LINE * (len(kind.components) + 1)
    for place, panel in enumerate(panels[:CONTEXT]):
        page.image(MARGIN + place % 3 * STEP, top + place // 3 * STEP, panel)
    page.image(MARGIN + 2 * STEP, top + 2 * STEP, np.full((SIDE, SIDE), 255, np.uint8))
    page.text(MARGIN + 2 * STEP + SIDE / 2, top + 2 * STEP + SIDE / 2, "?", LARGE, "center")
    left, middle = MARGIN + 3 * STEP + BETWEEN, top + STEP // 2
    for place, panel in enumerate(panels[CONTEXT:]):
        page.image(left + place % COLUMNS * STEP, middle + place // COLUMNS * STEP, panel, place == problem.target)
