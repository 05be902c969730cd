"""kill -9, and several processes on one folder."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

from boolit.lab.results.store import Store

SCRIPT = Path(__file__).with_name("_processes.py")
_SCRIPT = runpy.run_path(str(SCRIPT))
ALL, COHORT = _SCRIPT["ALL"], _SCRIPT["COHORT"]


def play(what: str, folder: Path, number: int) -> list[list[str]]:
    command = [sys.executable, str(SCRIPT), what, str(folder), str(number)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=120).stdout)


def test_killed_at_any_moment_it_has_every_finished_run_and_nothing_half_written(tmp_path):
    said = play("kill", tmp_path / "out", 12)
    with Store(tmp_path / "out", create=False) as store:
        found = {record.key: record for record in store.records()}
        assert all(said[1::2])
        assert {key for keys in said for key in keys} <= set(found)
        assert all(record == ALL[key] for key, record in found.items())
        assert len(found) % COHORT == 0  # a cohort is recorded whole
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rest = [key for key in ALL if key not in found]
        assert store.claim(ALL, "heir") == rest  # nothing a dead process had claimed is lost


def test_processes_on_one_folder_share_the_runs_and_repeat_none(tmp_path):
    said = play("race", tmp_path / "out", 4)
    claimed = [key for keys in said for key in keys]
    assert len(claimed) == len(set(claimed)) == 60
    assert sum(bool(keys) for keys in said) > 1  # they did work side by side
    with Store(tmp_path / "out", create=False) as store:
        assert {record.key: record for record in store.records()} == {key: ALL[key] for key in claimed}
