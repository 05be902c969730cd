"""A cohort that loses its worker, or its client, goes on from its last checkpoint, on workers or here, to the same store."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from clusters import Processes, contents, kill, wait_until

from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.execute.cluster import Cluster
from boolit.lab.execute.dispatch import RERUNS, _Task, _Training
from boolit.lab.execute.progress import StudyProgress
from boolit.lab.execute.worker import TaskOptions
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.studies import Plan, load_study, plan
from boolit.lab.training import Checkpoint, StackedTraining
from boolit.lab.training.stacked import Position

pytestmark = pytest.mark.usefixtures("one_thread")

EPOCHS = 300
STEPS = 8  # of an epoch; each has a checkpoint
Reports = list[tuple[str, float]]  # of tasks: how much of the cohort was done


@pytest.fixture
def planned() -> Plan:
    sizes = ["data.train=256", "data.test=64", "training.batch=32", f"training.epochs={EPOCHS}"]
    return plan(load_study("parity"), seeds=3, sets=[*sizes, "sweep.activation=['xnor_ail']"])


@pytest.fixture
def here(planned: Plan, tmp_path: Path) -> dict[str, object]:
    """What a single process has, uninterrupted."""
    return contents(executed(planned, tmp_path / "uninterrupted")[1])


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    (tmp_path / "cluster").mkdir()
    with Processes(tmp_path / "cluster") as started:
        started.start_scheduler()
        yield started


def executed(planned: Plan, folder: Path, cluster: Cluster | None = None) -> tuple[ExecutionSummary, list[Record]]:
    with Store(folder) as store:
        return execute(planned, store, progress=False, checkpoint_steps=STEPS, cluster=cluster), store.records()


def watch_reports(monkeypatch: pytest.MonkeyPatch, once_saved: Callable[[], None] | None = None) -> Reports:
    """What workers report; the first time that a checkpoint of the second epoch or later has come here, ``once_saved`` acts."""
    reports: Reports = []
    waiting = [once_saved] if once_saved else []
    report = _Training._report

    def watched(self: _Training, event: Mapping[str, Any]) -> None:
        reports.append((event["task"], event["done"]))
        report(self, event)
        task = self.running.get(event["task"])
        if waiting and task is not None and task.checkpoint.saved.epoch > 1:
            waiting.pop()()

    monkeypatch.setattr(_Training, "_report", watched)
    return reports


def temporary_folders(processes: Processes) -> list[Path]:
    return list(processes.folder.rglob("boolit-cohort-*"))


def test_a_cohort_whose_worker_is_killed_resumes_on_another(
    planned: Plan, here: dict[str, object], processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = processes.start_worker(0)

    def replace_worker() -> None:
        kill(first)
        processes.start_worker(1)

    reports = watch_reports(monkeypatch, replace_worker)
    with Cluster.open(address=str(processes.file)) as cluster:
        wait_until(lambda: cluster.workers() == 1, "a worker")
        summary, records = executed(planned, tmp_path / "there", cluster)
    assert summary.complete
    assert contents(records) == here
    tasks = list(dict.fromkeys(task for task, _ in reports))
    assert len(tasks) == 2
    assert next(done for task, done in reports if task == tasks[1]) > 1 / EPOCHS
    assert list((tmp_path / "there" / "checkpoints").iterdir()) == []


def test_what_is_interrupted_on_workers_resumes_here(
    planned: Plan, here: dict[str, object], processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.start_worker(0)
    watch_reports(monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
    with Cluster.open(address=str(processes.file)) as cluster:
        wait_until(lambda: cluster.workers() == 1, "a worker")
        assert executed(planned, tmp_path / "there", cluster)[0].interrupted
        wait_until(lambda: not temporary_folders(processes), "the worker to remove its files")
    resumed: list[Position] = []
    restore = Checkpoint.restore

    def restored(self: Checkpoint, training: StackedTraining) -> float | None:
        seconds = restore(self, training)
        resumed.append(training.at)
        return seconds

    monkeypatch.setattr(Checkpoint, "restore", restored)
    summary, records = executed(planned, tmp_path / "there")
    assert summary.complete
    assert [at.epoch > 1 for at in resumed] == [True]
    assert contents(records) == here


def test_what_is_interrupted_here_resumes_on_workers(
    planned: Plan, here: dict[str, object], processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.start_worker(0)

    def interrupt(_bars: StudyProgress, training: StackedTraining) -> None:
        if training.at == (EPOCHS // 2, 1):
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(StudyProgress, "after_step", interrupt)
        assert executed(planned, tmp_path / "there")[0].interrupted
    monkeypatch.setattr("boolit.lab.execute.dispatch.PART", 1000)  # bytes, so it is sent in several parts
    reports = watch_reports(monkeypatch)
    with Cluster.open(address=str(processes.file)) as cluster:
        wait_until(lambda: cluster.workers() == 1, "a worker")
        summary, records = executed(planned, tmp_path / "there", cluster)
    assert summary.complete
    assert reports[0][1] >= 0.5
    assert contents(records) == here
    assert temporary_folders(processes) == []


def test_deaths_count_only_without_a_newer_checkpoint_in_between(planned: Plan, tmp_path: Path) -> None:
    options = TaskOptions({}, {}, memory=0, weights=False, device="cpu", checkpoint_every=1.0, checkpoint_steps=None)
    said: list[str] = []
    training = _Training(Cluster(Mock(), "none"), options, lambda: False, Mock(), said.append)
    task = _Task(planned.cohorts[0], Checkpoint(tmp_path), "key", "tcp://worker")

    def die() -> list[str]:
        training.running = {task.key: task}
        training.waiting.clear()
        failures = [result.failed for _, _, result in training._lose(task, died=True)]
        assert len(training.waiting) == (not failures)
        return failures

    for epoch in range(3 * RERUNS):
        assert die() == []
        task.checkpoint.saved = Position(epoch + 1, 0)
    assert [die() for _ in range(RERUNS)] == [[]] * RERUNS
    assert die() == [f"its worker died {RERUNS + 1} times, as when it takes more memory than there is"]
    assert said[-1].startswith("failed on worker tcp://worker: xnor_ail, ")
