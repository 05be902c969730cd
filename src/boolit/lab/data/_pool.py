"""Pictures are decoded by worker processes, few at a time: memory does not grow with their number."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from typing import TypeAlias

from boolit.lab.data._decoding import Pixels, decoded_picture
from boolit.lab.errors import UserError

Encoded: TypeAlias = tuple[int, str, bytes]  # row, name and content of a picture
Decoded: TypeAlias = tuple[int, Pixels]
TOGETHER = 16  # pictures a worker gets at once
WAITING = 3  # such portions a worker, of which one is being decoded
WORTH_A_PROCESS = 400  # pictures: starting a process, which imports torch, takes about as long as decoding them


def decode_all(pictures: Iterable[Encoded], count: int, side: int) -> Iterator[Decoded]:
    """Decodes about ``count`` pictures, in the order they come."""
    workers = min(_processors(), count // WORTH_A_PROCESS)
    portions = _portions(pictures)
    if workers < 2:
        return (decoded for portion in portions for decoded in decode_portion(portion, side))
    return _by_workers(portions, workers, side)


def decode_portion(portion: list[Encoded], side: int) -> list[Decoded]:
    """Decodes some pictures in this process."""
    return [(row, decoded_picture(content, name, side)) for row, name, content in portion]


def _by_workers(portions: Iterator[list[Encoded]], workers: int, side: int) -> Iterator[Decoded]:
    # Started anew rather than forked: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    under_way: deque[Future[list[Decoded]]] = deque()
    try:
        for portion in portions:
            under_way.append(pool.submit(decode_portion, portion, side))
            if len(under_way) == WAITING * workers:
                yield from under_way.popleft().result()
        while under_way:
            yield from under_way.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            "a process that decodes pictures ended by itself: a script of your own must start its work under "
            "`if __name__ == '__main__':`; else look whether memory ran out"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _portions(pictures: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    remaining = iter(pictures)
    return iter(lambda: list(islice(remaining, TOGETHER)), [])


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
