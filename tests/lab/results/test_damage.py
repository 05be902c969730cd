"""Damage to a store: one line, nothing wrong believed, and what is intact can be had again."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
import torch

from boolit.cli._app import run as command
from boolit.errors import UserError
from boolit.lab.results.rescue import rescue
from boolit.lab.results.rows import MAX_EPOCHS, unpack_curve
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "damage_store.py"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("damage_store", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["damage_store"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)
    del sys.modules["damage_store"]


@pytest.mark.parametrize("kind", ["stores", "checkpoints"])
def test_random_damage_is_refused_or_harmless(script: ModuleType, kind: str) -> None:
    answers = getattr(script, kind)(20, seed=1)
    assert answers.keys() <= {"refused", "unharmed"}
    assert answers["refused"] >= 5


def records(count: int = 60) -> list[Record]:
    found = []
    for seed in range(count):
        run = Run.from_dict({"study": "parity", "activation": "relu", "parameters": 36, "seed": seed})
        curves = {name: [(seed + epoch) / 7 for epoch in range(20)] for name in ("loss", "test_accuracy")}
        found.append(Record(run.key, run.config, "finished", {"test_accuracy": seed / 70}, curves, {"threads": 1}, 1.5))
    return found


def fill(folder: Path) -> Path:
    with Store(folder) as store:
        store.record(records())
    return folder / "store.sqlite"


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement, values)


KEY = records(1)[0].key
STATEMENTS = {
    "metrics": f"UPDATE runs SET metrics = '{{\"test_accuracy\":1.0}}' WHERE key = '{KEY}'",
    "configuration": f"UPDATE runs SET config = replace(config, 'relu', 'silu') WHERE key = '{KEY}'",
    "state": f"UPDATE runs SET state = 'diverged' WHERE key = '{KEY}'",
    "seconds": f"UPDATE runs SET seconds = 2 WHERE key = '{KEY}'",
    "time": f"UPDATE runs SET recorded = 'yesterday' WHERE key = '{KEY}'",
    "environment": "UPDATE environments SET json = '{}'",
    "no environment": "DELETE FROM environments",
    "types": f"UPDATE runs SET metrics = x'00' WHERE key = '{KEY}'",
    "a curve": f"UPDATE history SET epochs = x'00' WHERE key = '{KEY}'",
    "no curves": f"DELETE FROM history WHERE key = '{KEY}'",
    "curves of nobody": f"UPDATE history SET key = 'zzz' WHERE key = '{KEY}'",
    "no table of runs": "DROP TABLE runs",
    "no table of claims": "DROP TABLE claims",
    "no column": "ALTER TABLE runs DROP COLUMN recorded",
    "another column": "ALTER TABLE runs ADD COLUMN more",
    "another table": "CREATE TABLE more (x)",
    "version 0": "PRAGMA user_version = 0",
    "version 1": "PRAGMA user_version = 1",
}


@pytest.mark.parametrize("kind", STATEMENTS)
def test_what_was_changed_is_one_line_and_exit_2(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    change(fill(tmp_path), STATEMENTS[kind])
    assert command(["export", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "is damaged: " in said
    assert f"`boolit rescue {tmp_path}`" in said
    with pytest.raises(UserError, match="is damaged"):
        Store(tmp_path)


@pytest.mark.parametrize("history", [False, True])
def test_a_large_store_s_records_are_checked_when_they_are_read(
    tmp_path: Path, history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boolit.lab.results.database.FULL_CHECK_BYTES", 0)
    change(fill(tmp_path), STATEMENTS["metrics"])
    with Store(tmp_path) as store, pytest.raises(UserError, match=rf"run '{KEY}' is not as it was written"):
        store.records(history=history)


def test_an_emptied_store_is_no_empty_table(tmp_path: Path) -> None:
    os.truncate(fill(tmp_path), 0)
    with pytest.raises(UserError, match="is damaged: it is empty"):
        Store(tmp_path, create=False)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(8 * MAX_EPOCHS + 8))
    with pytest.raises(ValueError, match="longer than"):
        unpack_curve(bomb)
    for blob in (b"", b"text", bomb[:-9], zlib.compress(b"seven b"), zlib.compress(bytes(8)) + b"more"):
        with pytest.raises(ValueError, match="a curve"):
            unpack_curve(blob)


def zero_page(path: Path, number: int) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * number)
        file.write(bytes(4096))


def test_what_is_intact_is_rescued_and_the_rest_named(tmp_path: Path) -> None:
    path = fill(tmp_path / "old")
    with closing(sqlite3.connect(path)) as database:
        roots = {page for (page,) in database.execute("SELECT rootpage FROM sqlite_master")}
        (pages,) = database.execute("PRAGMA page_count").fetchone()
    (tmp_path / "old" / "weights").mkdir()
    (tmp_path / "old" / "weights" / f"{KEY}.safetensors").write_bytes(b"weights")
    originals = {record.key: record for record in records()}
    content, lost = path.read_bytes(), []
    for number in set(range(1, pages)) - {page - 1 for page in roots}:  # without its root nothing of a table is found
        path.write_bytes(content)
        zero_page(path, number)
        with pytest.raises(UserError, match="is damaged"):
            Store(tmp_path / "old")
        to = tmp_path / f"new {number}"
        found = rescue(tmp_path / "old", to)
        with Store(to, create=False) as store:
            kept = {record.key: record for record in store.records()}
            assert (KEY in kept) == store.weights(KEY).exists()
        assert kept.items() <= originals.items()
        assert len(kept) == found.kept
        assert not set(found.lost) & kept.keys()
        lost.append(len(originals) - found.kept)
    assert 0 < max(lost) < 60


def test_one_bad_record_costs_only_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(fill(tmp_path / "old"), STATEMENTS["metrics"])
    assert command(["rescue", str(tmp_path / "old"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"kept": 59, "lost": [KEY], "checked": True, "folder": str(tmp_path / "old-rescued")}
    with Store(tmp_path / "old-rescued", create=False) as store:
        assert {record.key: record for record in store.records()} == {r.key: r for r in records()[1:]}
    assert command(["rescue", str(tmp_path / "old")]) == 2
    assert "holds a store already" in capsys.readouterr().err


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 0", "PRAGMA application_id = 7", "DROP TABLE claims"])
def test_runs_outlive_what_is_around_them(tmp_path: Path, statement: str) -> None:
    change(fill(tmp_path / "old"), statement)
    assert rescue(tmp_path / "old", tmp_path / "new").kept == 60


def test_where_nothing_can_be_rescued_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fill(tmp_path)
    change(path, "DROP TABLE runs")
    assert command(["rescue", str(tmp_path)]) == 2
    path.write_bytes(b"some text" * 99)
    assert command(["rescue", str(tmp_path)]) == 2
    path.unlink()
    assert command(["rescue", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert all("nothing can be rescued" in line for line in said[:2])
    assert "holds no store" in said[2]


def test_the_folder_one_is_in_can_be_rescued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    assert command(["rescue", "."]) == 0
    assert (tmp_path / "here-rescued" / "store.sqlite").exists()
