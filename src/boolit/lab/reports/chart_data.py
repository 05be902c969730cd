"""What charts of runs show, as compact tables: columns of short numbers, and of levels where values repeat.

Dots and curves are those of at most `MOST_DRAWN` runs of an activation and panel, the ones with the first seeds; the summary of
a size and the choice of the best panel are of all runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from boolit.lab.reports.figures.results import BAND, MOST_DRAWN, quantiles_by_epoch
from boolit.lab.results.names import paper_name, shorten_numbers
from boolit.lab.results.run_table import RunTable
from boolit.lab.results.scores import size_of
from boolit.lab.runs import Metric, Record, RunConfig

LOW, HIGH = BAND
MOST_EPOCHS = 60  # points of a curve
DIGITS = 5  # significant ones of a number in a page

Columns: TypeAlias = dict[str, Any]  # by field: values, or levels and each row's place among them
PanelOf: TypeAlias = Callable[[RunConfig], str]


def drawn_runs(runs: RunTable, panel_of: PanelOf) -> RunTable:
    """The runs that are drawn one by one."""
    return runs.first_of_each(lambda config: (config.activation, panel_of(config)), MOST_DRAWN)


def run_table(runs: RunTable, metric: Metric, panel_of: PanelOf) -> Columns:
    """Runs with finite scores, one by one."""
    names = {spec: paper_name(spec) for spec in {config.activation for config in runs.configs}}
    configs = [runs.configs[place] for place in runs.columns["config"].tolist()]  # each but for its seed
    return {
        "activation": levels(names[config.activation] for config in configs),
        "panel": levels(panel_of(config) for config in configs),
        "seed": runs.columns["seed"].tolist(),
        "parameters": levels(config.parameters for config in configs),
        "score": [short(value) for value in runs.metric(metric.key).tolist()],
        "key": [key.decode() for key in runs.columns["key"].tolist()],
    }


def size_table(runs: RunTable, metric: Metric) -> Columns:
    """The runs of an activation and a size, with finite scores, summarised."""
    groups = runs.rows_by(lambda config: (config.activation, config.depth, config.parameters))
    scores, times = runs.metric(metric.key), runs.columns["seconds"]
    columns: Columns = {name: [] for name in ("activation", "parameters", "seconds", "median", "low", "high", "runs")}
    for (spec, _, parameters), rows in groups.items():
        low, median, high = np.quantile(scores[rows], (LOW, 0.5, HIGH))
        seconds = float(np.median(times[rows]))
        values = (paper_name(spec), parameters, short(seconds), short(median), short(low), short(high), len(rows))
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return columns


def curve_metric(records: Sequence[Record], metric: Metric) -> str:
    """The metric whose curves are shown: the one that is compared, or the nearest that was followed; nothing if none was."""
    known: set[str] = set()
    for record in records:
        known.update(record.history)
        if metric.key in known:  # which is read of no more runs than are needed to know
            break
    others = (f"{split}_{name}" for name in (metric.name, "loss") for split in ("valid", "train"))
    return next((name for name in (metric.key, *others) if name in known), "")


def curve_table(records: Sequence[Record], key: str, panel_of: PanelOf) -> Columns:
    """Median and quantiles of the finite values, where half of the runs have one, at no more than `MOST_EPOCHS` epochs."""
    groups: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for record in records:
        if record.history.get(key):
            groups[record.config.activation, panel_of(record.config)].append(record.history[key])
    columns: Columns = {name: [] for name in ("activation", "panel", "epoch", "median", "low", "high", "runs")}
    for (spec, panel), curves in groups.items():
        low, median, high = quantiles_by_epoch(curves)
        epochs = np.unique(np.linspace(0, len(median) - 1, MOST_EPOCHS).round().astype(int))
        epochs = epochs[np.isfinite(median[epochs])]
        runs = [sum(epoch < len(curve) and math.isfinite(curve[epoch]) for curve in curves) for epoch in epochs.tolist()]
        columns["activation"] += [paper_name(spec)] * len(epochs)
        columns["panel"] += [panel] * len(epochs)
        columns["epoch"] += (epochs + 1).tolist()
        columns["runs"] += runs
        for name, band in (("low", low), ("median", median), ("high", high)):
            columns[name] += [short(value) for value in band[epochs].tolist()]
    return columns | {name: levels(columns[name]) for name in ("activation", "panel")}


def panel_namer(configs: Sequence[RunConfig]) -> PanelOf:
    """A function that names the depth and size of a run, as far as they differ between the runs of an activation."""
    depths = {config.depth for config in configs}
    budgets = {size_of(config) for config in configs if config.budget is not None}
    by_network: dict[tuple[str, int], set[tuple[int, ...]]] = defaultdict(set)
    for config in configs:
        by_network[config.activation, config.depth].add(tuple(config.width))
    widths = not budgets and any(len(own) > 1 for own in by_network.values())
    names = shorten_numbers(sorted(budgets))

    def panel_of(config: RunConfig) -> str:
        words = []
        if len(depths) > 1:
            words.append(f"{config.depth or 'no'} hidden layer{'s' * (config.depth != 1)}")
        if len(budgets) > 1 and config.budget is not None:
            words.append(f"{names[size_of(config)]} parameters")
        elif widths and config.width:
            words.append(f"width {'-'.join(map(str, config.width))}")
        return ", ".join(words)

    return panel_of


def panel_order(name: str) -> list[tuple[float, str]]:
    """Numbers by their value."""
    words = name.replace("-", " ").replace(",", "").replace("k ", "000 ").replace("M ", "000000 ").split()
    return [(float(word), "") if word.replace(".", "", 1).isdigit() else (math.inf, word) for word in words]


def best_panel(runs: RunTable, metric: Metric, panel_of: PanelOf, first: str) -> str:
    """Where an activation has its best mean; of runs with finite scores."""
    groups = runs.where(lambda config: config.activation == first).group_by(panel_of)
    return max(groups, key=lambda panel: metric.merit(float(np.mean(groups[panel].metric(metric.key)))), default="")


def levels(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Values that repeat, as levels and each row's place among them."""
    levels: dict[Any, int] = {}
    rows = [levels.setdefault(value, len(levels)) for value in values]
    return {"levels": list(levels), "rows": rows if len(levels) > 1 else [len(rows)]}  # of one level, how many rows


def short(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
