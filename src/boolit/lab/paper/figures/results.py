"""Figures of results: accuracy against size, learning curves, the share of runs that solve a task.

Names are in the order of the report's table wherever they are listed: the best mean first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from boolit.lab.reports.figures.style import style, styled
from boolit.lab.results.names import label, shorten_numbers, sort_key
from boolit.lab.results.scores import Score, scores
from boolit.lab.results.statistics import compare
from boolit.lab.runs import Metric, Record, in_percent

NAMES_IN_COLUMN, COLUMN_INCHES = 17, 1.9  # of a legend that is as high as the panels
BAND = (0.25, 0.75)  # quantiles of runs: the middle half of them
MIDDLE_HALF = "the middle half of the runs, from the 25 % to the 75 % quantile"
MOST_DRAWN = 1000  # runs of an activation and size: more dots hide each other, and more curves change no quantile that is seen
Bars = Literal["quantiles", "sd", "se"]
Array = np.ndarray[Any, np.dtype[np.float64]]
T = TypeVar("T")
_CENTRES = {
    "quantiles": "median; bar: 25 % to 75 % of runs",
    "sd": "mean; bar: standard deviation",
    "se": "mean; bar: standard error",
}


def rank_activations(found: Sequence[Score], metric: Metric) -> list[str]:
    """The activations as the table of a study ranks them: each at its best size, the best mean first.

    Example:
        >>> rank_activations([Score("relu", 9, (0.5, 0.6)), Score("xnor_ail", 9, (0.9, 0.8))], Metric(name="accuracy"))
        ['xnor_ail', 'relu']
    """
    return [summary.activation for summary in compare(found, metric).ranking] if found else []


def left_out(runs: Sequence[object], drawn: Sequence[object]) -> str:
    """A sentence that says how many runs are drawn if not all are.

    Example:
        >>> left_out(range(2_000_000), range(16_000)), left_out(range(9), range(9))
        (' Drawn are the first 1,000 runs of each activation and size, by seed: 16,000 of 2,000,000.', '')
    """
    if len(drawn) == len(runs):
        return ""
    return f" Drawn are the first {MOST_DRAWN:,} runs of each activation and size, by seed: {len(drawn):,} of {len(runs):,}."


@styled
def accuracy_against_parameters(
    scores: Iterable[Score], metric: str = "accuracy", bars: Bars = "quantiles", order: Sequence[str] = ()
) -> Figure:
    """Runs as faint dots, and the middle of each activation at every size, with a bar; a panel per depth.

    Of more than `MOST_DRAWN` runs of a size, the first are dots; the middle is of all. It is the median, or the mean with bars
    of ``"sd"`` or ``"se"``; no bar leaves the range of its runs. Sizes are on
    a logarithmic axis; ``order`` is that of the legend.
    """
    by_depth = _grouped((score.depth, score) for score in scores)
    figure, panels = _panels(sorted(by_depth), metric, _CENTRES[bars])
    for depth, axes in panels.items():
        for spec, members in _in_order(_grouped((score.activation, score) for score in by_depth[depth]), order).items():
            _draw_sizes(axes, spec, members, bars)
        axes.set(xscale="log", xlabel="parameters")
        _show_numbers(axes, [score.size for score in by_depth[depth]])
    _keep_within_shares(panels.values(), metric)
    _legend(figure, panels.values(), order)
    return figure


def _show_numbers(axes: Axes, sizes: Sequence[int]) -> None:
    """Writes round sizes in full or with a letter, as many as fit."""
    span = max(sizes) / max(1, min(sizes))
    digits = (1, 2, 3, 5, 7) if span < 12 else (1, 2, 5) if span < 300 else (1,)
    axes.xaxis.set_major_locator(LogLocator(10, subs=digits))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shorten_numbers([round(value)])[round(value)]))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_sizes(axes: Axes, spec: str, members: list[Score], bars: Bars) -> None:
    look = style(spec)
    shown = sorted((score for score in members if score.values), key=lambda score: score.size)
    sizes = [score.size for score in shown]
    for score in shown:
        dots = score.values[:MOST_DRAWN]
        axes.scatter([score.size] * len(dots), dots, s=9, color=look.colour, alpha=0.3, linewidths=0, zorder=1.5)
    middles = [middle_and_bar(score.values, bars) for score in shown]
    if middles:
        axes.vlines(sizes, [low for _, low, _ in middles], [high for _, _, high in middles], color=look.colour, linewidth=1.8)
    centres = [centre for centre, _, _ in middles]
    axes.plot(sizes, centres, label=label(spec), linewidth=1.2, **look.plot_arguments())
    for score, centre in zip(shown, centres, strict=True):
        if score.diverged:
            note = f"{score.diverged} diverged"
            axes.annotate(note, (score.size, centre), (6, -9), textcoords="offset points", fontsize=7, color=look.colour)


def middle_and_bar(values: Sequence[float], bars: Bars = "quantiles") -> tuple[float, float, float]:
    """The median of some runs and the quantiles around it, or their mean ± a spread; never beyond their range.

    Example:
        >>> middle_and_bar((0.5, 1.0, 1.0, 1.0, 1.0)), middle_and_bar((0.5, 1.0, 1.0), "sd")[2]
        ((1.0, 1.0, 1.0), 1.0)
    """
    if bars == "quantiles":
        low, centre, high = np.quantile(values, (BAND[0], 0.5, BAND[1])).tolist()
    else:
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        centre, span = float(np.mean(values)), sd if bars == "sd" else sd / math.sqrt(len(values))
        low, high = centre - span, centre + span
    return centre, max(low, min(values)), min(high, max(values))


@styled
def learning_curves(records: Iterable[Record], metric: str, log: bool = False, order: Sequence[str] = ()) -> Figure:
    """The median of a metric by epoch, with a band of the middle half of an activation's runs; a panel per depth.

    An activation with several sizes has a curve for each, named by its number of parameters, the largest the widest. A curve
    ends where fewer than half of its runs still train. ``order`` is that of the legend; the table's unless given.
    """
    kept = [record for record in records if metric in record.history]
    order = order or _table_order(kept, metric)
    by_depth = _grouped((record.config.depth, record) for record in kept)
    figure, panels = _panels(sorted(by_depth), metric, "median; band: 25 % to 75 % of runs")
    for depth, axes in panels.items():
        members = _in_order(_grouped((record.config.activation, record) for record in by_depth[depth]), order)
        for spec, own in members.items():
            sizes = _grouped((record.config.parameters, record.history[metric]) for record in own)
            for place, (size, curves) in enumerate(sorted(sizes.items())):
                name = f"{label(spec)}, {size}" if len(sizes) > 1 else label(spec)
                _curve(axes, spec, name, curves, 1.0 + 0.6 * (place + 1) / len(sizes))
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if log:
            axes.set_yscale("log")
    _keep_within_shares(panels.values(), metric)
    _legend(figure, panels.values(), order)
    return figure


def _table_order(records: Sequence[Record], metric: str) -> list[str]:
    """How the table ranks these records, if it is their metric that is drawn; else as activations are listed anywhere."""
    metrics = {record.config.metric.key: record.config.metric for record in records if record.config.metric}
    if set(metrics) == {metric} and all(metric in record.metrics for record in records if record.state == "finished"):
        return rank_activations(scores(records, metric), metrics[metric])
    return sorted({record.config.activation for record in records}, key=sort_key)


def _curve(axes: Axes, spec: str, name: str, curves: Sequence[Sequence[float]], width: float) -> None:
    low, median, high = quantiles_by_epoch(curves)
    epochs = np.arange(1, len(median) + 1)
    arguments = style(spec).plot_arguments() | {"markevery": (0.1, 0.2), "markersize": 5}
    axes.plot(epochs, median, label=name, linewidth=width, **arguments)
    axes.fill_between(epochs, low, high, color=style(spec).colour, alpha=0.13, linewidth=0)


def quantiles_by_epoch(curves: Sequence[Sequence[float]]) -> tuple[Array, Array, Array]:
    """The lower end of `BAND`, the median and the upper end, by epoch, over the curves that have a finite value there.

    Where fewer than half have one (the others stopped early, or diverged), there is none: the few say little about all.

    Example:
        >>> low, median, high = quantiles_by_epoch([[0.5, 1.0], [0.5, 0.9], [0.6]])
        >>> median.tolist(), bool(high.max() <= 1)
        ([0.5, 0.95], True)
    """
    table = np.full((len(curves), max(map(len, curves))), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve)] = curve
    table[~np.isfinite(table)] = np.nan
    told = 2 * np.isfinite(table).sum(0) >= len(curves)
    found = np.full((3, table.shape[1]), np.nan)
    of_finite = np.nanquantile if np.isnan(table[:, told]).any() else np.quantile  # the latter is many times faster
    found[:, told] = of_finite(table[:, told], (BAND[0], 0.5, BAND[1]), axis=0)
    low, median, high = found
    return low, median, high


@styled
def solved_share(
    scores: Iterable[Score], threshold: float, metric: str = "accuracy", goal: str = "max", order: Sequence[str] = ()
) -> Figure:
    """The share of runs that reach a threshold, with the 95 % Wilson interval; a diverged run has not reached it."""
    groups = _in_order(_grouped((s.activation, s) for s in scores if len(s.values) + s.diverged), order)
    shown = [score for members in groups.values() for score in members]
    figure, axes = _rows(len(shown))
    for row, score in enumerate(shown):
        solved, runs = _count_solved(score, threshold, goal)
        low, high = wilson(solved, runs)
        axes.barh(row, solved / runs, color=style(score.activation).colour, alpha=0.5, height=0.7)
        axes.hlines(row, low, high, color="0.15", linewidth=1.2)
        axes.plot([low, high], [row, row], color="0.15", linestyle="", marker="|", markersize=7, clip_on=False)
        axes.text(1.02, row, f"{solved}/{runs}", va="center", fontsize=8)
    several = len(shown) > len(groups)
    names = [f"{label(score.activation)}, {score.size}" if several else label(score.activation) for score in shown]
    axes.set_yticks(range(len(shown)), names)
    sign, bound = "≥" if goal == "max" else "≤", _percent(threshold) if in_percent(metric) else f"{threshold:g}"
    axes.set(xlim=(0, 1), xlabel=f"share of runs with {_plain(metric)} {sign} {bound} (95 % Wilson interval)")
    _show_percent(axes.xaxis)
    return figure


@styled
def score_intervals(
    estimates: Mapping[str, tuple[float, float, float]], metric: str, baseline: tuple[str, float] | None = None
) -> Figure:
    """Means with their intervals, given as mean, low and high of each activation; a line where ``baseline`` is."""
    figure, axes = _rows(len(estimates))
    share = in_percent(metric)
    for row, (spec, (mean, low, high)) in enumerate(estimates.items()):
        low, high = (max(0.0, low), min(1.0, high)) if share else (low, high)  # no share lies beyond
        arguments = style(spec).plot_arguments() | {"linestyle": ""}
        axes.errorbar(mean, row, xerr=[[mean - low], [high - mean]], capsize=3, linewidth=1.4, **arguments)
    if baseline:
        axes.axvline(baseline[1], color="0.5", linestyle="--", linewidth=1, label=label(baseline[0]))
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.set_yticks(range(len(estimates)), [label(spec) for spec in estimates])
    axes.set_xlabel(f"{_plain(metric)} (mean, 95 % interval)")
    axes.grid(axis="x")
    if share:
        _show_percent(axes.xaxis)
    return figure


def _rows(count: int) -> tuple[Figure, Axes]:
    """A panel with a row for each of so many names, the first one on top."""
    figure = Figure(figsize=(6.4, 1.0 + 0.34 * count), layout="constrained")
    axes = figure.subplots()
    axes.set_ylim(max(count, 1) - 0.5, -0.5)
    return figure, axes


def _count_solved(score: Score, threshold: float, goal: str) -> tuple[int, int]:
    """How many runs reach the threshold, of how many."""
    reached = [value >= threshold if goal == "max" else value <= threshold for value in score.values]
    return sum(reached), len(reached) + score.diverged


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share.

    Example:
        >>> low, high = wilson(0, 10)
        >>> round(low, 3), round(high, 3)
        (0.0, 0.278)
    """
    z = NormalDist().inv_cdf(0.975)
    centre = successes / trials + z**2 / (2 * trials)
    reach = z * math.sqrt(successes * (trials - successes) / trials + z**2 / 4) / trials
    low, high = (centre - reach) / (1 + z**2 / trials), (centre + reach) / (1 + z**2 / trials)
    return (0.0 if successes == 0 else low), (1.0 if successes == trials else high)


def _grouped(pairs: Iterable[tuple[Any, T]]) -> dict[Any, list[T]]:
    """Values by key, both in the order they came."""
    groups: dict[Any, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _in_order(groups: Mapping[str, T], order: Sequence[str]) -> dict[str, T]:
    """The groups as ``order`` lists them, and after those any others as they came."""
    listed = [name for name in order if name in groups]
    return {name: groups[name] for name in dict.fromkeys([*listed, *groups])}


def _panels(depths: list[int], metric: str, shown: str) -> tuple[Figure, dict[int, Axes]]:
    """A panel for each depth, side by side, with one axis of values."""
    figure = Figure(figsize=(3.2 + 4.0 * max(1, len(depths)), 4.2), layout="constrained")
    row = figure.subplots(1, max(1, len(depths)), sharey=True, squeeze=False)[0]
    row[0].set_ylabel(f"{_plain(metric)} ({shown})")
    for axes, depth in zip(row, depths, strict=False):
        axes.grid(visible=True)
        if len(depths) > 1:
            axes.set_title(f"{depth or 'no'} hidden layer{'s' if depth > 1 else ''}")
        if in_percent(metric):
            _show_percent(axes.yaxis)
    return figure, dict(zip(depths, row, strict=False))


def _keep_within_shares(panels: Iterable[Axes], metric: str) -> None:
    """Ends the axis of a share at 0 and 100 %, with room for a line that lies there."""
    for axes in panels:
        low, high = axes.get_ylim()
        if in_percent(metric) and axes.has_data():
            room = 0.01 * (high - low)
            axes.set_ylim(max(low, -room), min(high, 1 + room))


def _legend(figure: Figure, panels: Iterable[Axes], order: Sequence[str]) -> None:
    """One legend for all panels, beside them, each name once and in order."""
    handles = {name: handle for axes in panels for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    places = {label(spec): place for place, spec in enumerate(order)}
    names = sorted(handles, key=lambda name: places.get(name, places.get(name.rpartition(", ")[0], len(places))))
    columns = -(-len(handles) // NAMES_IN_COLUMN)
    figure.set_figwidth(figure.get_figwidth() + max(0, columns - 1) * COLUMN_INCHES)
    if handles:
        figure.legend([handles[name] for name in names], names, loc="outside right upper", ncols=columns)


def _show_percent(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: _percent(value)))


def _percent(share: float) -> str:
    return f"{round(100 * share, 6):g} %"


def _plain(metric: str) -> str:
    """A metric's name for an axis."""
    return metric.replace("_", " ")
