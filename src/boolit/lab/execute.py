"""Where cohorts run: one after the other on this machine, each recorded as a whole when it is done."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from safetensors.torch import save_file
from torch import Tensor

from boolit._version import __version__
from boolit.lab.plugins import loaded_plugins
from boolit.lab.results.store import Store
from boolit.lab.runs import JSON, Record
from boolit.lab.studies import Cohort, Plan, Study
from boolit.lab.studies.planner import MEMORY
from boolit.lab.training import Checkpoint, Finished, Outcome, StackedTraining, distributed, train
from boolit.lab.training.checkpoint import EVERY_SECONDS
from boolit.lab.training.progress import StudyProgress
from boolit.logic import kernels

END = -1  # what the leader says of a cohort when nothing more is trained
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Summary:
    """What became of a plan's runs: in the store already, trained now (of which diverged), another process's, not done."""

    already: int
    trained: int
    diverged: int
    elsewhere: int
    undone: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every run of the plan is in the store."""
        return not self.undone and not self.elsewhere

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped; what was begun has a checkpoint and goes on from there next time."""
        return self.undone > 0

    def then(self, after: Summary) -> Summary:
        """What became of a plan's runs and of those of the plan that followed from it."""
        return Summary(
            already=self.already + after.already,
            trained=self.trained + after.trained,
            diverged=self.diverged + after.diverged,
            elsewhere=after.elsewhere,
            undone=after.undone,
            seconds=self.seconds + after.seconds,
        )


def execute(
    plan: Plan,
    store: Store,
    progress: bool | None = None,
    checkpoint_every: float = EVERY_SECONDS,
    memory: int = MEMORY,
    checkpoint_steps: int | None = None,
) -> Summary:
    """Trains what the store does not have yet. Safe to kill, to repeat and to run from several processes at once.

    ``progress`` hides the bars, or the lines where there is no terminal. Ctrl-C or SIGTERM stops after the present step.
    Checkpoints are written every so many seconds and, if given, every so many steps. Where several processes train together,
    this is for their leader; the others `follow`.
    """
    if not {run.key for run in plan.runs} <= store.finished():
        plan.study.data.prepare()
    return _Execution(plan.study, store, checkpoint_every, checkpoint_steps, memory).over(plan.cohorts, progress)


def follow(plan: Plan, memory: int = MEMORY) -> None:
    """Takes this process's part in what the leader of several processes trains; it has no store and records nothing."""
    with stop_requests() as stop:
        for cohort in plan.cohorts:
            told = distributed.shared(torch.zeros(len(cohort.runs), dtype=torch.int64)).tolist()
            if END in told:
                return
            claimed = [run.key for run, mine in zip(cohort.runs, told, strict=True) if mine]
            if claimed and train(cohort.of(claimed).job(), None, lambda _: not stop(), memory) is None:
                return


class _Execution:
    def __init__(self, study: Study, store: Store, every: float, steps: int | None, memory: int) -> None:
        self.study, self.store, self.every, self.steps, self.memory = study, store, every, steps, memory
        self.owner = f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.already = self.trained = self.diverged = self.elsewhere = 0

    def over(self, cohorts: Sequence[Cohort], progress: bool | None) -> Summary:
        started, total = time.monotonic(), sum(len(cohort.runs) for cohort in cohorts)
        with StudyProgress(total, progress) as bars, stop_requests() as stop:
            for cohort in cohorts:
                if stop():
                    distributed.shared(torch.full((len(cohort.runs),), END))
                    break
                if not self._cohort(cohort, bars, stop):
                    break
        undone = total - self.already - self.trained - self.elsewhere
        seconds = time.monotonic() - started
        return Summary(self.already, self.trained, self.diverged, self.elsewhere, undone, seconds)

    def _cohort(self, cohort: Cohort, bars: StudyProgress, stop: Callable[[], bool]) -> bool:
        """Trains and records what this process can claim of a cohort; whether to go on with the next."""
        claimed = self.store.claim([run.key for run in cohort.runs], self.owner)
        distributed.shared(torch.tensor([run.key in claimed for run in cohort.runs], dtype=torch.int64))
        self._count(cohort, claimed)
        bars.finish(len(cohort.runs) - len(claimed))
        if not claimed:
            return True
        try:
            finished = self._train(cohort.of(claimed), bars, stop)
        except BaseException:
            self.store.release(claimed, self.owner)
            raise
        if finished is None:
            self.store.release(claimed, self.owner)
            return False
        bars.finish(len(claimed))
        return True

    def _count(self, cohort: Cohort, claimed: Sequence[str]) -> None:
        unclaimed = {run.key for run in cohort.runs} - set(claimed)
        done = len(unclaimed & self.store.finished())
        self.already += done
        self.elsewhere += len(unclaimed) - done

    def _train(self, cohort: Cohort, bars: StudyProgress, stop: Callable[[], bool]) -> Finished | None:
        first = cohort.runs[0].config
        bars.begin(f"{first['activation']}, {first['parameters']} parameters, {len(cohort.runs)} runs: epochs")
        checkpoint = Checkpoint(self.store.checkpoint_folder(cohort.key), self.every, self.steps)

        def watch(training: StackedTraining) -> bool:
            bars.after_step(training)
            return not stop()

        finished = train(cohort.job(), checkpoint, watch, self.memory)
        if finished is not None:
            self._record(cohort, finished)
            checkpoint.delete()
        return finished

    def _record(self, cohort: Cohort, finished: Finished) -> None:
        pairs = list(zip(cohort.runs, finished.outcomes, strict=True))
        if self.study.keep_weights:
            # Before the records: a run in the store always has its weights.
            for run, outcome in pairs:
                save_weights(outcome.weights, self.store.weights(run.key))
        share = finished.seconds / len(pairs)
        self.store.record(
            Record(run.key, run.config, outcome.state, self._metrics(outcome), outcome.history, environment(), share)
            for run, outcome in pairs
        )
        self.trained += len(pairs)
        self.diverged += sum(outcome.state == "diverged" for _, outcome in pairs)

    def _metrics(self, outcome: Outcome) -> dict[str, float]:
        metric = self.study.metric
        if metric.solved is None:
            return outcome.metrics
        return outcome.metrics | {"solved": float(metric.solves(outcome.metrics[metric.key]))}


def environment() -> dict[str, JSON]:
    """What a run's numbers may depend on besides its configuration."""
    status = kernels.status()
    return {
        "boolit": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        **({"processes": distributed.size()} if distributed.size() > 1 else {}),
        "kernels": status.instructions if status.active else None,
        **({"plugins": dict(loaded_plugins())} if loaded_plugins() else {}),
    }


def save_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Writes a run's weights so that the file is there whole or not at all."""
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    save_file(weights, unfinished)
    unfinished.replace(path)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C or SIGTERM into a request that is asked for between steps; a second one acts as always."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        restore()

    for number in SIGNALS:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        restore()
