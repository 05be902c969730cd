"""Tables of the paper with our results, and those of a folder, beside them."""

from __future__ import annotations

import json
from importlib import resources
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from boolit.cli._app import run
from boolit.errors import UserError
from boolit.lab.paper import table, tables
from boolit.lab.paper.comparison import paper_table
from boolit.lab.reports.tables import render
from boolit.lab.results.statistics import COVERAGE
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric


@pytest.fixture
def ours(tmp_path: Path, make_result):
    """Return a function that fills a store with two runs of each entry."""

    def fill(*entries: dict) -> Store:
        store = Store(tmp_path)
        store.record(make_result(seed=seed, **entry) for entry in entries for seed in (0, 1))
        return store

    return fill


def column(shown, name: str) -> dict[str, str]:
    return {row: text for row, text in shown.text[name].items() if text}


@pytest.mark.parametrize("label", tables())
def test_every_table_prints_all_its_cells(label: str) -> None:
    shown = paper_table(label)
    cells = table(label)
    printed = shown.text[list(dict.fromkeys(cell.column for cell in cells))]
    assert (printed != "").to_numpy().sum() == len(cells)
    assert all(f"{cell.mean:.2f}" in render(shown, "markdown") for cell in cells if cell.bold)


def test_the_users_runs_are_beside_the_papers_column_of_their_size(ours) -> None:
    values = {"relu": 0.981, "max": 0.979, "or_ail": 0.978}
    store = ours(*({"activation": spec, "value": value, "budget": 65536} for spec, value in values.items()))
    shown = paper_table("tab:mlp-mnist", store)
    assert shown.text.columns.tolist() == ["channels", "65k", "65k, ours", "65k, yours"]
    assert column(shown, "65k, yours") == {"relu": "98.10 ± 0.00", "max": "97.90 ± 0.00", "or_ail": "97.80 ± 0.00"}
    assert shown.notes[2].startswith("Yours: 3 of 48 cells run, n = 2; ")
    assert shown.notes[2].endswith("rank correlation 1.00 (65k).")
    assert shown.notes[-1] == f"Yours: made-up (quick). {COVERAGE}"
    assert COVERAGE not in " ".join(paper_table("tab:mlp-mnist").notes)


def test_sizes_of_one_depth_compete(ours) -> None:
    store = ours(*({"value": v, "budget": b, "widths": (b,)} for v, b in ((0.90, 10_000), (0.93, 30_000))))
    shown = paper_table("tab:mlp-covtype", store)
    assert shown.text.loc["relu", "1, yours"] == "93.00 ± 0.00"


def test_runs_of_another_study_are_refused(ours) -> None:
    with pytest.raises(UserError, match="none of these runs belongs in tab:mlp-mnist"):
        paper_table("tab:mlp-mnist", ours({"budget": 1000}))
    with pytest.raises(UserError, match="tab:nothing"):
        paper_table("tab:nothing")


TMNX = {"model": {"name": "tmn", "variant": "tmnx"}, "metric": Metric(name="auc"), "parameters": 10**6}


def test_columns_of_tmn_are_metrics_of_the_same_runs(ours) -> None:
    store = ours({"activation": "or_il", "metrics": {"test_auc": 0.027, "test_auc2": 0.071, "test_auc3": 0.112}, **TMNX})
    shown = paper_table("tab:tmnx", store)
    assert [shown.text.loc["or_il", f"Top-{k}, yours"] for k in (1, 2, 3)] == ["2.70 ± 0.00", "7.10 ± 0.00", "11.20 ± 0.00"]
    console = Console(width=80, file=StringIO(), record=True)
    console.print(shown)
    text = console.export_text()
    assert "…" not in text
    assert all(number in text for number in ("2.70", "7.10", "11.20"))
    with pytest.raises(UserError, match="none of these runs belongs in tab:tmn-og"):
        paper_table("tab:tmn-og", store)


def test_the_published_sran_and_uneven_shares_have_their_rows(ours) -> None:
    entries = [("relu", "published", 0.5), ("relu", "layernorm", 0.6), ("or_and_xnor_ail_pu", "layernorm", 0.7)]
    store = ours(*({"activation": a, "model": {"name": "sran", "layout": layout}, "value": v} for a, layout, v in entries))
    shown = paper_table("tab:sran", store)
    rows = {row: text.split()[0] for row, text in column(shown, "Acc, yours").items()}
    assert rows == {"relu (base SRAN)": "50.00", "relu": "60.00", "or_and_xnor_ail_p": "70.00"}


def test_the_installed_command_shows_our_means_without_any_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert resources.files("boolit.lab.paper").joinpath("ours", "mlp-mnist.csv").is_file()
    assert run(["paper", "mlp-mnist", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert all(row["16k, ours n"] >= 10 for row in shown["rows"])
    assert "within 2 combined standard errors" in shown["notes"][1]


def test_tables_without_results_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paper", "datasets"]) == 0
    assert "Caltech101" in capsys.readouterr().out
    assert run(["paper", "transfer-nparam-big", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [rows[0][name] for name in ("activation", "width", "Cal101")] == ["linear", "", "52"]
    assert [rows[1][name] for name in ("activation", "width", "Cal101")] == ["relu", "512", "577"]
    assert run(["paper", "datasets", "--format", "latex"]) == 2
