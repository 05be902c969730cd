"""Read the CSVs of this folder for docs/choosing.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from boolit.lab.results.names import paper_name

FOLDER = Path(__file__).resolve().parent


def read(name: str) -> pd.DataFrame:
    """Return the runs of one CSV; a diverged run has no value."""
    return pd.read_csv(FOLDER / f"{name}.csv")


def summary(name: str) -> pd.DataFrame:
    """Return mean, standard error and number of runs by activation and size, the best mean first."""
    runs = read(name)
    errors = runs["metric"].iloc[0].endswith("rmse")
    grouped = runs.groupby(["depth", "parameters", "activation"])["value"]
    table = grouped.agg(["mean", "sem", "count"]).reset_index()
    return table.sort_values(["depth", "parameters", "mean"], ascending=[True, True, errors], ignore_index=True)


def markdown(name: str) -> str:
    """Return the summary of one CSV as a Markdown table."""
    runs, table = read(name), summary(name)
    scale, unit = (1, "") if runs["metric"].iloc[0].endswith("rmse") else (100, " (%)")
    digits = 4 if scale == 1 else 2
    metric = runs["metric"].iloc[0].replace("_", " ")
    lines = [f"| parameters | activation | {metric}{unit} | runs |", "|---:|---|---:|---:|"]
    for row in table.to_dict("records"):
        score = f"{scale * row['mean']:.{digits}f} ± {scale * row['sem']:.{digits}f}"
        lines.append(f"| {row['parameters']:,} | {paper_name(row['activation'])} | {score} | {row['count']} |")
    return "\n".join(lines)
