"""Cosine similarities of weight rows: which rows count as pairs, and what is said of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from safetensors.torch import save_file

from boolit.cli._app import run as run_command
from boolit.errors import UserError
from boolit.lab.reports.figures.correlations import (
    channels_read_together,
    measure_correlations,
    row_correlations,
    row_similarities,
)
from boolit.lab.results.names import label
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run


def pairs(spec: str, channels: int) -> list[tuple[int, ...]]:
    return [tuple(pair) for pair in channels_read_together(spec, channels).triu().nonzero().tolist()]


@pytest.mark.parametrize("spec", ["or_ail", "xnor_il", "max", "or_and_ail_d", "or_xnor_ail_p", "signed_geomean"])
def test_a_gate_reads_neighbours(spec: str) -> None:
    assert pairs(spec, 12) == [(i, i + 1) for i in range(0, 12, 2)]


def test_others_read_what_they_read() -> None:
    assert pairs("glu", 6) == [(0, 3), (1, 4), (2, 5)]
    assert pairs("or_ail_k3", 6) == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]
    assert pairs("relu", 5) == [(0, 1), (2, 3)]  # as if it read pairs; the odd one out is in none


def test_similarities_are_cosines_and_every_pair_counts_once() -> None:
    weights = torch.randn(3, 6, 9)
    paired, others = row_similarities(weights, channels_read_together("or_ail", 6))
    assert (len(paired), len(others)) == (3 * 3, 3 * (15 - 3))
    expected = torch.nn.functional.cosine_similarity(weights[:, ::2], weights[:, 1::2], dim=-1)
    assert torch.allclose(paired.sort().values, expected.flatten().sort().values, atol=1e-6)


def record(seed: int, activation: str, width: Sequence[int], state: Any = "finished") -> Record:
    metric = {"name": "accuracy", "split": "test", "goal": "max"}
    run = Run.from_dict(
        {
            "activation": activation,
            "width": list(width),
            "model": {"name": "mlp"},
            "seed": seed,
            "metric": metric,
            "parameters": sum(width),
        }
    )
    return Record(run.key, run.config, state, {"test_accuracy": 0.5})


def stored(folder: Path, records: Sequence[Record]) -> Store:
    store = Store(folder)
    store.record(records)
    for each in records:
        half = torch.randn(each.config.width[0] // 2, 7)
        opposed = torch.stack([half, -half], 1).flatten(0, 1)  # every pair points in opposite directions
        save_file({"linear.0.weight": opposed}, store.weights(each.key))
    return store


def test_of_each_activation_the_largest_size_counts_with_all_its_seeds(tmp_path: Path) -> None:
    records = [record(seed, spec, [width]) for seed in range(3) for spec in ("relu", "or_ail") for width in (4, 8)]
    with stored(tmp_path, records) as store:
        found = {each.activation: each for each in measure_correlations(store)}
    assert set(found) == {"relu", "or_ail"}
    assert (found["or_ail"].width, found["or_ail"].runs, len(found["or_ail"].paired)) == (8, 3, 12)
    assert found["or_ail"].metrics()["paired_mean"] == pytest.approx(-1)
    assert found["or_ail"].metrics()["paired_negative"] == 1


def test_the_figure_has_a_panel_for_each_and_a_legend_beside_them(tmp_path: Path) -> None:
    records = [record(seed, spec, [8]) for seed in range(2) for spec in ("relu", "or_ail", "xnor_nail", "max")]
    with stored(tmp_path, records) as store:
        found = measure_correlations(store)
    figure = row_correlations(found)
    FigureCanvasAgg(figure).draw()
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [f"{label(each.activation)}, 2 × 8 rows" for each in found]
    assert [axes.texts[0].get_text().split(",")[0] for axes in shown] == ["pairs −1.00"] * 4
    box = figure.legends[0].get_window_extent()
    assert not any(box.overlaps(axes.get_tightbbox()) for axes in shown)


def test_no_weights_and_no_such_layer_are_said(tmp_path: Path) -> None:
    with Store(tmp_path / "empty") as store, pytest.raises(UserError, match="keeps no weights"):
        measure_correlations(store)
    with stored(tmp_path / "one", [record(0, "max", [4])]) as store, pytest.raises(UserError, match=r"layer is 2; .* 1 hidden"):
        measure_correlations(store, layer=2)


SMALL = ["--seeds", "2", "--json", "--set", "training.epochs=1", "--set", "keep_weights=true", "--set", "data.train=64"]


def command(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert run_command(arguments) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_two_studies_in_one_folder_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for study, width in (("xor", "[4]"), ("parity", "[[4,2]]")):  # 2 and 4 inputs
        given = ["--set", "sweep.activation=['relu','max']", "--set", f"sweep.width={width}"]
        command(["run", study, "--out", str(tmp_path), *given, *SMALL], capsys)
    found = command(["correlations", str(tmp_path), "--json"], capsys)["activations"]
    named = [(each["study"], each["activation"], each["runs"]) for each in found]
    assert sorted(named) == [(f"{study}-quick", spec, 2) for study in ("parity", "xor") for spec in ("max", "relu")]


def test_layers_behind_several_widths_are_measured_at_the_largest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--set", "sweep.activation='max'", "--set", "sweep.width=[[4,6],[8,6],[6,2]]"]
    command(["run", "parity", "--out", str(tmp_path), *given, *SMALL], capsys)
    (found,) = command(["correlations", str(tmp_path), "--json", "--layer", "2"], capsys)["activations"]
    assert (found["width"], found["runs"]) == (6, 2)


def test_one_row_and_one_pair_have_no_deviation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--set", "sweep.activation='relu'", "--set", "sweep.width=[[2,1]]"]
    command(["run", "parity", "--out", str(tmp_path), *given, *SMALL, "--seeds", "1"], capsys)
    (pair,) = command(["correlations", str(tmp_path), "--json"], capsys)["activations"]
    (row,) = command(["correlations", str(tmp_path), "--json", "--layer", "2"], capsys)["activations"]
    assert (pair["paired_sd"], row["paired_mean"]) == (None, None)
    assert pair["paired_mean"] is not None


def test_a_damaged_file_of_weights_is_named(tmp_path: Path) -> None:
    only = record(0, "max", [4])
    with stored(tmp_path, [only]) as store:
        store.weights(only.key).write_bytes(b"no weights")
        with pytest.raises(UserError, match=f"{only.key}.safetensors does not hold the weights of layer 1"):
            measure_correlations(store)
