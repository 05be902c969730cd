"""Our runs of the paper's experiments, summarized by cell of its tables.

``ours/NAME.csv`` ships with the package. ``python benchmarks/evidence.py paper`` makes it from
``docs/evidence/paper/NAME.csv``, which has one row per run.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from io import StringIO

import numpy as np
import pandas as pd
from scipy import stats

from boolit.lab.paper.printed import labels, table

FOLDER = resources.files("boolit.lab.paper").joinpath("ours")
FIGURES = {"jsb": "fig:jsb", "parity": "fig:parity", "parity8": "a:parity", "xor": "fig:toy-xor"}  # without printed numbers
NEAR = 1.25  # a column "65k" takes sizes up to this many times larger or smaller
UNITS = {"": 1.0, "k": 1e3, "M": 1e6}
LINEAR = "linear"
SAME_RUNS = {"tab:transfer-head-big": "tab:transfer-extra"}  # tables of the same networks
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
# The table, and for some the column, that the runs of a study belong to.
STUDIES = {
    "parity": "fig:parity",
    "parity8": "a:parity",
    "xor": "fig:toy-xor",
    "chorales": "fig:jsb",
    "mnist-mlp": "tab:mlp-mnist",
    "mnist-cnn": "tab:cnn-mnist",
    "cifar10": "tab:resnet50-cifar10",
    "cifar100": "tab:resnet50-cifar100",
    **{f"covertype-{depth}": "tab:mlp-covtype" for depth in (1, 2, 3)},
    **{f"transfer-{name}": f"tab:transfer-extra {column}" for column, name in DATASETS.items()},
    "iraven": "tab:sran",
    "mitstates-tmn": "tab:tmn-og",
    "mitstates-tmnx": "tab:tmnx",
    "composed-tmn": "tab:tmn-og",
    "composed-tmnx": "tab:tmnx",
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


def row_name(spec: str, depth: int) -> str:
    """Return a run's row: a network without hidden layers is linear, and unequal shares are in the row of equal ones."""
    return LINEAR if depth == 0 and spec == "identity" else re.sub("_p[lu]$", "_p", spec)


def size_matches(column: str, size: int) -> bool:
    """Return whether a column is a size near the given one.

    Example:
        >>> size_matches("65k", 65536), size_matches("2", 2), size_matches("4M", 65536)
        (True, False, False)
    """
    match = re.fullmatch(r"([\d.]+)([kM])", column)
    return match is not None and 1 / NEAR <= size / (float(match[1]) * UNITS[match[2]]) <= NEAR


@lru_cache
def columns(label: str) -> list[str]:
    """Return the columns of a printed table of results."""
    return list(dict.fromkeys(cell.column for cell in table(label))) if label in labels() else []


def _column(label: str, metric: str, depth: int, size: int, profile: str) -> str:
    """Return the column that a run belongs to: a metric, a number of layers or a size."""
    names = columns(label)
    metrics = [name for name in names if f"test_{METRICS.get(name)}" == metric]
    sizes = [name for name in names if size_matches(name, size)]
    if profile.startswith("analogue") and not metrics:
        return names[0]  # analogues are smaller than the smallest network of the table
    if label in ("fig:parity", "fig:toy-xor"):
        return "accuracy"  # one network, whose parameter count depends on the activation
    if label == "a:parity" and profile == "headline":
        return f"{size} (65,536 samples)"
    return next(iter([*metrics, *(name for name in names if name == str(depth)), *sizes]), str(size))


def summarize(runs: pd.DataFrame, label: str | None = None) -> pd.DataFrame:
    """Summarize runs by cell: the best of the sizes that share a cell, as in the paper. Reproductions precede analogues.

    Args:
        runs: One row per run with columns activation, parameters, depth, metric, value, and study: a label of the paper or the
            name of a study. Optional columns are profile and ``column``, which overrides the column that follows from these.
        label: Label of the table. Defaults to the table of each study.

    Returns:
        One row per cell: label, column, activation, mean, standard_error, n, best, kind. Accuracies are percentages.
    """
    runs = runs[runs["value"].notna()].copy()
    tables = [STUDIES.get(study, study).partition(" ") for study in runs["study"]]
    runs["label"] = [label or name for name, _, _ in tables]
    runs["profile"] = runs["profile"].fillna("") if "profile" in runs else ""
    if "column" not in runs:
        places = zip(runs["label"], runs["metric"], runs["depth"], runs["parameters"], runs["profile"], tables, strict=True)
        runs["column"] = [place[-1][2] or _column(*place[:-1]) for place in places]
    runs["activation"] = [row_name(*row) for row in zip(runs["activation"], runs["depth"], strict=True)]
    runs["kind"] = np.where(runs["profile"].str.startswith("analogue"), "analogue", "reproduction")
    lower = runs["metric"].str.endswith(("rmse", "loss"))
    runs["value"] *= np.where(lower, -1, 100)
    grouped = runs.groupby(["label", "column", "activation", "kind", "parameters"], sort=False)["value"]
    cells = grouped.agg(mean="mean", standard_error="sem", n="count", best="max").reset_index()
    # NOTE[paper]: as in the paper, the best size is chosen by the test rows that it is then compared on.
    best_first = cells.sort_values(["kind", "mean"], ascending=False)  # "reproduction" before "analogue"
    cells = best_first.drop_duplicates(["label", "column", "activation"]).sort_index()
    cells[["mean", "best"]] *= np.where(cells["mean"] < 0, -1, 1)[:, None]  # errors were negated
    order = ["label", "column", "activation", "mean", "standard_error", "n", "best", "kind"]
    return cells[order].round(6).reset_index(drop=True)  # equal means stay equal, whatever the order of the sum


def names() -> list[str]:
    """Return the names of the tables and figures with runs."""
    return sorted(file.name.removesuffix(".csv") for file in FOLDER.iterdir() if file.name.endswith(".csv"))


def label_of(name: str) -> str:
    """Return the LaTeX label of a table or figure by the name of its CSV."""
    return FIGURES.get(name, f"tab:{name}")


def our_cells() -> pd.DataFrame:
    """Return the summaries of all our runs, one row per cell.

    Example:
        >>> cells = our_cells().query("label == 'tab:mlp-mnist' and activation == 'relu' and column == '16k'")
        >>> cells[["n", "kind"]].values.tolist()
        [[10, 'reproduction']]
    """
    parts = [pd.read_csv(StringIO(FOLDER.joinpath(f"{name}.csv").read_text(encoding="utf-8"))) for name in names()]
    return pd.concat(parts, ignore_index=True).astype({"column": str})


def beside_printed(label: str, cells: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return our cells of a table next to the printed ones, in the order of the table.

    Args:
        label: The table's LaTeX label.
        cells: Summaries. Defaults to those of our runs.

    Returns:
        One row per cell that both have, with columns activation, column, printed, printed_error, mean, standard_error, n, kind,
        and difference: ours minus the printed mean in combined standard errors, NaN for analogues.
    """
    ours = our_cells() if cells is None else cells
    ours = ours.loc[
        ours["label"] == SAME_RUNS.get(label, label), ["activation", "column", "mean", "standard_error", "n", "kind"]
    ]
    names = ["activation", "column", "printed", "printed_error"]
    printed = [(cell.activation, cell.column, cell.mean, cell.standard_error) for cell in table(label)]
    both = pd.DataFrame(printed, columns=names).merge(ours, on=names[:2])
    combined = np.hypot(both["printed_error"], both["standard_error"])
    return both.assign(difference=((both["mean"] - both["printed"]) / combined).where(both["kind"] == "reproduction"))


def agreement(label: str, cells: pd.DataFrame | None = None) -> str:
    """Return one line on how well our cells agree with the printed ones."""
    both = beside_printed(label, cells)
    text = f"{len(both)} of {len(table(label))} cells run, n = {', '.join(map(str, sorted(set(both['n']))))}"
    compared = both["difference"].dropna()
    if len(compared):
        inside = int((compared.abs() <= 2).sum())
        text += f"; {inside} of {len(compared)} ({inside / len(compared):.0%}) within 2 combined standard errors"
    rhos = []
    for column, group in both.groupby("column", sort=False):
        if len(group) >= 3:
            rho = f"{stats.spearmanr(group['printed'], group['mean']).statistic:.2f}".replace("-", "−")
            rhos.append(f"{rho} ({column})")
    return text + (f"; rank correlation {', '.join(rhos)}." if rhos else ".")
