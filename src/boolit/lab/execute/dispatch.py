"""Cohorts for the workers of a cluster: each free worker gets one, the longest first, and its checkpoints are kept here.

A cohort is for one worker, chosen here: were it Dask's choice, a cohort could wait behind another that takes too much memory,
and be held responsible for the death of the worker as well. If the worker dies, the cohort goes on elsewhere from the last
checkpoint that came here. It is given up when its worker died four times and there was no newer checkpoint in between.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from distributed import CancelledError, Future, KilledWorker

from boolit.errors import UserError, one_line
from boolit.lab.common.parallel import thread_pool
from boolit.lab.execute.cluster import SECONDS_BETWEEN_LOOKS, Cluster, WorkerStatus, look, lost_scheduler
from boolit.lab.execute.worker import TaskOptions, TaskResult, get_checkpoint, put_checkpoint, train_cohort
from boolit.lab.runs import RunConfig
from boolit.lab.studies import Cohort
from boolit.lab.training import Checkpoint
from boolit.lab.training.stacked import Position

RERUNS = 3  # of a cohort whose worker died, without a newer checkpoint in between
CHECKPOINT_SECONDS = 2.0  # between checkpoints at most, if they are cheap: a worker may be gone any moment
SECONDS_BETWEEN_EVENTS = 0.2  # at most, until a request to stop is noticed
PART = 2**26  # bytes of a checkpoint that are sent at once


def train_on(
    cluster: Cluster,
    cohorts: Iterable[tuple[Cohort, Checkpoint]],
    options: TaskOptions,
    stop: Callable[[], bool],
    on_progress: Callable[[int, float], None],
    on_note: Callable[[str], None],
) -> Generator[tuple[Cohort, Checkpoint, TaskResult], None, None]:
    """Every cohort with what became of it, as they are done; those that are not done at a stop are left out.

    Each has its checkpoint of here, which it resumes from and which is renewed while it is trained. ``on_progress`` is told how
    many workers there are, and to how many runs the cohorts that are being trained amount. ``on_note`` gets a line of
    everything that went wrong.
    """
    yield from _Training(cluster, options, stop, on_progress, on_note).run(iter(cohorts))


@dataclass
class _Task:
    """A cohort, the worker that trains it under a key of Dask's, and how much of it is done.

    ``deaths`` of its worker are counted as long as it ``died_at`` the same checkpoint.
    """

    cohort: Cohort
    checkpoint: Checkpoint
    key: str = ""
    worker: str = ""
    future: Future[TaskResult] | None = None
    done: float = 0.0
    fetching: bool = False
    deaths: int = 0
    died_at: Position | None = None


class _Training:
    def __init__(
        self,
        cluster: Cluster,
        options: TaskOptions,
        stop: Callable[[], bool],
        on_progress: Callable[[int, float], None],
        on_note: Callable[[str], None],
    ) -> None:
        self.cluster, self.client, self.options = cluster, cluster.client, options
        self.stop, self.on_progress, self.on_note = stop, on_progress, on_note
        # Reports of workers, answers to tasks by their keys, and what went wrong with a checkpoint.
        self.events: SimpleQueue[Mapping[str, Any] | tuple[str, TaskResult | Exception] | Exception] = SimpleQueue()
        self.waiting: deque[_Task] = deque()
        self.running: dict[str, _Task] = {}
        self.workers: dict[str, WorkerStatus] = {}
        self.next_look = 0.0
        self.courier = thread_pool(1, name="checkpoints")
        self.keeping = threading.Lock()  # a checkpoint, which only a running task may leave
        self.ended = threading.Event()

    def run(self, cohorts: Iterator[tuple[Cohort, Checkpoint]]) -> Iterator[tuple[Cohort, Checkpoint, TaskResult]]:
        self.client.subscribe_topic(self.options.topic, lambda event: self.events.put(event[1]))
        try:
            while not self.stop():
                yield from self._look()
                self._submit(cohorts)
                if not (self.running or self.waiting):
                    return
                yield from self._next()
        finally:
            self._cancel()

    def _look(self) -> Iterator[tuple[Cohort, Checkpoint, TaskResult]]:
        """Once a second: which workers there are, and which cohorts have lost theirs."""
        if time.monotonic() < self.next_look:
            return
        self.workers, died = look(self.cluster, self.running)
        self.next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS
        for task in list(self.running.values()):
            if task.key in died or task.worker not in self.workers:
                yield from self._lose(task, task.key in died)
        if self.waiting and not self.running and self.workers and self.workers.keys() <= self.cluster.refused.keys():
            worker = next(iter(self.workers))
            cause = f"{worker}: {self.cluster.refused[worker]}"
            raise UserError(f"no worker of {self.cluster.name} can train {self.waiting[0].cohort}: {cause}")
        self.on_progress(len(self.workers), self._partly())

    def _submit(self, cohorts: Iterator[tuple[Cohort, Checkpoint]]) -> None:
        """Gives every free worker a cohort; those that were begun go first."""
        while True:
            if not self.waiting:
                self.waiting.extend(_Task(*new) for new in [next(cohorts, None)] if new is not None)
            free = self._free_workers()
            if not (self.waiting and free):
                return
            self._start(self.waiting.popleft(), min(free, key=lambda address: self.workers[address].tasks))

    def _free_workers(self) -> list[str]:
        taken = {task.worker for task in self.running.values()} | self.cluster.refused.keys()
        return [address for address, worker in self.workers.items() if worker.running and address not in taken]

    def _start(self, task: _Task, worker: str) -> None:
        task.key, task.worker, task.fetching = f"boolit-cohort-{uuid4().hex}", worker, False
        try:
            self._send_checkpoint(task)
        except (OSError, TimeoutError):  # the worker is gone, or the scheduler: the next look tells
            self.workers.pop(worker)
            self.waiting.appendleft(task)
            return
        except Exception as error:
            self._refuse(task, one_line(error))
            return
        self.running[task.key] = task
        task.future = self.client.submit(
            train_cohort,
            [_with_absolute_places(run.config.to_dict()) for run in task.cohort.runs],
            [run.key for run in task.cohort.runs],
            self.options,
            key=task.key,
            pure=False,
            workers=[worker],
            resources=self.cluster.resources or None,
        )
        task.future.add_done_callback(partial(self._answer, task.key))

    def _send_checkpoint(self, task: _Task) -> None:
        content = task.checkpoint.read() or b""
        for start in range(0, len(content), PART):
            self.client.run(put_checkpoint, task.key, content[start : start + PART], workers=[task.worker])

    def _answer(self, key: str, future: Future[TaskResult]) -> None:
        """Brings a result here, in a thread of Dask's."""
        try:
            answer: TaskResult | Exception = future.result()
        except (OSError, TimeoutError, CancelledError):  # what we cancel ourselves is no longer asked for
            answer = lost_scheduler(self.cluster)
        except Exception as error:
            answer = error
        self.events.put((key, answer))

    def _next(self) -> Iterator[tuple[Cohort, Checkpoint, TaskResult]]:
        """Waits a little for news; those of a cohort that is done are returned."""
        try:
            event = self.events.get(timeout=SECONDS_BETWEEN_EVENTS)
        except Empty:
            return
        if isinstance(event, Exception):
            raise event
        if isinstance(event, Mapping):
            self._report(event)
        elif event[0] in self.running:
            yield from self._finish(self.running[event[0]], event[1])
            self.on_progress(len(self.workers), self._partly())

    def _finish(self, task: _Task, answer: TaskResult | Exception) -> Iterator[tuple[Cohort, Checkpoint, TaskResult]]:
        if isinstance(answer, UserError):
            raise answer
        if isinstance(answer, KilledWorker):
            yield from self._lose(task, died=True)
            return
        if isinstance(answer, Exception):  # of Dask, or of Python before boolit had a say: it is not there, or is another
            answer = TaskResult(task.worker, refused=one_line(answer))
        self._forget(task)
        if answer.refused:
            self._refuse(task, answer.refused)
        else:
            yield self._done(task, answer)

    def _refuse(self, task: _Task, cause: str) -> None:
        """No more cohorts for a worker that cannot train; this one goes to another."""
        if task.worker not in self.cluster.refused:
            self.on_note(f"refused by worker {task.worker}, which gets no more: {task.cohort}: {cause}")
        self.cluster.refused[task.worker] = cause
        self.waiting.appendleft(task)

    def _lose(self, task: _Task, died: bool) -> Iterator[tuple[Cohort, Checkpoint, TaskResult]]:
        """A cohort without its worker goes on elsewhere, unless that happened too often at the same checkpoint."""
        self._forget(task)
        with suppress(OSError, TimeoutError):
            self.client.cancel([task.future], force=True)
        if died:
            task.deaths = task.deaths + 1 if task.died_at == task.checkpoint.saved else 1
            task.died_at = task.checkpoint.saved
        if task.deaths > RERUNS:
            cause = f"its worker died {task.deaths} time{'s' * (task.deaths > 1)}, as when it takes more memory than there is"
            yield self._done(task, TaskResult(task.worker, failed=cause))
        else:
            at = task.checkpoint.saved.epoch
            how = f"resumes in epoch {at + 1}" if task.checkpoint.exists() else "starts again"
            self.on_note(f"lost worker {task.worker}: {task.cohort}: it {how} on another")
            self.waiting.appendleft(task)

    def _done(self, task: _Task, result: TaskResult) -> tuple[Cohort, Checkpoint, TaskResult]:
        if result.failed:
            self.on_note(f"failed on worker {result.worker}: {task.cohort}: {result.failed}")
        return task.cohort, task.checkpoint, result

    def _forget(self, task: _Task) -> None:
        """From now on its checkpoint stays as it is, whatever still arrives."""
        with self.keeping:
            self.running.pop(task.key)

    def _report(self, event: Mapping[str, Any]) -> None:
        """How far a task is; if it has a newer checkpoint, that is brought here."""
        task = self.running.get(event["task"])
        if task is None:
            return
        task.done = event["done"]
        if tuple(event["saved"]) > task.checkpoint.saved and not task.fetching:
            task.fetching = True
            self.courier.submit(self._fetch, task, task.key, task.worker)

    def _fetch(self, task: _Task, key: str, worker: str) -> None:
        """Brings a checkpoint here, in the courier's thread, which does so at most half of the time."""
        started = time.monotonic()
        try:
            # Errors of the worker are ignored: its next report leads here again, or its death is noticed.
            took = task.checkpoint.transfer
            content = self.client.run(get_checkpoint, key, took, workers=[worker], on_error="ignore").get(worker)
            with self.keeping:
                if content is not None and key in self.running:
                    task.checkpoint.receive(content)
            task.checkpoint.transfer = time.monotonic() - started
        except (OSError, TimeoutError):
            pass  # the scheduler is gone: the next look tells
        except Exception as error:
            self.events.put(error)
        task.fetching = False
        self.ended.wait(time.monotonic() - started)

    def _partly(self) -> float:
        return sum(task.done * len(task.cohort.runs) for task in self.running.values())

    def _cancel(self) -> None:
        """Leaves nothing with the scheduler; a training that is under way notices and ends by itself."""
        self.ended.set()
        with self.keeping:
            futures = [task.future for task in self.running.values()]
            self.running.clear()
        self.courier.shutdown(wait=False, cancel_futures=True)
        with suppress(OSError, TimeoutError):
            self.client.unsubscribe_topic(self.options.topic)
            if futures:
                self.client.cancel(futures, force=True)


def _with_absolute_places(entries: Any) -> Any:
    """The entries of a configuration with the paths of data that has a digest as they are from any folder of this machine."""
    if not isinstance(entries, Mapping):
        return entries
    found = {name: _with_absolute_places(value) for name, value in entries.items()}
    if "digest" in found:
        places = {name: str(Path(found[name]).absolute()) for name in RunConfig.PLACES if isinstance(found.get(name), str)}
        found |= places
    return found
