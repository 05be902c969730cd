"""Work in other processes and threads, in order; and whether memory suffices.

Threads that share an operation wait for each other by spinning, which a busy machine punishes (`boolit.lab.training.threads`);
threads with a piece each never wait, and what they compute does not depend on how many there are.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from threading import Barrier
from typing import TypeVar

import torch

from boolit.errors import UserError

P = TypeVar("P")
R = TypeVar("R")
WAITING = 3  # items per process, of which one is being worked on


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """That many threads for torch, and so for our kernels, which share them; as many as before if None."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_in_processes(work: Callable[[P], R], items: Iterable[P], processes: int, does: str) -> Iterator[R]:
    """What the work makes of every item, in their order; with fewer than two processes in this one.

    ``does`` says what a process does, for an error.
    """
    if processes < 2:
        yield from map(work, items)
        return
    # Started anew instead of forked: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        yield from _map_in_order(pool, work, items, WAITING * processes)
    except BrokenProcessPool:
        raise UserError(
            f"a process that {does} ended by itself: a script of your own must start its work under "
            "`if __name__ == '__main__':`; else look whether memory ran out"
        ) from None


def map_in_threads(work: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
    """What the work makes of every item, in their order, with one of torch's threads per item; few items wait at a time.

    Example:
        >>> list(map_in_threads(lambda n: n * n, range(4)))
        [0, 1, 4, 9]
    """
    workers = torch.get_num_threads()
    yield from _map_in_order(thread_pool(workers), work, items, workers + 1)


def _map_in_order(pool: Executor, work: Callable[[P], R], items: Iterable[P], ahead: int) -> Iterator[R]:
    under_way: deque[Future[R]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(work, item))
            if len(under_way) == ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def thread_pool(workers: int, threads: int = 1, name: str = "") -> ThreadPoolExecutor:
    """A pool each of whose workers has so many of torch's threads; this thread keeps its own number."""
    before, all_started = torch.get_num_threads(), Barrier(workers)

    def start() -> None:
        torch.get_num_threads()  # a new thread takes over the common number at its first question, and not again
        torch.set_num_threads(threads)
        all_started.wait()

    pool = ThreadPoolExecutor(workers, name, start)
    for started in [pool.submit(int) for _ in range(workers)]:
        started.result()
    torch.set_num_threads(before)  # torch gives the number set last, in any thread, to threads that are yet to start
    return pool


def processors() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


GIB = 2**30


def machine_bytes() -> int:
    """This machine's memory; without a limit where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # no such function, or no such name, on this system
        return sys.maxsize


def require_memory(needed: int, what: str, fix: str) -> None:
    """Refuses what cannot fit.

    Example:
        >>> require_memory(2**80, "the data", "lower data.train")
        Traceback (most recent call last):
        boolit.errors.UserError: the data needs about 1,125,899,906,842,624 GiB of memory, this machine has ...
    """
    available = machine_bytes()
    if needed > available:
        sizes = f"needs about {needed // GIB:,} GiB of memory, this machine has {available / GIB:,.1f}"
        raise UserError(f"{what} {sizes}; {fix}")
