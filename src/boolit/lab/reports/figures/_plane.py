"""Functions of two logits as heatmaps with contours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from boolit.lab.reports.figures._style import DIVERGING, SEQUENTIAL
from boolit.nn import activation

Extend: TypeAlias = Literal["neither", "min", "max", "both"]

REACH = 5.0
POINTS = 300  # even, so no grid line lies on an axis, where a relative difference may be 0/0


def plane(reach: float = REACH, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """x (growing along columns) and y (growing along rows) of a square around the origin.

    Shape: two of ``(points, points)``.
    """
    line = torch.linspace(-reach, reach, points, dtype=torch.float64)
    y, x = torch.meshgrid(line, line, indexing="ij")
    return x, y


def surface(spec: str, x: Tensor, y: Tensor) -> Tensor:
    """A 2→1 activation of x and y.

    Shape: that of x.
    """
    output: Tensor = activation(spec)(torch.stack([x, y], -1))
    return output.squeeze(-1)


def heatmap(axes: Axes, values: Tensor, limit: float, contours: Sequence[float] = (), reach: float = REACH) -> AxesImage:
    """Draws ``values`` on a scale from -limit (blue) over 0 (white) to limit (orange), with labelled contours."""
    return _draw(axes, values, (-limit, limit), contours, reach)


def positive_heatmap(axes: Axes, values: Tensor, limit: float, contours: Sequence[float] = ()) -> AxesImage:
    """Draws sizes, which have no sign, on the orange half of that scale."""
    return _draw(axes, values, (0.0, limit), contours, REACH)


def _draw(axes: Axes, values: Tensor, limits: tuple[float, float], contours: Sequence[float], reach: float) -> AxesImage:
    low, high = limits
    colours = DIVERGING if low < 0 else SEQUENTIAL
    corners = (-reach, reach, -reach, reach)
    image = axes.imshow(values.numpy(), cmap=colours, vmin=low, vmax=high, origin="lower", extent=corners)
    axes.set(xlabel="x", ylabel="y", aspect="equal")
    axes.label_outer()
    inside = [level for level in contours if float(values.min()) < level < float(values.max())]
    if inside:
        line = np.linspace(-reach, reach, values.shape[0])
        widths = [1.4 if level == 0 else 0.6 for level in inside]
        lines = axes.contour(line, line, values.numpy(), levels=inside, colors="0.15", linewidths=widths)
        axes.clabel(lines, fontsize=7, fmt="%g", manual=_label_positions(lines, 0.88 * reach))
    return image


def _label_positions(lines: QuadContourSet, reach: float) -> list[tuple[float, float]]:
    """One point a contour, a third along the part of it that is not near the edge, where a label would be cut."""
    positions = []
    for segments in lines.allsegs:
        longest = max(segments, key=len)
        inner = longest[np.abs(longest).max(axis=1) < reach]
        small_loop = (longest[0] == longest[-1]).all() and np.ptp(longest, axis=0).max() < reach / 4
        if len(inner) > 45 and not small_loop:  # those would vanish under their label
            x, y = inner[len(inner) // 3]
            positions.append((float(x), float(y)))
    return positions


def colour_bar(figure: Figure, image: AxesImage, panels: Any, label: str = "", extend: Extend = "neither") -> None:
    """The scale beside its panels, with few and round numbers."""
    figure.colorbar(image, ax=panels, label=label, extend=extend, pad=0.02, ticks=MaxNLocator(5, steps=[1, 2, 5, 10]))
