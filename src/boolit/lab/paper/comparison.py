"""Tables of the paper, alone or with our own results beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from boolit.errors import UserError
from boolit.lab.paper import PrintedCell, table
from boolit.lab.reports.tables import Table
from boolit.lab.results.names import map_of
from boolit.lab.results.statistics import COVERAGE, Summary
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, RunConfig

LINEAR = "linear"
FACTORS = {"": 1.0, "k": 1e3, "M": 1e6}
NEAR = 1.25  # a column "65k" takes sizes up to this many times larger or smaller
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
# Columns that are metrics of the same runs: the configurations of I-RAVEN, and the number of guesses.
METRICS = {
    "Acc": "accuracy",
    "Center": "accuracy_center_single",
    "2×2G": "accuracy_distribute_four",
    "3×3G": "accuracy_distribute_nine",
    "O-IC": "accuracy_in_center_single_out_center_single",
    "O-IG": "accuracy_in_distribute_four_out_center_single",
    "L-R": "accuracy_left_center_single_right_center_single",
    "U-D": "accuracy_up_center_single_down_center_single",
    "Top-1": "auc",
    "Top-2": "auc2",
    "Top-3": "auc3",
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
Ours = Mapping[tuple[str, str], Summary]


def paper_table(label: str, store: Store | None = None) -> Table:
    """Return a table of the paper.

    Args:
        label: its label, such as ``tab:mlp-mnist``.
        store: a results folder. Its means follow each column, and notes say how well the two agree.
    """
    cells = table(label)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    runs = _runs(store) if store else None
    ours = _ours(label, columns, runs) if runs is not None else {}
    if runs is not None and not ours:
        raise UserError(f"none of these runs belongs in {label}: it has {', '.join(columns)}; choose the folder of its study")
    shown = [column for column in columns if not ours or any(key[1] == column for key in ours)]
    rows = list(dict.fromkeys(cell.activation for cell in cells))
    printed = {(cell.activation, cell.column): cell for cell in cells}
    text, data, marks = (pd.DataFrame(index=rows) for _ in range(3))
    text["map"] = data["map"] = [map_of(row) for row in rows]
    for column in shown:
        theirs = [printed.get((row, column)) for row in rows]
        text[column] = [_text(cell.mean, cell.standard_error) if cell else "" for cell in theirs]
        data[column] = [cell.mean if cell else np.nan for cell in theirs]
        data[f"{column} standard error"] = [cell.standard_error if cell else np.nan for cell in theirs]
        marks[column] = [_marks(cell) if cell else "" for cell in theirs]
        if ours:
            found, name = [ours.get((row, column)) for row in rows], f"{column}, ours"
            text[name] = [_text(summary.mean, summary.standard_error) if summary else "" for summary in found]
            data[name] = [summary.mean if summary else np.nan for summary in found]
            data[f"{name} standard error"] = [summary.standard_error if summary else np.nan for summary in found]
            data[f"{name} n"] = [summary.n if summary else 0 for summary in found]
    return Table(f"{label} of the paper", text, data, marks, (*_notes(shown, cells, ours), *_sources(runs, ours)))


def _marks(cell: PrintedCell) -> str:
    return " ".join(name for name in ("bold", "underlined", "italic") if getattr(cell, name))


def _text(mean: float, standard_error: float) -> str:
    return f"{mean:.2f}" if math.isnan(standard_error) else f"{mean:.2f} ± {standard_error:.2f}"


def _runs(store: Store) -> pd.DataFrame:
    """Return the finished runs, with their typed configurations in the column ``config``."""
    frame = store.frame()
    frame = frame[~frame["trial"]]
    firsts = frame.groupby(["settings", "activation", "widths"])["key"].transform("first")
    configs = {result.key: result.config for result in store.results(firsts, history=False)}
    return frame.assign(config=firsts.map(configs))


def _ours(label: str, columns: Sequence[str], runs: pd.DataFrame) -> Ours:
    """Return our best summary for each cell: the best of the sizes that share a column, as in the paper."""
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
                belongs = column in METRICS or _belongs(column, config.size, depth)
            if belongs and metric.key in group:
                values = group[metric.key][group["state"] == "finished"].dropna()
                if len(values):
                    sd = float(values.std()) if len(values) > 1 else math.nan
                    summary = Summary(spec, len(values), float(values.mean()), sd)
                    yield f"{_row_name(spec, depth)}{suffix}", column, metric, summary


def _has(config: RunConfig, wanted: Mapping[str, str]) -> bool:
    return all(getattr(config.model, name, None) == value for name, value in wanted.items())


def _row_name(spec: str, depth: int) -> str:
    """Return a run's row: a network without hidden layers is linear, and unequal shares are in the row of equal ones."""
    if depth == 0 and spec == "identity":
        return LINEAR
    return spec.removesuffix("u") if spec.endswith("_pu") else spec


def _belongs(column: str, size: int, depth: int) -> bool:
    """Return whether a size and depth belong in a column, which is a number of layers or of parameters.

    Example:
        >>> _belongs("65k", 65536, 2), _belongs("2", 300000, 2), _belongs("4M", 65536, 2)
        (True, True, False)
    """
    number = re.fullmatch(r"([\d.]+)([kM]?)", column)
    if number is None:
        return False
    value = float(number[1]) * FACTORS[number[2]]
    return 1 / NEAR <= size / value <= NEAR if number[2] else depth == value


def _notes(columns: Sequence[str], cells: Sequence[PrintedCell], ours: Ours) -> list[str]:
    numbers = sorted({cell.n for cell in cells})
    notes = [f"Mean ± standard error, n = {', '.join(map(str, numbers))} in the paper. Marks as printed."]
    for column in columns:
        pairs = [
            (c.mean, ours[c.activation, column].mean) for c in cells if (c.activation, c.column) in ours and c.column == column
        ]
        if pairs:
            notes.append(f"{column}: {_agreement(pairs)}")
    return notes


def _agreement(pairs: Sequence[tuple[float, float]]) -> str:
    """Return how far two columns are apart, and whether they are in the same order.

    Example:
        >>> _agreement([(90.0, 90.5), (95.0, 94.0), (97.0, 96.5)])
        'ours − paper from −1.00 to +0.50, mean −0.33; rank correlation 1.00 over 3 activations.'
    """
    gaps = [ours - theirs for theirs, ours in pairs]
    text = f"ours − paper from {min(gaps):+.2f} to {max(gaps):+.2f}, mean {sum(gaps) / len(gaps):+.2f}"
    if len(pairs) >= 3:
        rho = float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
        text += f"; rank correlation {rho:.2f} over {len(pairs)} activations"
    return f"{text}.".replace("-", "−")


def _sources(runs: pd.DataFrame | None, ours: Ours) -> list[str]:
    """Return our studies, whose weights encoded images if not the published ones, and the number of runs."""
    if runs is None:
        return []
    studies = runs[["study", "profile"]].drop_duplicates().itertuples(index=False)
    names = [f"{study} ({profile or 'no profile'})" for study, profile in studies if study]
    origins = {str(getattr(config.data, "origin", "")) for config in runs["config"]}
    names += [ORIGINS[origin] for origin in sorted(origins & ORIGINS.keys())]
    numbers = sorted({summary.n for summary in ours.values()})
    return [f"Ours: {'; '.join(names)}.", f"Ours: n = {', '.join(map(str, numbers))}. {COVERAGE}"]
