"""The curves of finished runs are those of their networks' scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from boolit.errors import UserError
from boolit.lab.datasets import load, source
from boolit.lab.datasets.czsl import CompositionalDataset, curves
from boolit.lab.reports.figures.study import RunCurve, measure_seen_unseen, seen_against_unseen, study_figures
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run

DATA = {"name": "composed", "samples": 300, "features": 10}
METRICS = ("train_loss", "valid_auc", "test_auc", "test_seen", "test_unseen")


def record(activation: str, data: dict[str, Any], outputs: int) -> Record:
    run = Run.from_dict(
        {
            "activation": activation,
            "data": data,
            "model": {"name": "mlp"},
            "width": [32],
            "inputs": [10],
            "outputs": outputs,
            "depth": 1,
            "parameters": 100,
            "seed": 0,
            "training": {"optimiser": "adam", "learning_rate": 1e-3, "epochs": 1, "batch": 8, "schedule": "constant"},
            "metric": {"name": "auc", "split": "test", "goal": "max"},
        }
    )
    return Record(run.key, run.config, "finished", dict.fromkeys(METRICS, 0.1), {"test_auc": [0.1]})


@pytest.fixture
def dataset() -> CompositionalDataset:
    found = load(source(DATA))
    assert isinstance(found, CompositionalDataset)
    return found


@pytest.fixture
def stored(tmp_path: Path, dataset: CompositionalDataset) -> tuple[Store, list[Record], dict[str, torch.Tensor]]:
    """Two runs with the same random weights."""
    weights = {
        "linear.0.weight": torch.randn(32, 10),
        "linear.0.bias": torch.randn(32),
        "linear.1.weight": torch.randn(dataset.outputs, 32),
        "linear.1.bias": torch.randn(dataset.outputs),
    }
    records = [record(activation, DATA, dataset.outputs) for activation in ("relu", "tanh")]
    store = Store(tmp_path)
    store.record(records)
    for each in records:
        save_file(weights, store.weights(each.key))
    return store, records, weights


def test_the_curve_is_that_of_the_network_s_scores(
    stored: tuple[Store, list[Record], dict[str, torch.Tensor]], dataset: CompositionalDataset
) -> None:
    store, (relu, _), weights = stored
    test = dataset.splits["test"]
    hidden = (dataset.encode(test.x) @ weights["linear.0.weight"].T + weights["linear.0.bias"]).relu()
    scores = hidden @ weights["linear.1.weight"].T + weights["linear.1.bias"]
    expected = curves(scores.unsqueeze(0), test.y, dataset.pairs, "test")[0][0]
    with store:
        found = measure_seen_unseen(relu, store)
    assert found.activation == "relu"
    assert torch.allclose(found.curve.bias, expected.bias, atol=1e-3)
    assert found.curve.area == pytest.approx(expected.area, abs=1e-3)


def test_a_study_of_pairs_has_the_figure(stored: tuple[Store, list[Record], dict[str, torch.Tensor]]) -> None:
    store, records, _ = stored
    with store:
        drawn = {name: figure for name, _, figure in study_figures(records, store) if name == "seen-unseen"}
        found = [measure_seen_unseen(each, store) for each in records]
    (axes,) = drawn["seen-unseen"].axes
    lines = {line.get_label().split(":")[0]: line for line in axes.lines if not str(line.get_label()).startswith("_")}
    assert set(lines) == {"ReLU", "Tanh"}
    assert lines["ReLU"].get_xdata().tolist() == found[0].curve.unseen.tolist()
    assert lines["ReLU"].get_ydata().tolist() == found[0].curve.seen.tolist()
    assert lines["ReLU"].get_label() == f"ReLU: {100 * found[0].curve.area:.1f}"


def test_grey_lines_have_one_harmonic_mean(dataset: CompositionalDataset) -> None:
    test = dataset.splits["test"]
    scores = torch.rand(1, len(test), dataset.outputs)
    scores[0, torch.arange(len(test)), test.y] += 0.7
    found = RunCurve("or_ail", curves(scores, test.y, dataset.pairs, "test")[0][0])
    axes = seen_against_unseen([found]).axes[0]
    grey = [line.get_xydata() for line in axes.lines if str(line.get_label()).startswith("_")]
    assert len(grey) >= 2
    for line, text in zip(grey, axes.texts, strict=True):
        means = 2 * line.prod(1) / line.sum(1)
        assert means == pytest.approx([float(text.get_text()) / 100] * len(means))


def test_a_run_on_other_data_is_told(tmp_path: Path) -> None:
    with Store(tmp_path) as store, pytest.raises(UserError, match="has the data 'xor', which has no pairs"):
        measure_seen_unseen(record("relu", {"name": "xor"}, 1), store)
