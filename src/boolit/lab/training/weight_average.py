"""The exponential moving average of weights (EMA), which is evaluated and kept instead of the weights themselves.

Batch norms need statistics of the averaged network: those gathered in training belong to the weights of the moment, and an
average of them belongs to no network at all. So they are estimated anew from training batches, as torch's
``swa_utils.update_bn`` does it, whenever the average is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from boolit.lab.common.devices import has_float64


class WeightAverage:
    """The exponential moving average of a network's weights, as torch's ``AveragedModel``: it begins with the first step.

    Shape: ``values`` and ``averaged`` are ``(runs, parameters)``; ``steps`` counts the updates; ``buffers`` are those of the
    averaged network.
    """

    def __init__(self, values: Tensor, model: nn.Module, decay: float) -> None:
        self.values, self.decay, self.averaged = values, decay, values.clone()
        self.steps = torch.zeros(1, dtype=torch.int64)
        self.buffers = {name: own.clone() for name, own in model.named_buffers()}
        self._pairs = [(values, self.averaged), *((own, self.buffers[name]) for name, own in model.named_buffers())]

    def update(self) -> None:
        """Takes in the weights after a step; not after one that was skipped, or the average would begin with it."""
        self.averaged.lerp_(self.values, 1 - self.decay) if int(self.steps) else self.averaged.copy_(self.values)
        self.steps += 1

    @contextmanager
    def swap(self) -> Iterator[None]:
        """Within it the model has the averaged weights."""
        self._swap_values()
        try:
            yield
        finally:
            self._swap_values()

    def copy_to_model(self) -> None:
        """Leaves the model with the averaged weights."""
        for live, averaged in self._pairs:
            live.copy_(averaged)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold; changed in place."""
        buffers = {f"average.buffer.{name}": values for name, values in self.buffers.items()}
        return {"average": self.averaged, "average.steps": self.steps} | buffers

    def _swap_values(self) -> None:
        for live, averaged in self._pairs:
            before = live.clone()
            live.copy_(averaged)
            averaged.copy_(before)


def estimate_statistics(model: nn.Module, passes: Iterable[object]) -> None:
    """Gives every batch norm the mean of its statistics over some batches, all of one size.

    ``passes`` makes one forward pass in training mode for each item. Whatever computes a batch norm, it moves the running
    statistics by the layer's ``momentum`` towards the batch's: from zero, that share of them is what is found there.
    """
    norms: list[Any] = [layer for layer in model.modules() if isinstance(getattr(layer, "running_mean", None), Tensor)]
    running: list[tuple[Tensor, float]] = [
        (values, layer.momentum) for layer in norms for values in (layer.running_mean, layer.running_var)
    ]
    if not running:
        return
    wide = torch.float64 if has_float64(running[0][0].device) else torch.float32
    sums = [torch.zeros_like(values, dtype=wide) for values, _ in running]
    for values, _ in running:
        values.zero_()
    count = 0
    for _ in passes:
        count += 1
        for (values, momentum), total in zip(running, sums, strict=True):
            total += values.to(wide) / momentum
            values.zero_()
    for (values, _), total in zip(running, sums, strict=True):
        values.copy_(total / count)
