"""Tables of the paper with our means, and those of a results folder, beside the printed ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from boolit.errors import UserError
from boolit.lab.paper import PrintedCell, table
from boolit.lab.paper.measured import METRICS, agreement, beside_printed, row_name, size_matches
from boolit.lab.reports.tables import Table
from boolit.lab.results.names import map_of
from boolit.lab.results.statistics import COVERAGE, Summary
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, RunConfig

ORIGINS = {"reconstructed": "reconstructed encoder weights", "own": "encoder weights from the user's file"}
# The columns of the transfer tables, and our names of these datasets.
DATASETS = {
    "Cal101": "caltech101",
    "CIFAR10": "cifar10",
    "CIFAR100": "cifar100",
    "Flowers": "flowers",
    "StfCars": "cars",
    "STL-10": "stl10",
    "SVHN": "svhn",
}
# Options of the model, for tables that differ in nothing else.
MODELS = {
    "tab:transfer-head-big": {"sizes": "matched"},
    "tab:transfer-extra": {"sizes": "matched"},
    "tab:transfer-head-512": {"sizes": "equal"},
    "tab:tmn-og": {"name": "tmn", "variant": "tmn"},
    "tab:tmnx": {"name": "tmn", "variant": "tmnx"},
    "tab:sran": {"name": "sran"},
}
Yours = Mapping[tuple[str, str], Summary]


def paper_table(label: str, store: Store | None = None) -> Table:
    """Return a table of the paper with our means, and those of a results folder, after each column.

    Args:
        label: its label, such as ``tab:mlp-mnist``.
        store: a results folder. Only the columns that its runs belong in are shown, and notes say how well they agree.
    """
    cells = table(label)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    runs = _runs(store) if store else None
    yours = _yours(label, columns, runs) if runs is not None else {}
    if runs is not None and not yours:
        raise UserError(f"none of these runs belongs in {label}: it has {', '.join(columns)}; choose the folder of its study")
    both = beside_printed(label)
    ours = {(row.activation, row.column): _summary(row) for row in both.itertuples()}
    rows = list(dict.fromkeys(cell.activation for cell in cells))
    printed = {(cell.activation, cell.column): Summary(cell.activation, cell.n, cell.mean, _sd(cell)) for cell in cells}
    marks = pd.DataFrame(index=rows)
    text, data = (pd.DataFrame({"map": [map_of(row) for row in rows]}, index=rows) for _ in range(2))
    shown = [column for column in columns if not yours or any(key[1] == column for key in yours)]
    for column in shown:
        marks[column] = [_marks(cell) for row in rows for cell in cells if (cell.activation, cell.column) == (row, column)]
        for name, source in ((column, printed), (f"{column}, ours", ours), (f"{column}, yours", yours)):
            summaries = [source.get((row, column)) for row in rows]
            if name == column or any(summaries):
                text[name] = [_text(summary) if summary else "" for summary in summaries]
                data[name] = [summary.mean if summary else np.nan for summary in summaries]
                data[f"{name} standard error"] = [summary.standard_error if summary else np.nan for summary in summaries]
                data[f"{name} n"] = [summary.n if summary else 0 for summary in summaries]
    notes = [
        f"Mean ± standard error, n = {', '.join(map(str, sorted({cell.n for cell in cells})))} in the paper. Marks as printed."
    ]
    notes += [f"Ours: {agreement(label)}"] if ours else []
    return Table(f"{label} of the paper", text, data, marks, (*notes, *_notes(shown, cells, yours), *_sources(runs, yours)))


def _summary(row: Any) -> Summary:
    return Summary(row.activation, row.n, row.mean, row.standard_error * math.sqrt(row.n))


def _sd(cell: PrintedCell) -> float:
    return cell.standard_error * math.sqrt(cell.n)


def _marks(cell: PrintedCell) -> str:
    return " ".join(name for name in ("bold", "underlined", "italic") if getattr(cell, name))


def _text(summary: Summary) -> str:
    error = summary.standard_error
    return f"{summary.mean:.2f}" if math.isnan(error) else f"{summary.mean:.2f} ± {error:.2f}"


def _runs(store: Store) -> pd.DataFrame:
    """Return the finished runs, with their typed configurations in the column ``config``."""
    frame = store.frame()
    frame = frame[~frame["trial"]]
    firsts = frame.groupby(["settings", "activation", "widths"])["key"].transform("first")
    configs = {result.key: result.config for result in store.results(firsts, history=False)}
    return frame.assign(config=firsts.map(configs))


def _yours(label: str, columns: Sequence[str], runs: pd.DataFrame) -> Yours:
    """Return the best summary for each cell: the best of the sizes that share a column, as in the paper."""
    best: dict[tuple[str, str], tuple[float, Summary]] = {}
    for row, column, metric, summary in in_columns(label, columns, runs):
        merit = metric.sign * summary.mean
        if (row, column) not in best or merit > best[row, column][0]:
            scale = 100 if metric.percent else 1
            scaled = Summary(summary.activation, summary.n, scale * summary.mean, scale * summary.sd)
            best[row, column] = merit, scaled
    return {key: summary for key, (_, summary) in best.items()}


def in_columns(label: str, columns: Sequence[str], runs: pd.DataFrame) -> Iterator[tuple[str, str, Metric, Summary]]:
    """Yield the summaries that belong in a table, with row and column: a dataset, a metric, a size or a depth."""
    wanted = MODELS.get(label, {})
    runs = runs[[_has(config, wanted) for config in runs["config"]]]
    for _, group in runs.groupby(["activation", "depth", "size", "settings"], sort=True):
        config: RunConfig = group["config"].iloc[0]
        spec, depth = config.activation, config.depth
        suffix = " (base SRAN)" if label == "tab:sran" and getattr(config.model, "layout", "") == "published" else ""
        for column in columns:
            metric = Metric.model_validate({"name": METRICS[column]}) if column in METRICS else config.metric
            if column in DATASETS:
                belongs = getattr(getattr(config.data, "of", None), "name", None) == DATASETS[column]
            else:
                belongs = column in METRICS or column == str(depth) or size_matches(column, config.size)
            if belongs and metric.key in group:
                values = group[metric.key][group["state"] == "finished"].dropna()
                if len(values):
                    sd = float(values.std()) if len(values) > 1 else math.nan
                    summary = Summary(spec, len(values), float(values.mean()), sd)
                    yield f"{row_name(spec, depth)}{suffix}", column, metric, summary


def _has(config: RunConfig, wanted: Mapping[str, str]) -> bool:
    return all(getattr(config.model, name, None) == value for name, value in wanted.items())


def _notes(columns: Sequence[str], cells: Sequence[PrintedCell], yours: Yours) -> list[str]:
    notes = []
    for column in columns:
        pairs = [
            (c.mean, yours[c.activation, column].mean) for c in cells if c.column == column and (c.activation, column) in yours
        ]
        notes += [f"{column}: {_agreement(pairs)}"] if pairs else []
    return notes


def _agreement(pairs: Sequence[tuple[float, float]]) -> str:
    """Return how far two columns are apart, and whether they are in the same order.

    Example:
        >>> _agreement([(90.0, 90.5), (95.0, 94.0), (97.0, 96.5)])
        'yours − paper from −1.00 to +0.50, mean −0.33; rank correlation 1.00 over 3 activations.'
    """
    gaps = [yours - theirs for theirs, yours in pairs]
    text = f"yours − paper from {min(gaps):+.2f} to {max(gaps):+.2f}, mean {sum(gaps) / len(gaps):+.2f}"
    if len(pairs) >= 3:
        rho = float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
        text += f"; rank correlation {rho:.2f} over {len(pairs)} activations"
    return f"{text}.".replace("-", "−")


def _sources(runs: pd.DataFrame | None, yours: Yours) -> list[str]:
    """Return the user's studies, whose weights encoded images if not the published ones, and the number of runs."""
    if runs is None:
        return []
    studies = runs[["study", "profile"]].drop_duplicates().itertuples(index=False)
    names = [f"{study} ({profile or 'no profile'})" for study, profile in studies if study]
    origins = {str(getattr(config.data, "origin", "")) for config in runs["config"]}
    names += [ORIGINS[origin] for origin in sorted(origins & ORIGINS.keys())]
    numbers = sorted({summary.n for summary in yours.values()})
    return [f"Yours: {'; '.join(names)}.", f"Yours: n = {', '.join(map(str, numbers))}. {COVERAGE}"]
