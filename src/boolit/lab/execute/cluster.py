"""Cohorts on a Dask cluster, of this machine or of many: workers train, the store stays with the one who asked.

As many cohorts are with the scheduler as there are workers, the longest first; the next follows when one is done. More would
wait on workers, and Dask holds the death of a worker against every task there: a cohort that takes too much memory would take
others with it. A cohort whose worker died is started again on another one, by Dask, three times unless its scheduler is
configured otherwise.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any
from uuid import uuid4

import torch
from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.system import MEMORY_LIMIT

from boolit.lab.common.errors import UserError, one_line
from boolit.lab.common.plugins import loaded_plugins
from boolit.lab.datasets import describe, source
from boolit.lab.execute.worker import TaskOptions, TaskResult, train_cohort, versions
from boolit.lab.runs import RunConfig
from boolit.lab.studies import Cohort
from boolit.lab.studies.planner import cohorts as plan_cohorts
from boolit.lab.studies.planner import divide

GPU = "GPU"  # what Dask's documentation calls this resource of workers
CONNECT_SECONDS = 10.0
SECONDS_BETWEEN_LOOKS = 0.2  # at a request to stop
SECONDS_BETWEEN_COUNTS = 1.0  # of the workers
SHARE_OF_MEMORY = 0.5  # of a worker's that a cohort may take: torch, the data and the results need the rest


class Cluster(AbstractContextManager["Cluster"]):
    """Workers that train cohorts, for `boolit.lab.execute_plan`: processes of this machine, or a Dask cluster that is running.

    Use `open`, and close it, or use it in a ``with``.

    Args:
        client: a connection to Dask's scheduler.
        name: what errors call it.
        device: what workers train on, as `execute_plan` takes it; for a GPU, those with Dask's resource ``GPU`` alone are used.
        local: the cluster behind it, if it is this machine's, to be closed with the client.

    Example:
        >>> import tempfile
        >>> from boolit.lab import Cluster, Store, execute_plan, load_study, plan
        >>> planned = plan(load_study("xor"), seeds=2, sets=["training.epochs=1", "sweep.activation=['relu', 'xnor_ail']"])
        >>> cluster = Cluster.open(workers=1)  # or ``with Cluster.open(…) as cluster:``, which closes it
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        ...     execute_plan(planned, store, progress=False, cluster=cluster).trained, cluster.workers()
        (4, 1)
        >>> cluster.close()
    """

    def __init__(self, client: Client, name: str, device: str = "auto", local: LocalCluster | None = None) -> None:
        self.client, self.name, self.device, self.local = client, name, device, local
        self.resources = {GPU: 1} if device.startswith("cuda") else {}
        self.refused: dict[str, str] = {}  # workers that cannot train this study, and why

    @staticmethod
    def open(workers: int | None = None, address: str | None = None, device: str = "auto") -> Cluster:
        """This machine with so many worker processes, or the cluster at the address of its scheduler or in a scheduler file."""
        for handler in logging.getLogger("distributed").handlers:
            handler.setLevel(logging.CRITICAL)  # what matters of a lost worker is said by `train_on`
        if address is not None:
            return Cluster(_connect(address), address, device)
        assert workers is not None
        with ExitStack() as stack:
            local = stack.enter_context(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=max(1, torch.get_num_threads() // workers),
                    memory_limit=MEMORY_LIMIT // workers,
                    host="127.0.0.1",
                    dashboard_address=None,
                    # Without it, too, there is a server for HTTP, by default on port 8787 of all interfaces.
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                    worker_dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    resources={GPU: 1},  # as many as ask for one; it matters only for --device cuda
                    preload="boolit.lab.execute.worker",
                )
            )
            client = stack.enter_context(Client(local, set_as_default=False))
            stack.pop_all()
        return Cluster(client, f"--workers {workers}", device, local)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and the workers if they are this machine's."""
        with suppress(OSError, TimeoutError):
            self.client.close()
        if self.local is not None:
            self.local.close()

    def workers(self) -> int:
        """How many there are now."""
        return len(memory_limits(self))


def _connect(address: str) -> Client:
    rule = "give the address of a Dask scheduler, such as tcp://host:8786, or the JSON file it wrote"
    if "://" not in address:
        try:
            address = str(json.loads(Path(address).read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"--cluster {address} is no scheduler file ({one_line(error)}); {rule}") from error
    try:
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        cause = " ".join(str(error).split())
        raise UserError(f"--cluster {address} does not answer ({cause}); {rule}") from error


def wait_for_workers(cluster: Cluster, on_wait: Callable[[], object], stop: Callable[[], bool]) -> int:
    """How many there are, once there is one; ``on_wait`` is called while there is none."""
    while not (workers := cluster.workers()) and not stop():
        on_wait()
        time.sleep(SECONDS_BETWEEN_COUNTS)
    return workers


def memory_limits(cluster: Cluster) -> dict[str, int]:
    """The bytes that each worker that may be used can take, by its address; 0 without a limit."""
    try:
        limits: dict[str, int] = cluster.client.run_on_scheduler(_memory_limits, resources=cluster.resources)
    except (OSError, TimeoutError) as error:
        raise _lost(cluster) from error
    except Exception as error:
        rule = "install the same one there"
        raise UserError(f"the scheduler of {cluster.name} has no boolit ({one_line(error)}); {rule}") from error
    return limits


def _lost(cluster: Cluster) -> UserError:
    return UserError(
        f"the scheduler of {cluster.name} has gone; what is finished is in the store, and the same command goes on from there"
    )


def split_for(cluster: Cluster, cohorts: Sequence[Cohort], workers: int) -> list[Cohort]:
    """`split_cohorts` for so many workers, as far as the smallest of them has memory for."""
    limits = [limit for limit in memory_limits(cluster).values() if limit]
    return split_cohorts(cohorts, max(1, workers), int(SHARE_OF_MEMORY * min(limits)) if limits else None)


def train_on(
    cluster: Cluster,
    cohorts: Iterable[Cohort],
    memory: int,
    weights: bool,
    stop: Callable[[], bool],
    on_progress: Callable[[int, float], None],
    on_note: Callable[[str], None],
) -> Generator[tuple[Cohort, TaskResult], None, None]:
    """Every cohort with what became of it, as they are done; those that are not done at a stop are left out.

    ``on_progress`` is told how many workers there are, and to how many runs the cohorts that are being trained amount.
    ``on_note`` gets a line of everything that went wrong.
    """
    yield from _Training(cluster, memory, weights, stop, on_progress, on_note).run(iter(cohorts))


def split_cohorts(cohorts: Sequence[Cohort], workers: int, memory: int | None = None) -> list[Cohort]:
    """Cohorts for so many workers, the longest first, and none longer than a worker's share of all the work.

    Others stay whole if they fit into ``memory``, because a run in a smaller cohort is the same up to rounding only. What is in
    the store already makes no difference, so the same command gives the same cohorts again.
    """
    fitting = cohorts if memory is None else [part for cohort in cohorts for part in plan_cohorts(cohort.runs, memory)]
    total = sum(map(_cost, fitting))
    parts = [divide(cohort.runs, min(len(cohort.runs), -(-_cost(cohort) * workers // total))) for cohort in fitting]
    return sorted((part for each in parts for part in each), key=_cost, reverse=True)


def _cost(cohort: Cohort) -> int:
    """In proportion to the time a cohort takes, beside others of its study."""
    config = cohort.runs[0].config
    samples = describe(source(config.data)).samples["train"]
    return len(cohort.runs) * max(1, config.parameters * samples * int(config.training["epochs"]))


class _Training:
    def __init__(
        self,
        cluster: Cluster,
        memory: int,
        weights: bool,
        stop: Callable[[], bool],
        on_progress: Callable[[int, float], None],
        on_note: Callable[[str], None],
    ) -> None:
        self.cluster, self.client = cluster, cluster.client
        self.stop, self.on_progress, self.on_note = stop, on_progress, on_note
        topic = f"boolit-{uuid4().hex}"
        self.options = TaskOptions(versions(), loaded_plugins(), memory, weights, cluster.device, topic)
        self.events: SimpleQueue[Future[TaskResult] | Mapping[str, Any]] = SimpleQueue()
        self.running: dict[Any, tuple[Cohort, Future[TaskResult]]] = {}
        self.done: dict[str, float] = {}  # the share of a cohort, by its first run
        self.addresses: list[str] = []
        self.counted = -SECONDS_BETWEEN_COUNTS

    def run(self, cohorts: Iterator[Cohort]) -> Iterator[tuple[Cohort, TaskResult]]:
        self.client.subscribe_topic(self.options.topic, lambda event: self.events.put(event[1]))
        try:
            while not self.stop():
                self._submit(cohorts)
                if not self.running:
                    return
                yield from self._next()
        finally:
            self._cancel()

    def _submit(self, cohorts: Iterator[Cohort]) -> None:
        """Gives every worker a cohort; one is with the scheduler even if there is no worker yet."""
        if time.monotonic() - self.counted >= SECONDS_BETWEEN_COUNTS:
            self.addresses = list(memory_limits(self.cluster))
            self.counted = time.monotonic()
            if not self.addresses:
                self.on_progress(0, self._partly())
        while len(self.running) < max(1, len(self._usable())):
            cohort = next(cohorts, None)
            if cohort is None:
                return
            self._start(cohort)

    def _start(self, cohort: Cohort) -> None:
        configs = [_with_absolute_places(run.config.to_dict()) for run in cohort.runs]
        usable = self._usable()
        chosen: dict[str, Any] = {}
        if len(usable) < len(self.addresses):
            # Others may, as workers come and go: one that cannot train it says so again.
            chosen = {"workers": usable, "allow_other_workers": True}
        future = self.client.submit(
            train_cohort,
            configs,
            [run.key for run in cohort.runs],
            self.options,
            key=f"boolit-cohort-{uuid4().hex}",
            pure=False,
            resources=self.cluster.resources or None,
            **chosen,
        )
        self.running[future.key] = cohort, future
        future.add_done_callback(self.events.put)

    def _usable(self) -> list[str]:
        return [address for address in self.addresses if address not in self.cluster.refused]

    def _next(self) -> Iterator[tuple[Cohort, TaskResult]]:
        """Waits a little for news; those of a cohort that is done are returned."""
        try:
            event = self.events.get(timeout=SECONDS_BETWEEN_LOOKS)
        except Empty:
            return
        if isinstance(event, Mapping):
            self.done[event["cohort"]] = event["done"]
        elif event.key in self.running:
            cohort, future = self.running.pop(event.key)
            self.done.pop(cohort.runs[0].key, None)
            result = self._result(future)
            if result.refused:
                self._exclude(cohort, result)
            else:
                if result.failed:
                    self.on_note(f"failed on worker {result.worker}: {cohort}: {result.failed}")
                yield cohort, result
        self.on_progress(len(self.addresses), self._partly())

    def _result(self, future: Future[TaskResult]) -> TaskResult:
        if future.status == "cancelled":
            raise _lost(self.cluster)
        try:
            result: TaskResult = future.result()
        except KilledWorker as error:
            last = error.last_worker.address if error.last_worker else "unknown"
            died = f"its worker died {error.allowed_failures + 1} times, as when it takes more memory than there is"
            return TaskResult(last, failed=died)
        except (OSError, TimeoutError) as error:
            raise _lost(self.cluster) from error
        except Exception as error:  # of Dask, or of Python before boolit had a say: it is not installed there, or is another
            return TaskResult(self._failed_on(future), refused=one_line(error))
        return result

    def _failed_on(self, future: Future[TaskResult]) -> str:
        """The worker where a task failed, as the scheduler knows it."""
        found = self.client.run_on_scheduler(_failed_on, key=future.key)
        return str(found or "unknown")

    def _exclude(self, cohort: Cohort, result: TaskResult) -> None:
        """No more cohorts for a worker that cannot train them; this one goes to another, if there is one."""
        first = result.worker not in self.cluster.refused
        self.cluster.refused[result.worker] = result.refused
        self.addresses = list(memory_limits(self.cluster))
        if not self._usable():
            raise UserError(f"no worker of {self.cluster.name} can train {cohort}: {result.worker}: {result.refused}")
        if first:
            self.on_note(f"refused by worker {result.worker}, which gets no more: {cohort}: {result.refused}")
        self._start(cohort)

    def _partly(self) -> float:
        runs = {cohort.runs[0].key: len(cohort.runs) for cohort, _ in self.running.values()}
        return sum(share * runs.get(key, 0) for key, share in self.done.items())

    def _cancel(self) -> None:
        """Leaves nothing with the scheduler; a training that is under way notices and ends by itself."""
        with suppress(OSError, TimeoutError):
            self.client.unsubscribe_topic(self.options.topic)
            if self.running:
                self.client.cancel([future for _, future in self.running.values()], force=True)
        self.running.clear()


def _memory_limits(dask_scheduler: Any, resources: Mapping[str, float]) -> dict[str, int]:
    return {
        address: int(worker.memory_limit or 0)
        for address, worker in dask_scheduler.workers.items()
        if all(worker.resources.get(name, 0) >= needed for name, needed in resources.items())
    }


def _failed_on(dask_scheduler: Any, key: Any) -> str | None:
    task = dask_scheduler.tasks.get(key)
    return next(iter(task.erred_on), None) if task is not None and task.erred_on else None


def _with_absolute_places(entries: Any) -> Any:
    """The entries of a configuration with the paths of data that has a digest as they are from any folder of this machine."""
    if not isinstance(entries, Mapping):
        return entries
    found = {name: _with_absolute_places(value) for name, value in entries.items()}
    if "digest" in found:
        places = {name: str(Path(found[name]).absolute()) for name in RunConfig.PLACES if isinstance(found.get(name), str)}
        found |= places
    return found
