"""What runs on a worker of a cluster: one cohort, from its configurations to plain data that the store takes.

A worker trains one cohort at a time, with as many threads as it has of Dask's. It has no store. Its checkpoints are in a
temporary folder for as long as a task lasts: the one who asked keeps a copy by `get_checkpoint`, and sends it by
`put_checkpoint` before a task that resumes from it.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from distributed import Worker, get_worker
from pydantic import ValidationError

import boolit
from boolit.errors import UserError, one_line
from boolit.lab.common.devices import use_device
from boolit.lab.common.parallel import torch_threads
from boolit.lab.common.plugins import load_plugins, loaded_plugins
from boolit.lab.datasets import source
from boolit.lab.execute import TrainedRun, environment
from boolit.lab.runs import JSON, Run, RunConfig, canonical
from boolit.lab.studies import Cohort
from boolit.lab.training import Checkpoint, StackedTraining, train

SECONDS_BETWEEN_REPORTS = 1.0
_ONE_AT_A_TIME = threading.Lock()  # torch's threads belong to one training; a second would only wait for them
_CHECKPOINTS: dict[str, Checkpoint] = {}  # of the tasks that are being trained, by their keys


@dataclass(frozen=True)
class TaskOptions:
    """What every task of an execution is told.

    ``versions`` and ``plugins``, the latter by name and hash, are those of the one who asked; ``memory`` is what a search for a
    learning rate may take; ``weights`` says whether they are kept; ``device`` is where to train; how far a cohort is, and its
    checkpoint, goes to Dask's ``topic``. There is one every so many seconds, and after so many ``checkpoint_steps``.
    """

    versions: Mapping[str, str]
    plugins: Mapping[str, str]
    memory: int
    weights: bool
    device: str
    checkpoint_every: float
    checkpoint_steps: int | None
    topic: str = field(default_factory=lambda: f"boolit-{uuid4().hex}")


@dataclass(frozen=True)
class TaskResult:
    """What a worker answers: the runs of a cohort, or why there are none.

    It has ``refused`` what it cannot train though another may (it lacks data, or has another version); what ``failed`` on it
    would fail elsewhere.
    """

    worker: str
    runs: Sequence[TrainedRun] = ()
    seconds: float = 0.0
    environment: Mapping[str, JSON] = field(default_factory=dict)
    refused: str = ""
    failed: str = ""


def dask_setup(_worker: Worker) -> None:
    """Dask calls this in the worker processes of ``--workers``: Ctrl-C is for the process that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def versions() -> dict[str, str]:
    """What changes results from one machine to another, but for rounding."""
    return {"boolit": boolit.__version__, "torch": str(torch.__version__).partition("+")[0]}


def train_cohort(configs: Sequence[Mapping[str, Any]], keys: Sequence[str], options: TaskOptions) -> TaskResult:
    """Trains runs of one shape, given by their configurations and by the keys these had where they were asked for."""
    worker = get_worker()
    task = str(worker.get_current_task())
    with _ONE_AT_A_TIME, torch_threads(worker.state.nthreads), ExitStack() as stack:
        folder = _checkpoint_folder(worker, task)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            _check_versions(options)
            stack.enter_context(use_device(options.device))
            cohort = _cohort(configs, keys)
            job = cohort.job()
        except (UserError, OSError) as error:
            return TaskResult(worker.address, refused=one_line(error))
        except Exception as error:
            return TaskResult(worker.address, failed=one_line(error))
        checkpoint = Checkpoint(folder, options.checkpoint_every, options.checkpoint_steps, cohort.key)
        _CHECKPOINTS[task] = checkpoint
        stack.callback(_CHECKPOINTS.pop, task)
        try:
            result = train(job, checkpoint, _callback(worker, task, checkpoint, options.topic), options.memory)
        except Exception as error:
            if isinstance(error, UserError) and isinstance(error.__cause__, OSError):  # its disk is full
                return TaskResult(worker.address, refused=one_line(error))
            return TaskResult(worker.address, failed=one_line(error))
        if result is None:
            return TaskResult(worker.address, failed="it was cancelled")  # nobody waits for this answer
        runs = [TrainedRun.of(outcome, options.weights) for outcome in result.outcomes]
        return TaskResult(worker.address, runs, result.seconds, environment())


def put_checkpoint(task: str, part: bytes, dask_worker: Worker) -> None:
    """Adds a part to the checkpoint that a task will resume from."""
    path = Checkpoint(_checkpoint_folder(dask_worker, task)).path
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(part)
    except OSError as error:
        raise UserError(f"cannot write the checkpoint {path} ({error.strerror or error}); make room for it there") from error


def get_checkpoint(task: str, transfer: float) -> bytes | None:
    """The last checkpoint of a task; none if there is none, or no such task. ``transfer`` is how long it took the last time."""
    checkpoint = _CHECKPOINTS.get(task)
    if checkpoint is None:
        return None
    checkpoint.transfer = transfer
    try:
        return checkpoint.path.read_bytes()
    except FileNotFoundError:  # it is just being replaced; the next report leads here again
        return None


def _checkpoint_folder(worker: Worker, task: str) -> Path:
    """In Dask's folder of the worker, which Dask deletes when it ends, and after its death when another starts there."""
    return Path(worker.local_directory) / task


def _cohort(configs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Cohort:
    cohort = Cohort(tuple(Run(RunConfig.from_dict(config)) for config in configs))
    if [run.key for run in cohort.runs] != list(keys):
        raise UserError("its runs have other keys there, so they would be other runs; install the same boolit")
    _check_data(canonical(cohort.runs[0].config.data))
    return cohort


def _check_versions(options: TaskOptions) -> None:
    for name, own in versions().items():
        if own != options.versions[name]:
            raise UserError(f"it has {name} {own} instead of {options.versions[name]}, with which results differ")
    # What an installed package brings is called "name = module:object", and is loaded if it is there.
    load_plugins(name for name in options.plugins if " = " not in name)
    for name, digest in options.plugins.items():
        if loaded_plugins().get(name) != digest:
            raise UserError(
                f"its plugin {name} is {'another' if name in loaded_plugins() else 'not there'}; install the same one"
            )


@lru_cache(maxsize=8)
def _check_data(data: str) -> None:
    """Refuses files of the user's own that are not the ones a study is of; `load` takes what is in their place."""
    _check_places(RunConfig.model_validate_json(f'{{"data":{data}}}').data)


def _check_places(table: Mapping[str, Any]) -> None:
    for value in table.values():
        if isinstance(value, Mapping):
            _check_places(value)
    places = [table[name] for name in RunConfig.PLACES if table.get(name)]
    if "digest" in table and places:
        try:
            found = source({name: value for name, value in table.items() if name != "digest"})
        except ValidationError as error:  # the file or folder cannot be read
            raise UserError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
        if found.model_dump()["digest"] != table["digest"]:
            raise UserError(f"{places[0]} has other contents there; copy it from where the study was started")


def _callback(worker: Worker, task: str, checkpoint: Checkpoint, topic: str) -> Callable[[StackedTraining], bool]:
    """Reports how far a cohort is, and stops it when its task is no longer wanted: Dask cannot interrupt a thread."""
    next_report, reported = 0.0, checkpoint.saved

    def report(training: StackedTraining) -> bool:
        nonlocal next_report, reported
        now = time.monotonic()
        if now < next_report and checkpoint.saved == reported:
            return True
        next_report, reported = now + SECONDS_BETWEEN_REPORTS, checkpoint.saved
        done = training.at.epoch / training.job.recipe.epochs
        worker.log_event(topic, {"task": task, "done": done, "saved": list(reported)})
        state = worker.state.tasks.get(task)
        return state is not None and state.state == "executing"

    return report
