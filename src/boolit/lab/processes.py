"""Portions of work, done by processes of their own, a few ahead at most."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from boolit.lab.errors import UserError

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
