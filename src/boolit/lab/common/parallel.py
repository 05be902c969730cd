"""Work in other processes and threads, in order; one process at a time; and whether memory suffices.

Threads that share an operation wait for each other by spinning, which a busy machine punishes (`boolit.lab.training.devices`);
threads with a piece each never wait, and what they compute does not depend on how many there are.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch

from boolit.lab.common.errors import UserError

# Portions of work, done by processes of their own, a few ahead at most.

P = TypeVar("P")
R = TypeVar("R")
WAITING = 3  # portions a process, of which one is being worked on


def in_processes(work: Callable[[P], R], portions: Iterable[P], processes: int, does: str) -> Iterator[R]:
    """What the work makes of every portion, in their order; with fewer than two processes in this one.

    ``does`` says what a process does, for an error.
    """
    if processes < 2:
        yield from map(work, portions)
        return
    # Started anew rather than forked: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    under_way: deque[Future[R]] = deque()
    try:
        for portion in portions:
            under_way.append(pool.submit(work, portion))
            if len(under_way) == WAITING * processes:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            f"a process that {does} ended by itself: a script of your own must start its work under "
            "`if __name__ == '__main__':`; else look whether memory ran out"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def processors() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# Independent pieces of work, as many at a time as torch has threads, each on one.

T = TypeVar("T")


def in_order(work: Callable[[T], R], pieces: Iterable[T]) -> Iterator[R]:
    """What the work makes of every piece, in their order; no more than one piece a thread waits to be taken.

    Example:
        >>> list(in_order(lambda n: n * n, range(4)))
        [0, 1, 4, 9]
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=_use_one_thread)
    under_way: deque[Future[R]] = deque()
    try:
        for piece in pieces:
            under_way.append(pool.submit(work, piece))
            if len(under_way) > threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # torch gives the number set last, in any thread, to threads that are yet to start


def _use_one_thread() -> None:
    torch.get_num_threads()  # a new thread takes over the common number at its first question, and not again
    torch.set_num_threads(1)


# One process at a time: a lock that dies with its process, on every system and without a further package.

WAIT = 5.0  # seconds between two questions, so that an interrupt is noticed


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Waits until no other process is within; the file holds nothing."""
    with closing(sqlite3.connect(file, timeout=WAIT, isolation_level=None)) as lock:
        while True:
            try:
                lock.execute("BEGIN EXCLUSIVE")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):  # its code is known from Python 3.11 on only
                    raise
        try:
            yield
        finally:
            lock.execute("ROLLBACK")


# Whether something fits into this machine, asked before it is allocated.

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
        boolit.lab.common.errors.UserError: the data needs about 1,125,899,906,842,624 GiB of memory, this machine has ...
    """
    available = machine_bytes()
    if needed > available:
        sizes = f"needs about {needed // GIB:,} GiB of memory, this machine has {available / GIB:,.1f}"
        raise UserError(f"{what} {sizes}; {fix}")
