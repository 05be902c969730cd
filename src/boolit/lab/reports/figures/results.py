"""Figures of results: accuracy against size, learning curves, the share of runs that solve a task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from boolit.lab.reports.figures.style import style, styled
from boolit.lab.results.names import label
from boolit.lab.results.scores import Score
from boolit.lab.runs import Record, in_percent

NAMES_IN_COLUMN, COLUMN_INCHES = 17, 1.9  # of a legend that is as high as the panels
Bars = Literal["sd", "se"]
Array = np.ndarray[Any, np.dtype[np.float64]]
T = TypeVar("T")
_BAR_NAMES = {"sd": "standard deviation", "se": "standard error"}


@styled
def accuracy_against_parameters(scores: Iterable[Score], metric: str = "accuracy", bars: Bars = "sd") -> Figure:
    """The mean of every activation at every size, with error bars, on a logarithmic axis of sizes; a panel per depth."""
    by_depth = _grouped((score.depth, score) for score in scores)
    figure, panels = _panels(sorted(by_depth), metric, f"bars: {_BAR_NAMES[bars]}")
    for depth, axes in panels.items():
        for spec, members in _grouped((score.activation, score) for score in by_depth[depth]).items():
            _errorbars(axes, spec, members, bars)
        axes.set(xscale="log", xlabel="parameters")
    _legend(figure, panels.values())
    return figure


def _errorbars(axes: Axes, spec: str, members: list[Score], bars: Bars) -> None:
    shown = sorted((score for score in members if score.values), key=lambda score: score.size)
    means = [float(np.mean(score.values)) for score in shown]
    spans = [_span(score.values, bars) for score in shown]
    sizes = [score.size for score in shown]
    axes.errorbar(sizes, means, yerr=spans, label=label(spec), capsize=2, linewidth=1.2, **style(spec).plot_arguments())
    for score, mean in zip(shown, means, strict=True):
        if score.diverged:
            note = f"{score.diverged} diverged"
            axes.annotate(note, (score.size, mean), (6, -9), textcoords="offset points", fontsize=7, color=style(spec).colour)


def _span(values: Sequence[float], bars: Bars) -> float:
    if len(values) < 2:
        return 0.0
    sd = float(np.std(values, ddof=1))
    return sd if bars == "sd" else sd / math.sqrt(len(values))


@styled
def learning_curves(records: Iterable[Record], metric: str, log: bool = False) -> Figure:
    """The mean of a metric by epoch, with a band of one standard deviation over the runs of an activation; a panel per depth.

    An activation with several sizes has a curve for each, named by its number of parameters.
    """
    kept = [record for record in records if metric in record.history]
    by_depth = _grouped((record.config.depth, record) for record in kept)
    figure, panels = _panels(sorted(by_depth), metric, "band: standard deviation")
    for depth, axes in panels.items():
        for spec, members in _grouped((record.config.activation, record) for record in by_depth[depth]).items():
            sizes = _grouped((record.config.parameters, record.history[metric]) for record in members)
            for size, curves in sorted(sizes.items()):
                _curve(axes, spec, f"{label(spec)}, {size}" if len(sizes) > 1 else label(spec), curves)
        axes.set_xlabel("epoch")
        if log:
            axes.set_yscale("log")
    _legend(figure, panels.values())
    return figure


def _curve(axes: Axes, spec: str, name: str, curves: Sequence[Sequence[float]]) -> None:
    mean, sd = mean_and_sd(curves)
    epochs = np.arange(1, len(mean) + 1)
    arguments = style(spec).plot_arguments() | {"markevery": (0.1, 0.2), "markersize": 5}
    axes.plot(epochs, mean, label=name, linewidth=1.4, **arguments)
    axes.fill_between(epochs, mean - sd, mean + sd, color=style(spec).colour, alpha=0.18, linewidth=0)


def mean_and_sd(curves: Sequence[Sequence[float]]) -> tuple[Array, Array]:
    """By epoch, over the curves that have a finite value there (a run that diverges stops having one)."""
    table = np.full((len(curves), max(map(len, curves))), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve)] = curve
    finite = np.isfinite(table)
    count = finite.sum(0)
    mean = np.where(count, np.where(finite, table, 0.0).sum(0) / np.maximum(count, 1), np.nan)
    deviation = np.subtract(table, mean, out=np.zeros_like(table), where=finite)
    return mean, np.sqrt((deviation**2).sum(0) / np.maximum(count - 1, 1))


@styled
def solved_share(scores: Iterable[Score], threshold: float, metric: str = "accuracy", goal: str = "max") -> Figure:
    """The share of runs that reach a threshold, with the 95 % Wilson interval; a diverged run has not reached it."""
    shown = [score for score in scores if len(score.values) + score.diverged]
    figure = Figure(figsize=(6.4, 1.0 + 0.34 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for row, score in enumerate(shown):
        solved, runs = _count_solved(score, threshold, goal)
        low, high = wilson(solved, runs)
        share = solved / runs
        axes.barh(row, share, color=style(score.activation).colour, height=0.7)
        axes.errorbar(share, row, xerr=[[share - low], [high - share]], color="0.5", capsize=3, linewidth=1.2)
        axes.text(1.02, row, f"{solved}/{runs}", va="center", fontsize=8)
    several = len(shown) > len({score.activation for score in shown})
    names = [f"{label(score.activation)}, {score.size}" if several else label(score.activation) for score in shown]
    axes.set_yticks(range(len(shown)), names)
    sign = "≥" if goal == "max" else "≤"
    axes.set(xlim=(0, 1), xlabel=f"share of runs with {_plain(metric)} {sign} {threshold:g} (95 % Wilson interval)")
    axes.invert_yaxis()
    return figure


@styled
def score_intervals(
    estimates: Mapping[str, tuple[float, float, float]], metric: str, baseline: tuple[str, float] | None = None
) -> Figure:
    """Means with their intervals, given as mean, low and high of each activation; a line where ``baseline`` is."""
    figure = Figure(figsize=(6.4, 1.0 + 0.34 * len(estimates)), layout="constrained")
    axes = figure.subplots()
    share = in_percent(metric)
    for row, (spec, (mean, low, high)) in enumerate(estimates.items()):
        low, high = (max(0.0, low), min(1.0, high)) if share else (low, high)  # no share lies beyond
        arguments = style(spec).plot_arguments() | {"linestyle": ""}
        axes.errorbar(mean, row, xerr=[[mean - low], [high - mean]], capsize=3, linewidth=1.4, **arguments)
    if baseline:
        axes.axvline(baseline[1], color="0.6", linestyle="--", linewidth=1, label=baseline[0])
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.set_yticks(range(len(estimates)), [label(spec) for spec in estimates])
    axes.set_xlabel(f"{_plain(metric)} (mean, 95 % interval)")
    if share:
        axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.invert_yaxis()
    return figure


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


def _panels(depths: list[int], metric: str, spread: str) -> tuple[Figure, dict[int, Axes]]:
    """A panel for each depth, side by side, with one axis of values."""
    figure = Figure(figsize=(3.2 + 4.0 * max(1, len(depths)), 4.2), layout="constrained")
    row = figure.subplots(1, max(1, len(depths)), sharey=True, squeeze=False)[0]
    row[0].set_ylabel(f"{_plain(metric)} (mean, {spread})")
    for axes, depth in zip(row, depths, strict=False):
        axes.grid(visible=True)
        if len(depths) > 1:
            axes.set_title(f"{depth or 'no'} hidden layer{'s' if depth > 1 else ''}")
        if in_percent(metric):
            axes.yaxis.set_major_formatter(PercentFormatter(1))
    return figure, dict(zip(depths, row, strict=False))


def _legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One legend for all panels, each name once."""
    handles = {name: handle for axes in panels for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = -(-len(handles) // NAMES_IN_COLUMN)
    figure.set_figwidth(figure.get_figwidth() + max(0, columns - 1) * COLUMN_INCHES)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside right upper", ncols=columns)


def _plain(metric: str) -> str:
    """A metric's name for an axis."""
    return metric.replace("_", " ")
