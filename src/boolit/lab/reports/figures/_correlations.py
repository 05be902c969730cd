"""How alike the weight rows are that a gate reads together, beside all others (fig:correlations)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from boolit.lab.reports.figures._names import label
from boolit.lab.reports.figures._style import style, styled
from boolit.lab.results.correlations import Correlations

EDGES = np.linspace(-1, 1, 81).tolist()
_COLUMNS = 3


@styled
def row_correlations(found: Sequence[Correlations]) -> Figure:
    """A panel an activation: densities of the cosine similarity of paired rows and of all other pairs."""
    columns = min(_COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    figure = Figure(figsize=(3.2 * columns, 0.6 + 2.0 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    several = len({each.study for each in found}) > 1
    for axes, each in zip(panels, found, strict=False):
        _panel(axes, each, f"{each.study}: " if several else "")
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    figure.supxlabel("cosine similarity of two rows of the weight matrix")
    figure.supylabel("density")
    return figure


def _panel(axes: Axes, each: Correlations, study: str) -> None:
    figures = each.figures()
    axes.hist(
        each.others.numpy(), EDGES, density=len(each.others) > 0, color="0.8", label=f"others: sd {figures['others_sd']:.2f}"
    )
    name = f"paired: {figures['paired_mean']:+.2f} ± {figures['paired_sd']:.2f}".replace("-", "−")
    look: dict[str, Any] = {"histtype": "step", "linewidth": 1.6, "color": style(each.activation).colour}
    axes.hist(each.paired.numpy(), EDGES[::2], density=len(each.paired) > 0, label=name, **look)
    axes.axvline(0, color="0.4", linewidth=0.6)
    axes.set_title(f"{study}{label(each.activation)}, {each.runs} runs of width {each.width}")
    axes.legend(loc="upper right", fontsize="x-small")
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_yticks([])
