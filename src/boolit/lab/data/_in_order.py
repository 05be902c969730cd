"""Independent pieces of work, as many at a time as torch has threads, each on one.

Threads that share an operation wait for each other by spinning, which a busy machine punishes (`boolit.lab.training.threads`);
threads with a piece each never wait, and what they compute does not depend on how many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


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
