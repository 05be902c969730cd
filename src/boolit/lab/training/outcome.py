"""What a finished cohort leaves of each of its runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

import boolit
from boolit.lab.runs import State
from boolit.lab.training.evaluation import probed
from boolit.lab.training.stacked import StackedTraining


@dataclass(frozen=True)
class Outcome:
    """One run's state, final figures, curves and weights (named as in the model, without the axis of runs).

    ``steps`` are the losses of all steps, of a network that was trained alone.
    """

    state: State
    metrics: dict[str, float]
    history: dict[str, list[float]]
    weights: dict[str, Tensor]
    steps: list[float] = field(default_factory=list)


def outcomes(training: StackedTraining) -> list[Outcome]:
    """The outcome of every run, in the job's order."""
    curves = {name: torch.stack(values, 1) for name, values in training.history.items()}
    training.conclude()
    figures = {name: values.gather(1, _reported(training)).squeeze(1) for name, values in curves.items()}
    figures |= probed(training.job, training.model) | {"learning_rate": training.hyper["learning_rate"]}
    if training.best:
        figures["best_epoch"] = training.best.epoch + 1
    return [_outcome(training, run, figures, curves) for run in range(training.job.runs)]


def _reported(training: StackedTraining) -> Tensor:
    """The epoch whose figures are each run's own: its last, or its best if runs are stopped early.

    Shape: ``(runs, 1)``.
    """
    last = len(next(iter(training.history.values()))) - 1
    epochs = training.best.epoch.clamp(min=0) if training.best else torch.full((training.job.runs,), last)
    return epochs.unsqueeze(1)


def _outcome(training: StackedTraining, run: int, figures: dict[str, Tensor], curves: dict[str, Tensor]) -> Outcome:
    job, lived = training.job, int(training.lived[run])
    lived = min(lived, int(training.best.trained[run])) if training.best else lived
    alive = bool(training.alive[run])
    parameters = job.family.parameters(job.dataset.inputs, job.dataset.outputs, job.widths, boolit.activation(job.activation))
    metrics = {name: float(values[run]) if alive else float("nan") for name, values in figures.items()}
    return Outcome(
        state="finished" if alive else "diverged",
        metrics=metrics | {"parameters": float(parameters), "epochs": float(lived)},
        history={name: values[run, :lived].tolist() for name, values in curves.items()},
        weights={name: values[run].to("cpu", copy=True) for name, values in training.model.state_dict().items()},
        steps=[float(loss[run]) for loss in training.step_losses],
    )
