"""Stores of version 1, written by the code of their time, are brought forward.

``stores/version-1.sqlite`` was written by commit a55b1d7: the study parity with relu and xnor_ail at width 4, three seeds.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from boolit.errors import UserError
from boolit.lab.execute import execute
from boolit.lab.results import migrations as _migration
from boolit.lab.results.rescue import rescue
from boolit.lab.results.rows import load_metrics, unpack_curve
from boolit.lab.results.run_claims import current_process
from boolit.lab.results.store import Store
from boolit.lab.studies import Plan, load_study, plan
from boolit.lab.studies.planner import ARITHMETIC

OLD = Path(__file__).parent / "stores" / "version-1.sqlite"
SETS = [
    "data.train=64",
    "data.test=32",
    "training.epochs=2",
    "training.batch=32",
    "sweep.activation=['relu','xnor_ail']",
    "sweep.width=[4]",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the old store, with a file of weights for every run: its old key."""
    shutil.copyfile(OLD, tmp_path / "store.sqlite")
    (tmp_path / "weights").mkdir()
    for key in rows():
        (tmp_path / "weights" / f"{key}.safetensors").write_text(key)
    return tmp_path


def rows() -> dict[str, tuple[Any, ...]]:
    """What the old file holds, by old key, read without any code of ours but the encoding."""
    with closing(sqlite3.connect(f"{OLD.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        query = "SELECT key, config, state, metrics, json, seconds FROM runs JOIN environments ON environment = id"
        found = {row[0]: row[1:] for row in database.execute(query)}
        curves: dict[str, dict[str, list[float]]] = {key: {} for key in found}
        for key, metric, blob in database.execute("SELECT * FROM history"):
            curves[key][metric] = unpack_curve(blob)
    return {key: (*row, curves[key]) for key, row in found.items()}


def numbers() -> Iterator[tuple[Any, ...]]:
    """Every old record: activation, seed and all that was measured, in the order of `Store.records`."""
    for config, state, metrics, environment, seconds, curves in rows().values():
        asked = json.loads(config)
        yield asked["activation"], asked["seed"], state, load_metrics(metrics), curves, json.loads(environment), seconds


def content(folder: Path) -> list[tuple[Any, ...]]:
    with Store(folder) as store:
        return [
            (r.config.activation, r.config.seed, r.state, r.metrics, r.history, r.environment, r.seconds)
            for r in store.records()
        ]


def version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "store.sqlite")) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def planned(arithmetic: int = 1) -> Plan:
    """The old store's runs, by default with the arithmetic of its time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("boolit.lab.studies.planner.ARITHMETIC", arithmetic)
        return plan(load_study("parity"), seeds=3, sets=SETS)


def test_every_number_is_kept_and_every_run_has_the_key_of_its_configuration(folder: Path) -> None:
    assert content(folder) == sorted(numbers(), key=lambda row: row[:2])
    with Store(folder) as store:
        assert store.finished() == {run.key for run in planned().runs}
        assert all(record.key == record.config.key for record in store.records())
    assert version(folder) == 2


def test_nothing_is_trained_again_and_weights_follow_their_runs(folder: Path) -> None:
    with Store(folder) as store:
        summary = execute(planned(), store, progress=False)
        assert (summary.already, summary.trained) == (6, 0)
        old = {(json.loads(row[0])["activation"], json.loads(row[0])["seed"]): key for key, row in rows().items()}
        for record in store.records():
            place: Any = (record.config.activation, record.config.seed)
            assert store.weights(record.key).read_text() == old[place]
    assert len(list((folder / "weights").iterdir())) == 6


def test_runs_of_another_arithmetic_stay_and_are_trained_anew(folder: Path) -> None:
    with Store(folder) as store:
        summary = execute(planned(ARITHMETIC), store, progress=False)
        assert (summary.already, summary.trained) == (0, 6)
        assert sorted(record.config.arithmetic for record in store.records()) == [1] * 6 + [ARITHMETIC] * 6


@pytest.mark.parametrize("after", range(6))
def test_a_kill_on_the_way_leaves_version_1_and_the_next_opening_goes_on(
    folder: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    inserted, insert_record = [0], _migration.insert_record

    def killed(*given: Any) -> bool:
        inserted[0] += 1
        if inserted[0] > after:
            raise KilledError
        return insert_record(*given)

    with monkeypatch.context() as patched:
        patched.setattr(_migration, "insert_record", killed)
        with pytest.raises(KilledError):
            Store(folder)
    assert version(folder) == 1
    test_nothing_is_trained_again_and_weights_follow_their_runs(folder)
    assert content(folder) == sorted(numbers(), key=lambda row: row[:2])


def test_several_may_open_it_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(content, [folder] * 4))
    assert found == [sorted(numbers(), key=lambda row: row[:2])] * 4


def test_a_store_that_an_older_boolit_is_at_work_on_is_left_to_it(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as database:
        database.execute("INSERT INTO claims VALUES ('a', 'me', ?, ?, ?, 0)", current_process())
    with pytest.raises(UserError, match="an older boolit is at work"):
        Store(folder)
    assert version(folder) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE runs DROP COLUMN recorded",
        "DROP TABLE history",
        "UPDATE runs SET config = replace(config, 'relu', 'silu')",
        "UPDATE runs SET metrics = 'none'",
        "UPDATE history SET epochs = x'00'",
        "DELETE FROM environments",
    ],
)
def test_a_damaged_one_is_one_line_and_stays_as_it_is(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as database:
        database.execute(statement)
    with pytest.raises(UserError, match=r"is damaged: .* `boolit rescue"):
        Store(folder)
    assert version(folder) == 1


def test_what_can_be_read_of_a_damaged_one_is_rescued(folder: Path, tmp_path: Path) -> None:
    key = next(iter(rows()))
    with closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE runs SET metrics = 'none' WHERE key = ?", (key,))
    found = rescue(folder, tmp_path / "new")
    assert (found.kept, found.lost, found.checked) == (5, (key,), False)
    assert len(content(tmp_path / "new")) == 5
    assert len(list((tmp_path / "new" / "weights").iterdir())) == 5
