"""A comparison on a table, end to end."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import boolit
from boolit.cli._compare import predict
from boolit.errors import UserError
from boolit.lab.compare.config import MANY_ROWS, RATES, CompareConfig
from boolit.lab.compare.job import CompareJob, CompareResult
from boolit.lab.compare.saved import build_saved_model, write_predictions
from boolit.lab.compare.study import table_source
from boolit.lab.datasets import load as load_data
from boolit.lab.datasets.tables import prepare_table
from boolit.lab.models import restore
from boolit.lab.results.store import Store
from boolit.lab.training import StackedTraining
from boolit.saved import load
from boolit.saved.columns import Column
from boolit.saved.file import ModelDescription, build_network
from boolit.saved.model import SavedModel

SPECS = ("relu", "prelu", "or_and_xnor_nail_d")


def config(folder: Path, name: str = "classes", target: str = "class", **options: Any) -> CompareConfig:
    return CompareConfig(
        folder / f"{name}.csv", target, **{"activations": SPECS, "budget": 400, "splits": 5, "epochs": 4, **options}
    )


@pytest.fixture(scope="module")
def classes(folder: Path) -> CompareResult:
    return CompareJob.prepare(config(folder)).run(folder / "classes")


@pytest.fixture(scope="module")
def quantity(folder: Path) -> CompareResult:
    return CompareJob.prepare(config(folder, "quantity", "price", activations=("relu",))).run(folder / "quantity")


def test_every_activation_has_its_rate_on_every_split(folder: Path, classes: CompareResult) -> None:
    places = {(spec, split) for spec in SPECS for split in range(1, 6)}
    assert classes.rates is not None
    assert set(classes.rates) == places
    assert set(classes.rates.values()) <= set(RATES)
    with Store(folder / "classes", create=False) as store:
        tried, final = store.records({"study": "classes-rates"}), store.records({"study": "classes"})
    assert len(tried) == len(places) * len(RATES)
    assert not any(name.startswith("test_") for record in tried for name in record.metrics)
    assert {(record.config.activation, record.config.split) for record in final} == places
    for record in final:
        rate = classes.rates[record.config.activation, record.config.split]
        assert record.metrics["learning_rate"] == rate
        own = [r for r in tried if (r.config.activation, r.config.split) == (record.config.activation, record.config.split)]
        best = min(own, key=lambda r: r.metrics["valid_loss"])
        assert best.metrics["learning_rate"] == rate
    assert all("best_epoch" in record.metrics for record in final)


def test_many_rows_need_fewer_splits(folder: Path) -> None:
    default = config(folder, splits=None)
    assert [len(default.split_numbers(rows)) for rows in (100, MANY_ROWS - 1, MANY_ROWS)] == [10, 10, 5]
    assert len(config(folder, splits=7).split_numbers(MANY_ROWS)) == 7


def test_the_reference_is_relu_or_the_first(folder: Path) -> None:
    assert config(folder).reference_activation == "relu"
    assert config(folder, activations=("max", "or_ail")).reference_activation == "max"
    assert config(folder, reference="prelu").reference_activation == "prelu"


def test_sizes_are_matched(folder: Path) -> None:
    counts = CompareJob.prepare(config(folder)).parameters
    assert set(counts) == set(SPECS)
    assert all(abs(count - 400) < 60 for count in counts.values())


def test_it_ends_with_table_verdict_figures_and_model(folder: Path, classes: CompareResult) -> None:
    assert classes.report is not None
    assert classes.saved is not None
    assert "best" not in classes.report.verdict
    names = {path.name for path in classes.report.files}
    assert {"report.html", "tables.md", "curves.png", "scores.png"} <= names
    assert classes.saved.path == folder / "classes" / "best.safetensors"
    rows = {row.activation for row in classes.report.tables[0].rows}
    assert rows == {*SPECS, "majority class"}


def test_the_same_command_trains_nothing_again(folder: Path, classes: CompareResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedTraining, "step", lambda _: pytest.fail("trained again"))
    again = CompareJob.prepare(config(folder)).run(folder / "classes")
    assert again.summary.trained == 0
    assert again.rates == classes.rates
    assert again.report is not None
    assert classes.report is not None
    assert again.report.verdict == classes.report.verdict


def test_a_changed_table_is_another_study(folder: Path) -> None:
    before = CompareJob.prepare(config(folder, "quantity", "price")).plan.runs[0].key
    moved = folder / "quantity.csv"
    original = moved.read_text()
    moved.write_text(original + original.splitlines()[-1] + "\n")
    after = CompareJob.prepare(config(folder, "quantity", "price")).plan.runs[0].key
    moved.write_text(original)
    assert before != after
    assert CompareJob.prepare(config(folder, "quantity", "price")).plan.runs[0].key == before


@pytest.mark.parametrize("spec", SPECS)
def test_a_saved_model_computes_what_the_trained_network_does(folder: Path, classes: CompareResult, spec: str) -> None:
    """Plain layers on the file's own rows against stacked layers on a run's own, for every row of its test split."""
    assert classes.report is not None
    source = table_source(config(folder))
    table, dataset = prepare_table(source.spec), load_data(source)
    with Store(folder / "classes", create=False) as store:
        record = next(r for r in store.records({"study": "classes", "split": 3}) if r.config.activation == spec)
        weights = load_file(store.weights(record.key))
    assert dataset.resample is not None
    own = dataset.resample(3)
    x, y = (values[own.rows["test"]] for values in table.all_rows())
    with torch.no_grad():
        expected = restore(record.config, weights)(((x - own.mean) / own.scale).unsqueeze(0))[0, :, 0]
        features = x.double() * torch.from_numpy(table.scale) + torch.from_numpy(table.mean)
        actual = build_saved_model(record, table, own, weights).module(features)[:, 0]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert float(((actual > 0) == (y > 0.5)).double().mean()) == pytest.approx(record.metrics["test_accuracy"])


def rows_of(path: Path) -> dict[str, list[str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_the_best_model_predicts_its_own_table(folder: Path, classes: CompareResult) -> None:
    assert classes.saved is not None
    model = load(classes.saved.path)
    rows = rows_of(folder / "classes.csv")
    assert (model.columns, model.classes) == (["size", "colour", "member", "since"], ["no", "yes"])
    assert set(model.predict(rows).tolist()) <= {"no", "yes"}
    assert boolit.activation(model.description.activation).spec == classes.saved.activation


def test_errors_are_in_the_targets_own_unit(folder: Path, quantity: CompareResult) -> None:
    assert quantity.saved is not None
    assert quantity.verdict is not None
    model, rows = load(quantity.saved.path), rows_of(folder / "quantity.csv")
    prices = np.array(rows["price"], dtype=float)
    error = np.sqrt(np.mean((model.predict(rows) - prices) ** 2))
    # Sizes spread by 50: an error in standardised units would be near 1.
    assert 0.2 * quantity.saved.expected.mean < error < 5 * quantity.saved.expected.mean
    guess = quantity.verdict.comparison.estimates["target mean"].mean
    assert 0.7 * prices.std() < guess < 1.3 * prices.std()


def test_predictions_as_csv(folder: Path, classes: CompareResult, tmp_path: Path) -> None:
    assert classes.saved is not None
    out = tmp_path / "out.csv"
    assert write_predictions(classes.saved.path, folder / "classes.csv", out).rows == 160
    written, model = rows_of(out), load(classes.saved.path)
    assert list(written) == ["class", "P(no)", "P(yes)"]
    assert written["class"] == model.predict(rows_of(folder / "classes.csv")).tolist()
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no column 'size'"):
        write_predictions(classes.saved.path, tmp_path / "bad.csv", out)
    with pytest.raises(UserError, match="no readable safetensors"):
        write_predictions(folder / "classes.csv", folder / "classes.csv", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "out.csv"]


def test_a_category_of_digits_stays_one(tmp_path: Path) -> None:
    columns = (Column("code", "category", levels=("7", "x")), Column("flag", "flag"))
    module = build_network(3, (), 1, "relu", in_unit=True)
    model = SavedModel(module.eval(), ModelDescription(columns, "y", "regress", (), "relu", ()))
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "t.csv").write_text("code,flag\n7,1\n7,0\n")
    write_predictions(tmp_path / "model.safetensors", tmp_path / "t.csv", tmp_path / "out.csv")
    expected = model.predict({"code": ["7", "7"], "flag": [True, False]})
    np.testing.assert_array_equal(np.array(rows_of(tmp_path / "out.csv")["y"], dtype=float), expected)


def test_categories_the_model_does_not_know_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("colour", "category", levels=("red", "blue")), Column("size", "category", levels=("s",), other=True))
    module = build_network(4, (), 1, "relu", in_unit=True)
    SavedModel(module.eval(), ModelDescription(columns, "y", "regress", (), "relu", ())).save(tmp_path / "model.safetensors")
    sizes = [*"abcdefg", "s"]
    colours = ["red", "pink", "teal", "pink", "", "blue", " red", "NA"]
    rows = "".join(f"{colour},{size}\n" for colour, size in zip(colours, sizes, strict=True))
    (tmp_path / "t.csv").write_text("colour,size\n" + rows)
    predict(tmp_path / "model.safetensors", tmp_path / "t.csv", tmp_path / "out.csv")
    first, second, last = capsys.readouterr().err.splitlines()
    said = "with a category that the model does not know, predicted all the same:"
    assert first == f"Note: column 'colour': 3 rows {said} 'pink', 'teal'"
    assert second == f"Note: column 'size': 7 rows {said} 'a', 'b', 'c', 'd', 'e', …"
    assert last.startswith("8 predictions: ")
    (tmp_path / "t.csv").write_text("colour,size\nred,s\n")
    predict(tmp_path / "model.safetensors", tmp_path / "t.csv", None)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"activations": ("relu", "rellu")}, "unknown activation 'rellu'"),
        ({"activations": ("relu", "relu")}, "'relu' is there twice"),
        ({"activations": ()}, "no activations"),
        ({"budget": 5}, "--budget 5 is too small"),
        ({"target": "price"}, "no column 'price'"),
        ({"reference": "tanh"}, "the reference 'tanh' is not among"),
        ({"splits": 4}, "--splits 4 is too few"),
        ({"rates": ()}, "no learning rates"),
        ({"rates": (0.1, -0.1)}, "learning rate -0.1"),
    ],
)
def test_an_impossible_config_is_one_sentence(options: dict[str, Any], named: str, folder: Path) -> None:
    with pytest.raises(UserError, match=named):
        CompareJob.prepare(config(folder, **options))


def test_no_prediction_is_a_formula(tmp_path: Path) -> None:
    labels = ("=cmd|' /C calc'!A0", "@a", "-5", "plain")
    module = build_network(1, (), 4, "relu", in_unit=False)
    with torch.no_grad():
        module[-1].weight[:, 0] = torch.tensor([-2.0, -1, 1, 2])  # each is chosen somewhere between -9 and 9
        module[-1].bias[:] = torch.tensor([-3.0, 0, 0, -3])
    saved = SavedModel(module.eval(), ModelDescription((Column("x", "number"),), "=target", "classify", labels, "relu", ()))
    saved.save(tmp_path / "model.safetensors")
    (tmp_path / "t.csv").write_text("x\n-9\n-1\n1\n9\n")
    write_predictions(tmp_path / "model.safetensors", tmp_path / "t.csv", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading[0] == "'=target"
    assert [row[0] for row in rows] == ["'=cmd|' /C calc'!A0", "'@a", "-5", "plain"]
    assert all(math.isclose(sum(map(float, row[1:])), 1) for row in rows)
