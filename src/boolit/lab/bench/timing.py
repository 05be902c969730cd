"""Times that may be compared, and what a call keeps in memory for its backward.

Every candidate is called in every round, so that all of them meet the same machine. A GPU works while Python goes on: what it
does is timed by events on the GPU, what a call costs by a clock that waits for it.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from boolit.lab.bench.settings import Function

WARM_UP = 3  # rounds before the first that counts

K = TypeVar("K")


def _nothing() -> None:
    """The reset of a call that leaves nothing behind."""


@dataclass(frozen=True)
class TimedCall(Generic[K]):
    """One candidate's work.

    ``reset`` runs before the clock starts. A slow task takes part in every ``stride``-th round only.
    """

    key: K
    call: Callable[[], object]
    reset: Callable[[], object] = _nothing
    stride: int = 1


@dataclass(frozen=True)
class Timing:
    """Seconds a call took, by round.

    Example:
        >>> slow, fast = Timing({0: 4.0, 1: 9.0}), Timing({0: 2.0, 1: 3.0})
        >>> slow.ratio(fast), slow.paired_ratio(fast)
        (2.0, 2.5)
    """

    rounds: Mapping[int, float] = field(default_factory=dict)

    @property
    def minimum(self) -> float:
        """What the call costs when nothing is in its way."""
        return min(self.rounds.values())

    @property
    def median(self) -> float:
        """What it costs as a rule."""
        return statistics.median(self.rounds.values())

    def ratio(self, other: Timing) -> float:
        """The ratio of the two minima, over the rounds both took part in: the least of few is more than that of many."""
        common = self.rounds.keys() & other.rounds.keys()
        return min(self.rounds[number] for number in common) / min(other.rounds[number] for number in common)

    def paired_ratio(self, other: Timing) -> float:
        """The median of the ratios within a round, over the rounds both took part in."""
        common = self.rounds.keys() & other.rounds.keys()
        return statistics.median(self.rounds[number] / other.rounds[number] for number in common)


class Stopwatch(Protocol):
    """What measures a sample."""

    def start(self) -> None:
        """Just before the first call."""

    def stop(self) -> float:
        """Just after the last call: the seconds since `start`."""


class WallClock:
    """The time a person waits; ``wait`` is for what the calls have left to a device."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter, wait: Callable[[], object] = _nothing) -> None:
        self._clock, self._wait = clock, wait

    def start(self) -> None:
        """Begins when nothing is under way."""
        self._wait()
        self._begin = self._clock()

    def stop(self) -> float:
        """Ends when everything is done."""
        self._wait()
        return self._clock() - self._begin


class GpuEvents:
    """The time a GPU works, between two events on it.

    Before the first it is given numbers to clear: more than its cache holds, so that no candidate finds its input there, and so
    many that Python is done with a call before the GPU comes to it.
    """

    CLEARED = 2**28  # bytes

    def __init__(self, gpu: Any, device: torch.device) -> None:
        self._gpu = gpu
        self._cleared = torch.empty(self.CLEARED, dtype=torch.uint8, device=device)
        self._begin, self._end = (gpu.Event(enable_timing=True) for _ in range(2))

    def start(self) -> None:
        """Clears, then notes when that is done."""
        self._gpu.synchronize()
        self._cleared.zero_()
        self._begin.record()

    def stop(self) -> float:
        """Notes when the calls are done, and waits for it."""
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1e3


def interleave(
    tasks: Sequence[TimedCall[K]],
    rounds: int,
    calls: int = 1,
    watch: Stopwatch | None = None,
    after_round: Callable[[], object] = _nothing,
) -> dict[K, Timing]:
    """Times every task, one sample a round: the mean of ``calls`` calls in a row.

    The order within a round is drawn anew each time, so that no task always finds the caches its neighbour left. The
    garbage collector is off meanwhile.
    """
    watch = watch or WallClock()
    order = random.Random(0)
    seconds: dict[K, dict[int, float]] = {task.key: {} for task in tasks}
    with _without_collector():
        for number in range(-WARM_UP, rounds):
            for task in _due(tasks, number, rounds, order):
                sample = _sample(task, calls, watch)
                if number >= 0:
                    seconds[task.key][number] = sample
            after_round()
    return {key: Timing(samples) for key, samples in seconds.items()}


def _due(tasks: Sequence[TimedCall[K]], number: int, rounds: int, order: random.Random) -> list[TimedCall[K]]:
    """The round's tasks in the round's order; slow ones are spread over the rounds, and each has one at least."""
    due = [task for index, task in enumerate(tasks) if (number - index) % min(task.stride, rounds) == 0]
    order.shuffle(due)
    return due


def _sample(task: TimedCall[K], calls: int, watch: Stopwatch) -> float:
    task.reset()
    call = task.call
    watch.start()
    for _ in range(calls):
        call()
    return watch.stop() / calls


@contextmanager
def _without_collector() -> Iterator[None]:
    """A collection in the middle of a sample would be counted as the candidate's own time."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def bytes_kept(function: Function, x: Tensor) -> int:
    """The bytes autograd saves in one call; memory saved twice, or by several views, counts once.

    Example:
        >>> bytes_kept(torch.sin, torch.zeros(10, requires_grad=True))  # its input
        40
    """
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # of a view too: the whole of it stays
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        result = function(x)
    del result  # only now: while the graph lives, no two saved tensors can have the same address
    return sum(kept.values())
