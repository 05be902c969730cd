"""Executing a plan: everything ends up in the store once, whatever happens on the way."""

import errno
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from boolit.cli._app import run as main
from boolit.errors import UserError
from boolit.lab.datasets import load
from boolit.lab.execute import ExecutionSummary, execute, stop_requests
from boolit.lab.models import restore
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.studies import Plan, load_study, plan
from boolit.lab.training import StackedTraining

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


def executed(planned: Plan, folder: Path, **options: float) -> tuple[ExecutionSummary, list[Record]]:
    with Store(folder) as store:
        return execute(planned, store, **options), store.records()  # type: ignore[arg-type]


def contents(records: list[Record]) -> dict[str, object]:
    """All that a store must hold again after any interruption; nan equals itself here."""
    return {r.key: (r.state, repr(sorted(r.metrics.items())), r.history, sorted(r.environment)) for r in records}


def test_every_run_is_recorded_with_its_curves_and_environment(small: Plan, tmp_path: Path) -> None:
    summary, records = executed(small, tmp_path)
    assert (summary.trained, summary.already, summary.undone) == (12, 0, 0)
    assert summary.complete
    assert {record.key for record in records} == {run.key for run in small.runs}
    for record in records:
        assert record.metrics["test_accuracy"] == record.history["test_accuracy"][-1]
        assert len(record.history["train_loss"]) == 4
        assert "solved" not in record.metrics  # a question of the report's, not the training's
        assert record.metrics["parameters"] == record.config.parameters
        assert record.seconds > 0
        assert {"boolit", "torch", "threads", "kernels"} <= set(record.environment)
    assert not any((tmp_path / "checkpoints").iterdir())


def test_a_run_in_the_store_is_never_trained_twice(small: Plan, tmp_path: Path) -> None:
    _, before = executed(small, tmp_path)
    summary, after = executed(small, tmp_path)
    assert (summary.trained, summary.already) == (0, 12)
    assert before == after
    more, records = executed(plan(load_study("parity"), seeds=6, sets=SMALL), tmp_path)
    assert (more.trained, more.already) == (6, 12)
    assert len(records) == 18


def test_runs_do_not_depend_on_when_their_seeds_were_asked_for(tmp_path: Path) -> None:
    """Cohorts of 1 and 3 and one of 4: the same but for rounding, which is 2⁻²⁴ of sums of 50 terms of at most 10 in each of 32
    steps with a rate of 0.01; grown tenfold, that is 1e-4. Adam would make whole steps of gradients that are round-off only."""
    sets = [*SMALL, "training.optimiser='sgd'", "training.learning_rate=0.01"]
    executed(plan(load_study("parity"), seeds=1, sets=sets), tmp_path / "in parts")
    _, parts = executed(plan(load_study("parity"), seeds=4, sets=sets), tmp_path / "in parts")
    _, once = executed(plan(load_study("parity"), seeds=4, sets=sets), tmp_path / "at once")
    of_parts = {record.key: record for record in parts}
    assert of_parts.keys() == {record.key for record in once}
    for record in once:
        other = of_parts[record.key]
        assert (record.state, sorted(record.environment)) == (other.state, sorted(other.environment))
        for name in ("train_loss", "test_loss"):
            assert record.history[name] == pytest.approx(other.history[name], abs=1e-4)


def test_the_kept_weights_make_the_network_again(small: Plan, tmp_path: Path) -> None:
    _, records = executed(small, tmp_path)
    with Store(tmp_path, create=False) as store:
        for record in records:
            network = restore(record.config, load_file(store.weights(record.key)))
            test = load(small.study.data).splits["test"]
            right = ((network(test.x.unsqueeze(0))[0] > 0) == (test.y > 0.5)).float().mean()
            assert float(right) == pytest.approx(record.metrics["test_accuracy"], abs=1e-6)


def test_weights_are_kept_only_if_the_study_says_so(tmp_path: Path) -> None:
    executed(plan(load_study("parity"), seeds=1, sets=[*SMALL, "keep_weights=false"]), tmp_path)
    assert not list(tmp_path.glob("weights/*"))


def test_weights_asked_for_later_are_kept_and_the_records_stay(tmp_path: Path) -> None:
    _, before = executed(plan(load_study("parity"), seeds=2, sets=[*SMALL, "keep_weights=false"]), tmp_path)
    asked = plan(load_study("parity"), seeds=2, sets=SMALL)
    summary, after = executed(asked, tmp_path)
    assert (summary.trained, summary.already) == (6, 0)
    assert after == before
    test_the_kept_weights_make_the_network_again(asked, tmp_path)
    lost = next((tmp_path / "weights").iterdir())
    lost.unlink()
    summary, _ = executed(asked, tmp_path)
    assert (summary.trained, summary.already) == (1, 5)
    assert lost.exists()


def test_another_threshold_profile_or_study_trains_nothing_again(tmp_path: Path) -> None:
    _, before = executed(plan(load_study("parity"), seeds=2, sets=SMALL), tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text(
        'title = "Mine"\ndata = {name = "parity", train = 256, test = 64}\nmodel = {name = "mlp"}\n'
        'metric = {name = "accuracy", solved = 0.5}\nkeep_weights = true\n'
        f'sweep = {{activation = ["relu", "xnor_ail", "max"], width = [{before[0].config.width}], seeds = 2}}\n'
        "training = {epochs = 4, batch = 32, learning_rate = 0.01, weight_decay = 1e-4}\n[profiles.other]\n"
    )
    mine = plan(load_study(str(file)), "other")
    with Store(tmp_path) as store:
        summary = execute(mine, store)
        found = store.records_of(mine.runs)
    assert (summary.trained, summary.already) == (0, 6)
    assert {(r.config.study, r.config.profile) for r in found} == {("mine", "other")}
    assert {r.key: r.metrics for r in found} == {r.key: r.metrics for r in before}


def test_a_disk_without_room_for_weights_is_one_sentence_and_resumable(
    small: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match=r"cannot write the weights .*No space left on device\); make room"):
            executed(small, tmp_path, checkpoint_every=0.0)
    assert not list((tmp_path / "weights").iterdir())
    summary, records = executed(small, tmp_path)
    assert (summary.trained, len(records)) == (12, 12)
    assert len(list((tmp_path / "weights").iterdir())) == 12


def test_what_another_process_has_claimed_is_left_to_it(small: Plan, tmp_path: Path) -> None:
    taken = [run.key for run in small.runs[:3]]
    with Store(tmp_path) as other:
        other.claim(taken, "other")
        summary, records = executed(small, tmp_path)
        assert (summary.trained, summary.elsewhere) == (9, 3)
        assert not summary.complete
        assert not summary.interrupted
    assert not {record.key for record in records} & set(taken)


def test_who_has_the_runs_is_said_and_the_exit_code_is_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = [part for value in SMALL for part in ("--set", value)]
    command = ["run", "parity", "--seeds", "2", "--out", str(tmp_path), *sets]
    with Store(tmp_path) as other:
        other.claim([run.key for run in plan(load_study("parity"), seeds=2, sets=SMALL).runs], "other")
        assert main(command) == 3
        said = capsys.readouterr()
        assert re.search(
            rf"error: 6 runs are being trained by process {os.getpid()} on \S+ \(since [\d: -]+, 6 runs\)", said.err
        )
        assert said.err.count("\n") == 1
        assert main([*command, "--json"]) == 3
        (holder,) = json.loads(capsys.readouterr().out)["holders"]
        assert (holder["pid"], holder["runs"]) == (os.getpid(), 6)
    assert main(command) == 0


def test_a_waiting_process_takes_over_what_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [part for value in SMALL for part in ("--set", value)]
    runs = plan(load_study("parity"), seeds=2, sets=SMALL).runs
    with Store(tmp_path) as other:
        other.claim([run.key for run in runs[:4]], "other")
        monkeypatch.setattr("boolit.lab.execute.sleep", lambda _: other.release([run.key for run in runs], "other"))
        assert main(["run", "parity", "--seeds", "2", "--out", str(tmp_path), *sets, "--wait", "--json"]) == 0
    said = capsys.readouterr()
    summary = json.loads(said.out)["summary"]
    assert (summary["trained"], summary["already"], summary["elsewhere"]) == (6, 0, 0)
    assert said.err.startswith("note: waiting: 4 runs are being trained by process")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_is_deleted_on_the_way_is_said_and_nothing_pretended(
    small: Plan, tmp_path: Path, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete() -> None:
        for path in tmp_path.glob("store.sqlite*"):
            path.unlink()
        if replaced:
            Store(tmp_path).close()

    with monkeypatch.context() as patched:
        breaking(patched, 45, delete)
        with pytest.raises(UserError, match="was deleted or replaced while this process used it"):
            executed(small, tmp_path)
    summary, records = executed(small, tmp_path)
    assert (summary.trained, summary.already, len(records)) == (12, 0, 12)


class BrokenError(Exception):
    """What a test breaks off a training with."""


def breaking(monkeypatch: pytest.MonkeyPatch, after: int, action: Callable[[], None]) -> None:
    """Does something in the middle of the training: in the ``after``-th step from now."""
    steps, original = [0], StackedTraining.step

    def step(self: StackedTraining) -> None:
        steps[0] += 1
        if steps[0] == after:
            action()
        original(self)

    monkeypatch.setattr(StackedTraining, "step", step)


def fail() -> None:
    raise BrokenError


@pytest.mark.parametrize("after", [9, 80])
def test_an_error_loses_nothing_that_was_finished(
    small: Plan, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        breaking(patched, after, fail)
        with pytest.raises(BrokenError):
            executed(small, tmp_path / "broken", checkpoint_every=0.0)
    _, resumed = executed(small, tmp_path / "broken")
    _, whole = executed(small, tmp_path / "whole")
    assert contents(resumed) == contents(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_finished_and_where_the_rest_is(
    small: Plan, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        breaking(patched, 45, lambda: signal.raise_signal(number))
        summary, records = executed(small, tmp_path / "stopped")
    assert summary.interrupted
    assert (summary.trained, summary.undone, len(records)) == (4, 8, 4)
    assert len(list((tmp_path / "stopped" / "checkpoints").iterdir())) == 1
    summary, resumed = executed(small, tmp_path / "stopped")
    assert (summary.trained, summary.already) == (8, 4)
    _, whole = executed(small, tmp_path / "whole")
    assert contents(resumed) == contents(whole)


@pytest.fixture
def _python_s_own_ctrl_c() -> Iterator[None]:
    """A process that a shell started in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_python_s_own_ctrl_c")
def test_a_second_ctrl_c_acts_at_once() -> None:
    with stop_requests() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_diverged_run_is_recorded_as_such(tmp_path: Path) -> None:
    wild = ["data.name=parity8", "metric.name=rmse", "training.optimiser=sgd", "training.learning_rate=1e30"]
    summary, records = executed(plan(load_study("parity"), seeds=2, sets=[*SMALL, *wild]), tmp_path)
    assert (summary.trained, summary.diverged) == (6, 6)
    assert all(record.state == "diverged" and math.isnan(record.metrics["test_rmse"]) for record in records)


SCRIPT = """
import sys, torch
from pathlib import Path
from boolit.lab.execute import execute
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study, plan
torch.set_num_threads(1)
with Store(Path(sys.argv[1])) as store:
    print("started", flush=True)
    execute(plan(load_study("parity"), seeds=4, sets=sys.argv[2:]), store, checkpoint_every=0.05)
"""


def killed_after(seconds: float, folder: Path, sets: list[str]) -> int:
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), *sets], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.kill()
    return process.returncode


@pytest.mark.parametrize("moments", [pytest.param(1, id="once"), pytest.param(10, id="ten times", marks=pytest.mark.slow)])
def test_kill_9_at_random_moments_then_resume_gives_the_uninterrupted_store(tmp_path: Path, moments: int) -> None:
    sets = [*SMALL, f"training.epochs={40 * moments}"]
    chance = random.Random(moments)
    killed = [killed_after(chance.uniform(0.05, 0.5), tmp_path / "killed", sets) for _ in range(moments)]
    assert killed[0] == -signal.SIGKILL
    whole_plan = plan(load_study("parity"), seeds=4, sets=sets)
    _, resumed = executed(whole_plan, tmp_path / "killed")
    _, whole = executed(whole_plan, tmp_path / "whole")
    assert contents(resumed) == contents(whole)
    assert os.listdir(tmp_path / "killed" / "checkpoints") == []
