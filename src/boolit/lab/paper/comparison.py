"""Tables of the paper with our means, and those of a results folder, beside the printed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from boolit.errors import UserError
from boolit.lab.paper.measured import DATASETS, METRICS, SAME_RUNS, agreement, beside_printed, columns, size_matches, summarize
from boolit.lab.paper.printed import table
from boolit.lab.reports.tables import Table
from boolit.lab.results.names import channels_of
from boolit.lab.results.statistics import COVERAGE
from boolit.lab.results.store import Store
from boolit.lab.runs import RunConfig

ORIGINS = {"reconstructed": "reconstructed encoder weights", "own": "encoder weights from the user's file"}
# Options of the model, for tables that differ in nothing else.
MODELS = {
    "tab:transfer-head-big": {"sizes": "matched"},
    "tab:transfer-extra": {"sizes": "matched"},
    "tab:transfer-head-512": {"sizes": "equal"},
    "tab:tmn-og": {"name": "tmn", "variant": "tmn"},
    "tab:tmnx": {"name": "tmn", "variant": "tmnx"},
    "tab:sran": {"name": "sran"},
}


def paper_table(label: str, store: Store | None = None) -> Table:
    """Return a table of the paper with our means, and those of a results folder, after each column.

    Args:
        label: Its label, such as ``tab:mlp-mnist``.
        store: A results folder. Only the columns that its runs belong in are shown, and notes say how well they agree.
    """
    printed, ours, shown = pd.DataFrame(table(label)), beside_printed(label), columns(label)
    notes = [f"Mean ± standard error, n = {', '.join(map(str, sorted(set(printed['n']))))} in the paper. Marks as printed."]
    notes += [f"Ours ({' and '.join(sorted(set(ours['kind'])))}): {agreement(label)}"] if len(ours) else []
    sources = {"": printed, ", ours": ours}
    if store is not None:
        runs = _runs(store)
        cells = _summarize_yours(label, runs)
        yours = sources[", yours"] = beside_printed(label, cells)
        if yours.empty:
            raise UserError(f"none of these runs belongs in {label}: it has {', '.join(shown)}; choose the folder of its study")
        shown = [column for column in shown if column in set(yours["column"])]
        notes += [f"Yours: {agreement(label, cells)}", f"Yours: {_studies(runs)}. {COVERAGE}"]
    rows = list(dict.fromkeys(printed["activation"]))
    marks = pd.DataFrame(index=rows)
    text, data = (pd.DataFrame({"channels": [channels_of(row) for row in rows]}, index=rows) for _ in range(2))
    for column in shown:
        for suffix, source in sources.items():
            part = source[source["column"] == column].set_index("activation").reindex(rows)
            name = f"{column}{suffix}"
            if not suffix:
                styles = ("bold", "underlined", "italic")
                marks[name] = [" ".join(style for style in styles if part.loc[row, style]) for row in rows]
            if part["mean"].notna().any():
                text[name] = [_text(*cell) for cell in zip(part["mean"], part["standard_error"], strict=True)]
                data[name], data[f"{name} standard error"] = part["mean"], part["standard_error"]
                data[f"{name} n"] = part["n"].fillna(0).astype(int)
    return Table(f"{label} of the paper", text, data, marks, tuple(notes))


def _text(mean: float, error: float) -> str:
    if math.isnan(mean):
        return ""
    return f"{mean:.2f}" if math.isnan(error) else f"{mean:.2f} ± {error:.2f}"


def _runs(store: Store) -> pd.DataFrame:
    """Return the finished runs, with their typed configurations in the column ``config``."""
    frame = store.frame()
    frame = frame[~frame["trial"] & (frame["state"] == "finished")]
    firsts = frame.groupby(["settings", "activation", "widths"])["key"].transform("first")
    configs = {result.key: result.config for result in store.results(firsts, history=False)}
    return frame.assign(config=firsts.map(configs))


def _summarize_yours(label: str, runs: pd.DataFrame) -> pd.DataFrame:
    """Summarize the runs that belong in a table. Settings that share a column compete like sizes."""
    wanted = MODELS.get(label, {})
    runs = runs[runs["config"].map(lambda config: _has(config, wanted)).astype(bool)]
    published = label == "tab:sran"  # it has a row for the published network
    rows = [
        f"{config.activation} (base SRAN)" if published and _has(config, {"layout": "published"}) else config.activation
        for config in runs["config"]
    ]
    settings = runs.groupby(["depth", "size", "settings"]).ngroup()
    runs = runs.assign(activation=rows, parameters=settings)
    parts = []
    for column in columns(label):
        metric = f"test_{METRICS.get(column, 'accuracy')}"
        part = runs[runs["config"].map(lambda config, column=column: _belongs(config, column)).astype(bool)]
        parts.append(part.assign(column=column, metric=metric, value=part.get(metric, math.nan)))
    return summarize(pd.concat(parts), SAME_RUNS.get(label, label))


def _has(config: RunConfig, wanted: Mapping[str, str]) -> bool:
    return all(getattr(config.model, name, None) == value for name, value in wanted.items())


def _belongs(config: RunConfig, column: str) -> bool:
    """Return whether a column is the dataset, the depth or the size of a run, or a metric."""
    if column in DATASETS:
        return getattr(getattr(config.data, "of", None), "name", None) == DATASETS[column]
    return column in METRICS or column == str(config.depth) or size_matches(column, config.size)


def _studies(runs: pd.DataFrame) -> str:
    """Return the user's studies, and whose weights encoded images if not the published ones."""
    studies = runs[["study", "profile"]].drop_duplicates().itertuples(index=False)
    names = [f"{study} ({profile or 'no profile'})" for study, profile in studies if study]
    origins = {str(getattr(config.data, "origin", "")) for config in runs["config"]}
    return "; ".join([*names, *(ORIGINS[origin] for origin in sorted(origins & ORIGINS.keys()))])
