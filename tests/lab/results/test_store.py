"""One process and its store: what goes in comes out, once, whole, and in an order that does not depend on who came first."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.results import run_claims as _claims
from boolit.lab.results import run_claims as _process
from boolit.lab.results import store as store_module
from boolit.lab.results.rows import dump_metrics, load_metrics, pack_curve, unpack_curve
from boolit.lab.results.run_claims import current_process, is_alive
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run, RunConfig


def record(activation: str = "relu", seed: int = 0, value: float = 0.5, **rest: object) -> Record:
    config = {"study": "parity", "activation": activation, "parameters": 36, "seed": seed, "width": [4, 2], "budget": None}
    run = Run.from_dict(config | rest)
    curve = {"test_accuracy": [value / 3, value]}
    return Record(run.key, run.config, "finished", {"test_accuracy": value}, curve, {"torch": "2", "threads": 2}, 1.5)


@given(st.lists(st.floats(), max_size=5), st.dictionaries(st.text(), st.floats(), max_size=3))
def test_what_goes_in_comes_out_bit_by_bit(curve, metrics):
    assert struct.pack("5d", *unpack_curve(pack_curve(curve)), *[0] * (5 - len(curve))) == struct.pack(
        "5d", *curve, *[0] * (5 - len(curve))
    )
    assert {name: repr(value) for name, value in load_metrics(dump_metrics(metrics)).items()} == {
        name: repr(value) for name, value in metrics.items()
    }
    json.loads(dump_metrics(metrics), parse_constant=pytest.fail)  # any reader of JSON can read it


def test_a_record_comes_back_after_the_store_was_closed(tmp_path):
    run = Run.from_dict({"seed": 1, "name": "ø|'\"", "nested": {"a": [1, 2.5, None]}})
    kept = Record(run.key, run.config, "diverged", {"loss": math.inf}, {"loss": [0.1, math.inf]}, {"cpu": "ü"}, 0.25)
    with Store(tmp_path) as store:
        store.record([kept])
    with Store(tmp_path, create=False) as store:
        assert store.records() == [kept]


def test_the_first_record_of_a_key_stays(tmp_path):
    with Store(tmp_path) as store:
        store.record([record(value=0.9)])
        store.record([record(value=0.1), record(seed=1, value=0.2)])
        assert [r.metrics["test_accuracy"] for r in store.records()] == [0.9, 0.2]
        assert store.records()[0].history == {"test_accuracy": [0.9 / 3, 0.9]}


@given(st.permutations([(a, p, s) for a in ("relu", "or_ail") for p in (1000, 64) for s in (10, 2)]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=5, deadline=None)
def test_order_is_by_activation_size_and_seed_whoever_wrote_first(tmp_path_factory, written):
    with Store(tmp_path_factory.mktemp("store")) as store:
        for activation, parameters, seed in written:
            store.record([record(activation, seed, parameters=parameters)])
        found = [(r.config.activation, r.config.parameters, r.config.seed) for r in store.records()]
    assert found == sorted(written)


def test_records_can_be_chosen_by_configuration(tmp_path):
    with Store(tmp_path) as store:
        store.record([record("relu", 0), record("or_ail", 0), record("or_ail", 1)])
        assert {r.config.seed for r in store.records({"activation": "or_ail"})} == {0, 1}
        assert [r.config.activation for r in store.records({"seed": 0, "width": [4, 2]})] == ["or_ail", "relu"]
        assert store.records({"seed": 0, "nothing": None}) == []
        assert all(r.history == {} for r in store.records(history=False))


def test_records_are_all_kept_or_none(tmp_path):
    with Store(tmp_path) as store:
        forged = Record("0" * 16, RunConfig(seed=3), "finished", {})
        with pytest.raises(ValueError, match="not that of its configuration"):
            store.record([record(), forged])
        assert store.finished() == set()


def test_a_full_disk_is_one_sentence_and_leaves_whole_records(tmp_path):
    with Store(tmp_path) as store:
        store.record([record()])
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(UserError, match="disk is full; free some space"):
            store.record([record(seed=seed, note="x" * 3000) for seed in range(1, 9)])
        assert store.finished() == {record().key}


def test_records_are_read_from_one_state_of_the_store(tmp_path, monkeypatch):
    """A run that is recorded while another process reads is seen whole or not at all."""
    with Store(tmp_path) as reading, Store(tmp_path) as writing:
        reading.record([record()])

        def rows_and_a_writer(database, history, read=store_module.select_rows):
            rows = read(database, history)
            yield next(rows)
            writing.record([record(seed=1)])
            yield from rows

        monkeypatch.setattr(store_module, "select_rows", rows_and_a_writer)
        assert [found.config.seed for found in reading.records()] == [0]
        assert len(reading.finished()) == 2


def test_the_log_is_written_ahead_and_to_the_disk(tmp_path):
    with Store(tmp_path):
        pass
    with Store(tmp_path) as store:
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_large_file_is_read_in_order_before_it_is_opened(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr("boolit.lab.results.database.subprocess.run", lambda command, **_: read.append(command))
    with Store(tmp_path) as store:
        store.record([record()])
    with Store(tmp_path):
        assert read == []
    monkeypatch.setattr("boolit.lab.results.database.READ_AHEAD_BYTES", 1)
    with Store(tmp_path) as store:
        assert len(store.records()) == 1
    (command,) = read
    monkeypatch.undo()
    assert command[-1] == str(tmp_path / "store.sqlite")
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


def test_a_store_does_not_survive_a_fork(tmp_path, monkeypatch):
    with Store(tmp_path) as store, monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="open its own"):
            store.finished()


def test_equal_environments_are_kept_once(tmp_path):
    with Store(tmp_path) as store:
        store.record([record(seed=seed) for seed in range(5)])
        assert store._connection.execute("SELECT count(*) FROM environments").fetchone() == (1,)


def test_a_claim_is_had_by_one_and_ends_with_record_release_or_close(tmp_path):
    a, b, c = (record(seed=seed) for seed in range(3))
    keys = [a.key, b.key, c.key]
    with Store(tmp_path) as mine, Store(tmp_path) as theirs:
        assert mine.claim([*keys, a.key], "me") == keys
        assert theirs.claim(keys, "they") == []
        mine.record([a])
        theirs.release([b.key], "they")  # not theirs to give
        assert theirs.claim(keys, "they") == []
        mine.release([b.key], "me")
        assert theirs.claim(keys, "they") == [b.key]
        mine.close()
        assert theirs.claim(keys, "they") == [c.key]


@pytest.mark.parametrize(
    ("change", "seconds_silent", "free"),
    [
        ({}, 1e9, False),  # alive and of this host: it need not give signs
        ({"started": "1"}, 0.0, True),  # our number, but an earlier process that had it
        ({"pid": 2**22 + 1}, 0.0, True),  # beyond Linux's largest process number
        ({"host": "elsewhere"}, 0.0, False),
        ({"host": "elsewhere"}, _process.EXPIRY_SECONDS + 1, True),
    ],
)
@pytest.mark.parametrize("clock", [-1e9, 0.0, 1e9])
def test_claims_of_the_dead_are_taken_over_whatever_their_clock_says(
    tmp_path, monkeypatch, change, seconds_silent, free, clock
):
    now = [1000.0]
    monkeypatch.setattr(_claims.time, "monotonic", lambda: now[0])
    with Store(tmp_path) as store, Store(tmp_path) as other:
        store.claim(["a"], "me")
        statement = "UPDATE claims SET host = ?, pid = ?, started = ?, since = since + ?"
        store._connection.execute(statement, (*current_process()._replace(**change), clock))
        other.claim(["b"], "other")  # it sees the claim for the first time
        now[0] += seconds_silent
        assert other.claim(["a"], "other") == (["a"] if free else [])


def test_another_host_s_claim_stays_while_it_gives_signs(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_claims.time, "monotonic", lambda: now[0])
    with Store(tmp_path) as store, Store(tmp_path) as other:
        store.claim(["a"], "me")
        store._connection.execute("UPDATE claims SET host = 'elsewhere'")
        for _ in range(3):
            assert other.claim(["a"], "other") == []
            now[0] += 0.9 * _process.EXPIRY_SECONDS
            store._connection.execute("UPDATE claims SET beats = beats + 1")
        assert other.claim(["a"], "other") == []
        now[0] += _process.EXPIRY_SECONDS + 1
        assert other.claim(["a"], "other") == ["a"]


def test_who_is_at_work_is_told(tmp_path):
    with Store(tmp_path) as store, Store(tmp_path) as other:
        assert other.holders() == []
        store.claim(["a", "b"], "me")
        (holder,) = other.holders()
        assert (holder.host, holder.pid, holder.runs) == (current_process().host, os.getpid(), 2)
        assert abs(holder.since - time.time()) < 60


def test_a_process_nobody_has_waited_for_is_dead():
    child = os.posix_spawn("/bin/true", ["true"], {})
    deadline = time.monotonic() + 5
    while (started := _process._start_time(child)) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert started is None
    os.waitpid(child, 0)


def test_without_proc_a_process_is_asked_by_signal(monkeypatch):
    monkeypatch.setattr(_process, "_PROC", Path("/nowhere"))
    assert current_process().started == ""
    assert is_alive(current_process(), seconds_silent=1e9)
    assert not is_alive(current_process()._replace(pid=2**22 + 1), seconds_silent=0.0)


def test_a_heart_beats_while_a_claim_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr("boolit.lab.results.store.HEARTBEAT_SECONDS", 0.01)
    with Store(tmp_path) as store, Store(tmp_path) as other:
        store.claim(["a"], "me")
        deadline = time.monotonic() + 5
        while other._connection.execute("SELECT beats FROM claims").fetchone() == (0,):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_folders_of_checkpoints_and_weights(tmp_path):
    with Store(tmp_path) as store:
        assert store.checkpoint_folder("abc") == store.folder / "checkpoints" / "abc"
        assert store.weights("abc").parent.is_dir()
        with pytest.raises(ValueError, match="is no key"):
            store.weights("../abc")
        with pytest.raises(ValueError, match="is no key"):
            store.claim(["a/b"], "me")


def _newer(folder: Path) -> None:
    with Store(folder) as store:
        store._connection.execute("PRAGMA user_version = 99")


def _foreign(folder: Path) -> None:
    connection = sqlite3.connect(folder / "store.sqlite")
    connection.execute("CREATE TABLE music (title)")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: (folder / "store.sqlite").write_text("some text " * 200), "not an SQLite file; choose another"),
        (lambda folder: (folder / "store.sqlite").mkdir(), "cannot be opened for writing; choose"),
        (_foreign, "another program's SQLite file; choose another"),
        (_newer, r"newer boolit \(store version 99, ours is 2\); upgrade"),
    ],
)
def test_a_file_that_is_no_store_of_ours(tmp_path, spoil, sentence):
    spoil(tmp_path)
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=sentence):
        Store(tmp_path)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot make the folder .*file/out"):
        Store(tmp_path / "file" / "out")
    with pytest.raises(UserError, match="holds no store"):
        Store(tmp_path, create=False)
    assert not (tmp_path / "store.sqlite").exists()


def test_a_store_where_we_may_not_write_can_be_read_but_not_written(tmp_path, monkeypatch):
    with Store(tmp_path) as store:
        store.record([record()])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Store(tmp_path, create=False) as store:
        assert store.finished() == {record().key}
        with pytest.raises(UserError, match="cannot be written to; choose"):
            store.record([record(seed=1)])


def test_a_store_another_process_keeps_busy(tmp_path):
    with Store(tmp_path) as busy, Store(tmp_path, patience=0.05) as waiting:
        busy._connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(UserError, match="kept busy by another process"):
            waiting.record([record()])
        assert waiting.finished() == set()
        busy._connection.execute("ROLLBACK")
        waiting.record([record()])
        assert busy.finished() == {record().key}
