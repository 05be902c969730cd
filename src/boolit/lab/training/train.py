"""Training of a cohort, from its first step or its last checkpoint to its outcomes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.devices import present_device, torch_threads
from boolit.lab.common.files import atomic_write
from boolit.lab.training import distributed
from boolit.lab.training.job import Job
from boolit.lab.training.single import PlainTraining
from boolit.lab.training.trainer import StackedTraining, Training

NUMEL_PER_THREAD = 2**17  # an operation on so many numbers takes some 20 µs, well above the cost of waking a thread
EVERY_SECONDS = 30.0  # between two checkpoints
StepCallback = Callable[[Training], bool]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run.

    Args:
        state: ``finished`` or ``diverged``.
        metrics: final values, such as ``test_accuracy``: of the last epoch, or with early stopping of the best one. Also
            ``epochs``, the number of epochs trained; ``best_epoch`` with early stopping; ``learning_rate`` if it was searched.
            Of a diverged run all but ``epochs`` are NaN.
        history: one value per epoch, by the same names.
        seconds: the run's share of the time of the training, that before an interruption included.
        weights: parameters and buffers, for `boolit.lab.models.restore`; None if they were not asked for or have diverged.
    """

    state: Literal["finished", "diverged"]
    metrics: dict[str, float]
    history: dict[str, list[float]]
    seconds: float
    weights: dict[str, Tensor] | None = None


class Checkpoint:
    """The checkpoint file of one cohort, replaced atomically.

    Random state needs no saving: every random number is a function of seed, purpose and step (`boolit.lab.common.random`).

    Args:
        folder: folder of the file. It must belong to the cohort alone.
        every_seconds: time between two checkpoints.
    """

    def __init__(self, folder: Path, every_seconds: float = EVERY_SECONDS) -> None:
        self.path, self.every_seconds = folder / "training.safetensors", every_seconds
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last >= self.every_seconds

    def save(self, state: Mapping[str, Tensor]) -> None:
        """Write a training's state."""
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

    def load(self) -> dict[str, Tensor] | None:
        """Return the saved state, or None if there is none or if it is damaged."""
        try:
            return load_file(self.path) if self.path.exists() else None
        except (SafetensorError, OSError) as error:
            self.note(error)
            return None

    def note(self, error: Exception) -> None:
        """Say that the checkpoint is not used."""
        print(f"note: the checkpoint {self.path} cannot be used ({error}); its runs start again", file=sys.stderr)


def train(
    job: Job, checkpoint: Checkpoint | None = None, callback: StepCallback | None = None, keep_weights: bool = False
) -> list[Outcome] | None:
    """Train a job's runs.

    Args:
        job: the runs.
        checkpoint: where to resume from, and to save to now and then.
        callback: called after every step. The training stops, with an up-to-date checkpoint, when it returns False.
        keep_weights: whether outcomes hold the weights.

    Returns:
        The outcomes in the order of the runs, or None if the callback stopped the training.
    """
    with torch_threads(useful_threads(job)):
        started = time.monotonic()
        training, before = _start(job, checkpoint, keep_weights)
        while not training.done:
            training.step()
            stop = not distributed.all_agree(callback is None or callback(training))
            if checkpoint is not None and (stop or checkpoint.due):
                seconds = torch.tensor(before + time.monotonic() - started, dtype=torch.float64)
                checkpoint.save(training.state() | {"seconds": seconds})
            if stop:
                return None
        share = (before + time.monotonic() - started) / job.runs
        return _outcomes(training, keep_weights, job.recipe.learning_rate == "find", share)


def useful_threads(job: Job) -> int | None:
    """Return the number of threads that a step of stacked runs keeps busy, or None for all of them.

    More threads would only spin while they wait for each other, which is slow on a busy machine.
    """
    if not job.stacked or present_device().type != "cpu":
        return None
    return max(1, min(torch.get_num_threads(), -(-job.runs * job.batch * job.widest // NUMEL_PER_THREAD)))


def new_training(job: Job, keep_weights: bool = False) -> Training:
    """Return the training of a job: stacked where the model allows it, otherwise of plain networks."""
    return (StackedTraining if job.stacked else PlainTraining)(job, keep_weights)


def _start(job: Job, checkpoint: Checkpoint | None, keep_weights: bool) -> tuple[Training, float]:
    """Return the training, resumed or new, and the seconds that it took before."""
    state = distributed.broadcast_object(checkpoint.load() if checkpoint else None)
    if state is not None:  # in every process, although only the leader has a checkpoint
        # The checkpoint holds the learning rate that was found.
        training = new_training(_with_rate(job, 1.0), keep_weights)
        try:
            training.load_state(state)
            if not training.done:
                training.begin_epoch()
            return training, float(state["seconds"])
        except (KeyError, ValueError, RuntimeError) as error:
            if checkpoint is not None:
                checkpoint.note(error)
    if job.recipe.learning_rate == "find":
        from boolit.lab.training.lr_finder import find_learning_rate

        rate = find_learning_rate(job) if distributed.is_leader() else 1.0
        job = _with_rate(job, distributed.broadcast_object(rate))
    training = new_training(job, keep_weights)
    training.begin_epoch()
    return training, 0.0


def _with_rate(job: Job, rate: float) -> Job:
    if job.recipe.learning_rate != "find":
        return job
    return replace(job, recipes=tuple(recipe.model_copy(update={"learning_rate": rate}) for recipe in job.recipes))


def _outcomes(training: Training, keep_weights: bool, searched: bool, seconds: float) -> list[Outcome]:
    job, early = training.job, training.job.recipe.patience is not None
    curves = {name: torch.stack(values, 1) for name, values in training.history.items()}
    metrics = {name: values[-1] for name, values in training.history.items()}
    if early:
        chosen = training.best_epoch.clamp(min=0).unsqueeze(1)
        metrics = {name: values.gather(1, chosen).squeeze(1) for name, values in curves.items()}
    training.finish()
    for probe in job.dataset.probes:
        values_of_probe = probe.metrics(training.predict(probe.x))
        metrics |= {name: training.of_all_runs(values) for name, values in values_of_probe.items()}
    if searched:
        metrics["learning_rate"] = training.hyper["learning_rate"]
    if early:
        metrics["best_epoch"] = training.best_epoch + 1
    results = []
    for run, (alive, epoch) in enumerate(zip(training.alive.tolist(), training.trained.tolist(), strict=True)):
        values = {name: float(each[run]) if alive else float("nan") for name, each in metrics.items()}
        history = {name: curve[run, :epoch].tolist() for name, curve in curves.items()}
        kept = training.weights(run) if keep_weights and alive else None
        weights = kept and {name: each.to("cpu", copy=True) for name, each in kept.items()}
        metrics_of_run = values | {"epochs": float(epoch)}
        results.append(Outcome("finished" if alive else "diverged", metrics_of_run, history, seconds, weights))
    return results
