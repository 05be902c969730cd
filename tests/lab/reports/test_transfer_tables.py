"""Heads of several datasets beside the paper's transfer tables."""

import pytest

from boolit.errors import UserError
from boolit.lab.paper.comparison import paper_table
from boolit.lab.reports.tables import study_tables
from boolit.lab.runs import JSON, Record, RunConfig


def records(
    activation: str, accuracy: float, dataset: str = "cifar10", origin: str = "published", depth: int = 2
) -> list[Record]:
    metric: JSON = {"name": "accuracy", "split": "test", "goal": "max"}
    data: JSON = {"name": "embeddings", "of": {"name": dataset}, "origin": origin}
    configs = [
        RunConfig.from_dict(
            {
                "activation": activation,
                "parameters": 1,
                "budget": None,
                "depth": depth,
                "seed": seed,
                "metric": metric,
                "data": data,
                "model": {"name": "head", "sizes": "matched"},
                "study": "transfer",
                "profile": "paper",
                "width": [1] * depth,
            }
        )
        for seed in (0, 1)
    ]
    return [Record(c.key, c, "finished", {"test_accuracy": accuracy + 0.001 * (c.seed == 1)}) for c in configs]


def test_columns_are_datasets() -> None:
    ours = [
        *records("relu", 0.80),
        *records("or_ail", 0.81),
        *records("xnor_nil", 0.83),
        *records("identity", 0.75, depth=0),
        *records("relu", 0.5, "svhn"),
    ]
    shown = paper_table("tab:transfer-extra", ours)
    assert shown.columns == ("CIFAR10", "CIFAR10, ours", "SVHN", "SVHN, ours")
    found = {row.activation: [cell.text for cell in row.cells] for row in shown.rows}
    assert found["relu"] == ["81.63", "80.05", "53.26", "50.05"]
    assert found["linear"] == ["78.56", "75.05", "46.60", ""]
    assert any(note.startswith("CIFAR10: ") and "rank correlation 1.00 over 4" in note for note in shown.notes)
    assert not any("reconstructed" in note for note in shown.notes)


def test_reconstructed_weights_are_named_wherever_numbers_rest_on_them() -> None:
    ours = [*records("relu", 0.80, origin="reconstructed"), *records("max", 0.81, origin="reconstructed")]
    assert any("reconstructed" in note for note in paper_table("tab:transfer-head-big", ours).notes)
    assert all("reconstructed encoder weights" in table.title for table in study_tables(ours))
    assert not any("weights" in table.title for table in study_tables(records("relu", 0.8)))


def test_a_linear_head_is_compared_with_the_others() -> None:
    (shown,) = study_tables([*records("relu", 0.80), *records("identity", 0.75, depth=0)])
    assert [row.activation for row in shown.rows] == ["relu", "identity"]


def test_runs_on_other_data_do_not_belong() -> None:
    with pytest.raises(UserError, match="none of these runs belongs in tab:transfer-extra"):
        paper_table("tab:transfer-extra", records("relu", 0.8, "pictures"))
