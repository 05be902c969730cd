"""The paper's tables, and our results beside them."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from boolit.cli._app import run
from boolit.errors import UserError
from boolit.lab.paper import table, tables
from boolit.lab.paper.comparison import paper_table
from boolit.lab.reports.tables import render, terminal_table
from boolit.lab.results.statistics import COVERAGE
from boolit.lab.results.store import Store
from boolit.lab.runs import JSON, Record, RunConfig


def records(activation: str, accuracy: float, budget: int, depth: int = 2) -> list[Record]:
    metric = {"name": "accuracy", "split": "test", "goal": "max"}
    shared = {"activation": activation, "budget": budget, "parameters": budget, "depth": depth, "metric": metric}
    configs = [RunConfig.from_dict({**shared, "seed": seed}) for seed in (0, 1)]
    return [Record(c.key, c, "finished", {"test_accuracy": accuracy + 0.001 * (2 * c.seed - 1)}) for c in configs]


@pytest.mark.parametrize("label", tables())
def test_every_table_prints_all_its_cells(label: str) -> None:
    shown = paper_table(label)
    cells = table(label)
    assert sum(bool(cell.text) for row in shown.rows for cell in row.cells) == len(cells)
    best = [cell for cell in cells if cell.bold]
    assert all(f"{cell.mean:.2f}" in render(shown, "markdown") for cell in best)


def test_ours_stand_beside_the_paper_s_column_of_their_size() -> None:
    ours = [*records("relu", 0.981, 65536), *records("max", 0.979, 65536), *records("or_ail", 0.978, 65536)]
    shown = paper_table("tab:mlp-mnist", ours)
    assert shown.columns == ("65k", "65k, ours")
    assert {row.activation: row.cells[1].text for row in shown.rows if row.cells[1].text} == {
        "relu": "98.10",
        "max": "97.90",
        "or_ail": "97.80",
    }
    assert "rank correlation 1.00 over 3 activations" in shown.notes[1]
    assert shown.notes[-1] == f"Ours: n = 2. {COVERAGE}"
    assert COVERAGE not in " ".join(paper_table("tab:mlp-mnist").notes)


def test_sizes_of_one_depth_compete() -> None:
    shown = paper_table("tab:mlp-covtype", [*records("relu", 0.90, 10_000, 1), *records("relu", 0.93, 30_000, 1)])
    assert shown.columns == ("1", "1, ours")
    assert shown.rows[0].cells[1].text == "93.00"


def test_runs_of_another_study_are_refused() -> None:
    with pytest.raises(UserError, match="none of these runs belongs in tab:mlp-mnist"):
        paper_table("tab:mlp-mnist", records("relu", 0.9, 1000))
    with pytest.raises(UserError, match="tab:nothing"):
        paper_table("tab:nothing")


def judged(activation: str, model: dict[str, str], figures: dict[str, float], metric: str) -> list[Record]:
    shared: dict[str, JSON] = {"activation": activation, "budget": None, "parameters": 10**6, "depth": 1, "model": model}
    shared["metric"] = {"name": metric, "split": "test", "goal": "max"}
    configs = [RunConfig.from_dict({**shared, "seed": seed}) for seed in (0, 1)]
    return [Record(config.key, config, "finished", figures) for config in configs]


def test_columns_of_tmn_are_figures_of_the_same_runs() -> None:
    figures = {"test_auc": 0.027, "test_auc2": 0.071, "test_auc3": 0.112}
    shown = paper_table("tab:tmnx", judged("or_il", {"name": "tmn", "variant": "tmnx"}, figures, "auc"))
    (row,) = (row for row in shown.rows if row.activation == "or_il")
    assert [cell.text for cell in row.cells[1::2]] == ["2.70", "7.10", "11.20"]


def test_the_two_networks_of_one_task_are_told_apart() -> None:
    ours = judged("relu", {"name": "tmn", "variant": "tmnx"}, {"test_auc": 0.02}, "auc")
    with pytest.raises(UserError, match="none of these runs belongs in tab:tmn-og"):
        paper_table("tab:tmn-og", ours)


def test_columns_of_sran_are_those_configurations_that_were_trained_for() -> None:
    figures = {"test_accuracy": 0.8, "test_accuracy_center_single": 0.8}
    shown = paper_table("tab:sran", judged("or_ail", {"name": "sran"}, figures, "accuracy"))
    assert shown.columns == ("Acc", "Acc, ours", "Center", "Center, ours")


def test_the_published_sran_and_uneven_shares_have_their_rows() -> None:
    normalised, published = {"name": "sran", "layout": "layernorm"}, {"name": "sran", "layout": "published"}
    ours = [
        *judged("relu", published, {"test_accuracy": 0.5}, "accuracy"),
        *judged("relu", normalised, {"test_accuracy": 0.6}, "accuracy"),
        *judged("or_and_xnor_ail_pu", normalised, {"test_accuracy": 0.7}, "accuracy"),
    ]
    found = {row.activation: row.cells[1].text for row in paper_table("tab:sran", ours).rows if row.cells[1].text}
    assert found == {"relu (base SRAN)": "50.00", "relu": "60.00", "or_and_xnor_ail_p": "70.00"}


def test_heads_of_equal_width_belong_into_their_own_table() -> None:
    def heads(sizes: str) -> list[Record]:
        found = judged("relu", {"name": "head", "sizes": sizes}, {"test_accuracy": 0.8}, "accuracy")
        data = {"name": "embeddings", "of": {"name": "cifar10"}}
        configs = [record.config.replace(data=data) for record in found]
        return [Record(config.key, config, "finished", {"test_accuracy": 0.8}) for config in configs]

    assert paper_table("tab:transfer-head-512", heads("equal")).columns == ("CIFAR10", "CIFAR10, ours")
    with pytest.raises(UserError, match="tab:transfer-head-512"):
        paper_table("tab:transfer-head-512", heads("matched"))


def test_a_narrow_terminal_cuts_no_number() -> None:
    figures = {"test_auc": 0.027, "test_auc2": 0.071, "test_auc3": 0.112}
    shown = paper_table("tab:tmnx", judged("or_il", {"name": "tmn", "variant": "tmnx"}, figures, "auc"))
    console = Console(width=80, file=StringIO(), record=True)
    console.print(terminal_table(shown, 80))
    text = console.export_text()
    assert "…" not in text
    assert all(number in text for number in ("2.70", "7.10", "11.20", "±"))


def test_it_is_said_which_study_ours_are_of() -> None:
    ours = judged("relu", {"name": "tmn", "variant": "tmnx"}, {"test_auc": 0.5}, "auc")
    configs = [record.config.replace(study="composed-tmnx", profile="quick") for record in ours]
    shown = paper_table("tab:tmnx", [Record(c.key, c, "finished", {"test_auc": 0.5}) for c in configs])
    assert "Ours: composed-tmnx (quick)." in shown.notes


def test_a_folder_without_runs_is_said_to_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path / "empty"):
        pass
    assert run(["paper", "mlp-mnist", "--results", str(tmp_path / "empty")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{tmp_path / 'empty'} has no finished runs to set beside tab:mlp-mnist" in told.err
    (tmp_path / "nothing").mkdir()
    assert run(["paper", "mlp-mnist", "--results", str(tmp_path / "nothing")]) == 2
