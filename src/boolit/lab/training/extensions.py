"""Registries of optimizers, schedules, losses and metrics. boolit's own are entries like those of a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from boolit.lab.common.plugins import Registry
from boolit.lab.datasets import Task

Goal = Literal["max", "min"]
Hyper: TypeAlias = Mapping[str, Tensor]
Schedule: TypeAlias = Callable[[Tensor, int, Tensor, Tensor], Tensor]
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
MetricFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
F = TypeVar("F", bound=Callable[..., Any])
HYPER = ("weight_decay", "beta1", "beta2", "eps", "momentum")  # options of a recipe that every optimizer can read


class Step(Protocol):
    """One step of stacked runs: gradients ``(runs, …)`` by parameter, and the step's numbers ``(runs, …)``."""

    def __call__(self, gradients: Sequence[Tensor], numbers: Tensor) -> None: ...  # noqa: D102


class Optimizer(NamedTuple):
    """An optimizer of stacked runs and of plain networks.

    Args:
        state: names of its state tensors, each like the parameters.
        numbers: returns the columns of a step's numbers from learning rates ``(steps, runs)``, step numbers and options.
        stacked: makes the `Step` from values, state, sizes, and factors on rate and weight decay by parameter.
        plain: makes a ``torch.optim.Optimizer`` from groups of parameters, options and whether a fused one may be used.
        searched: options that a search varies besides learning rate and weight decay.
        options: its own options with their defaults.
    """

    state: tuple[str, ...]
    numbers: Callable[[Tensor, Tensor, Hyper], list[Tensor]]
    stacked: Callable[..., Step]
    plain: Callable[[list[dict[str, Any]], Mapping[str, float], bool], torch.optim.Optimizer]
    searched: tuple[str, ...] = ()
    options: Mapping[str, float] = {}


class Loss(NamedTuple):
    """A loss of every sample, and the tasks it fits."""

    function: LossFunction
    tasks: tuple[Task, ...]


class MetricInfo(NamedTuple):
    """Direction of a metric (``max`` if higher values are better), and whether it is shown in percent.

    A metric without a function is measured by the trainer or by the dataset.
    """

    goal: Goal
    percent: bool
    function: MetricFunction | None = None
    tasks: tuple[Task, ...] = ()


RATE, ERROR, COUNT = MetricInfo("max", True), MetricInfo("min", False), MetricInfo("max", False)
IRAVEN = (
    *("center_single", "distribute_four", "distribute_nine"),
    *("in_center_single_out_center_single", "in_distribute_four_out_center_single"),
    *("left_center_single_right_center_single", "up_center_single_down_center_single"),
)
RATES = (  # of all classifiers, I-RAVEN and compositional zero-shot learning
    *("accuracy", *(f"accuracy_{configuration}" for configuration in IRAVEN)),
    *("auc", "auc2", "auc3", "seen", "unseen", "harmonic"),
)
_OPTIMIZERS, _LOSSES = "boolit.lab.training.optimizers", "boolit.lab.training.losses"

OPTIMIZERS: Registry[Optimizer] = Registry(
    "optimizer", {name: f"{_OPTIMIZERS}:{name.upper()}" for name in ("adam", "adamw", "sgd")}
)
SCHEDULES: Registry[Schedule] = Registry(
    "schedule",
    {name: f"{_OPTIMIZERS}:{name.replace('-', '_')}" for name in ("constant", "cosine", "one-cycle", "triangular")},
)
LOSSES: Registry[Loss] = Registry(
    "loss", {"bce": f"{_LOSSES}:BCE", "cross-entropy": f"{_LOSSES}:CROSS_ENTROPY", "mse": f"{_LOSSES}:MSE"}
)
METRICS: Registry[MetricInfo] = Registry(
    "metric",
    {
        **dict.fromkeys(("loss", "rmse"), f"{__name__}:ERROR"),
        **dict.fromkeys(RATES, f"{__name__}:RATE"),
        "patterns": f"{__name__}:COUNT",  # solved sign patterns of parity
    },
)


def register_optimizer(*state: str, **options: float) -> Callable[[F], F]:
    """Register a function that makes one optimizer step under its own name; a decorator.

    The function is called as ``step(values, gradient, state, rate, hyper, number)`` and changes values and state in place, by
    elementwise operations only. That is all stacked training needs, and it serves networks that train alone as well.

    - ``values``, ``gradient``: tensors of one shape. Stacked runs are the rows of a matrix ``(runs, parameters)``.
    - ``state``: the tensors that the decorator names, by name; they begin at 0.
    - ``rate``: the learning rate of the schedule, a tensor to multiply with: every run has its own.
    - ``hyper``: tensors to multiply with, by name: weight_decay, beta1, beta2, eps, momentum and the decorator's ``options``.
    - ``number``: number of the step, from 1, as a tensor.

    Args:
        state: names of the state tensors.
        options: options of its own with their defaults; a study sets them in ``[training.options]``.

    Example:
        >>> from boolit.lab import register_optimizer
        >>> @register_optimizer("velocity", drag=0.1)
        ... def heavy_ball(values, gradient, state, rate, hyper, number):
        ...     state["velocity"].mul_(1 - hyper["drag"]).add_(gradient)
        ...     values.sub_(rate * state["velocity"])
    """

    def decorate(step: F) -> F:
        from boolit.lab.training.optimizers import elementwise

        OPTIMIZERS.add(step.__name__, elementwise(step, state, options))
        return step

    if taken := sorted({"learning_rate", "peak", *HYPER} & set(options)):
        raise ValueError(f"{taken[0]!r} is an option of every optimizer; leave it out and read hyper[{taken[0]!r}]")
    return decorate


def register_schedule(schedule: F) -> F:
    """Register a learning-rate schedule under its own name; a decorator.

    Args:
        schedule: called as ``schedule(steps, total, highest, peak)`` with the numbers of some steps, ``(steps, 1)`` from 0, the
            number of all steps, and ``learning_rate`` and ``peak`` of every run, ``(runs,)``. It returns rates
            ``(steps, runs)``.

    Example:
        >>> from boolit.lab import register_schedule
        >>> @register_schedule
        ... def linear(steps, total, highest, peak):
        ...     return highest * (1 - steps / total)
    """
    return SCHEDULES.add(schedule.__name__, schedule)


def register_loss(*tasks: Task) -> Callable[[F], F]:
    """Register a loss under its own name; a decorator.

    The function maps outputs ``(runs, batch, outputs)`` and targets to the loss of every sample, ``(runs, …)``. Targets are
    class numbers ``(runs, batch)`` for ``classes``, and have the shape of the outputs otherwise.

    Args:
        tasks: the tasks that it fits: ``binary``, ``classes``, ``regression``.

    Example:
        >>> from boolit.lab import register_loss
        >>> @register_loss("regression")
        ... def smooth_l1(outputs, targets):
        ...     return torch.nn.functional.smooth_l1_loss(outputs, targets, reduction="none")
    """

    def decorate(function: F) -> F:
        LOSSES.add(function.__name__, Loss(function, tasks))
        return function

    return decorate


def register_metric(goal: Goal, *tasks: Task, percent: bool = False) -> Callable[[F], F]:
    """Register a metric under its own name; a decorator.

    The function maps the outputs ``(runs, samples, outputs)`` for all samples of a split, and their targets as a loss gets
    them, to one value per run, ``(runs,)``. It is called after every epoch on every split except ``train``.

    Args:
        goal: ``max`` if higher values are better, else ``min``.
        tasks: the tasks that it fits. Defaults to all.
        percent: whether values are shown in percent.

    Example:
        >>> from boolit.lab import register_metric
        >>> @register_metric("max", "binary", percent=True)
        ... def recall(outputs, targets):
        ...     return ((outputs > 0) & (targets > 0.5)).sum((1, 2)) / (targets > 0.5).sum((1, 2))
    """

    def decorate(function: F) -> F:
        METRICS.add(function.__name__, MetricInfo(goal, percent, function, tasks or ("binary", "classes", "regression")))
        return function

    return decorate
