"""Executing a plan on this machine: every run is recorded once, whatever interrupts it."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from boolit.errors import UserError
from boolit.lab.datasets import load
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.execute.local import stop_requests
from boolit.lab.models import restore
from boolit.lab.results.store import Store
from boolit.lab.runs import Result
from boolit.lab.studies import Plan, load_study, plan
from boolit.lab.training.trainer import Training

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = [
    "data.train=256",
    "data.test=64",
    "training.epochs=4",
    "training.batch=32",
    "sweep.activation=['relu','xnor_ail','max']",
]


@pytest.fixture
def small() -> Plan:
    return plan(load_study("parity"), seeds=4, sets=SMALL)


def executed(planned: Plan, folder: Path, seconds: float = 30.0) -> tuple[ExecutionSummary, list[Result]]:
    with Store(folder) as store:
        return execute(planned, store, progress=False, checkpoint_seconds=seconds), store.results()


def contents(results: list[Result]) -> dict[str, object]:
    """Return what must be equal after any interruption; NaN equals itself here."""
    return {r.key: (r.state, repr(sorted(r.metrics.items())), repr(sorted(r.history.items()))) for r in results}


def test_every_run_is_recorded_with_curves_environment_and_weights(small: Plan, tmp_path: Path) -> None:
    summary, results = executed(small, tmp_path)
    assert (summary.trained, summary.already, summary.remaining, summary.complete) == (12, 0, 0, True)
    assert {result.key for result in results} == {run.key for run in small.runs}
    assert not list(tmp_path.glob("checkpoints/*"))
    test = load(small.study.data).splits["test"]
    for result in results:
        assert result.metrics["test_accuracy"] == result.history["test_accuracy"][-1]
        assert len(result.history["train_loss"]) == 4
        assert {"boolit", "torch", "threads", "kernels"} <= set(result.environment)
        run = result.config
        weights = load_file(tmp_path / "weights" / f"{run.key}.safetensors")
        network = restore(run.model, run.inputs, run.outputs, run.widths, run.activation, weights)
        right = ((network(test.x) > 0) == (test.y > 0.5)).float().mean()
        assert float(right) == pytest.approx(result.metrics["test_accuracy"], abs=1e-6)


def test_only_missing_runs_and_missing_weights_are_trained(tmp_path: Path) -> None:
    without = plan(load_study("parity"), seeds=2, sets=[*SMALL, "keep_weights=false"])
    _, before = executed(without, tmp_path)
    assert not (tmp_path / "weights").exists()
    assert executed(without, tmp_path)[0].already == 6
    more, _ = executed(plan(load_study("parity"), seeds=3, sets=[*SMALL, "keep_weights=false"]), tmp_path)
    assert (more.trained, more.already) == (3, 6)
    kept, after = executed(plan(load_study("parity"), seeds=2, sets=SMALL), tmp_path)
    assert (kept.trained, kept.already) == (6, 0)
    assert contents(before).items() <= contents(after).items()
    next((tmp_path / "weights").iterdir()).unlink()
    assert executed(plan(load_study("parity"), seeds=2, sets=SMALL), tmp_path)[0].trained == 1


def test_labels_do_not_make_another_run(tmp_path: Path) -> None:
    executed(plan(load_study("parity"), seeds=2, sets=SMALL), tmp_path)
    again, _ = executed(plan(load_study("parity"), "paper", seeds=2, sets=[*SMALL, "metric.solved=0.5"]), tmp_path)
    assert (again.trained, again.already) == (0, 6)


def test_a_second_writer_gets_one_clear_line(small: Plan, tmp_path: Path) -> None:
    with Store(tmp_path) as first, first.writing(), pytest.raises(UserError, match=r"in use by another process; --workers N"):
        executed(small, tmp_path)


def in_step(monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], None]) -> None:
    steps, original = [0], Training.step

    def step(self: Training) -> None:
        steps[0] += 1
        if steps[0] == number:
            action()
        original(self)

    monkeypatch.setattr(Training, "step", step)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_with_a_checkpoint_and_the_same_call_resumes(
    small: Plan, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        in_step(patched, 45, lambda: signal.raise_signal(number))
        summary, results = executed(small, tmp_path / "stopped")
    assert (summary.interrupted, summary.trained, summary.remaining, len(results)) == (True, 4, 8, 4)
    assert len(os.listdir(tmp_path / "stopped" / "checkpoints")) == 1
    summary, resumed = executed(small, tmp_path / "stopped")
    assert (summary.trained, summary.already) == (8, 4)
    assert contents(resumed) == contents(executed(small, tmp_path / "whole")[1])


@pytest.fixture
def _default_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_default_ctrl_c")
def test_a_second_ctrl_c_acts_at_once() -> None:
    with stop_requests() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_diverged_run_is_recorded_as_such(tmp_path: Path) -> None:
    wild = ["data.name=parity8", "metric.name=rmse", "training.optimizer=sgd", "training.learning_rate=1e30"]
    summary, results = executed(plan(load_study("parity"), seeds=2, sets=[*SMALL, *wild]), tmp_path)
    assert (summary.trained, summary.diverged) == (6, 6)
    assert all(result.state == "diverged" and math.isnan(result.metrics["test_rmse"]) for result in results)


SCRIPT = """
import sys, torch
from boolit.lab.execute import execute
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study, plan
torch.set_num_threads(1)
with Store(sys.argv[1]) as store:
    print("started", flush=True)
    execute(plan(load_study("parity"), seeds=4, sets=sys.argv[2:]), store, progress=False, checkpoint_seconds=0.05)
"""


@pytest.mark.parametrize("moments", [pytest.param(1, id="once"), pytest.param(10, id="ten times", marks=pytest.mark.slow)])
def test_kill_9_at_random_moments_then_resume_gives_the_uninterrupted_store(tmp_path: Path, moments: int) -> None:
    sets = [*SMALL, f"training.epochs={40 * moments}"]
    chance = random.Random(moments)
    for _ in range(moments):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "killed"), *sets]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            limit = threading.Timer(300, process.kill)
            limit.start()
            assert process.stdout.readline() == b"started\n"
            time.sleep(chance.uniform(0.05, 0.5))
            process.kill()
            limit.cancel()
    whole = plan(load_study("parity"), seeds=4, sets=sets)
    assert contents(executed(whole, tmp_path / "killed")[1]) == contents(executed(whole, tmp_path / "whole")[1])
    assert not list(tmp_path.glob("killed/checkpoints/*"))


def test_under_torchrun_rank_0_writes_and_the_same_command_resumes(tmp_path: Path) -> None:
    sets = ["data.train=128", "data.test=64", "training.epochs=2", "sweep.activation=['relu','xnor_ail']"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "boolit"]
    command += ["run", "parity", "--seeds", "1", *(part for each in sets for part in ("--set", each)), "--out", str(tmp_path)]
    for trained in (2, 0):
        done = subprocess.run(
            [*command, "--json"], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["summary"]["trained"] == trained
    with Store(tmp_path) as store:
        assert {result.environment["processes"] for result in store.results()} == {2}
