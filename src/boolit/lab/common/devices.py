"""The device and the threads that the lab works with.

Results depend on them only through rounding, so they are not part of a run's key. Random numbers come from CPU
generators or from integer arithmetic, which is the same on every device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor

from boolit._devices import choose_device
from boolit.errors import user_input

P = TypeVar("P")
R = TypeVar("R")
RESIDENT_BYTES = 2**30  # data up to this size are copied to the device once; larger data batch by batch
_present: ContextVar[torch.device | None] = ContextVar("device", default=None)


@contextmanager
def use_device(name: str | torch.device | None) -> Iterator[torch.device]:
    """Train and encode on this device within the block; None keeps the present one."""
    with user_input():
        device = present_device() if name is None else choose_device(name)
    before = _present.set(device)
    try:
        yield device
    finally:
        _present.reset(before)


def present_device() -> torch.device:
    """Return the device of the innermost `use_device`, by default the one that ``auto`` chooses."""
    return _present.get() or choose_device()


def preparation_device(device: torch.device) -> torch.device:
    """Return the device that prepares samples for ``device``: itself, or the CPU instead of Apple's, which has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def is_resident(tensors: Iterable[Tensor]) -> bool:
    """Return whether tensors are together small enough to stay on a device."""
    return sum(values.numel() * values.element_size() for values in tensors) <= RESIDENT_BYTES


class DeviceCopies:
    """Copies of a tensor, one per device, each made on first use."""

    def __init__(self, values: Tensor) -> None:
        self._copies = {values.device: values}
        self._first = values

    def on(self, device: torch.device) -> Tensor:
        """Return the values on a device."""
        if device not in self._copies:
            self._copies[device] = self._first.to(device)
        return self._copies[device]

    def take(self, rows: Tensor) -> Tensor:
        """Return rows by number, on the device of the numbers; a large table stays where it is.

        Shape: ``(n,)`` to ``(n, …)``.
        """
        table = self.on(rows.device) if is_resident([self._first]) else self._first
        return table.index_select(0, rows.to(table.device)).to(rows.device)


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Set the number of torch threads within the block; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def thread_pool(workers: int, threads: int = 1) -> ThreadPoolExecutor:
    """Return a pool whose workers use ``threads`` torch threads each; the calling thread keeps its number."""
    before, all_started = torch.get_num_threads(), Barrier(workers)

    def start() -> None:
        torch.get_num_threads()  # a new thread takes over the global number at its first query, and not again
        torch.set_num_threads(threads)
        all_started.wait()

    pool = ThreadPoolExecutor(workers, initializer=start)
    for started in [pool.submit(int) for _ in range(workers)]:
        started.result()
    torch.set_num_threads(before)  # threads that start later inherit the number that was set last
    return pool


def map_in_threads(work: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
    """Yield ``work(item)`` in order, with as many threads as torch uses and one torch thread in each."""
    workers = torch.get_num_threads()
    pool, pending = thread_pool(workers), deque[Future[R]]()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
