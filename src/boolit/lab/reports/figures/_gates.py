"""The gates themselves: exact, approximate, and what one might use instead (fig:AND, fig:OR, fig:XNOR, a:relu)."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from boolit.lab.reports.figures._names import label
from boolit.lab.reports.figures._plane import REACH, colour_bar, heatmap, plane, surface
from boolit.lab.reports.figures._style import styled

# NOTE[paper]: the caption and third panel of fig:AND say max(x, y); AND is approximated by the minimum.
ROUGH = {"and": "min", "or": "max", "xnor": "signed_geomean"}
_ROUGH_TITLES = {"min": "min(x, y)", "max": "max(x, y)", "signed_geomean": "SignedGeomean(x, y)"}


@styled
def gate(op: str) -> Figure:
    """IL, AIL and the rough approximation of a gate on one colour scale."""
    x, y = plane()
    specs = [f"{op}_il", f"{op}_ail", ROUGH[op]]
    values = [surface(spec, x, y) for spec in specs]
    limit = max(float(value.abs().max()) for value in values)
    step = 1 if limit < 7 else 2
    figure = Figure(figsize=(9.6, 3.3), layout="compressed")
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, spec, value in zip(panels, specs, values, strict=True):
        image = heatmap(axes, value, limit, range(-10, 11, step))
        axes.set_title(_ROUGH_TITLES.get(spec, label(spec)))
    colour_bar(figure, image, panels, "output logit")
    return figure


@styled
def relu_approximation() -> Figure:
    """What two ReLU units and a linear layer make of OR."""
    x, y = plane()
    surfaces = {
        "ReLU(x)": torch.relu(x),
        "ReLU(y)": torch.relu(y),
        "ReLU(x) + ReLU(y)": torch.relu(x) + torch.relu(y),
        label("or_il"): surface("or_il", x, y),
    }
    figure = Figure(figsize=(6.6, 5.6), layout="compressed")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, (title, value) in zip(panels.flat, surfaces.items(), strict=True):
        image = heatmap(axes, value, 2 * REACH, range(-10, 11, 2))
        axes.set_title(title)
    _mark_dead(panels[0, 0], Rectangle((-REACH, -REACH), REACH, 2 * REACH))
    _mark_dead(panels[0, 1], Rectangle((-REACH, -REACH), 2 * REACH, REACH))
    _mark_dead(panels[1, 0], Rectangle((-REACH, -REACH), REACH, REACH))
    colour_bar(figure, image, panels, "output")
    return figure


def _mark_dead(axes: Axes, region: Rectangle) -> None:
    """Hatches the region where the output is 0."""
    region.set(facecolor="none", edgecolor="0.75", hatch="//", linewidth=0)
    axes.add_patch(region)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    x, y = region.get_center()
    axes.text(x, y, "dead: 0", ha="center", va="center", bbox=box)
