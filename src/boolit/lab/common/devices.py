"""The device that the lab trains on, chosen once for all that is done within; and which data stay there.

Results do not depend on it but for rounding, so it is no part of a run's key. Random numbers come from the run's seed alone:
generators are the CPU's, and what is drawn in every step is integer arithmetic, which is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from boolit._devices import choose_device
from boolit.lab.common.errors import user_input

RESIDENT_BYTES = 2**30  # data up to this size are copied to the device once; of larger ones, every batch is
_present: ContextVar[torch.device | None] = ContextVar("device", default=None)


@contextmanager
def use_device(name: str | torch.device | None) -> Iterator[torch.device]:
    """Within it, training and encoding happen on this device; with None, on the same as outside.

    Example:
        >>> with use_device("cpu") as device:
        ...     device == present_device()
        True
    """
    with user_input():
        device = present_device() if name is None else choose_device(name)
    before = _present.set(device)
    try:
        yield device
    finally:
        _present.reset(before)


def present_device() -> torch.device:
    """The device of the innermost `use_device`; outside of all, the one that ``auto`` stands for."""
    return _present.get() or choose_device()


def has_float64(device: torch.device) -> bool:
    """Whether a device computes in double precision; Apple's does not."""
    return device.type != "mps"


def preparation_device(device: torch.device) -> torch.device:
    """Where samples are kept, drawn, augmented and encoded for a device: there, or on the CPU if that needs float64."""
    return device if has_float64(device) else torch.device("cpu")


def is_resident(tensors: Iterable[Tensor]) -> bool:
    """Whether some tensors are small enough, together, to stay on a device.

    Example:
        >>> is_resident([torch.zeros(8)]), is_resident([torch.zeros(1).expand(2**40)])
        (True, False)
    """
    return sum(values.numel() * values.element_size() for values in tensors) <= RESIDENT_BYTES


class DeviceCopies:
    """A tensor's copies, one per device, each made when it is first wanted there.

    Example:
        >>> small = DeviceCopies(torch.arange(3))
        >>> small.on(torch.device("cpu")), small.take(torch.tensor([2, 0]))
        (tensor([0, 1, 2]), tensor([2, 0]))
    """

    def __init__(self, values: Tensor) -> None:
        self._copies = {values.device: values}
        self._first = values

    def on(self, device: torch.device) -> Tensor:
        """The values on a device."""
        if device not in self._copies:
            self._copies[device] = self._first.to(device)
        return self._copies[device]

    def take(self, rows: Tensor) -> Tensor:
        """Rows by their numbers, on the numbers' device; a table that is too large to stay there is read where it is.

        Shape: ``(n,)`` to ``(n, …)``.
        """
        table = self.on(rows.device) if is_resident([self._first]) else self._first
        return table.index_select(0, rows.to(table.device)).to(rows.device)
