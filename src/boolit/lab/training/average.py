"""The exponential moving average of weights, which is evaluated and kept in place of the weights themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor


class Average:
    """After the first step it is the weights; then each step leaves ``decay`` of it, as torch's ``AveragedModel``.

    Shape: ``values`` and ``kept`` are ``(runs, parameters)``.
    """

    def __init__(self, values: Tensor, decay: float) -> None:
        self.values, self.decay, self.kept = values, decay, values.clone()

    def update(self, step: int) -> None:
        """Takes in the weights after a step, counted from 0."""
        self.kept.copy_(self.values) if step == 0 else self.kept.lerp_(self.values, 1 - self.decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it the average is where the weights are, and the other way round."""
        self._exchange()
        yield
        self._exchange()

    def _exchange(self) -> None:
        before = self.values.clone()
        self.values.copy_(self.kept)
        self.kept.copy_(before)
