"""Train the runs of a plan that are missing from the store, and record them."""

from __future__ import annotations

import json
import platform
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors.torch import save_file

from boolit import __version__
from boolit._devices import device_name
from boolit.errors import UserError, lacks_memory
from boolit.lab.common.devices import present_device, use_device
from boolit.lab.common.files import atomic_write
from boolit.lab.common.plugins import loaded_plugins
from boolit.lab.common.progress import progress_bars
from boolit.lab.execute.loggers import EpochLog, Logger, OnEpoch, call_logger, open_logger
from boolit.lab.reports.report import Report, write_report
from boolit.lab.results.store import PROGRESS, Store
from boolit.lab.runs import JSON, Result, RunConfig, job
from boolit.lab.studies import Cohort, Plan, cohorts, load_study, save
from boolit.lab.studies import plan as make_plan
from boolit.lab.training import Checkpoint, Outcome, Training, distributed, train
from boolit.lab.training.train import EVERY_SECONDS
from boolit.logic import cpu

if TYPE_CHECKING:
    from boolit.lab.execute.cluster import Cluster

PROGRESS_SECONDS = 1.0  # between two updates of what `boolit watch` shows
Stop: TypeAlias = Callable[[], bool]
Trained: TypeAlias = tuple[Cohort, list[Outcome], Mapping[str, JSON]]  # with the environment


@dataclass(frozen=True)
class Failed:
    """A cohort that a cluster could not train, and why."""

    cohort: Cohort
    reason: str


@dataclass(frozen=True)
class ExecutionSummary:
    """Counts of the runs of a plan after its execution.

    Args:
        already: runs that were in the store before.
        trained: runs that were trained now.
        diverged: trained runs that diverged.
        remaining: runs that are missing because the execution was interrupted.
        failures: cohorts that a cluster could not train.
        seconds: duration.
    """

    already: int
    trained: int
    diverged: int
    remaining: int
    seconds: float
    failures: tuple[Failed, ...] = ()

    @property
    def failed(self) -> int:
        """Runs that a cluster could not train."""
        return sum(len(failure.cohort.runs) for failure in self.failures)

    @property
    def interrupted(self) -> bool:
        """Whether the execution was stopped by Ctrl-C or SIGTERM."""
        return self.remaining > 0

    @property
    def complete(self) -> bool:
        """Whether all runs of the plan are in the store."""
        return not (self.remaining or self.failures)

    @property
    def failed_message(self) -> str:
        """The first failure in one line."""
        first, more = self.failures[0], len(self.failures) - 1
        return f"{self.failed:,} runs failed: {first.cohort}: {first.reason}" + (f" (and {more} more)" if more else "")


class StudyProgress:
    """Two bars on the error stream, or a line every ten seconds if it is not a terminal.

    Args:
        total: the runs of the plan.
        done: those that are in the store already.
        shown: False hides everything.
        console: defaults to the error stream.
        folder: the results folder, where the counts are written for ``boolit watch``.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        shown: bool | None = None,
        console: Console | None = None,
        folder: Path | None = None,
    ) -> None:
        columns = (MofNCompleteColumn(), TimeRemainingColumn(), TimeElapsedColumn())
        self._bars = progress_bars(*columns, shown=shown, console=console)
        self._study = self._bars.add_task("runs", total=total, completed=done)
        self._cohort = self._bars.add_task("epochs", total=None, visible=False)
        self._done, self._total, self._folder, self._due = float(done), total, folder, 0.0

    def __enter__(self) -> StudyProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def note(self, line: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def begin(self, cohort: str) -> None:
        """Start the bar of a cohort."""
        self._bars.reset(self._cohort, description=f"{cohort}: epochs", total=None, visible=True)

    def after_step(self, training: Training) -> None:
        """Update both bars at the end of an epoch of a training."""
        if training.at.step == 0:
            epoch, epochs = training.at.epoch, training.job.recipe.epochs
            self._bars.update(self._cohort, completed=epoch, total=epochs)
            self._update(self._done + training.job.runs * epoch / epochs)

    def show_workers(self, workers: int, running: float) -> None:
        """Show the number of workers, and how many runs their cohorts amount to so far."""
        label = f"{workers} worker{'' if workers == 1 else 's'}: runs" if workers else "waiting for a worker: runs"
        self._update(self._done + running, description=label)

    def finish(self, runs: int) -> None:
        """Count the runs of a cohort as done."""
        self._done += runs
        self._update(self._done)

    def _update(self, completed: float, **changes: Any) -> None:
        self._bars.update(self._study, completed=completed, **changes)
        if self._folder is None or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PROGRESS_SECONDS
        task = next(task for task in self._bars.tasks if task.id == self._study)
        counts = {"done": int(completed), "total": self._total, "rate": task.speed, "seconds_left": task.time_remaining}
        with atomic_write(self._folder / PROGRESS) as part:
            part.write_text(json.dumps(counts), encoding="utf-8")


def execute(
    plan: Plan,
    store: Store | None,
    *,
    progress: bool | None = None,
    device: str | torch.device | None = None,
    cluster: Cluster | None = None,
    checkpoint_dir: Path | None = None,
    checkpoint_seconds: float = EVERY_SECONDS,
    loggers: Sequence[Logger] = (),
) -> ExecutionSummary:
    """Train every run that is missing from the store.

    A run is recorded as soon as its cohort is finished. Ctrl-C and SIGTERM stop after the current step and write a checkpoint,
    from which the same call resumes. Under torchrun every process calls this; the processes other than rank 0 pass no store.

    Args:
        plan: the runs.
        store: where results are recorded. Only one process at a time may write to it.
        progress: False hides the progress bars.
        device: such as ``cpu`` or ``cuda:1``. Defaults to a GPU if there is one. Results depend on it only by rounding.
        cluster: workers that train instead of this process.
        checkpoint_dir: folder of the checkpoints, shared with the workers. Defaults to ``checkpoints`` in the store's folder,
            which other machines do not see.
        checkpoint_seconds: time between checkpoints.
        loggers: log every epoch of every run. Epochs of a cluster are logged when their cohort is finished.

    Example:
        >>> import tempfile
        >>> from boolit.lab import Store, execute_plan, load_study, plan
        >>> planned = plan(load_study("xor"), seeds=2, sets=["training.epochs=1", "sweep.activation=['relu', 'xnor_ail']"])
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        ...     execute_plan(planned, store, progress=False).trained, execute_plan(planned, store, progress=False).already
        (4, 4)
    """
    started = time.monotonic()
    trained = diverged = 0
    failures: list[Failed] = []
    with use_device(device), store.writing() if store else nullcontext(), stop_requests() as stop:
        missing = _missing(plan, store)
        total, pending = len(plan.runs), sum(len(cohort.runs) for cohort in missing)
        shown = progress if store else False
        with StudyProgress(total, total - pending, shown, folder=store.folder if store else None) as bars:
            folder = checkpoint_dir
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            elif store is not None and (cluster is None or cluster.local):
                folder = store.folder / "checkpoints"
            log = EpochLog(loggers) if loggers else None
            how = (missing, folder, checkpoint_seconds, plan.study.keep_weights, bars, stop)
            outcomes: Generator[Trained | Failed, None, None]
            if cluster is None:
                outcomes = _train_here(*how, log)
            else:
                from boolit.lab.execute.cluster import train_on

                outcomes = train_on(cluster, *how)
            with closing(outcomes):
                for outcome in outcomes:
                    if isinstance(outcome, Failed):
                        failures.append(outcome)
                        continue
                    cohort, results, environment = outcome
                    if store is not None:
                        _record(store, cohort, results, environment)
                    if log is not None:
                        log.finish(cohort.runs, results)
                    if folder is not None:
                        shutil.rmtree(folder / cohort.key, ignore_errors=True)
                    trained += len(cohort.runs)
                    diverged += sum(run.state == "diverged" for run in results)
                    bars.finish(len(cohort.runs))
    remaining = pending - trained - sum(len(failure.cohort.runs) for failure in failures)
    return ExecutionSummary(total - pending, trained, diverged, remaining, time.monotonic() - started, tuple(failures))


def run_study(
    study: str | Path,
    folder: str | Path,
    profile: str | None = None,
    seeds: int | None = None,
    sets: Sequence[str] = (),
    progress: bool | None = None,
    device: str | None = None,
    on_epoch: OnEpoch | None = None,
    log: Sequence[str] = (),
) -> Report:
    """Train a study and write its report, as ``boolit run`` does.

    Args:
        study: name of a study that ships with boolit, or a TOML file.
        folder: results folder. Runs that it holds are not trained again.
        profile: one of the study's profiles. Defaults to ``quick`` if the study has it.
        seeds: number of seeds, instead of the study's.
        sets: changes such as ``"training.epochs=20"``.
        progress: False hides the progress bars.
        device: such as ``cpu`` or ``cuda:1``. Defaults to a GPU if there is one.
        on_epoch: called as ``on_epoch(run, epoch, metrics)`` after every epoch of every run, with its `RunConfig`, the epoch
            counted from 1, and values such as ``metrics["test_accuracy"]``.
        log: loggers: ``tensorboard``, ``wandb``, ``mlflow``, ``csv``.

    Returns:
        The report, with its ``verdict``, ``tables`` and ``page``. ``Store(folder).frame()`` has the runs.
    """
    planned, folder = make_plan(load_study(study), profile, seeds, sets), Path(folder)
    loggers = [open_logger(name, folder) for name in log] + ([call_logger(on_epoch)] if on_epoch else [])
    with Store(folder) as store, store.writing():
        save(planned, folder)
        execute(planned, store, progress=progress, device=device, loggers=loggers)
    return write_report(folder)


def train_configs(
    configs: Sequence[RunConfig],
    plan: Plan,
    store: Store,
    progress: bool | None = None,
    cluster: Cluster | None = None,
    checkpoint_dir: Path | None = None,
) -> list[Result] | None:
    """Train the runs that a search asks for and return their results in order, or None if interrupted."""
    study = plan.study.model_copy(update={"keep_weights": False})
    runs = Plan(plan.name, plan.profile, study, tuple(cohorts(configs)))
    summary = execute(runs, store, progress=progress, cluster=cluster, checkpoint_dir=checkpoint_dir)
    if summary.failures:
        raise UserError(f"{summary.failed_message}; a search needs all runs of a round: run the same command again")
    if not summary.complete:
        return None
    results = {result.key: result for result in store.results([config.key for config in configs], history=False)}
    return [results[config.key] for config in configs]


def _missing(plan: Plan, store: Store | None) -> list[Cohort]:
    """Return the cohorts of the missing runs; under torchrun, those that rank 0 finds."""
    wanted = {run.key for run in plan.runs}
    if store is not None:
        finished = store.finished(wanted)
        bare = [key for key in finished if plan.study.keep_weights and not store.weights(key).exists()]
        wanted -= finished
        wanted |= {result.key for result in store.results(bare, history=False) if result.state == "finished"}
    wanted = distributed.broadcast_object(wanted)
    parts = (cohort.subset(wanted) for cohort in plan.cohorts)
    return [part for part in parts if part.runs]


def _train_here(
    missing: Sequence[Cohort],
    folder: Path | None,
    seconds: float,
    keep_weights: bool,
    bars: StudyProgress,
    stop: Stop,
    log: EpochLog | None,
) -> Generator[Trained | Failed, None, None]:
    for cohort in missing:

        def callback(training: Training, runs: Sequence[RunConfig] = cohort.runs) -> bool:
            bars.after_step(training)
            if log is not None:
                log.after_step(runs, training)
            return not stop()

        bars.begin(str(cohort))
        checkpoint = Checkpoint(folder / cohort.key, seconds) if folder else None
        try:
            result = train(job(cohort.runs), checkpoint=checkpoint, callback=callback, keep_weights=keep_weights)
        except (MemoryError, RuntimeError) as error:
            if not lacks_memory(error):
                raise
            place = device_name(present_device())
            raise UserError(f"out of memory on {place} with {cohort}; lower training.batch") from error
        if result is None:
            return
        yield cohort, result, environment()


def _record(store: Store, cohort: Cohort, outcomes: Sequence[Outcome], environment: Mapping[str, JSON]) -> None:
    pairs = list(zip(cohort.runs, outcomes, strict=True))
    for run, outcome in pairs:  # before the results: a recorded run always has its weights
        if outcome.weights is not None:
            path = store.weights(run.key)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(path) as part:
                    save_file(outcome.weights, part)
            except OSError as error:
                raise UserError(f"cannot write {path}: {error.strerror or error}; the same command resumes") from error
    store.record(Result(run, end.state, end.metrics, end.history, end.seconds, environment) for run, end in pairs)


def environment() -> dict[str, JSON]:
    """Return what results may depend on besides the configuration: versions, device and threads."""
    status, device = cpu.status(), present_device()
    return {
        "boolit": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "device": device_name(device),
        "kernels": status.instructions if status.active and device.type == "cpu" else None,
        **({"processes": distributed.size()} if distributed.size() > 1 else {}),
        **({"plugins": dict(loaded_plugins())} if loaded_plugins() else {}),
    }


@contextmanager
def stop_requests() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a request that is read between steps; a second one acts as usual."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        restore()

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        restore()
