"""Early stopping: every run's best epoch so far, and its weights then."""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1


class Best:
    """Keeps of every row of some tensors what it was after its run's best epoch.

    The best epoch is that of the lowest ``loss``; of a figure that ought to rise, its negative stands for the loss.

    Shape: each tensor is ``(runs, …)``; ``epoch``, ``loss`` and ``trained`` are ``(runs,)``. ``trained`` says how many epochs
    a run was trained for.
    """

    def __init__(self, live: dict[str, Tensor], runs: int, epochs: int, patience: int) -> None:
        self.patience, self._live, self._epochs = patience, live, epochs
        self.kept = {name: values.clone() for name, values in live.items()}
        self.loss = torch.full((runs,), torch.inf, dtype=torch.float64)
        self.epoch = torch.full((runs,), NEVER, dtype=torch.int64)
        self.trained = torch.full((runs,), epochs, dtype=torch.int64)

    @property
    def going(self) -> Tensor:
        """Which runs have not been stopped.

        Shape: ``(runs,)``.
        """
        return self.trained == self._epochs

    def after(self, epoch: int, loss: Tensor) -> None:
        """Takes note of an epoch's validation loss; a loss that is not a number improves nothing."""
        better = self.going & (loss < self.loss)
        self.loss[better], self.epoch[better] = loss[better], epoch
        for name, values in self._live.items():
            self.kept[name][better] = values[better]
        self.trained[self.going & (epoch - self.epoch >= self.patience)] = epoch + 1

    def put_back(self) -> None:
        """Gives every run that had a best epoch the weights of it."""
        had = self.epoch != NEVER
        for name, values in self._live.items():
            values[had] = self.kept[name][had]

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold; changed in place."""
        return {"best.loss": self.loss, "best.epoch": self.epoch, "best.trained": self.trained} | {
            f"best.{name}": values for name, values in self.kept.items()
        }
