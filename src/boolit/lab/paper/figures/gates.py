"""Gates as heatmaps of two logits: exact, approximate and simpler ones, and ReLU (fig:AND, fig:OR, fig:XNOR, a:relu)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from boolit.lab.paper.figures.look import DIVERGING, SEQUENTIAL, styled
from boolit.lab.results.names import paper_name
from boolit.nn import activation

REACH = 5.0
POINTS = 300  # even, so no grid line lies on an axis, where a relative difference may be 0/0


def plane(reach: float = REACH, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """Return x (growing along columns) and y (growing along rows) of a square around the origin."""
    line = torch.linspace(-reach, reach, points, dtype=torch.float64)
    y, x = torch.meshgrid(line, line, indexing="ij")
    return x, y


def surface(spec: str, x: Tensor, y: Tensor) -> Tensor:
    """Apply a 2→1 activation to x and y."""
    output: Tensor = activation(spec)(torch.stack([x, y], -1))
    return output.squeeze(-1)


def heatmap(axes: Axes, values: Tensor, limit: float, contours: Sequence[float] = (), positive: bool = False) -> AxesImage:
    """Draw values on a scale from -limit (blue) over 0 (white) to limit (orange), with labeled contours.

    With ``positive``, the scale goes from 0 (white) to limit (orange).
    """
    low, colors = (0.0, SEQUENTIAL) if positive else (-limit, DIVERGING)
    corners = (-REACH, REACH, -REACH, REACH)
    image = axes.imshow(values.numpy(), cmap=colors, vmin=low, vmax=limit, origin="lower", extent=corners)
    axes.set(xlabel="x", ylabel="y", aspect="equal")
    axes.label_outer()
    inside = [level for level in contours if float(values.min()) < level < float(values.max())]
    if inside:
        line = np.linspace(-REACH, REACH, values.shape[0])
        widths = [1.4 if level == 0 else 0.6 for level in inside]
        lines = axes.contour(line, line, values.numpy(), levels=inside, colors="0.15", linewidths=widths)
        axes.clabel(lines, fontsize=7, fmt="%g", manual=_label_positions(lines, 0.88 * REACH))
    return image


def _label_positions(lines: QuadContourSet, reach: float) -> list[tuple[float, float]]:
    """Return a point per contour, a third along the part that is not near the edge, where a label would be cut."""
    positions = []
    for segments in lines.allsegs:
        longest = max(segments, key=len)
        inner = longest[np.abs(longest).max(axis=1) < reach]
        small_loop = (longest[0] == longest[-1]).all() and np.ptp(longest, axis=0).max() < reach / 4
        if len(inner) > 45 and not small_loop:  # those would vanish under their label
            x, y = inner[len(inner) // 3]
            positions.append((float(x), float(y)))
    return positions


def color_bar(
    figure: Figure, image: AxesImage, panels: Any, label: str = "", extend: Literal["neither", "max"] = "neither"
) -> None:
    """Draw the scale beside its panels."""
    figure.colorbar(image, ax=panels, label=label, extend=extend, pad=0.02, ticks=MaxNLocator(5, steps=[1, 2, 5, 10]))


# NOTE[paper]: the caption and third panel of fig:AND say max(x, y); AND is approximated by the minimum.
ROUGH = {"and": "min", "or": "max", "xnor": "signed_geomean"}
_ROUGH_TITLES = {"min": "min(x, y)", "max": "max(x, y)", "signed_geomean": "SignedGeomean(x, y)"}


@styled
def gate(op: str) -> Figure:
    """Draw IL, AIL and the rough approximation of a gate on one color scale."""
    x, y = plane()
    specs = [f"{op}_il", f"{op}_ail", ROUGH[op]]
    values = [surface(spec, x, y) for spec in specs]
    limit = max(float(value.abs().max()) for value in values)
    step = 1 if limit < 7 else 2
    figure = Figure(figsize=(7.4, 2.75), layout="compressed")
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, spec, value in zip(panels, specs, values, strict=True):
        image = heatmap(axes, value, limit, range(-10, 11, step))
        axes.set_title(_ROUGH_TITLES.get(spec, paper_name(spec, "mathtext")))
    color_bar(figure, image, panels, "output logit")
    return figure


@styled
def relu_approximation() -> Figure:
    """Draw OR as two ReLU units and a linear layer approximate it."""
    x, y = plane()
    surfaces = {
        "ReLU(x)": torch.relu(x),
        "ReLU(y)": torch.relu(y),
        "ReLU(x) + ReLU(y)": torch.relu(x) + torch.relu(y),
        paper_name("or_il", "mathtext"): surface("or_il", x, y),
    }
    figure = Figure(figsize=(6.6, 5.6), layout="compressed")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, (title, value) in zip(panels.flat, surfaces.items(), strict=True):
        image = heatmap(axes, value, 2 * REACH, range(-10, 11, 2))
        axes.set_title(title)
    _mark_dead(panels[0, 0], Rectangle((-REACH, -REACH), REACH, 2 * REACH))
    _mark_dead(panels[0, 1], Rectangle((-REACH, -REACH), 2 * REACH, REACH))
    _mark_dead(panels[1, 0], Rectangle((-REACH, -REACH), REACH, REACH))
    color_bar(figure, image, panels, "output")
    return figure


def _mark_dead(axes: Axes, region: Rectangle) -> None:
    region.set(facecolor="none", edgecolor="0.75", hatch="//", linewidth=0)
    axes.add_patch(region)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    x, y = region.get_center()
    axes.text(x, y, "dead: 0", ha="center", va="center", bbox=box)


# The question each activation answers, and its sign for x > 0 and x < 0, first where y > 0 and then where y < 0.
OVERVIEW = {
    "or_ail": ("is either true?", "++", "+−"),
    "and_ail": ("are both true?", "+−", "−−"),
    "xnor_ail": ("do they agree?", "+−", "−+"),
    "relu": ("is it positive?", "+0", "+0"),
}
_OVERVIEW_LIMIT = 8.0  # of the color scale


@styled
def overview() -> Figure:
    """Draw OR, AND and XNOR of two neurons beside ReLU of one: what each reads, asks and answers."""
    x, y = plane(points=200)
    figure = Figure(figsize=(10, 3.4))
    grid = figure.add_gridspec(2, 5, height_ratios=(0.95, 2.6), width_ratios=(1, 1, 1, 1, 0.08), hspace=0.13, wspace=0.2)
    figure.subplots_adjust(left=0.035, right=0.925, bottom=0.08, top=1.0)
    for column, (spec, (question, above, below)) in enumerate(OVERVIEW.items()):
        wires, axes = (figure.add_subplot(grid[row, column]) for row in (0, 1))
        reads = activation(spec).channels[0]
        _draw_neurons(wires, paper_name(spec, "mathtext"), reads)
        image = heatmap(axes, surface(spec, x, y) if reads == 2 else torch.relu(x), _OVERVIEW_LIMIT)
        if reads == 2:
            axes.contour(x.numpy(), y.numpy(), surface(spec, x, y).numpy(), levels=[0], colors="0.15", linewidths=1.4)
        _write_answers(axes, above, below)
        axes.set_title(question, fontsize=17, pad=6)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
        axes.text(0.5, -0.03, "x", ha="center", va="top", fontsize=17, transform=axes.transAxes)
        axes.text(-0.03, 0.5, "y", ha="right", va="center", fontsize=17, transform=axes.transAxes)
    ends = [-_OVERVIEW_LIMIT, 0, _OVERVIEW_LIMIT]
    bar = figure.colorbar(image, cax=figure.add_subplot(grid[1, 4]), extend="both", ticks=ends)
    bar.ax.set_yticklabels(["false", "0", "true"], fontsize=17)
    return figure


def _draw_neurons(axes: Axes, name: str, reads: int) -> None:
    box = FancyBboxPatch(
        (0.32, 0.19), 0.58, 0.62, boxstyle="round,pad=0,rounding_size=0.08", fc="white", ec="0.15", lw=2, zorder=3
    )
    axes.add_patch(box)
    axes.text(0.61, 0.5, name, ha="center", va="center", fontsize=17, zorder=4)
    axes.plot([0.9, 1.0], [0.5, 0.5], color="0.15", linewidth=2)
    heights = (0.8, 0.2) if reads == 2 else (0.5,)
    for letter, height in zip("xy", heights, strict=False):
        axes.plot([0.1, 0.32], [height, 0.5], color="0.15", linewidth=2, zorder=1)
        axes.plot(0.1, height, marker="o", markersize=21, markerfacecolor="white", markeredgecolor="0.15", markeredgewidth=2)
        axes.text(0.1, height, letter, ha="center", va="center_baseline", fontsize=16)
    axes.set(xlim=(0, 1), ylim=(-0.08, 1.08))
    axes.axis("off")


def _write_answers(axes: Axes, above: str, below: str) -> None:
    for column, place in enumerate((REACH / 2, -REACH / 2)):
        signs = (above[column], below[column])
        heights = (0.0,) if above == below else (REACH / 2, -REACH / 2)
        for sign, height in zip(signs, heights, strict=False):
            axes.text(place, height, sign, ha="center", va="center", fontsize=26, fontweight="bold", color="0.1")
