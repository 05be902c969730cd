"""Checkpoints of a running cohort: everything a training goes on from, in one safetensors file (no pickle).

Randomness needs no saving, as every random number is a function of seed, purpose and step (see `boolit.lab.randomness`).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from boolit.lab.errors import UserError
from boolit.lab.training.stacked import Position, StackedTraining

FORMAT = "1"
EVERY_SECONDS = 30.0
COSTS_BETWEEN = 20.0


class Checkpoint:
    """The checkpoint of one cohort in its folder, renewed after so many seconds, and after so many steps if they are given.

    Writing a large one often would take longer than training: at least twenty times what the last one took lies in between.

    The file is replaced as a whole: a kill at any moment leaves the old one or the new one.
    """

    def __init__(self, folder: Path, every: float = EVERY_SECONDS, steps: int | None = None) -> None:
        self.path, self.every, self.steps = folder / "training.safetensors", every, steps
        self._last, self._cost = time.monotonic(), 0.0

    @property
    def due(self) -> bool:
        """Whether the last one is old enough."""
        return time.monotonic() - self._last >= max(self.every, COSTS_BETWEEN * self._cost)

    def due_after(self, steps: int) -> bool:
        """Whether one is to be written after so many steps of the training."""
        return self.due or (self.steps is not None and steps % self.steps == 0)

    def exists(self) -> bool:
        """Whether there is one to go on from."""
        return self.path.exists()

    def save(self, training: StackedTraining, seconds: float) -> None:
        """Writes where the training is; ``seconds`` is how long it took to get there."""
        started = time.monotonic()
        where = {"epoch": training.at.epoch, "step": training.at.step, "seconds": seconds}
        content = save(_tensors(training), {"format": FORMAT, "where": json.dumps(where)})
        unfinished = self.path.with_suffix(f".{os.getpid()}.part")
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path)
        self._last = time.monotonic()
        self._cost = self._last - started

    def restore(self, training: StackedTraining) -> float:
        """Brings a fresh training to where the saved one was, and says how many seconds that had taken."""
        try:
            with safe_open(self.path, "pt") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (safe_open is no mapping)
            where = json.loads(metadata["where"])
            _load(training, tensors)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"the checkpoint {self.path} is damaged ({error}); delete it to train its runs anew") from error
        training.at = Position(where["epoch"], where["step"])
        if not training.done:
            training.begin_epoch()
        return float(where["seconds"])

    def delete(self) -> None:
        """Removes it, and its folder if nothing else is there."""
        self.path.unlink(missing_ok=True)
        for left in self.path.parent.glob("*.part"):
            left.unlink(missing_ok=True)
        if self.path.parent.exists() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()


def _tensors(training: StackedTraining) -> dict[str, Tensor]:
    history = {f"history.{name}": torch.stack(values) for name, values in training.history.items()}
    steps = {"steps": torch.stack(training.step_losses)} if training.step_losses else {}
    return {name: values.contiguous() for name, values in live(training).items()} | history | steps


def live(training: StackedTraining) -> dict[str, Tensor]:
    """The tensors a step changes in place."""
    return {
        "values": training.flat.values,
        "loss_sum": training.loss_sum,
        "score_sum": training.score_sum,
        "lived": training.lived,
        "hyper.learning_rate": training.hyper["learning_rate"],
        **{f"optimiser.{name}": values for name, values in training.optimiser.state.items()},
        **{f"buffer.{name}": values for name, values in training.model.named_buffers()},
        **(training.best.state() if training.best else {}),
        **training.state(),
    }


def _load(training: StackedTraining, tensors: dict[str, Tensor]) -> None:
    for name, values in live(training).items():
        if tensors[name].shape != values.shape:
            raise ValueError(f"{name} has the shape {tuple(tensors[name].shape)} instead of {tuple(values.shape)}")
        values.copy_(tensors[name])
    curves = {name.removeprefix("history."): values for name, values in tensors.items() if name.startswith("history.")}
    training.history = {name: list(values) for name, values in curves.items()}
    training.step_losses = list(tensors.get("steps", []))
