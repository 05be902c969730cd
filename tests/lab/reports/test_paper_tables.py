"""The paper's tables, and our results beside them."""

import pytest

from boolit.lab.errors import UserError
from boolit.lab.paper import table, tables
from boolit.lab.reports.paper_tables import paper_table
from boolit.lab.reports.tables import render
from boolit.lab.runs import Record, Run


def records(activation: str, accuracy: float, budget: int, depth: int = 2) -> list[Record]:
    metric = {"name": "accuracy", "split": "test", "goal": "max"}
    configs = [
        {"activation": activation, "budget": budget, "parameters": budget, "depth": depth, "seed": seed, "metric": metric}
        for seed in (0, 1)
    ]
    return [Record(Run(c).key, c, "finished", {"test_accuracy": accuracy + 0.001 * (2 * int(c["seed"]) - 1)}) for c in configs]


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


def test_sizes_of_one_depth_compete() -> None:
    shown = paper_table("tab:mlp-covtype", [*records("relu", 0.90, 10_000, 1), *records("relu", 0.93, 30_000, 1)])
    assert shown.columns == ("1", "1, ours")
    assert shown.rows[0].cells[1].text == "93.00"


def test_runs_of_another_study_are_refused() -> None:
    with pytest.raises(UserError, match="none of these runs belongs into tab:mlp-mnist"):
        paper_table("tab:mlp-mnist", records("relu", 0.9, 1000))
    with pytest.raises(UserError, match="tab:nothing"):
        paper_table("tab:nothing")
