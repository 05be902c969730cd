"""The device that the lab trains on.

Results depend on it only through rounding, so it is not part of a run's key. Random numbers come from CPU generators or from
integer arithmetic, which is the same on every device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from boolit._devices import choose_device
from boolit.errors import user_input

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


def has_float64(device: torch.device) -> bool:
    """Return whether a device supports double precision; Apple's does not."""
    return device.type != "mps"


def preparation_device(device: torch.device) -> torch.device:
    """Return the device that stores, draws and encodes samples for ``device``: itself, or the CPU if float64 is missing."""
    return device if has_float64(device) else torch.device("cpu")


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
