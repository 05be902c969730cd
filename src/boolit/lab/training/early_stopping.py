"""Early stopping of many runs at once."""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1


class EarlyStopping:
    """Tracks every run's best epoch and stops runs that have not improved for ``patience`` epochs.

    Attributes:
        epoch: best epoch of every run, or `NEVER`.
        value: the value to be minimized, at the best epoch.
        trained: number of epochs of every run that has stopped; ``epochs`` for the others.
    """

    def __init__(self, runs: int, epochs: int, patience: int) -> None:
        self.patience, self._epochs = patience, epochs
        self.value = torch.full((runs,), torch.inf, dtype=torch.float64)
        self.epoch = torch.full((runs,), NEVER, dtype=torch.int64)
        self.trained = torch.full((runs,), epochs, dtype=torch.int64)

    @property
    def running(self) -> Tensor:
        """Runs that have not stopped, as a mask."""
        return self.trained == self._epochs

    def update(self, epoch: int, values: Tensor) -> Tensor:
        """Record an epoch's values, lower being better, and return a mask of the runs that improved. NaN never improves."""
        better = self.running & (values < self.value)
        self.value[better], self.epoch[better] = values[better], epoch
        self.trained[self.running & (epoch - self.epoch >= self.patience)] = epoch + 1
        return better

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, which are changed in place."""
        return {"best.value": self.value, "best.epoch": self.epoch, "best.trained": self.trained}
