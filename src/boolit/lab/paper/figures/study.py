"""Which figures there are to draw of a study's records; what one of them needs is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from safetensors.torch import load_file
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.datasets import load, source
from boolit.lab.models import restore
from boolit.lab.reports.figures.results import (
    MIDDLE_HALF,
    MOST_DRAWN,
    accuracy_against_parameters,
    learning_curves,
    left_out,
    rank_activations,
    solved_share,
)
from boolit.lab.reports.figures.style import style, styled
from boolit.lab.results.names import label
from boolit.lab.results.run_table import RunTable
from boolit.lab.results.scores import Score, ScoreFormat, metric_of, scores, size_of
from boolit.lab.results.statistics import compare
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Record
from boolit.lab.training.job import Job
from boolit.lab.training.metrics import predict

if TYPE_CHECKING:
    from boolit.lab.datasets.czsl import Curve
    from boolit.lab.reports.figures.networks import MLPWeights

NamedFigure = tuple[str, str, Figure]  # name, caption and figure
SEEN_UNSEEN = {"test_seen", "test_unseen"}  # metrics of runs that choose pairs
MAX_DRAWABLE_WIDTH = 16  # lines between more units cannot be told apart
MAX_CURVES = 16  # of one figure: more cannot be followed
MAX_MAPS = 8  # decision maps of one figure: two rows of four
LEVELS = 5  # lines of one harmonic mean, about
BEST_FIRST = " The best mean comes first, as in the table."


def study_figures(
    records: Sequence[Record], store: Store, solved: float | None = None, order: Sequence[str] = ()
) -> Iterator[NamedFigure]:
    """Every figure that the records can show, with activations in one order: the table's ranking, unless another is given."""
    runs = RunTable.of(records)
    metric = metric_of(runs)
    found = scores(runs, metric.key)
    words, ranked = _words(metric), "" if order else BEST_FIRST
    order = order or rank_activations(found, metric)
    several = len({(score.activation, score.size) for score in found}) > len({score.activation for score in found})
    best = ", each activation at its best size" if several else ""
    drawn = _first_of(order, MAX_CURVES)
    listed = ranked + _omitted(order, drawn)
    best_sizes = _of_best_sizes(runs, found, metric).where(lambda config: config.activation in drawn)
    curves, omitted = runs_to_draw(best_sizes)
    caption = f"{words} by epoch{best}: the median and {MIDDLE_HALF}.{listed}{omitted}"
    yield "curves", caption, learning_curves(curves, metric.key, order=order)
    if several:
        shown = [score for score in found if score.activation in drawn]
        every = f"the first {MOST_DRAWN:,} runs" if max(len(score.values) for score in shown) > MOST_DRAWN else "every run"
        caption = f"{words} against parameters: {every} a dot, the median of each size, and {MIDDLE_HALF}.{listed}"
        yield "sizes", caption, accuracy_against_parameters(shown, metric.key, order=order)
    if solved is not None:
        threshold = f"{100 * solved:g} %" if metric.percent else f"{solved:g}"
        caption = f"The share of runs whose {words} reaches {threshold}, with its 95 % interval.{ranked}"
        yield "solved", caption, solved_share(found, solved, metric.key, metric.goal, order)
    kept = runs.take(runs.columns["finished"]).with_keys(store.kept_weights())
    yield from _of_weights(kept, metric, store, order)


def runs_to_draw(runs: RunTable) -> tuple[RunTable, str]:
    """The runs that are drawn, at most `MOST_DRAWN` of an activation and size, and a sentence about the others."""
    drawn = runs.first_of_each(lambda config: (config.activation, config.depth, config.parameters), MOST_DRAWN)
    return drawn, left_out(runs, drawn)


def _first_of(order: Sequence[str], most: int) -> list[str]:
    """The first so many of the order, the last of them replaced by ReLU if that comes later."""
    return [*order[: most - 1], "relu"] if "relu" in order[most:] else list(order[:most])


def _omitted(order: Sequence[str], drawn: Sequence[str]) -> str:
    return f" Not drawn: {len(order) - len(drawn)} further activations." if len(order) > len(drawn) else ""


def _of_best_sizes(runs: RunTable, found: Sequence[Score], metric: Metric) -> RunTable:
    """Of each activation and depth the runs of the size that the table compares."""
    depths = {score.depth for score in found}
    comparisons = [compare([score for score in found if score.depth == depth], metric) for depth in depths]
    best = {(each.activation, each.size, each.depth) for comparison in comparisons for each in comparison.ranking}
    return runs.where(lambda config: (config.activation, size_of(config), config.depth) in best)


def _of_weights(runs: RunTable, metric: Metric, store: Store, order: Sequence[str]) -> Iterator[NamedFigure]:
    chosen = choose_by(runs, metric)
    best = _best_of_each(runs, chosen)
    drawable = [record for record in best if _drawable(record)]
    places = {spec: place for place, spec in enumerate(order)}
    listed = sorted(best, key=lambda record: places.get(record.config.activation, len(places)))
    if drawable:
        from boolit.lab.reports.figures.networks import learnt_weights

        leader, *others = drawable
        other = next((record for record in others if record.config.activation == "relu"), others[0] if others else None)
        networks = [_mlp_weights(r, metric, store.weights(r.key)) for r in listed if r is leader or r is other]
        caption = f"The weights that {_best_seed(chosen)} learnt: wider lines for larger ones, orange positive, blue negative."
        yield "weights", caption, learnt_weights(*networks)
    if any(not _drawable(record) for record in best if record.config.model["name"] == "mlp"):
        from boolit.lab.reports.figures.correlations import measure_correlations, row_correlations

        compared, omitted = runs_to_draw(runs)
        caption = (
            "How alike the rows of the first weight matrix are that a gate reads together (neighbours, where it reads one), "
            "and all other pairs of rows. Titles: runs × rows; mean and standard deviation of pairs, and that of the others."
        )
        found = measure_correlations(store, records=compared)
        found.sort(key=lambda each: places.get(each.activation, len(places)))
        yield "correlations", caption + omitted, row_correlations(found)
    yield from _of_pairs(listed, chosen, store)
    planes = [record for record in listed if record.config.inputs == [2] and metric.percent]
    if planes:
        yield "decisions", *_decisions(planes, chosen, metric, store)


def _decisions(planes: Sequence[Record], chosen: Metric, metric: Metric, store: Store) -> tuple[str, Figure]:
    """The caption and the maps of the first `MAX_MAPS` activations, with ReLU among them."""
    from boolit.lab.reports.figures.networks import xor_decision

    activations = [record.config.activation for record in planes]
    drawn = _first_of(activations, MAX_MAPS)
    shown = [record for record in planes if record.config.activation in drawn]
    samples = load(source(planes[0].config.data)).splits["train"]
    models = {r.config.activation: _model(r, store.weights(r.key)) for r in shown}
    notes = {r.config.activation: f"{_words(metric)} {_shown_score(r, metric)}" for r in shown}
    caption = (
        f"The probability that {_best_seed(chosen)} of each activation gives to every point of the plane. The dashed box holds "
        "all training samples (circles negative, squares positive): beyond it, the network extrapolates."
    )
    return caption + _omitted(activations, drawn), xor_decision(models, samples.x, samples.y.flatten(), notes)


def _of_pairs(best: Sequence[Record], chosen: Metric, store: Store) -> Iterator[NamedFigure]:
    choosing = [record for record in best if set(record.metrics) >= SEEN_UNSEEN]
    if choosing:
        caption = (
            f"What {_best_seed(chosen)} of each activation gets right of seen and of unseen pairs, from a low bias of the "
            "latter to a high one; along a grey line, the harmonic mean of both (its number, in percent) is the same."
        )
        yield "seen-unseen", caption, seen_against_unseen([measure_seen_unseen(record, store) for record in choosing])


@dataclass(frozen=True)
class RunCurve:
    """The accuracy of one run on seen against unseen pairs of the test split, along the bias (a:czsl)."""

    activation: str
    curve: Curve


def measure_seen_unseen(record: Record, store: Store) -> RunCurve:
    """The curve for one guess per sample, of a run whose weights were kept."""
    from boolit.lab.datasets.czsl import CompositionalDataset, curves

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


@styled
def seen_against_unseen(found: Sequence[RunCurve]) -> Figure:
    """A curve per run, with its area, and grey lines along which the harmonic mean of both accuracies is the same."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    for each in found:
        look = style(each.activation).plot_arguments() | {"markersize": 5, "markevery": 0.1, "linewidth": 1.4}
        name = f"{label(each.activation)}: {100 * each.curve.area:.1f}"
        axes.plot(each.curve.unseen.numpy(), each.curve.seen.numpy(), label=name, **look)
    axes.set(xlabel="accuracy on unseen pairs", ylabel="accuracy on seen pairs")
    axes.set_xlim(0, _axis_end(found, "unseen"))
    axes.set_ylim(0, _axis_end(found, "seen"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    _draw_harmonic_means(axes)
    figure.legend(loc="outside right upper", title="AUC (%)", alignment="left")
    return figure


def _axis_end(found: Sequence[RunCurve], axis: str) -> float:
    """A little more than the best accuracy; the whole axis where none was right."""
    best = max((float(getattr(each.curve, axis).max()) for each in found), default=0.0)
    return min(1.0, 1.08 * best) or 1.0


def _draw_harmonic_means(axes: Axes) -> None:
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    corner = 2 * right * top / (right + top)
    for level in MaxNLocator(LEVELS).tick_values(0, corner):
        if not 0 < level < corner:
            continue
        # Where one accuracy is x and the mean h, the other is h x / (2 x - h); from where that is the top, to the right end.
        x = np.linspace(level * top / (2 * top - level), right, 200)
        y = level * x / (2 * x - level)
        axes.plot(x, y, color="0.85", linewidth=0.8, zorder=0)
        axes.annotate(f"{100 * level:g}", (x[-1], y[-1]), fontsize=8, color="0.4", annotation_clip=False)


def choose_by(records: Sequence[Record], metric: Metric) -> Metric:
    """The metric that chooses the runs to draw: the study's metric on ``valid``, or else on ``train``; never on ``test``."""
    runs = RunTable.of(records)
    present = [set(runs.names[place]) for place in np.unique(runs.columns["names"])]
    known = set.intersection(*present) if present else set()
    others = (metric.model_copy(update={"split": split}) for split in ("valid", "train"))
    return next((other for other in others if other.key in known), Metric(name="loss", split="train"))


def _best_seed(chosen: Metric) -> str:
    return f"the seed with the best {_words(chosen)}"


def _best_of_each(records: Sequence[Record], metric: Metric) -> list[Record]:
    """The best run of every activation, the best one first."""
    runs = RunTable.of(records)
    values = runs.metric(metric.key) * (1 if metric.goal == "max" else -1)
    merits = np.where(np.isnan(values), -np.inf, values)
    best = [rows[np.argmax(merits[rows])] for rows in runs.rows_by(lambda config: config.activation).values()]
    return [runs[row] for row in sorted(best, key=lambda row: (-merits[row], row))]


def _mlp_weights(record: Record, metric: Metric, path: Path) -> MLPWeights:
    from boolit.lab.reports.figures.networks import MLPWeights

    weights = load_file(path)
    layers = [weights[f"linear.{i}.weight"] for i in range(len(record.config.width) + 1)]
    spec = record.config.activation
    return MLPWeights(spec, layers, f"{label(spec)}: {_words(metric)} {_shown_score(record, metric)}")


def _shown_score(record: Record, metric: Metric) -> str:
    shown = ScoreFormat(metric.percent, 1 if metric.percent else 3)
    return f"{shown.number(record.metrics[metric.key])}{shown.unit}"


def _model(record: Record, path: Path) -> Callable[[Tensor], Tensor]:
    """A run's network as a function of a batch."""
    network = restore(record.config, load_file(path))
    return lambda x: network(x.unsqueeze(0))[0]  # stacked, of one run


def _drawable(record: Record) -> bool:
    return record.config.model["name"] == "mlp" and max(record.config.width) <= MAX_DRAWABLE_WIDTH


def _words(metric: Metric) -> str:
    return metric.key.replace("_", " ")
