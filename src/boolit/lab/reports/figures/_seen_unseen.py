"""The accuracy of seen pairs against that of unseen ones, along the bias (a:czsl)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from boolit.lab.reports.figures._names import label
from boolit.lab.reports.figures._style import style, styled
from boolit.lab.results.seen_unseen import RunCurve

LEVELS = 5  # lines of one harmonic mean, about


@styled
def seen_against_unseen(found: Sequence[RunCurve]) -> Figure:
    """A curve a run, with its area, and grey lines along which the harmonic mean of both accuracies is the same."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    for each in found:
        look = style(each.activation).plot_arguments() | {"markersize": 4, "linewidth": 1.3}
        name = f"{label(each.activation)}: {100 * each.curve.area:.1f}"
        axes.plot(each.curve.unseen.numpy(), each.curve.seen.numpy(), label=name, **look)
    axes.set(xlabel="accuracy on unseen pairs", ylabel="accuracy on seen pairs")
    axes.set_xlim(0, _end(found, "unseen"))
    axes.set_ylim(0, _end(found, "seen"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    _harmonic_means(axes)
    figure.legend(loc="outside right upper", title="AUC (%)", alignment="left")
    return figure


def _end(found: Sequence[RunCurve], axis: str) -> float:
    """A little more than the best accuracy; the whole axis where none was right."""
    best = max((float(getattr(each.curve, axis).max()) for each in found), default=0.0)
    return min(1.0, 1.08 * best) or 1.0


def _harmonic_means(axes: Axes) -> None:
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    corner = 2 * right * top / (right + top)
    for level in MaxNLocator(LEVELS).tick_values(0, corner):
        if not 0 < level < corner:
            continue
        # Where one accuracy is x and the mean h, the other is h x / (2 x - h); from where that is the top, to the right end.
        x = np.linspace(level * top / (2 * top - level), right, 200)
        y = level * x / (2 * x - level)
        axes.plot(x, y, color="0.85", linewidth=0.8, zorder=0)
        axes.annotate(f"{100 * level:g}", (x[-1], y[-1]), fontsize=7, color="0.6", annotation_clip=False)
