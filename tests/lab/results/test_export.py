"""What is exported is what is in the store, in every format, and the statistics follow from it by hand."""

from __future__ import annotations

import csv
import json
import math
import random
from collections import defaultdict

import pyarrow.parquet as pq
import pytest
from scipy import stats

from boolit.errors import UserError
from boolit.lab.reports.tables import comparison_table, render
from boolit.lab.results.export import export
from boolit.lab.results.scores import metric_of, scores
from boolit.lab.results.statistics import ComparisonMethod, compare
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run

MEANS = {"relu": 0.6, "xnor_ail": 0.9, "or_ail": 0.88}
COLUMNS = "key study profile activation width depth parameters budget seed state test_accuracy train_loss seconds device"


def records() -> list[Record]:
    chance = random.Random(0)
    made = []
    for activation, mean in MEANS.items():
        for parameters in (40, 160):
            for seed in range(6):
                config = {
                    "study": "parity",
                    "profile": "quick",
                    "activation": activation,
                    "width": [4, 2],
                    "depth": 2,
                    "parameters": parameters - (activation == "relu"),
                    "budget": parameters,
                    "seed": seed,
                    "metric": {"name": "accuracy", "split": "test", "goal": "max"},
                }
                run, value = Run.from_dict(config), min(1.0, chance.gauss(mean + parameters / 4000, 0.03))
                metrics = {"test_accuracy": value, "train_loss": 1 - value, "parameters": 1e6}
                made.append(Record(run.key, run.config, "finished", metrics, {"test_accuracy": [0.5, value]}, {}, 0.5))
    lost = Run.from_dict({**config, "seed": 99})
    made.append(Record(lost.key, lost.config, "diverged", {"test_accuracy": math.nan}))
    return made


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "out") as store:
        store.record(records())
        yield store


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_has_every_run_exactly(store, tmp_path):
    (path,) = export(store, tmp_path / "new" / "runs.csv", "csv")
    rows = rows_of(path)
    assert list(rows[0]) == COLUMNS.split()
    truth = {record.key: record for record in records()}
    assert [row["key"] for row in rows] == [record.key for record in store.records()]
    for row in rows:
        record = truth[row["key"]]
        assert row["activation"] == record.config.activation
        assert (row["width"], row["state"]) == ("4-2", record.state)
        assert [int(row[name]) for name in ("parameters", "budget", "seed")] == [
            getattr(record.config, name) for name in ("parameters", "budget", "seed")
        ]
        assert repr(float(row["test_accuracy"])) == repr(record.metrics["test_accuracy"])


def test_parquet_and_json_say_the_same(store, tmp_path):
    (parquet,) = export(store, tmp_path / "runs.parquet", "parquet")
    (plain,) = export(store, tmp_path / "runs.json", "json")
    rows = json.loads(plain.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    columns = pq.read_table(parquet)
    assert columns.column_names == list(rows[0]) == COLUMNS.split()
    for ours, theirs in zip(rows, columns.to_pylist(), strict=True):
        finite = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in theirs.items()}
        assert ours == finite
    assert rows[0]["width"] == [4, 2]


@pytest.mark.parametrize("format_", ["csv", "parquet", "json"])
def test_an_empty_store_and_sparse_configurations_can_be_exported(tmp_path, format_):
    with Store(tmp_path / "out") as store:
        export(store, tmp_path / "a", format_)
        run = Run.from_dict({"activation": "relu"})
        store.record([Record(run.key, run.config, "finished", {"parameters": 7})])
        export(store, tmp_path / "b", format_)
    if format_ == "parquet":
        assert pq.read_table(tmp_path / "a").num_rows == 0
        assert pq.read_table(tmp_path / "b").to_pylist()[0]["parameters"] == 7


def test_history_is_a_second_file(store, tmp_path):
    runs, history = export(store, tmp_path / "runs.csv", "csv", history=True)
    rows = rows_of(history)
    assert (runs.name, history.name) == ("runs.csv", "runs.history.csv")
    assert len(rows) == 2 * sum(bool(record.history) for record in records())
    first = next(record for record in records() if record.key == rows[1]["key"])
    assert rows[1] == {"key": first.key, "metric": "test_accuracy", "epoch": "2", "value": repr(first.metrics["test_accuracy"])}


def test_a_wrong_format_or_place_is_one_sentence(store, tmp_path):
    with pytest.raises(UserError, match="csv, parquet, json, not 'xls'"):
        export(store, tmp_path / "runs.xls", "xls")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*; choose a place"):
        export(store, tmp_path / "file" / "runs.csv", "csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        export(store, tmp_path / "folder.csv", "csv")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("welch", [False, True])
def test_the_table_of_tests_agrees_with_scipy_on_the_exported_csv(store, tmp_path, welch):
    """By hand, from the file alone: group, take each activation's best budget, test against the best of all."""
    (path,) = export(store, tmp_path / "runs.csv", "csv")
    groups = defaultdict(list)
    for row in rows_of(path):
        if row["state"] == "finished":
            groups[row["activation"], row["budget"]].append(float(row["test_accuracy"]))
    best_of = {
        name: max((values for (a, _), values in groups.items() if a == name), key=lambda v: sum(v) / len(v)) for name in MEANS
    }
    winner = max(best_of, key=lambda name: sum(best_of[name]) / len(best_of[name]))

    found = store.records(history=False)
    comparison = compare(scores(found, "test_accuracy"), metric_of(found), ComparisonMethod(welch=welch))
    table = list(csv.DictReader(render(comparison_table(comparison, "tests"), "csv").splitlines()))
    assert table[0]["activation"] == winner
    assert {row["activation"] for row in table} == set(MEANS)
    for row in table[1:]:
        by_hand = stats.ttest_ind(best_of[winner], best_of[row["activation"]], equal_var=not welch)
        interval = by_hand.confidence_interval()
        assert float(row["p"]) == pytest.approx(by_hand.pvalue, rel=1e-9)
        assert float(row["difference low"]) == pytest.approx(interval.low, rel=1e-9)
        assert float(row["difference high"]) == pytest.approx(interval.high, rel=1e-9)
        assert float(row["test accuracy standard error"]) == pytest.approx(stats.sem(best_of[row["activation"]]), rel=1e-9)
