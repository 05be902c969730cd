"""Cohorts on Dask workers: the same store as without them, also when workers die."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from boolit.cli._app import run as main
from boolit.errors import UserError
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.execute.cluster import Cluster, WorkerState, split
from boolit.lab.results.store import Store
from boolit.lab.runs import Result
from boolit.lab.studies import Plan, load_study, plan

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.check]

SMALL = ["data.train=256", "data.test=64", "training.batch=32", "sweep.activation=['relu','xnor_ail','max','or_ail']"]
LONG = "training.epochs=150"
PLUGIN = """
import os, signal
from boolit.nn import Custom, register

HERE = os.getpid() if "BOOLIT_TEST_CLIENT" not in os.environ else int(os.environ["BOOLIT_TEST_CLIENT"])
os.environ["BOOLIT_TEST_CLIENT"] = str(HERE)

def hungry(x):
    if os.getpid() != HERE and x.requires_grad:
        raise MemoryError
    return x.relu()

def deadly(x):
    if os.getpid() != HERE and x.requires_grad:
        os.kill(os.getpid(), signal.SIGKILL)
    return x.relu()

register("hungry", lambda dim: Custom(hungry, dim, name="hungry"))
register("deadly", lambda dim: Custom(deadly, dim, name="deadly"))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.open(workers=2) as opened:
        yield opened


def small(*sets: str) -> Plan:
    return plan(load_study("parity"), seeds=3, sets=[*SMALL, "training.epochs=4", *sets])


def executed(planned: Plan, folder: Path, cluster: Cluster | None = None) -> tuple[ExecutionSummary, list[Result]]:
    with Store(folder) as store:
        return execute(planned, store, progress=False, cluster=cluster, checkpoint_seconds=0.2), store.results()


def contents(results: list[Result]) -> dict[str, object]:
    return {r.key: (r.state, repr(sorted(r.metrics.items())), repr(sorted(r.history.items()))) for r in results}


def kill_workers(cluster: Cluster, number: int = 2) -> None:
    for process in list(cluster.client.run(os.getpid).values())[:number]:
        os.kill(process, signal.SIGKILL)


def later(seconds: float, action: object, *arguments: object) -> threading.Timer:
    timer = threading.Timer(seconds, action, arguments)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_a_store_from_workers_is_the_same_to_the_last_bit(cluster: Cluster, tmp_path: Path) -> None:
    summary, there = executed(small(), tmp_path / "there", cluster)
    assert (summary.trained, summary.failed, summary.remaining) == (12, 0, 0)
    assert contents(there) == contents(executed(small(), tmp_path / "here")[1])
    for file in (tmp_path / "here" / "weights").iterdir():
        assert file.read_bytes() == (tmp_path / "there" / "weights" / file.name).read_bytes()
    assert executed(small(), tmp_path / "there", cluster)[0].already == 12


def test_ctrl_c_stops_the_workers_with_checkpoints(cluster: Cluster, tmp_path: Path) -> None:
    timer = later(2.0, signal.raise_signal, signal.SIGINT)
    summary, _ = executed(small("training.epochs=3000"), tmp_path / "there", cluster)
    timer.join()
    assert summary.interrupted
    assert os.listdir(tmp_path / "there" / "checkpoints")
    assert not any(cluster.client.processing().values())


def test_cohorts_are_divided_only_for_workers_that_would_wait() -> None:
    planned = plan(load_study("parity"), seeds=8, sets=[*SMALL, "training.epochs=4"])

    def workers(number: int, memory: int = 0) -> dict[str, WorkerState]:
        return {str(name): WorkerState(memory, {}) for name in range(number)}

    whole = split(planned.cohorts, workers(2))
    assert sorted(cohort.key for cohort in whole) == sorted(cohort.key for cohort in planned.cohorts)
    costs = [len(cohort.runs) * cohort.runs[0].parameters for cohort in whole]
    assert costs == sorted(costs, reverse=True)
    parts = split(planned.cohorts, workers(16))
    assert sorted(run.key for cohort in parts for run in cohort.runs) == sorted(run.key for run in planned.runs)
    assert max(len(part.runs) for part in parts) <= 3
    assert len(split(planned.cohorts, workers(1, memory=1))) == len(planned.runs)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("boolit.lab.common.plugins._LOADED", {})
    monkeypatch.setenv("BOOLIT_TEST_CLIENT", str(os.getpid()))
    path = tmp_path / "plugin.py"
    path.write_text(PLUGIN)
    return path


def test_a_cohort_that_fails_or_kills_its_workers_is_left_out(
    plugin: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sets = ["data.train=64", "data.test=32", "training.epochs=2", "sweep.activation=['relu','hungry','deadly']"]
    command = ["--plugin", str(plugin), "run", "parity", "--seeds", "2", "--out", str(tmp_path / "out"), "--workers", "1"]
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        assert main([*command, *(part for each in sets for part in ("--set", each))]) == 3
    message = capfd.readouterr().err
    assert "failed: hungry, 33 parameters, 2 runs: out of memory" in message
    assert "failed: deadly, 33 parameters, 2 runs: its workers were lost" in message
    assert "error: 4 runs failed: " in message
    with Store(tmp_path / "out") as store:
        assert {result.config.activation for result in store.results()} == {"relu"}


def test_killed_workers_lose_nothing_and_if_none_can_come_back_the_command_ends(tmp_path: Path) -> None:
    scratch, planned = tmp_path / "scratch", small(LONG)
    with dask.config.set({"temporary-directory": str(scratch)}), Cluster.open(workers=2) as cluster:
        timer = later(1.0, kill_workers, cluster, 1)
        summary, there = executed(planned, tmp_path / "there", cluster)
        timer.join()
        assert summary.complete
        assert contents(there) == contents(executed(planned, tmp_path / "here")[1])

        def break_replacements() -> None:
            shutil.rmtree(scratch)
            scratch.touch()
            kill_workers(cluster)

        timer, started = later(1.0, break_replacements), time.monotonic()
        with pytest.raises(UserError, match="no worker left and none could be started; finished runs are kept"):
            executed(small("training.epochs=100000"), tmp_path / "lost", cluster)
        timer.join()
        assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("address", "message"), [("nowhere.json", "is not a scheduler file"), ("tcp://127.0.0.1:1", "does not answer")]
)
def test_a_cluster_that_is_not_there(address: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boolit.lab.execute.cluster.CONNECT_SECONDS", 0.3)
    with pytest.raises(UserError, match=message):
        Cluster.open(address=address)
