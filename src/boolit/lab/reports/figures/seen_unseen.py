"""The accuracy of seen pairs against that of unseen ones, along the bias (a:czsl)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from safetensors.torch import load_file

from boolit.lab.common.errors import UserError
from boolit.lab.datasets.composition import Curve, curves
from boolit.lab.datasets.composition.base import CompositionalDataset
from boolit.lab.models import restore
from boolit.lab.reports.figures.style import style, styled
from boolit.lab.reports.names import label
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.training.job import Job
from boolit.lab.training.metrics import predict

# What finished networks that choose pairs are worth on seen and unseen ones, at every bias (a:czsl).


@dataclass(frozen=True)
class RunCurve:
    """The curve of one run on the test split."""

    activation: str
    curve: Curve


def seen_unseen(record: Record, store: Store) -> RunCurve:
    """The curve for one guess of a run whose weights were kept."""
    config = record.config
    job = Job.of([config])
    if not isinstance(job.dataset, CompositionalDataset):
        raise UserError(
            f"run {record.key} has the data {config.data['name']!r}, which has no pairs; give a run of a set that has"
        )
    test, network = job.dataset.splits["test"], restore(config, load_file(store.weights(record.key)))
    scores = torch.cat([piece for _, piece in predict(job, network, test.x)], 1)
    (of_depths,) = curves(scores, test.y, job.dataset.pairs, "test", depths=(1,))
    return RunCurve(config.activation, of_depths[0])


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
