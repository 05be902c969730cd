"""Train cohorts on a Dask cluster: processes of this machine, or workers of a scheduler that is running.

Every cohort is a Dask task. Dask runs it again if its worker is lost, at most ``distributed.scheduler.allowed-failures`` times;
with a checkpoint folder that the workers share, it resumes there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import torch
from distributed import CancelledError, Client, Future, KilledWorker, LocalCluster, Status, Worker, as_completed, get_worker
from distributed.system import MEMORY_LIMIT

import boolit
from boolit.errors import UserError, one_line
from boolit.lab.common.devices import torch_threads, use_device
from boolit.lab.common.plugins import load_plugins, loaded_plugins
from boolit.lab.datasets import describe
from boolit.lab.execute.local import Failed, Stop, StudyProgress, Trained, environment
from boolit.lab.runs import JSON, RunConfig, job
from boolit.lab.studies import Cohort
from boolit.lab.studies.planner import COHORT_BYTES, cohorts, divide
from boolit.lab.training import Checkpoint, Outcome, train

CONNECT_SECONDS = 10.0
LOCAL_WAIT, REMOTE_WAIT = 30.0, 300.0  # seconds without any worker until the command gives up
CHECKPOINT_WAIT = 10.0  # seconds for workers to write their checkpoints when the command is stopped
RETRIES = 1  # of a cohort that raises an exception
SHARE_OF_MEMORY = 0.5  # of a worker's memory for a cohort; the rest is for torch, the data and the results
RESUMES = "finished runs are kept, and the same command resumes"
TaskResult: TypeAlias = tuple[list[Outcome], dict[str, JSON]]
_ONE_AT_A_TIME = threading.Lock()  # the threads of torch belong to one training


@dataclass(frozen=True)
class WorkerState:
    """A worker as the scheduler sees it; ``memory`` is 0 without a limit."""

    memory: int
    resources: Mapping[str, float]


class Cluster:
    """Workers that train cohorts.

    Args:
        client: a connection to the scheduler.
        name: the name of the cluster in error messages.
        device: the device of the workers. With ``cuda``, cohorts need Dask's resource ``GPU``.
        local: the cluster of this machine, which is closed together with the client.

    Example:
        >>> import tempfile
        >>> from boolit.lab import Store, execute_plan, load_study, plan
        >>> planned = plan(load_study("xor"), seeds=2, sets=["training.epochs=1", "sweep.activation=['relu', 'xnor_ail']"])
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store, Cluster.open(workers=1) as cluster:
        ...     execute_plan(planned, store, progress=False, cluster=cluster).trained
        4
    """

    def __init__(self, client: Client, name: str, device: str = "auto", local: LocalCluster | None = None) -> None:
        self.client, self.name, self.device, self.local = client, name, device, local
        self.threads = max(1, torch.get_num_threads() // len(local.workers)) if local else None
        self.resources = {"GPU": 1} if device.startswith("cuda") else {}
        self._last_seen = time.monotonic()

    @staticmethod
    def open(workers: int | None = None, address: str | None = None, device: str = "auto") -> Cluster:
        """Start workers on this machine, or connect to a scheduler by its address or scheduler file."""
        for handler in logging.getLogger("distributed").handlers:
            handler.setLevel(logging.CRITICAL)
        if address is not None:
            return Cluster(_connect(address), address, device)
        assert workers is not None
        try:
            local = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=MEMORY_LIMIT // workers,
                host="127.0.0.1",
                dashboard_address=None,
                # Without these, Dask serves HTTP on all interfaces.
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                worker_dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                resources={"GPU": 1},
                preload=__name__,
            )
            client = Client(local, set_as_default=False)
        except (RuntimeError, OSError, TimeoutError) as error:
            raise UserError(f"--workers {workers}: the processes could not be started ({one_line(error)})") from error
        return Cluster(client, f"--workers {workers}", device, local)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection, and end the workers of this machine."""
        with suppress(OSError, TimeoutError):
            self.client.close()
        if self.local is not None:
            self.local.close()

    def workers(self) -> dict[str, WorkerState]:
        """Return the workers that can train, by address."""

        def look(dask_scheduler: Any) -> dict[str, tuple[int, dict[str, float]]]:  # nested: sent by value
            return {name: (int(w.memory_limit or 0), dict(w.resources)) for name, w in dask_scheduler.workers.items()}

        try:
            states = self.client.run_on_scheduler(look)
        except (OSError, TimeoutError) as error:
            raise UserError(f"the scheduler of {self.name} is gone; {RESUMES}") from error
        workers = {name: WorkerState(*state) for name, state in states.items()}
        return {name: state for name, state in workers.items() if self.resources.keys() <= state.resources.keys()}

    def check(self) -> dict[str, WorkerState]:
        """Return the workers, or raise UserError if there is none and none will come."""
        workers = self.workers()
        if workers:
            self._last_seen = time.monotonic()
            return workers
        nannies = self.local.workers.values() if self.local else ()
        dead = self.local is not None and all(nanny.status in (Status.failed, Status.closed) for nanny in nannies)
        waited = time.monotonic() - self._last_seen
        if dead or waited > (LOCAL_WAIT if self.local else REMOTE_WAIT):
            needed = " with the resource GPU" if self.resources else ""
            raise UserError(f"{self.name} has no worker{needed} left and none could be started; {RESUMES}")
        return workers


def _connect(address: str) -> Client:
    rule = "give the address of a Dask scheduler, such as tcp://host:8786, or its scheduler file"
    if "://" not in address:
        try:
            address = str(json.loads(Path(address).read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"--cluster {address} is not a scheduler file ({type(error).__name__}: {error}); {rule}") from error
    try:
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"--cluster {address} does not answer ({error}); {rule}") from error


@dataclass(frozen=True)
class TaskOptions:
    """Options shared by all tasks of one execution."""

    keep_weights: bool
    device: str
    threads: int | None
    checkpoint_dir: str | None
    checkpoint_seconds: float
    versions: Mapping[str, str] = field(default_factory=lambda: versions())
    plugins: Mapping[str, str] = field(default_factory=loaded_plugins)
    topic: str = field(default_factory=lambda: f"boolit-{uuid4().hex}")


def versions() -> dict[str, str]:
    """Return the versions that must agree between machines."""
    return {"boolit": boolit.__version__, "torch": str(torch.__version__).partition("+")[0]}


def train_on(
    cluster: Cluster,
    missing: Sequence[Cohort],
    folder: Path | None,
    seconds: float,
    keep_weights: bool,
    bars: StudyProgress,
    stop: Stop,
) -> Generator[Trained | Failed, None, None]:
    """Submit the longest cohorts first, as many at a time as there are workers, and yield each outcome as it arrives."""
    checkpoints = None if folder is None else str(folder.absolute())
    options = TaskOptions(keep_weights, cluster.device, cluster.threads, checkpoints, seconds)
    client = cluster.client
    running: dict[Future[TaskResult], Cohort] = {}
    progress: dict[str, float] = {}

    def report(event: tuple[float, Mapping[str, Any]]) -> None:
        progress[event[1]["task"]] = event[1]["runs"]

    while not (workers := cluster.check()) and not stop():
        bars.show_workers(0, 0.0)
        time.sleep(0.2)
    if stop() or not missing:
        return
    _check_workers(client, options)
    client.subscribe_topic(options.topic, report)
    waiting, completed, next_check = split(missing, workers)[::-1], as_completed(loop=client.loop), 0.0
    try:
        while (waiting or running) and not stop():
            if time.monotonic() >= next_check:
                workers = cluster.check()
                bars.show_workers(len(workers), sum(progress.values()))
                next_check = time.monotonic() + 1.0
            while waiting and len(running) < len(workers):  # not more, as Dask blames a lost worker on all of its tasks
                texts, key = [run.model_dump_json() for run in waiting[-1].runs], f"boolit-{uuid4().hex}"
                resources = cluster.resources or None
                future = client.submit(train_cohort, texts, options, key=key, pure=False, retries=RETRIES, resources=resources)
                running[future] = waiting.pop()
                completed.add(future)
            if completed.has_ready():
                future = next(completed)
                progress.pop(str(future.key), None)
                yield _outcome(cluster, running.pop(future), future, bars)
            else:
                time.sleep(0.05)
    finally:
        with suppress(OSError, TimeoutError):
            client.unsubscribe_topic(options.topic)
            if running:
                client.cancel(list(running), force=True)
                client.run(_wait_for_checkpoint)


def _outcome(cluster: Cluster, cohort: Cohort, future: Future[TaskResult], bars: StudyProgress) -> Trained | Failed:
    if future.status == "error":
        error = future.exception()
        lost = "its workers were lost, as when they have too little memory"
        failure = Failed(cohort, lost if isinstance(error, KilledWorker) else one_line(error))
        bars.note(f"failed: {cohort}: {failure.reason}")
        return failure
    try:
        result, environment = future.result()
    except (OSError, TimeoutError, CancelledError) as error:
        raise UserError(f"the scheduler of {cluster.name} is gone; {RESUMES}") from error
    return cohort, result, environment


def _check_workers(client: Client, options: TaskOptions) -> None:
    for worker, reason in client.run(_mismatch, options.versions, options.plugins, on_error="return").items():
        if reason:
            raise UserError(f"worker {worker} cannot train: {one_line(reason) if isinstance(reason, Exception) else reason}")


def split(missing: Sequence[Cohort], workers: Mapping[str, WorkerState]) -> list[Cohort]:
    """Divide cohorts that exceed a worker's share of the work or its memory, and sort them, the longest first.

    Other cohorts stay whole, because a run in a smaller cohort gives the same numbers only up to rounding.
    """
    limits = [worker.memory for worker in workers.values() if worker.memory]
    if limits:
        memory = min(COHORT_BYTES, int(SHARE_OF_MEMORY * min(limits)))
        missing = [part for cohort in missing for part in cohorts(cohort.runs, memory)]
    total = sum(map(_cost, missing))
    parts = [divide(cohort.runs, min(len(cohort.runs), -(-_cost(cohort) * len(workers) // total))) for cohort in missing]
    return sorted((part for each in parts for part in each), key=_cost, reverse=True)


def _cost(cohort: Cohort) -> int:
    run = cohort.runs[0]
    return len(cohort.runs) * max(1, run.parameters * describe(run.data).samples["train"] * run.training.epochs)


# What runs on a worker.


def dask_setup(_worker: Worker) -> None:
    """Ignore Ctrl-C in the worker processes of ``--workers``: it is for the process that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def train_cohort(texts: Sequence[str], options: TaskOptions) -> TaskResult:
    """Train a cohort, given by the configurations of its runs as JSON."""
    worker = get_worker()
    with _ONE_AT_A_TIME, torch_threads(options.threads or worker.state.nthreads), use_device(options.device):
        if reason := _mismatch(options.versions, options.plugins):
            raise UserError(reason)
        cohort = Cohort(tuple(map(RunConfig.model_validate_json, texts)))
        folder = options.checkpoint_dir and Path(options.checkpoint_dir) / cohort.key
        result = train(
            job(cohort.runs),
            checkpoint=Checkpoint(folder, options.checkpoint_seconds) if folder else None,
            callback=_callback(worker, str(worker.get_current_task()), options.topic),
            keep_weights=options.keep_weights,
        )
        if result is None:
            raise RuntimeError("the task was cancelled")
        return result, environment()


def _callback(worker: Worker, task: str, topic: str) -> Callable[[Any], bool]:
    """Report progress every second, and stop when the task was cancelled: Dask cannot interrupt a thread."""
    next_report = 0.0

    def report(training: Any) -> bool:
        nonlocal next_report
        if (now := time.monotonic()) < next_report:
            return True
        next_report = now + 1.0
        runs = training.job.runs * training.at.epoch / training.job.recipe.epochs
        worker.log_event(topic, {"task": task, "runs": runs})
        state = worker.state.tasks.get(task)
        return state is not None and state.state == "executing"

    return report


def _mismatch(wanted: Mapping[str, str], plugins: Mapping[str, str]) -> str | None:
    for name, version in versions().items():
        if version != wanted[name]:
            return f"it has {name} {version} instead of {wanted[name]}"
    load_plugins(name for name in plugins if " = " not in name)  # the others are entry points of installed packages
    different = [name for name, digest in plugins.items() if loaded_plugins().get(name) != digest]
    return f"its plugin {different[0]} is missing or different" if different else None


async def _wait_for_checkpoint() -> None:
    end = time.monotonic() + CHECKPOINT_WAIT
    while _ONE_AT_A_TIME.locked() and time.monotonic() < end:
        await asyncio.sleep(0.05)
