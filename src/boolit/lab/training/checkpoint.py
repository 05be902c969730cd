"""Checkpoints of a training in a safetensors file.

Random state needs no saving: every random number is a function of seed, purpose and step (`boolit.lab.common.random`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write

EVERY_SECONDS = 30.0
COSTS_BETWEEN = 20.0


class Checkpoint:
    """The checkpoint file of one cohort, replaced atomically.

    Args:
        folder: folder of the file. It must belong to the cohort alone.
        every_seconds: time between two checkpoints; at least 20 times what the last one took.
    """

    def __init__(self, folder: Path, every_seconds: float = EVERY_SECONDS) -> None:
        self.path, self.every_seconds = folder / "training.safetensors", every_seconds
        self._last, self._cost = time.monotonic(), 0.0

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last >= max(self.every_seconds, COSTS_BETWEEN * self._cost)

    def save(self, state: Mapping[str, Tensor]) -> None:
        """Write a training's state."""
        started = time.monotonic()
        # Copies, because safetensors refuses views of the same memory.
        tensors = {name: values.detach().cpu().clone().contiguous() for name, values in state.items()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path) as unfinished:
                save_file(tensors, unfinished)
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"cannot write the checkpoint {self.path} ({reason}); free some space and run again") from error
        self._last = time.monotonic()
        self._cost = self._last - started

    def load(self) -> dict[str, Tensor] | None:
        """Return the saved state, or None if there is none. Raises SafetensorError if the file is damaged."""
        return load_file(self.path) if self.path.exists() else None

    def delete(self) -> None:
        """Delete the file, and its folder if it is empty."""
        for path in (self.path, *self.path.parent.glob(".training.safetensors*.part")):
            path.unlink(missing_ok=True)
        if self.path.parent.exists() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()
