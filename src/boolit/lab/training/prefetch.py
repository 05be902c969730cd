"""Making the next batch while the present one is trained on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Makes things by number, one ahead in a thread of its own; what is made depends on the number only.

    The thread ends with the last thing before the ``end``.

    Example:
        >>> squares = Prefetch(lambda number: number**2, end=4)
        >>> [squares.take(number) for number in (2, 3)]
        [4, 9]
    """

    def __init__(self, make: Callable[[int], T], end: int) -> None:
        self._make, self._end = make, end
        self._ahead: tuple[int, Future[T]] | None = None
        threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(1, "prefetch", _use_one_thread)
        self._pool.submit(int).result()
        torch.set_num_threads(threads)  # torch gives the number set last, in any thread, to threads that are yet to start

    def take(self, number: int) -> T:
        """The thing of a number; that of the next, if it is before the end, is begun."""
        number_ahead, future = self._ahead or (None, None)
        self._ahead = None
        made = future.result() if future is not None and number_ahead == number else self._make(number)
        if number + 1 < self._end:
            self._ahead = number + 1, self._pool.submit(self._make, number + 1)
        else:
            self._pool.shutdown(wait=False)
        return made


def _use_one_thread() -> None:
    torch.get_num_threads()  # a new thread takes over the common number at its first question, and not again
    torch.set_num_threads(1)
