"""Where cohorts run: one after the other on this machine, or on a cluster; each is recorded as a whole when it is done."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save

from boolit import __version__
from boolit._devices import device_name
from boolit.lab.common.devices import present_device, use_device
from boolit.lab.common.errors import UserError
from boolit.lab.common.files import atomic_write
from boolit.lab.common.plugins import loaded_plugins
from boolit.lab.execute.progress import StudyProgress
from boolit.lab.results.store import ClaimHolder, Store
from boolit.lab.runs import JSON, Record, State
from boolit.lab.studies import Cohort, Plan, Study
from boolit.lab.studies.planner import MEMORY
from boolit.lab.training import Checkpoint, Outcome, StackedTraining, distributed, train
from boolit.lab.training.checkpoint import EVERY_SECONDS
from boolit.logic import cpu

if TYPE_CHECKING:
    from boolit.lab.execute.cluster import Cluster

END = -1  # what the leader says of a cohort when nothing more is trained
SIGNALS = (signal.SIGINT, signal.SIGTERM)
CLAIMED_AT_ONCE = 8  # cohorts for workers: claiming them one by one would take as long as recording them
SECONDS_BETWEEN_PASSES = 5.0  # over a plan of which another process has runs


@dataclass(frozen=True)
class ExecutionSummary:
    """What became of a plan's runs, in numbers.

    ``already`` are in the store, ``trained`` now, of which ``diverged``; ``elsewhere`` are those that other processes train,
    the ``holders``; ``failed`` are those that a cluster could not train, for the reasons in ``failures``; ``undone`` are left
    as it was stopped; and it took ``seconds``.

    Example:
        >>> from boolit.lab import ExecutionSummary
        >>> first, later = ExecutionSummary(0, 60, 1, 0, 20, 9.5), ExecutionSummary(60, 20, 0, 0, 0, 3.0)
        >>> first.interrupted, first.complete, first.elsewhere_message, first.failed_message
        (True, False, '', '')
        >>> both = first.add(later, same_plan=True)
        >>> both.already, both.trained, both.diverged, both.seconds, both.complete
        (0, 80, 1, 12.5, True)
    """

    already: int
    trained: int
    diverged: int
    elsewhere: int
    undone: int
    seconds: float
    holders: tuple[ClaimHolder, ...] = ()
    failed: int = 0
    failures: tuple[str, ...] = ()

    @property
    def elsewhere_message(self) -> str:
        """Who trains the runs that another process has; nothing if there are none."""
        if not self.elsewhere:
            return ""
        others = [
            f"process {one.pid} on {one.host} (since {datetime.fromtimestamp(one.since):%Y-%m-%d %H:%M}, {one.runs} runs)"
            for one in self.holders
        ]
        return f"{self.elsewhere} runs are being trained by {' and '.join(others) or 'another process, which has just ended'}"

    @property
    def failed_message(self) -> str:
        """Which runs failed on a cluster, and why; nothing if none did."""
        if not self.failed:
            return ""
        more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
        return f"{self.failed:,} runs could not be trained: {self.failures[0]}{more}"

    @property
    def complete(self) -> bool:
        """Whether every run of the plan is in the store."""
        return not (self.undone or self.elsewhere or self.failed)

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped; what was begun has a checkpoint and resumes from there next time."""
        return self.undone > 0

    def add(self, later: ExecutionSummary, same_plan: bool = False) -> ExecutionSummary:
        """What became of a plan's runs, and of those of a plan that followed from it or of a later pass over the same plan."""
        return replace(
            later,
            already=later.already + (-self.trained if same_plan else self.already),
            trained=self.trained + later.trained,
            diverged=self.diverged + later.diverged,
            seconds=self.seconds + later.seconds,
            failed=later.failed + (0 if same_plan else self.failed),
            failures=later.failures if same_plan else self.failures + later.failures,
        )


def execute(
    plan: Plan,
    store: Store,
    progress: bool | None = None,
    checkpoint_every: float = EVERY_SECONDS,
    memory: int = MEMORY,
    checkpoint_steps: int | None = None,
    device: str | torch.device | None = None,
    cluster: Cluster | None = None,
) -> ExecutionSummary:
    """Trains what the store does not have yet. Safe to kill, to repeat and to run from several processes at once.

    Ctrl-C or SIGTERM stops after the present step. Where several processes train together, this is for their leader; the
    others `boolit.lab.execute.follow`.

    Args:
        plan: what is to be trained.
        store: where it is kept.
        progress: False hides the bars, or the lines where there is no terminal.
        checkpoint_every: seconds between checkpoints; on workers two, unless less is given.
        memory: bytes that a cohort may take.
        checkpoint_steps: steps between checkpoints, too.
        device: where to train, such as ``cpu`` or ``cuda:1``; a GPU if there is one, unless given. No run's key depends on it.
        cluster: the workers that train, on their own devices; this process unless given. Their checkpoints are kept in the
            store's folder as well, so a cohort that is interrupted there resumes there or here.

    Example:
        >>> import tempfile
        >>> from boolit.lab import Store, execute_plan, load_study, plan
        >>> planned = plan(load_study("xor"), seeds=2, sets=["training.epochs=1", "sweep.activation=['relu', 'xnor_ail']"])
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        ...     execute_plan(planned, store, progress=False).trained, execute_plan(planned, store, progress=False).already
        (4, 4)
    """
    keys = {run.key for run in plan.runs}
    here = cluster is None or cluster.local is not None  # workers of other machines have their own data
    with use_device(device):
        if here and (not keys <= store.finished() or _without_weights(plan.study, store, keys)):
            plan.study.data.prepare()
        return _Execution(plan.study, store, checkpoint_every, checkpoint_steps, memory, cluster).run(plan.cohorts, progress)


def execute_and_wait(
    plan: Plan,
    store: Store,
    on_wait: Callable[[str], object],
    progress: bool | None = None,
    checkpoint_steps: int | None = None,
    cluster: Cluster | None = None,
) -> ExecutionSummary:
    """As `execute`, again and again until no other process has runs of the plan; ``on_wait`` is told which one has them."""
    summary = execute(plan, store, progress, checkpoint_steps=checkpoint_steps, cluster=cluster)
    while summary.elsewhere and not (summary.interrupted or summary.failed):
        on_wait(summary.elsewhere_message)
        sleep(SECONDS_BETWEEN_PASSES)
        later = execute(plan, store, progress, checkpoint_steps=checkpoint_steps, cluster=cluster)
        summary = summary.add(later, same_plan=True)
    return summary


def follow(plan: Plan, memory: int = MEMORY) -> None:
    """Takes this process's part in what the leader of several processes trains; it has no store and records nothing."""
    with stop_requests() as stop:
        for cohort in plan.cohorts:
            claims = distributed.broadcast(torch.zeros(len(cohort.runs), dtype=torch.int64)).tolist()
            if END in claims:
                return
            claimed = [run.key for run, claim in zip(cohort.runs, claims, strict=True) if claim]
            if claimed and train(cohort.of(claimed).job(), None, lambda _: not stop(), memory) is None:
                return


@dataclass(frozen=True)
class TrainedRun:
    """What the store takes of one run, wherever it was trained; its weights as the bytes of a safetensors file."""

    state: State
    metrics: Mapping[str, float]
    history: Mapping[str, list[float]]
    weights: bytes | None

    @staticmethod
    def of(outcome: Outcome, keep_weights: bool) -> TrainedRun:
        """Of what the trainer returns."""
        return TrainedRun(outcome.state, outcome.metrics, outcome.history, save(outcome.weights) if keep_weights else None)


class _Execution:
    def __init__(
        self, study: Study, store: Store, every: float, steps: int | None, memory: int, cluster: Cluster | None
    ) -> None:
        self.study, self.store, self.every, self.steps, self.memory = study, store, every, steps, memory
        self.cluster = cluster
        self.owner = f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.already = self.trained = self.diverged = self.elsewhere = self.failed = 0
        self.failures: list[str] = []
        self.claimed: set[str] = set()

    def run(self, cohorts: Sequence[Cohort], progress: bool | None) -> ExecutionSummary:
        started, total = time.monotonic(), sum(len(cohort.runs) for cohort in cohorts)
        finished = self.store.finished()
        already = sum(run.key in finished for cohort in cohorts for run in cohort.runs)
        with StudyProgress(total, progress, already=already) as bars, stop_requests() as stop:
            try:
                if self.cluster is None:
                    self._run_here(cohorts, bars, stop)
                else:
                    self._run_on(self.cluster, cohorts, bars, stop)
            finally:
                with suppress(UserError):  # what went wrong before is what the user has to know
                    self.store.release(self.claimed, self.owner)
        undone = total - self.already - self.trained - self.elsewhere - self.failed
        holders = tuple(self.store.holders()) if self.elsewhere else ()
        return ExecutionSummary(
            already=self.already,
            trained=self.trained,
            diverged=self.diverged,
            elsewhere=self.elsewhere,
            undone=undone,
            seconds=time.monotonic() - started,
            holders=holders,
            failed=self.failed,
            failures=tuple(self.failures),
        )

    def _run_here(self, cohorts: Sequence[Cohort], bars: StudyProgress, stop: Callable[[], bool]) -> None:
        for cohort in cohorts:
            if stop():
                distributed.broadcast(torch.full((len(cohort.runs),), END))
                return
            [claimed] = self._claim([cohort], bars)
            distributed.broadcast(torch.tensor([run.key in self.claimed for run in cohort.runs], dtype=torch.int64))
            if claimed.runs and not self._train(claimed, bars, stop):
                return

    def _run_on(self, cluster: Cluster, cohorts: Sequence[Cohort], bars: StudyProgress, stop: Callable[[], bool]) -> None:
        from boolit.lab.execute.cluster import split_for, wait_for_workers  # Dask is an extra
        from boolit.lab.execute.dispatch import CHECKPOINT_SECONDS, train_on
        from boolit.lab.execute.worker import TaskOptions, versions

        workers = wait_for_workers(cluster, lambda: bars.show_workers(0, len(cohorts), 0, 0.0), stop)
        parts = split_for(cluster, cohorts, workers)
        left = len(parts)
        bars.show_workers(workers, left, 0, 0.0)

        def claim_parts() -> Iterator[tuple[Cohort, Checkpoint]]:
            nonlocal left
            for start in range(0, len(parts), CLAIMED_AT_ONCE):
                for claimed in self._claim(parts[start : start + CLAIMED_AT_ONCE], bars):
                    if claimed.runs:
                        yield claimed, self._checkpoint(claimed, bars)
                    else:
                        left -= 1

        def show(workers: int, partly: float) -> None:
            bars.show_workers(workers, len(parts), len(parts) - left, partly)

        every = min(self.every, CHECKPOINT_SECONDS)
        plugins, weights = loaded_plugins(), self.study.keep_weights
        options = TaskOptions(versions(), plugins, self.memory, weights, cluster.device, every, self.steps)
        results = train_on(cluster, claim_parts(), options, stop, show, bars.note)
        with closing(results):
            for cohort, checkpoint, result in results:
                left -= 1
                if result.failed:
                    self.failed += len(cohort.runs)
                    self.failures.append(f"{cohort}: {result.failed}")
                else:
                    self._record(cohort, result.runs, result.seconds, result.environment)
                    checkpoint.delete()
                bars.finish(len(cohort.runs))

    def _claim(self, cohorts: Sequence[Cohort], bars: StudyProgress) -> list[Cohort]:
        """What this process can claim of some cohorts."""
        keys = [run.key for cohort in cohorts for run in cohort.runs]
        claimed = self.store.claim(keys, self.owner, again=_without_weights(self.study, self.store, keys))
        self.claimed.update(claimed)
        unclaimed = set(keys) - set(claimed)
        done = len(self.store.finished(unclaimed))
        self.already += done
        self.elsewhere += len(unclaimed) - done
        bars.finish(len(unclaimed))
        return [cohort.of(claimed) for cohort in cohorts]

    def _train(self, cohort: Cohort, bars: StudyProgress, stop: Callable[[], bool]) -> bool:
        """Trains and records a cohort; whether it was not stopped."""
        first = cohort.runs[0].config
        bars.begin(first.activation, first.parameters, len(cohort.runs))
        checkpoint = self._checkpoint(cohort, bars)

        def watch(training: StackedTraining) -> bool:
            bars.after_step(training)
            return not stop()

        try:
            finished = train(cohort.job(), checkpoint, watch, self.memory)
        except torch.OutOfMemoryError as error:  # of a device; the CPU's is not torch's to raise
            runs = f"{len(cohort.runs)} runs of {first.activation}, {first.parameters:,} parameters each"
            fix = "lower training.batch, or use --device cpu"
            raise UserError(f"{device_name(present_device())} has too little free memory for {runs}; {fix}") from error
        if finished is None:
            return False
        self._record(
            cohort, [TrainedRun.of(one, self.study.keep_weights) for one in finished.outcomes], finished.seconds, environment()
        )
        checkpoint.delete()
        bars.finish(len(cohort.runs))
        return True

    def _checkpoint(self, cohort: Cohort, bars: StudyProgress) -> Checkpoint:
        return Checkpoint(self.store.checkpoint_folder(cohort.key), self.every, self.steps, cohort.key, bars.note)

    def _record(self, cohort: Cohort, trained: Sequence[TrainedRun], seconds: float, where: Mapping[str, JSON]) -> None:
        pairs = list(zip(cohort.runs, trained, strict=True))
        # Before the records: a run in the store always has its weights.
        for run, own in pairs:
            if own.weights is not None:
                save_weights(own.weights, self.store.weights(run.key))
        share = seconds / len(pairs)
        self.store.record(Record(run.key, run.config, own.state, own.metrics, own.history, where, share) for run, own in pairs)
        self.claimed.difference_update(run.key for run in cohort.runs)
        self.trained += len(pairs)
        self.diverged += sum(own.state == "diverged" for _, own in pairs)


def environment() -> dict[str, JSON]:
    """What a run's numbers may depend on besides its configuration."""
    status, device = cpu.status(), present_device()
    return {
        "boolit": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        **({"processes": distributed.size()} if distributed.size() > 1 else {}),
        "device": device_name(device),
        "kernels": status.instructions if status.active and device.type == "cpu" else None,
        **({"plugins": dict(loaded_plugins())} if loaded_plugins() else {}),
    }


def save_weights(content: bytes, path: Path) -> None:
    """Writes the file of a run's weights so that it is there whole or not at all."""
    try:
        with atomic_write(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise UserError(
            f"cannot write the weights {path} ({error.strerror or error}); make room for them and run again: the finished runs "
            "are in the store, and the others resume from their last checkpoint"
        ) from error


def _without_weights(study: Study, store: Store, keys: Iterable[str]) -> list[str]:
    """Runs whose weights are to be kept and are not there: of a run in the store, that was trained before this was asked."""
    return [key for key in keys if not store.weights(key).exists()] if study.keep_weights else []


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
