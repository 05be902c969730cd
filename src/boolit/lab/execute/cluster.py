"""A Dask cluster, of this machine or of many: how it is reached, what workers it has, and how cohorts are divided for them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from distributed import Client, LocalCluster, Status
from distributed.system import MEMORY_LIMIT

from boolit.errors import UserError, one_line
from boolit.lab.datasets import describe, source
from boolit.lab.studies import Cohort
from boolit.lab.studies.planner import cohorts as plan_cohorts
from boolit.lab.studies.planner import divide

GPU = "GPU"  # what Dask's documentation calls this resource of workers
CONNECT_SECONDS = 10.0
SECONDS_BETWEEN_LOOKS = 1.0  # at the workers
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
            handler.setLevel(logging.CRITICAL)  # what matters of a lost worker is said by `boolit.lab.execute.dispatch`
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
        return len(look(self)[0])


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
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return workers


@dataclass(frozen=True)
class WorkerStatus:
    """A worker as the scheduler knows it: its memory's limit in bytes (0 without one), its tasks, and whether it takes more."""

    memory: int
    tasks: int
    running: bool


def look(cluster: Cluster, tasks: Iterable[str] = ()) -> tuple[dict[str, WorkerStatus], set[str]]:
    """The workers that may be used, by their addresses; and those of the tasks, given by their keys, whose worker died."""
    try:
        workers, died = cluster.client.run_on_scheduler(_look, resources=cluster.resources, tasks=list(tasks))
    except (OSError, TimeoutError) as error:
        raise lost_scheduler(cluster) from error
    except Exception as error:
        rule = "install the same one there"
        raise UserError(f"the scheduler of {cluster.name} has no boolit ({one_line(error)}); {rule}") from error
    return workers, died


def _look(
    dask_scheduler: Any, resources: Mapping[str, float], tasks: Sequence[str]
) -> tuple[dict[str, WorkerStatus], set[str]]:
    workers = {
        address: WorkerStatus(int(worker.memory_limit or 0), len(worker.processing), worker.status == Status.running)
        for address, worker in dask_scheduler.workers.items()
        if all(worker.resources.get(name, 0) >= needed for name, needed in resources.items())
    }
    return workers, {key for key in tasks if key in dask_scheduler.tasks and dask_scheduler.tasks[key].suspicious}


def lost_scheduler(cluster: Cluster) -> UserError:
    """What the user has to know when the scheduler does not answer any more."""
    return UserError(
        f"the scheduler of {cluster.name} has gone; what is finished is in the store, and the same command goes on from there"
    )


def split_for(cluster: Cluster, cohorts: Sequence[Cohort], workers: int) -> list[Cohort]:
    """`split_cohorts` for so many workers, as far as the smallest of them has memory for."""
    limits = [worker.memory for worker in look(cluster)[0].values() if worker.memory]
    return split_cohorts(cohorts, max(1, workers), int(SHARE_OF_MEMORY * min(limits)) if limits else None)


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
