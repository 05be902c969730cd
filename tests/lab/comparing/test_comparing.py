"""A comparison on a table, end to end."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import boolit
from boolit.lab.comparing import Compared, Comparing, Question
from boolit.lab.comparing.best import best_record, saved_model
from boolit.lab.comparing.predictions import write_predictions
from boolit.lab.comparing.rates import MANY_ROWS, RATES, SEEDS, best_rate, rate_plan
from boolit.lab.errors import UserError
from boolit.lab.models import restore
from boolit.lab.results.statistics import Metric
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run
from boolit.lab.training import StackedTraining
from boolit.saved import load
from boolit.saved.columns import Column
from boolit.saved.description import Description
from boolit.saved.model import SavedModel
from boolit.saved.network import network

SPECS = ("relu", "prelu", "or_and_xnor_nail_d")


def question(folder: Path, name: str = "classes", target: str = "class", **options: Any) -> Question:
    return Question(folder / f"{name}.csv", target, **{"activations": SPECS, "budget": 400, "seeds": 2, "epochs": 4, **options})


@pytest.fixture(scope="module")
def classes(folder: Path) -> Compared:
    return Comparing.of(question(folder)).run(folder / "classes")


@pytest.fixture(scope="module")
def quantity(folder: Path) -> Compared:
    return Comparing.of(question(folder, "quantity", "price", activations=("relu",))).run(folder / "quantity")


def test_every_activation_has_its_rate_and_its_seeds(folder: Path, classes: Compared) -> None:
    assert set(classes.rates) == set(SPECS)
    assert set(classes.rates.values()) <= set(RATES)
    with Store(folder / "classes", create=False) as store:
        tried, final = store.records({"study": "classes-rates"}), store.records({"study": "classes"})
    assert len(tried) == len(SPECS) * len(RATES) * len(SEEDS)
    assert {(r.config["activation"], r.config["seed"]) for r in final} == {(spec, seed) for spec in SPECS for seed in (0, 1)}
    assert all(record.metrics["learning_rate"] == classes.rates[str(record.config["activation"])] for record in final)
    assert all("best_epoch" in record.metrics for record in final)


def test_many_rows_need_one_seed_a_rate(folder: Path) -> None:
    planned = Comparing.of(question(folder)).planned
    assert len(rate_plan(planned, MANY_ROWS).runs) == len(SPECS) * len(RATES)


def test_sizes_are_matched(folder: Path) -> None:
    counts = Comparing.of(question(folder)).parameters
    assert set(counts) == set(SPECS)
    assert all(abs(count - 400) < 60 for count in counts.values())


def test_it_ends_with_table_verdict_figures_and_model(folder: Path, classes: Compared) -> None:
    assert classes.report is not None
    assert classes.best is not None
    assert "is best" in classes.report.verdict
    names = {path.name for path in classes.report.files}
    assert {"report.html", "tables.md", "curves.png"} <= names
    assert classes.best.path == folder / "classes" / "best.safetensors"


def test_the_same_command_trains_nothing_again(folder: Path, classes: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedTraining, "step", lambda _: pytest.fail("trained again"))
    again = Comparing.of(question(folder)).run(folder / "classes")
    assert again.summary.trained == 0
    assert again.rates == classes.rates
    assert again.report is not None
    assert classes.report is not None
    assert again.report.verdict == classes.report.verdict


def test_a_changed_table_is_another_study(folder: Path) -> None:
    before = Comparing.of(question(folder, "quantity", "price")).planned.runs[0].key
    moved = folder / "quantity.csv"
    original = moved.read_text()
    moved.write_text(original + original.splitlines()[-1] + "\n")
    after = Comparing.of(question(folder, "quantity", "price")).planned.runs[0].key
    moved.write_text(original)
    assert before != after
    assert Comparing.of(question(folder, "quantity", "price")).planned.runs[0].key == before


@pytest.mark.parametrize("spec", SPECS)
def test_a_saved_model_computes_what_the_trained_network_does(folder: Path, classes: Compared, spec: str) -> None:
    """Plain layers on the file's own rows against stacked layers on the prepared matrix, for every row of the test split."""
    assert classes.report is not None
    table = question(folder).prepared()
    with Store(folder / "classes", create=False) as store:
        record = next(r for r in store.records({"study": "classes"}) if r.config["activation"] == spec)
        weights = load_file(store.weights(record.key))
    x, y = table.split("test")
    with torch.no_grad():
        expected = restore(record.config, weights)(x.unsqueeze(0))[0, :, 0]
        features = x.double() * torch.from_numpy(table.scale) + torch.from_numpy(table.mean)
        actual = saved_model(record, table, weights).module(features)[:, 0]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert float(((actual > 0) == (y > 0.5)).double().mean()) == pytest.approx(record.metrics["test_accuracy"])


def rows_of(path: Path) -> dict[str, list[str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_the_best_model_predicts_its_own_table(folder: Path, classes: Compared) -> None:
    assert classes.best is not None
    model = load(classes.best.path)
    rows = rows_of(folder / "classes.csv")
    assert (model.columns, model.classes) == (["size", "colour", "member", "since"], ["no", "yes"])
    assert set(model.predict(rows).tolist()) <= {"no", "yes"}
    assert model.about["figures"] == classes.best.figures
    assert boolit.activation(model.description.activation).spec == classes.best.activation


def test_errors_are_in_the_targets_own_unit(folder: Path, quantity: Compared) -> None:
    assert quantity.best is not None
    assert quantity.report is not None
    model, rows = load(quantity.best.path), rows_of(folder / "quantity.csv")
    errors = model.predict(rows) - np.array(rows["price"], dtype=float)
    # Sizes spread by 50: an error in standardised units would be near 1.
    assert 0.2 * quantity.best.figures["test_rmse"] < np.sqrt(np.mean(errors**2)) < 5 * quantity.best.figures["test_rmse"]
    told = re.search(r"relu is best \((\d+(?:\.\d+)?)", quantity.report.verdict)
    assert told is not None
    assert float(told[1]) > 5


def test_predictions_as_csv(folder: Path, classes: Compared, tmp_path: Path) -> None:
    assert classes.best is not None
    out = tmp_path / "out.csv"
    assert write_predictions(classes.best.path, folder / "classes.csv", out) == 160
    written, model = rows_of(out), load(classes.best.path)
    assert list(written) == ["class", "P(no)", "P(yes)"]
    assert written["class"] == model.predict(rows_of(folder / "classes.csv")).tolist()
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no column 'size'"):
        write_predictions(classes.best.path, tmp_path / "bad.csv", out)
    with pytest.raises(UserError, match="no readable safetensors"):
        write_predictions(folder / "classes.csv", folder / "classes.csv", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "out.csv"]


def test_a_category_of_digits_stays_one(tmp_path: Path) -> None:
    columns = (Column("code", "category", levels=("7", "x")), Column("flag", "flag"))
    module = network(3, (), 1, "relu", in_unit=True)
    model = SavedModel(module.eval(), Description(columns, "y", "regress", (), "relu", ()))
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "t.csv").write_text("code,flag\n7,1\n7,0\n")
    write_predictions(tmp_path / "model.safetensors", tmp_path / "t.csv", tmp_path / "out.csv")
    expected = model.predict({"code": ["7", "7"], "flag": [True, False]})
    np.testing.assert_array_equal(np.array(rows_of(tmp_path / "out.csv")["y"], dtype=float), expected)


def record(spec: str, seed: int, valid: float, rate: float = 0.1, state: Any = "finished") -> Record:
    config = {"activation": spec, "seed": seed, "training": {"learning_rate": rate}}
    return Record(
        Run(config).key, config, state, {"valid_accuracy": valid, "test_accuracy": 1 - valid, "valid_loss": 1 - valid}
    )


def test_the_best_model_is_chosen_on_validation_rows() -> None:
    records = [
        record("a", 0, 0.99),
        record("a", 1, 0.1),
        record("b", 0, 0.8),
        record("b", 1, 0.9),
        record("c", 0, 0.9999, state="diverged"),
    ]
    best = best_record(records, Metric("test_accuracy"))
    assert best is records[3]
    assert best_record(records[-1:], Metric("test_accuracy")) is None


def test_a_rate_at_which_a_run_diverged_is_not_chosen() -> None:
    records = [
        record("a", 0, 0.9, 0.1),
        record("a", 1, 0.99, 0.1, "diverged"),
        record("a", 0, 0.2, 0.3),
        record("a", 1, 0.3, 0.3),
    ]
    assert best_rate(records) == 0.3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"activations": ("relu", "rellu")}, "unknown activation 'rellu'"),
        ({"activations": ("relu", "relu")}, "'relu' is there twice"),
        ({"activations": ()}, "no activations"),
        ({"budget": 5}, "--budget 5 is too small"),
        ({"target": "price"}, "no column 'price'"),
    ],
)
def test_a_question_without_an_answer_is_one_sentence(options: dict[str, Any], named: str, folder: Path) -> None:
    with pytest.raises(UserError, match=named):
        Comparing.of(question(folder, **options))
