"""Differences between AIL and IL, and their gradients (a:diff, a:gradients)."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from boolit.lab.paper.figures.gates import color_bar, heatmap, plane, surface
from boolit.lab.paper.figures.look import styled
from boolit.lab.results.names import paper_name

# Where |AIL - IL| is largest, in numbers and words, the closed form of its value, and a free corner of the panel.
# NOTE[paper]: a:diff says the difference never exceeds 1; it reaches ln 3 for AND and OR, and tends to ln 2 for XNOR.
LARGEST_DIFFERENCES = {
    "and": ((0.0, 0.0), "at the origin", "ln 3", (0, 0)),
    "or": ((0.0, 0.0), "at the origin", "ln 3", (1, 1)),
    "xnor": ((50.0, 50.0), "as |x| = |y| → ∞", "ln 2", (0.5, 0)),
}


def difference(op: str, x: Tensor, y: Tensor) -> Tensor:
    """Return AIL - IL of a gate."""
    return surface(f"{op}_ail", x, y) - surface(f"{op}_il", x, y)


@styled
def differences(op: str) -> Figure:
    """Draw IL, AIL, AIL - IL, and its size relative to |IL|."""
    x, y = plane()
    exact, approximate = surface(f"{op}_il", x, y), surface(f"{op}_ail", x, y)
    limit = max(float(exact.abs().max()), float(approximate.abs().max()))
    figure = Figure(figsize=(7.6, 6.2), layout="compressed")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, spec, values in zip(panels[0], (f"{op}_il", f"{op}_ail"), (exact, approximate), strict=True):
        image = heatmap(axes, values, limit, range(-10, 11, 1 if limit < 7 else 2))
        axes.set_title(paper_name(spec, "mathtext"))
        color_bar(figure, image, axes)
    image = heatmap(panels[1, 0], approximate - exact, 1.1, (-1, -0.5, -0.1, 0.1, 0.5, 1))
    panels[1, 0].set_title("difference, AIL − IL")
    _state_maximum(panels[1, 0], op)
    color_bar(figure, image, panels[1, 0])
    image = heatmap(panels[1, 1], (approximate - exact).abs() / exact.abs(), 1.0, (0.1, 0.5), positive=True)
    panels[1, 1].set_title("relative difference, |AIL − IL| / |IL|")
    color_bar(figure, image, panels[1, 1], extend="max")
    return figure


def _state_maximum(axes: Axes, op: str) -> None:
    """Write the largest difference and its closed form into the panel."""
    point, place, closed_form, (right, up) = LARGEST_DIFFERENCES[op]
    size = float(difference(op, *torch.tensor(point, dtype=torch.float64)[:, None]).abs())
    axes.annotate(
        f"largest |AIL − IL|:\n{size:.4f} = {closed_form}\n{place}",
        (0.03 + 0.94 * right, 0.03 + 0.94 * up),
        xycoords="axes fraction",
        ha={0: "left", 0.5: "center", 1: "right"}[right],
        va="top" if up else "bottom",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2},
    )


def slopes(spec: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return ∂/∂x and ∂/∂y of a 2→1 activation, by autograd."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    by_x, by_y = torch.autograd.grad(surface(spec, x, y).sum(), (x, y))
    return by_x, by_y


@styled
def gradients(op: str) -> Figure:
    """Draw ∂/∂x and ∂/∂y of IL (above) and of AIL (below)."""
    figure = Figure(figsize=(6.6, 5.6), layout="compressed")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, spec in zip(panels, (f"{op}_il", f"{op}_ail"), strict=True):
        for axes, name, values in zip(row, "xy", slopes(spec, *plane()), strict=True):
            levels = (-0.8, -0.5, -0.2, 0.2, 0.5, 0.8) if spec.endswith("_il") else ()
            image = heatmap(axes, values, 1.0, levels)
            axes.set_title(f"∂ {paper_name(spec, 'mathtext')} / ∂{name}")
    color_bar(figure, image, panels, "slope")
    return figure
