"""Ordered maps over threads and processes, and a check that memory suffices."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

import torch

from boolit.errors import UserError
from boolit.lab.common.devices import thread_pool

P = TypeVar("P")
R = TypeVar("R")
GIB = 2**30


def map_in_processes(work: Callable[[P], R], items: Iterable[P], processes: int) -> Iterator[R]:
    """Yield ``work(item)`` in order, computed by worker processes if there are at least two."""
    if processes < 2:
        yield from map(work, items)
        return
    # Spawned, not forked: torch's threads do not survive a fork. Ctrl-C is left to this process.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        yield from _map_in_order(pool, work, items, 3 * processes)
    except BrokenProcessPool:
        raise UserError(
            "a worker process ended unexpectedly; a script must start its work under `if __name__ == '__main__':`, or the "
            "machine ran out of memory"
        ) from None


def map_in_threads(work: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
    """Yield ``work(item)`` in order, with as many threads as torch uses and one torch thread in each."""
    workers = torch.get_num_threads()
    yield from _map_in_order(thread_pool(workers), work, items, workers + 1)


def _map_in_order(pool: Executor, work: Callable[[P], R], items: Iterable[P], ahead: int) -> Iterator[R]:
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) == ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_bytes() -> int:
    """Return this machine's memory in bytes, or the largest integer where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def require_memory(needed: int, what: str, fix: str) -> None:
    """Raise `UserError` if ``needed`` bytes exceed this machine's memory."""
    available = machine_bytes()
    if needed > available:
        sizes = f"needs about {needed // GIB:,} GiB of memory, this machine has {available / GIB:,.1f}"
        raise UserError(f"{what} {sizes}; {fix}")
