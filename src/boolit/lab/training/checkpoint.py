"""Checkpoints of a running cohort: everything a training resumes from, in one safetensors file (no pickle).

Randomness needs no saving, as every random number is a function of seed, purpose and step (see `boolit.lab.common.random`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write
from boolit.lab.training.stacked import Position, StackedTraining

FORMAT = "2"
EVERY_SECONDS = 30.0
COSTS_BETWEEN = 20.0
_UNSEALED = b"0" * 64
_SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')
T = TypeVar("T")


class _RefusedError(Exception):
    """Why a training does not resume from a file."""


class Checkpoint:
    """The checkpoint of one cohort in its folder, renewed after so many seconds, and after so many steps if they are given.

    Writing a large one often would take longer than training: at least twenty times what the last one took lies in between, the
    seconds of its ``transfer`` included if it is sent elsewhere. ``saved`` is where the training was at the last one.

    A training elsewhere has its checkpoint here by `receive`, and from here by `read`.

    A file is replaced as a whole, and the one before it is kept: a kill at any moment leaves one to resume from, and so does
    damage to one of them. Every byte is covered by a hash. What is damaged, of another format or of another ``cohort`` is
    never used; ``warn`` is called with a line about it.
    """

    def __init__(
        self,
        folder: Path,
        every: float = EVERY_SECONDS,
        steps: int | None = None,
        cohort: str = "",
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.path, self.previous = folder / "training.safetensors", folder / "training.previous.safetensors"
        self.every, self.steps, self.cohort = every, steps, cohort
        self.warn = warn or (lambda line: print(line, file=sys.stderr))
        self.saved, self.transfer = Position(), 0.0
        self._last, self._cost = time.monotonic(), 0.0

    def due_after(self, steps: int) -> bool:
        """Whether one is to be written after so many steps of the training: the last one is old enough, or it is their turn."""
        old = time.monotonic() - self._last >= max(self.every, COSTS_BETWEEN * (self._cost + self.transfer))
        return old or (self.steps is not None and steps % self.steps == 0)

    def exists(self) -> bool:
        """Whether there is one to resume from, good or not."""
        return self.path.exists() or self.previous.exists()

    def save(self, training: StackedTraining, seconds: float) -> None:
        """Writes where the training is; ``seconds`` is how long it took to get there."""
        started = time.monotonic()
        history = {f"history.{name}": torch.stack(values) for name, values in training.history.items()}
        losses = {"steps": torch.stack(training.step_losses).cpu()} if training.step_losses else {}
        tensors = {name: values.cpu().contiguous() for name, values in state_tensors(training).items()} | history | losses
        where = {"epoch": training.at.epoch, "step": training.at.step, "seconds": seconds}
        metadata = {"format": FORMAT, "cohort": self.cohort, "where": json.dumps(where), "sha256": _UNSEALED.decode()}
        self._write(_with_checksum(save(tensors, metadata)))
        self.saved = training.at
        self._last = time.monotonic()
        self._cost = self._last - started

    def receive(self, content: bytes) -> bool:
        """Keeps a checkpoint that was written elsewhere, if it is good and newer than ``saved``; whether it is."""
        try:
            at, _ = _where(self._verify(content))
        except _RefusedError as error:
            self.warn(f"note: a checkpoint for {self.path} {error}; it is not used")
            return False
        if at <= self.saved:
            return False
        self._write((content,))
        self.saved = at
        return True

    def read(self) -> bytes | None:
        """The last good one as it is in its file, to be sent elsewhere; None without a good one."""
        return self._use(lambda content, _: content)

    def restore(self, training: StackedTraining) -> float | None:
        """Sets a new training to where the last good checkpoint was, and returns how many seconds that had taken.

        Without a good one the training stays as it is, and the answer is None.
        """
        return self._use(lambda content, metadata: _restore(training, content, metadata))

    def delete(self) -> None:
        """Removes it, and its folder if nothing else is there."""
        for path in (self.path, self.previous, *self.path.parent.glob("*.part")):
            path.unlink(missing_ok=True)
        if self.path.parent.exists() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()

    def _use(self, use: Callable[[bytes, dict[str, str]], T]) -> T | None:
        """What becomes of the last file that is good, and that ``use`` does not refuse; the others are named to the user."""
        used, refused = None, []
        for path in (self.path, self.previous):
            if not path.exists():
                continue
            try:
                content = _read(path)
                metadata = self._verify(content)
                at, _ = _where(metadata)
                used, self.saved = use(content, metadata), at
                break
            except _RefusedError as error:
                refused.append(f"the checkpoint {path} {error}")
        if refused:
            then = "its runs start again" if used is None else f"resuming from the one before it, {self.previous.name}"
            self.warn(f"note: {'; '.join(refused)}; {then}")
        return used

    def _verify(self, content: bytes) -> dict[str, str]:
        """The metadata of a file's content, if every byte is as it was written and it belongs to this cohort."""
        metadata = _metadata(content)
        if metadata.get("format") != FORMAT:
            raise _RefusedError(f"has the format {metadata.get('format')!r} of another boolit, not {FORMAT}")
        if metadata.get("cohort") != self.cohort:
            raise _RefusedError("belongs to other runs")
        return metadata

    def _write(self, parts: tuple[bytes | memoryview, ...]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path) as unfinished:
                with unfinished.open("wb") as file:
                    file.writelines(parts)
                    file.flush()
                    os.fsync(file.fileno())
                if self.path.exists():
                    self.path.replace(self.previous)
        except OSError as error:
            raise UserError(
                f"cannot write the checkpoint {self.path} ({error.strerror or error}); make room for it and run again: the "
                "finished runs are in the store, and the others resume from their last checkpoint"
            ) from error


def _restore(training: StackedTraining, content: bytes, metadata: dict[str, str]) -> float:
    at, seconds = _where(metadata)
    try:
        tensors = load(content)
        _check(training, tensors, at)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _RefusedError(f"does not fit its runs ({error})") from error
    for name, values in state_tensors(training).items():
        values.copy_(tensors[name])
    curves = {name.removeprefix("history."): values for name, values in tensors.items() if name.startswith("history.")}
    training.history = {name: list(values) for name, values in curves.items()}
    training.step_losses = list(tensors["steps"].to(training.device)) if "steps" in tensors else []
    training.at = at
    if not training.done:
        training.begin_epoch()
    return seconds


def _with_checksum(content: bytes) -> tuple[bytes | memoryview, ...]:
    """The parts of a file whose header holds the hash of all its bytes, those of the hash itself taken as zeros."""
    place = _SEAL.search(content)
    assert place is not None
    digest = hashlib.sha256(content).hexdigest().encode()
    view = memoryview(content)
    return view[: place.start(1)], digest, view[place.end(1) :]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, MemoryError) as error:
        raise _RefusedError(f"cannot be read ({error})") from error


def _metadata(content: bytes) -> dict[str, str]:
    place = _SEAL.search(content)
    if place is None:
        raise _RefusedError("has no checksum: it is damaged, or an older boolit wrote it")
    view, digest = memoryview(content), hashlib.sha256()
    for part in (view[: place.start(1)], _UNSEALED, view[place.end(1) :]):
        digest.update(part)
    if digest.hexdigest().encode() != place[1]:
        raise _RefusedError("is damaged (its checksum is another)")
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return dict(header["__metadata__"])
    except (KeyError, TypeError, ValueError) as error:
        raise _RefusedError(f"is damaged ({error})") from error


def _where(metadata: dict[str, str]) -> tuple[Position, float]:
    """How far the training was, and how many seconds it had taken."""
    try:
        where = json.loads(metadata["where"])
        at, seconds = Position(where["epoch"], where["step"]), float(where["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise _RefusedError(f"does not fit its runs ({error})") from error
    if not (type(at.epoch) is type(at.step) is int and math.isfinite(seconds) and seconds >= 0):
        raise _RefusedError(f"does not fit its runs (it took {seconds!r} seconds to {at})")
    return at, seconds


def state_tensors(training: StackedTraining) -> dict[str, Tensor]:
    """The tensors a step changes in place."""
    return {
        "values": training.flat.values,
        "loss_sum": training.loss_sum,
        "score_sum": training.score_sum,
        "lived": training.finite_epochs,
        "hyper.learning_rate": training.hyper["learning_rate"],
        **{f"optimiser.{name}": values for name, values in training.optimiser.state.items()},
        **{f"buffer.{name}": values for name, values in training.model.named_buffers()},
        **(training.early_stopping.state() if training.early_stopping else {}),
        **training.state(),
    }


def _check(training: StackedTraining, tensors: dict[str, Tensor], at: Position) -> None:
    """Whether all of it fits, before any of it is taken over."""
    epochs, steps, runs = training.job.recipe.epochs, training.job.steps_per_epoch, training.job.runs
    if not (0 <= at.epoch <= epochs and 0 <= at.step < steps):
        raise ValueError(f"it is at epoch {at.epoch!r} and step {at.step!r} of {epochs} epochs of {steps} steps")
    for name, values in state_tensors(training).items():
        if (tensors[name].shape, tensors[name].dtype) != (values.shape, values.dtype):
            found = f"{tuple(tensors[name].shape)} {tensors[name].dtype}"
            raise ValueError(f"{name} is {found} instead of {tuple(values.shape)} {values.dtype}")
    for name, values in tensors.items():
        if name.startswith("history.") and tuple(values.shape) != (at.epoch, runs):
            raise ValueError(f"{name} is {tuple(values.shape)} instead of {(at.epoch, runs)}")
