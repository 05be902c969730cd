"""What goes wrong on workers is one line that names worker, cohort and cause; everything else is trained."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Processes, contents, count_tasks, left_behind, start_command, wait_until
from distributed import Client

from boolit.cli._app import run as main
from boolit.errors import UserError
from boolit.lab.common.plugins import load_plugin
from boolit.lab.compare.config import CompareConfig
from boolit.lab.compare.job import CompareJob
from boolit.lab.execute import execute
from boolit.lab.execute.cluster import Cluster
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study, plan

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = ["--set", "data.train=256", "--set", "data.test=64", "--set", "training.batch=32"]
# Activations that are ReLU where they are asked for, and fail on workers.
PLUGIN = """
import os
import signal
import time
import torch
from boolit.nn import Custom, register

def hungry(x):
    if os.environ.get("ON_WORKER") and x.requires_grad:  # in training, not where its map is found
        raise MemoryError
    return x.relu()

def deadly(x):
    if os.environ.get("ON_WORKER") and x.requires_grad:  # in training, not where its map is found
        os.kill(os.getpid(), signal.SIGKILL)
    return x.relu()

def greedy(x):
    if os.environ.get("ON_WORKER") and x.requires_grad:
        torch.empty(2**30)  # 4 GiB
    return x.relu()

def growing(x):
    taken = []
    while os.environ.get("ON_WORKER") and x.requires_grad:  # until it is killed
        if len(taken) < 128:
            taken.append(torch.ones(2**23))  # 32 MiB, 4 GiB at most
        time.sleep(0.05)
    return x.relu()

register("hungry", lambda dim: Custom(hungry, dim, name="hungry"))
register("deadly", lambda dim: Custom(deadly, dim, name="deadly"))
register("greedy", lambda dim: Custom(greedy, dim, name="greedy"))
register("growing", lambda dim: Custom(growing, dim, name="growing"))
"""


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boolit.lab.common.plugins._LOADED", {})


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A scheduler and one worker."""
    with Processes(tmp_path_factory.mktemp("cluster"), {"ON_WORKER": "1"}) as started:
        started.start_scheduler()
        started.start_worker(0)
        yield started


def small(*activations: str) -> list[str]:
    sets = ["data.train=64", "data.test=32", "training.epochs=2", "training.batch=32", f"sweep.activation={list(activations)}"]
    return ["parity", "--seeds", "2", *(part for each in sets for part in ("--set", each))]


def stored(folder: Path) -> set[str]:
    with Store(folder) as store:
        assert store.holders() == []
        return {record.config.activation for record in store.records()}


def test_a_cohort_without_memory_fails_alone(processes: Processes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(PLUGIN)
    out = tmp_path / "out"
    command = ["--plugin", str(tmp_path / "own.py"), "run", *small("relu", "hungry", "max"), "--out", str(out)]
    assert main([*command, "--cluster", str(processes.file)]) == 3
    said = capfd.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("failed on worker ")]
    assert "tcp://127.0.0.1:" in line
    assert line.endswith(": hungry, 33 parameters, 2 runs: out of memory")
    assert "error: 2 runs could not be trained: hungry, 33 parameters, 2 runs: out of memory; all others are done" in said
    assert stored(out) == {"relu", "max"}
    assert left_behind(processes) == []


def test_a_cohort_that_kills_its_workers_is_left_out_after_three_more(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PLUGIN)
    load_plugin(str(tmp_path / "own.py"))
    planned = plan(load_study("parity"), seeds=1, sets=small("relu", "deadly", "max")[4::2])
    with Cluster.open(address=str(processes.file)) as cluster, Store(tmp_path / "out") as store:
        for number in range(1, 5):
            processes.start_worker(number)
        wait_until(lambda: cluster.workers() == 5, "five workers")
        summary = execute(planned, store, cluster=cluster)
        assert cluster.workers() == 1
    assert (summary.trained, summary.failed, summary.undone) == (2, 1, 0)
    assert summary.failures == (
        "deadly, 33 parameters, 1 run: its worker died 4 times, as when it takes more memory than there is",
    )
    assert stored(tmp_path / "out") == {"relu", "max"}


@pytest.mark.skipif(sys.platform != "linux", reason="how much is taken is read from /proc")
def test_memory_that_the_system_refuses_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A worker with a limit of 2 GiB above what it takes at its start."""
    (tmp_path / "own.py").write_text(PLUGIN)
    (tmp_path / "limit.py").write_text(
        "import resource, boolit.lab.execute.worker\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31,) * 2)\n"
    )
    with Processes(tmp_path, {"ON_WORKER": "1"}) as processes:
        processes.start_scheduler()
        processes.start_worker(0, options=["--preload", str(tmp_path / "limit.py")])
        command = ["--plugin", str(tmp_path / "own.py"), "run", *small("relu", "greedy"), "--out", str(tmp_path / "out")]
        assert main([*command, "--cluster", str(processes.file)]) == 3
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("failed on worker ")]
    assert line.endswith(": greedy, 33 parameters, 2 runs: out of memory")
    assert stored(tmp_path / "out") == {"relu"}


def test_a_worker_that_its_nanny_kills_for_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A cohort that takes more than ``--memory-limit`` is the only one that fails; the worker is started again by its nanny."""
    monkeypatch.setattr("boolit.lab.execute.dispatch.RERUNS", 0)
    (tmp_path / "own.py").write_text(PLUGIN)
    with Processes(tmp_path, {"ON_WORKER": "1"}) as processes:
        processes.start_scheduler()
        processes.start_worker(0, options=["--memory-limit", "1.5GiB"], nanny=True)
        sets = small("growing", "relu", "max")
        command = ["--plugin", str(tmp_path / "own.py"), "run", *sets, "--out", str(tmp_path / "out")]
        assert main([*command, "--cluster", str(processes.file)]) == 3
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("failed on worker tcp://127.0.0.1:")]
    cause = "its worker died 1 time, as when it takes more memory than there is"
    assert line.endswith(f": growing, 33 parameters, 2 runs: {cause}")
    assert stored(tmp_path / "out") == {"relu", "max"}


@pytest.mark.parametrize("name", ["boolit", "torch"])
def test_a_worker_with_another_version_gets_nothing(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.py").write_text(f"import {name}\n{name}.__version__ = '0.0.1'\n")
    with Processes(tmp_path) as processes:
        processes.start_scheduler()
        processes.start_worker(0, options=["--preload", str(tmp_path / "other.py")])
        command = ["run", *small("relu", "max"), "--out", str(tmp_path / "out"), "--cluster", str(processes.file)]
        assert main(command) == 2
        said = capfd.readouterr().err
        assert f"it has {name} 0.0.1 instead of " in said
        assert "error: no worker of " in said
        assert stored(tmp_path / "out") == set()
        processes.start_worker(1)
        with Client(processes._address(), set_as_default=False) as client:
            wait_until(lambda: len(client.nthreads()) == 2, "two workers")
        assert main(command) == 0
        refused = [line for line in capfd.readouterr().err.splitlines() if line.startswith("refused by worker tcp://")]
        assert len(refused) == 1
        cohort = r"(relu, 33|max, 28) parameters, (1 run|2 runs)"  # for two workers, relu is divided
        assert re.search(rf"127\.0\.0\.1:\d+, which gets no more: {cohort}: it has {name} 0\.0\.1 instead of ", refused[0])
    assert stored(tmp_path / "out") == {"relu", "max"}


def test_a_table_that_a_worker_lacks_or_has_otherwise_is_refused(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))  # the worker has another
    table = tmp_path / "sums.csv"
    rows = "".join(f"{i % 7},{i % 5},{'odd' if (i % 7 + i % 5) % 2 else 'even'}\n" for i in range(140))
    table.write_text(f"a,b,sum\n{rows}")
    job = CompareJob.prepare(CompareConfig(table, "sum", activations=("relu", "max"), splits=5, rates=(0.01,), epochs=2), False)
    table.write_text(f"a,b,sum\n{rows}1,1,even\n")
    with Cluster.open(address=str(processes.file)) as cluster, pytest.raises(UserError, match=r"sums\.csv has other contents"):
        job.run(tmp_path / "out", False, cluster=cluster)
    table.unlink()
    with Cluster.open(address=str(processes.file)) as cluster, pytest.raises(UserError, match=r"there is no table .*sums\.csv"):
        job.run(tmp_path / "out", False, cluster=cluster)


def test_ctrl_c_leaves_no_task_and_no_claim(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start_scheduler()
        processes.start_worker(0)
        arguments = ["run", "parity", *LONG, "--set", "training.epochs=100000", "--out", str(tmp_path / "out")]
        command = start_command(*arguments, "--cluster", str(processes.file))
        with Client(processes._address(), set_as_default=False) as client:
            wait_until(lambda: any(client.processing().values()) or command.poll() is not None, "a training")
            command.send_signal(signal.SIGINT)
            _, said = command.communicate(timeout=120)
            assert command.returncode == 130, said
            assert said.count("interrupted: nothing that was finished is lost") == 1
            assert left_behind(processes) == []
            wait_until(lambda: not any(client.run(count_tasks).values()), "the worker to stop")
    assert stored(tmp_path / "out") == set()


def test_the_client_killed_and_run_again_gives_the_same_store(tmp_path: Path) -> None:
    own = ["parity", "--seeds", "3", *LONG, "--set", "training.epochs=40", "--activations", "relu,max,or_ail,xnor_ail"]
    with Processes(tmp_path) as processes:
        processes.start_scheduler()
        for number in range(2):
            processes.start_worker(number)
        arguments = ["run", *own, "--cluster", str(processes.file), "--out", str(tmp_path / "there")]
        command = start_command(*arguments)
        with Store(tmp_path / "there") as store:
            wait_until(lambda: store.finished() or command.poll() is not None, "the first cohort")
        command.kill()
        command.communicate()
        wait_until(lambda: not left_behind(processes), "the scheduler to forget the dead client's tasks")
        assert main([*arguments, "--json"]) == 0
    assert main(["run", *own, "--out", str(tmp_path / "here"), "--json"]) == 0
    with Store(tmp_path / "there") as there, Store(tmp_path / "here") as here:
        assert contents(there.records()) == contents(here.records())


def test_a_scheduler_that_goes_ends_the_command_in_one_line(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start_scheduler()
        processes.start_worker(0)
        own = ["--set", "training.epochs=100000", "--out", str(tmp_path / "out"), "--cluster", str(processes.file)]
        command = start_command("run", "parity", *LONG, *own)
        with Client(processes._address(), set_as_default=False) as client:
            wait_until(lambda: any(client.processing().values()) or command.poll() is not None, "a training")
        processes.processes[0].kill()
        _, said = command.communicate(timeout=120)
    assert command.returncode == 2, said
    assert f"error: the scheduler of {processes.file} has gone; what is finished is in the store" in said
    assert "Traceback" not in said
    assert stored(tmp_path / "out") == set()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--cluster", "missing.json"], "error: --cluster missing.json is no scheduler file"),
        (["--cluster", "tcp://127.0.0.1:1"], "error: --cluster tcp://127.0.0.1:1 does not answer"),
        (["--cluster", "nonsense://here"], "error: --cluster nonsense://here does not answer"),
        (
            ["--workers", "2", "--cluster", "tcp://host:1"],
            "error: --workers 2 is this machine and --cluster tcp://host:1 is another",
        ),
        (["--workers", "0"], "error: --workers 0"),
    ],
)
def test_bad_options_are_one_line(
    options: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("boolit.lab.execute.cluster.CONNECT_SECONDS", 0.3)
    assert main(["run", *small("relu"), "--out", str(tmp_path / "out"), *options]) == 2
    said = capfd.readouterr().err
    assert next(line for line in said.splitlines() if line.startswith("error")).startswith(error)
    assert "Traceback" not in said


def test_without_dask_the_extra_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['distributed'] = None; from boolit.cli import main; main(sys.argv[1:])"
    command = ["run", *small("relu"), "--out", str(tmp_path / "out"), "--workers", "2"]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--workers and --cluster need the extra: pip install 'boolit[cluster]' (distributed is missing)" in done.stderr
