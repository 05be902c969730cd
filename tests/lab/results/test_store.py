"""The store: what is recorded is read back exactly, survives kills, and is refused if it was damaged."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.results.store import Store, export


@pytest.fixture
def filled(tmp_path: Path, make_result) -> Store:
    curves = {"train_loss": [0.7, 0.5, 0.1 + 0.2], "test_accuracy": [0.5, math.nan, math.inf]}
    results = [make_result(spec, seed, seed / 7, history=curves) for spec in ("xnor_ail", "relu") for seed in range(3)]
    store = Store(tmp_path / "results")
    store.record([*results, make_result("relu", 3, state="diverged", budget=100, widths=(8,))])
    return store


def test_results_come_back_as_they_were_recorded(filled: Store, make_result) -> None:
    again = filled.results()
    named = [(result.config.activation, result.config.depth, result.config.seed) for result in again]
    assert named == [("relu", 1, 3), *(("relu", 2, seed) for seed in range(3)), *(("xnor_ail", 2, seed) for seed in range(3))]
    first = again[2]
    assert first.config == make_result("relu", 1).config
    assert first.key == make_result("relu", 1).key
    assert (first.state, first.metrics, first.seconds) == ("finished", {"test_accuracy": 1 / 7}, 0.5)
    assert first.environment == {"boolit": "1.0", "device": "cpu"}
    assert first.history["train_loss"] == [0.7, 0.5, 0.1 + 0.2]
    assert np.array_equal(first.history["test_accuracy"], [0.5, math.nan, math.inf], equal_nan=True)
    assert filled.finished() == {result.key for result in again}
    assert [r.key for r in filled.results([first.key], history=False)] == [first.key]


def test_a_recorded_run_is_never_overwritten(filled: Store, make_result) -> None:
    filled.record([make_result("relu", 0, value=0.99)])
    assert filled.results([make_result("relu", 0).key])[0].metrics == {"test_accuracy": 0.0}


def test_frame_has_one_row_per_run(filled: Store) -> None:
    frame = filled.frame()
    labels = ["key", "study", "profile", "stage", "trial", "data", "model", "activation", "size", "parameters", "budget"]
    labels += ["depth", "widths", "learning_rate", "seed", "split", "settings", "state", "seconds"]
    assert frame.columns.tolist() == [*labels, "test_accuracy"]
    assert len(frame) == 7
    row = frame.iloc[0]
    assert (row["activation"], row["widths"], row["size"], row["depth"], row["seed"]) == ("relu", "8", 100, 1, 3)
    assert row["state"] == "diverged"
    assert math.isnan(row["test_accuracy"])
    assert frame["settings"].nunique() == 1
    assert filled.frame(frame["key"][:2]).equals(frame[:2])
    assert filled.frame([]).empty


def test_settings_differ_where_recipes_differ(tmp_path: Path, make_result) -> None:
    store = Store(tmp_path)
    store.record([make_result(), make_result(training={"epochs": 9, "batch": 32})])
    assert store.frame()["settings"].nunique() == 2


def test_curves_have_one_row_per_epoch(filled: Store) -> None:
    key = filled.frame()["key"][1]
    curves = filled.curves([key])
    losses = curves[curves["metric"] == "train_loss"]
    assert losses["epoch"].tolist() == [1, 2, 3]
    assert losses["value"].tolist() == [0.7, 0.5, 0.1 + 0.2]
    assert set(curves["key"]) == {key}
    assert len(filled.curves()) == 6 * 2 * 3


@settings(max_examples=20)
@given(metrics=st.dictionaries(st.text(max_size=8), st.floats(), max_size=4))
def test_metrics_are_stored_exactly(tmp_path_factory, make_result, metrics: dict[str, float]) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    store.record([make_result(metrics=metrics)])
    [again] = store.results()
    assert again.metrics.keys() == metrics.keys()
    assert all(np.array_equal(again.metrics[name], metrics[name], equal_nan=True) for name in metrics)


def test_a_second_writer_is_refused_and_readers_are_not(filled: Store) -> None:
    script = (
        "import sys\nfrom boolit.lab.results.store import Store\nfrom boolit.errors import UserError\n"
        "store = Store(sys.argv[1])\nprint(len(store.frame()))\n"
        "try:\n    with store.writing(): print('wrote')\nexcept UserError as error: print(error)\n"
    )
    with filled.writing():
        output = subprocess.run(
            [sys.executable, "-c", script, filled.folder], capture_output=True, text=True, check=True, timeout=300
        ).stdout
    assert output.splitlines() == ["7", f"{filled.folder} is in use by another process; --workers N trains in parallel"]


KILLED_WRITERS = """
import json, os, random, signal, sys, time
from boolit.lab.results.store import Store
from boolit.lab.runs import Result, RunConfig
config, recorded = RunConfig.model_validate_json(sys.argv[2]), []
for attempt in range(10):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with (store := Store(sys.argv[1])).writing():
            for seed in range(1000 * attempt, 1000 * attempt + 1000):
                history = {"train_loss": [float(seed)] * 50}
                store.record([Result(config.replace(seed=seed), "finished", {"test_accuracy": seed / 7}, history)])
                os.write(write, f"{seed} ".encode())
        os._exit(0)
    os.close(write)
    reported = b"".join(os.read(read, 64) for _ in range(random.randint(1, 8)))  # each waits for a recorded run
    time.sleep(random.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    recorded += (reported + open(read, "rb").read()).split()
print(json.dumps([int(seed) for seed in recorded]))
"""


def test_kill_at_any_moment_loses_no_recorded_run(tmp_path: Path, make_result) -> None:
    command = [sys.executable, "-c", KILLED_WRITERS, str(tmp_path), make_result().config.model_dump_json()]
    recorded = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert len(recorded) >= 10
    frame = Store(tmp_path).frame()
    assert set(recorded) <= set(frame["seed"])
    assert (frame["test_accuracy"] == frame["seed"] / 7).all()
    Store(tmp_path).record([make_result(seed=-1)])  # the lock of a killed writer is free


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET metrics = '{\"test_accuracy\": 1.0}' WHERE seed = 1",
        "UPDATE configs SET json = replace(json, 'relu', 'silu')",
        "UPDATE runs SET state = 'diverged' WHERE seed = 1",
        "UPDATE runs SET seed = 5 WHERE seed = 1",
        "UPDATE runs SET split = 2",
        "UPDATE environments SET json = '{}'",
        "DELETE FROM configs",
        "UPDATE runs SET metrics = x'00' WHERE seed = 1",
        "DROP TABLE curves",
    ],
)
def test_changed_rows_are_refused(filled: Store, statement: str) -> None:
    filled.close()
    with closing(sqlite3.connect(filled.path, isolation_level=None)) as database:
        database.execute(statement)
    with pytest.raises(UserError, match="is damaged: ") as caught:
        filled.frame()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "statement", ["UPDATE curves SET epochs = x'00'", "DELETE FROM curves", "UPDATE curves SET metric = 'a' || metric"]
)
def test_changed_curves_are_refused(filled: Store, statement: str) -> None:
    filled.close()
    with closing(sqlite3.connect(filled.path, isolation_level=None)) as database:
        database.execute(statement)
    with pytest.raises(UserError, match="curves"):
        filled.curves()


def test_random_damage_is_refused_or_harmless(filled: Store) -> None:
    filled.close()
    chance, intact, expected = np.random.default_rng(0), filled.path.read_bytes(), filled.frame()
    filled.close()
    for suffix in ("-wal", "-shm"):
        filled.path.with_name(filled.path.name + suffix).unlink(missing_ok=True)
    refused = 0
    for _ in range(40):
        content = bytearray(intact)
        start = int(chance.integers(len(content)))
        content[start : start + 16] = chance.bytes(min(16, len(content) - start))
        filled.path.write_bytes(content if chance.random() < 0.8 else content[:start])
        store = Store(filled.folder)
        try:
            frame = store.frame()
            assert frame["key"].isin(expected["key"]).all()
            assert frame.equals(expected[expected["key"].isin(frame["key"])].reset_index(drop=True))
        except UserError:
            refused += 1
        finally:
            store.close()
    assert refused >= 10


def test_folders_that_are_not_stores_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no runs"):
        Store(tmp_path / "nothing").frame()
    (tmp_path / "runs.sqlite").write_text("not a database, but long enough to look like a file of some size" * 20)
    with pytest.raises(UserError, match="not an SQLite file"):
        Store(tmp_path).frame()
    other = tmp_path / "other"
    other.mkdir()
    with closing(sqlite3.connect(other / "runs.sqlite")) as database:
        database.execute("CREATE TABLE mine (x)")
    with pytest.raises(UserError, match="another program or version"), Store(other).writing():
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_can_be_read(filled: Store) -> None:
    filled.close()
    filled.folder.chmod(0o500)
    try:
        assert len(Store(filled.folder).frame()) == 7
    finally:
        filled.folder.chmod(0o700)


@pytest.mark.parametrize(("suffix", "read"), [("csv", pd.read_csv), ("json", pd.read_json), ("parquet", pd.read_parquet)])
def test_exports_are_read_back_by_pandas(filled: Store, tmp_path: Path, suffix: str, read) -> None:
    frame = filled.frame()
    again = read(export(frame, tmp_path / "out" / f"runs.{suffix}", suffix))
    assert again.columns.tolist() == frame.columns.tolist()
    assert again["key"].astype(str).tolist() == frame["key"].tolist()
    assert np.allclose(again["test_accuracy"], frame["test_accuracy"], rtol=1e-12, equal_nan=True)


def test_exported_text_is_not_a_formula(tmp_path: Path, make_result) -> None:
    store = Store(tmp_path)
    store.record([make_result(study="=1+1")])
    assert "'=1+1" in export(store.frame(), tmp_path / "runs.csv", "csv").read_text()
    with pytest.raises(UserError, match="csv, json, parquet, not 'xls'"):
        export(store.frame(), tmp_path / "runs.xls", "xls")
