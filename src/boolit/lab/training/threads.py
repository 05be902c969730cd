"""Threads: how many a training is worth, and one that makes the next batch meanwhile.

OpenMP's threads wait for each other by spinning. On an idle machine two of them nearly halve a step; where another process
has one of the cores, each operation waits for a thread that is not running, and the same step takes up to thirty times as
long as with one thread. Products of several runs are divided among threads by runs, so the number of threads changes a cohort's
numbers by rounding at most, and may change while it is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Generic, TypeVar

import torch

from boolit.lab.common.devices import present_device
from boolit.lab.common.parallel import thread_pool
from boolit.lab.training.job import Job

NUMEL_PER_THREAD = 2**17  # an operation on so many takes some 20 µs, well above the cost of waking a thread
TRIED_STEPS = 5
WARM_UP_STEPS = 3  # before the first trial: they allocate memory and start threads, which later ones do not
SECONDS_BETWEEN_TRIALS = 10.0


class Threads(AbstractContextManager["Threads"]):
    """Makes steps with one thread or with many: tries both now and then, and settles on the faster.

    Fewer runs than threads always get all threads: a single large product is then split among them, which changes the order
    of its sums, and a run's numbers must not depend on how busy the machine is. On another device nothing is tried.
    """

    def __init__(self, job: Job) -> None:
        self._before = torch.get_num_threads()
        here = present_device().type == "cpu"
        worth = -(-job.runs * job.batch * job.widest // NUMEL_PER_THREAD)
        most = max(1, min(self._before, worth)) if here else self._before
        self._choices = [most, 1] if here and 1 < most <= job.runs else [most]
        self._present = most
        self._durations: dict[int, list[float]] = {}
        self._next_trial = 0.0
        self._warm_up = WARM_UP_STEPS

    def __enter__(self) -> Threads:
        torch.set_num_threads(self._present)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        torch.set_num_threads(self._before)

    def run(self, step: Callable[[], None]) -> None:
        """One step, with as many threads as seem best."""
        if len(self._choices) == 1 or time.monotonic() < self._next_trial or self._warm_up:
            self._warm_up = max(0, self._warm_up - 1)
            step()
            return
        # In turn, so that both see the same machine.
        untried = min(self._choices, key=lambda n: len(self._durations.get(n, [])))
        torch.set_num_threads(untried)
        started = time.perf_counter()
        step()
        self._durations.setdefault(untried, []).append(time.perf_counter() - started)
        if all(len(self._durations.get(n, [])) == TRIED_STEPS for n in self._choices):
            self._choose()

    def _choose(self) -> None:
        # By the sum, not the best: the steps that wait for a busy core are what many threads cost.
        self._present = min(self._choices, key=lambda n: sum(self._durations[n]))
        torch.set_num_threads(self._present)
        self._durations.clear()
        self._next_trial = time.monotonic() + SECONDS_BETWEEN_TRIALS


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
        self._pool = thread_pool(1, name="prefetch")

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
