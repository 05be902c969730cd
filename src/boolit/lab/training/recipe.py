"""How a run is trained: the ``[training]`` table of a study, and the registries of what it names.

Boolit's own optimizers, schedules, losses and metrics are entries of these registries, as those of a plug-in are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import torch
import torch.nn.functional as F
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from boolit.lab.common.plugins import Registry
from boolit.lab.datasets.base import Task

Goal = Literal["max", "min"]
Precision = Literal["float32", "bfloat16", "float16"]
Hyper: TypeAlias = Mapping[str, Tensor]
OfOutputs: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # a function of outputs and targets: a loss or a metric
Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")

HYPER = ("weight_decay", "beta1", "beta2", "eps", "momentum")  # options of a recipe that every optimizer can read
PER_RUN = (*HYPER, "learning_rate", "peak")  # options that may differ between runs of a cohort
LOSS_OF_TASK: dict[Task, str] = {"binary": "bce", "classes": "cross-entropy", "regression": "mse"}
METRIC_OF_TASK: dict[Task, str] = {"binary": "accuracy", "classes": "accuracy", "regression": "rmse"}


class Optimizer(NamedTuple):
    """An optimizer of stacked runs and of plain networks.

    Args:
        state: names of its state tensors, each like the parameters.
        numbers: returns what a step needs, by name, from learning rates ``(steps, runs)``, step numbers and options.
        update: makes a step of stacked runs in place, from values, gradient, state, numbers, and factors on learning rate and
            weight decay.
        plain: makes a ``torch.optim.Optimizer`` from groups of parameters, options and whether a fused one may be used.
        searched: options that a search varies besides learning rate and weight decay.
        options: options that only this optimizer has, with their defaults.
        rule: number of its kernel in ``training.cpp``, which replaces ``update`` for float32 on a CPU.
    """

    state: tuple[str, ...]
    numbers: Callable[[Tensor, Tensor, Hyper], dict[str, Tensor]]
    update: Callable[..., None]
    plain: Callable[[list[dict[str, Any]], Mapping[str, float], bool], torch.optim.Optimizer]
    searched: tuple[str, ...] = ()
    options: Mapping[str, float] = {}
    rule: int | None = None


class Loss(NamedTuple):
    """A loss of every sample, and the tasks it fits."""

    function: OfOutputs
    tasks: tuple[Task, ...]


class MetricInfo(NamedTuple):
    """Direction of a metric (``max`` if higher values are better), and whether it is shown in percent.

    A metric without a function is measured by the trainer or by the dataset.
    """

    goal: Goal
    percent: bool
    function: OfOutputs | None = None
    tasks: tuple[Task, ...] = ()


BCE = Loss(partial(F.binary_cross_entropy_with_logits, reduction="none"), ("binary",))
MSE = Loss(partial(F.mse_loss, reduction="none"), ("regression", "binary"))
# With the classes before the batch, as stacked layers leave them, it is 15 times faster than along the last axis.
CROSS_ENTROPY = Loss(lambda outputs, targets: F.cross_entropy(outputs.mT, targets, reduction="none"), ("classes",))
RATE, ERROR, COUNT = MetricInfo("max", True), MetricInfo("min", False), MetricInfo("max", False)
RATES = (  # of all classifiers, I-RAVEN and compositional zero-shot learning
    *("accuracy", "accuracy_center_single", "accuracy_distribute_four", "accuracy_distribute_nine"),
    *("accuracy_in_center_single_out_center_single", "accuracy_in_distribute_four_out_center_single"),
    *("accuracy_left_center_single_right_center_single", "accuracy_up_center_single_down_center_single"),
    *("auc", "auc2", "auc3"),
)
_OPTIMIZERS, _AUGMENTATIONS = "boolit.lab.training.optimizers", "boolit.lab.datasets.images.augmentation"

OPTIMIZERS: Registry[Optimizer] = Registry(
    "optimizer", {name: f"{_OPTIMIZERS}:{name.upper()}" for name in ("adam", "adamw", "sgd")}
)
SCHEDULES: Registry[Callable[[Tensor, int, Tensor, Tensor], Tensor]] = Registry(
    "schedule",
    {name: f"{_OPTIMIZERS}:{name.replace('-', '_')}" for name in ("constant", "cosine", "one-cycle", "ramp", "triangular")},
)
AUGMENTATIONS: Registry[Callable[[Tensor, Tensor, int], Tensor]] = Registry(
    "augmentation", {name: f"{_AUGMENTATIONS}:{name.replace('-', '_')}" for name in ("jitter", "affine", "autoaugment-cifar10")}
)
LOSSES: Registry[Loss] = Registry(
    "loss", {"bce": f"{__name__}:BCE", "cross-entropy": f"{__name__}:CROSS_ENTROPY", "mse": f"{__name__}:MSE"}
)
METRICS: Registry[MetricInfo] = Registry(
    "metric",
    {
        **dict.fromkeys(("loss", "rmse"), f"{__name__}:ERROR"),
        **dict.fromkeys(RATES, f"{__name__}:RATE"),
        "patterns": f"{__name__}:COUNT",  # solved sign patterns of parity
    },
)


def register_optimizer(*state: str, **options: float) -> Callable[[Function], Function]:
    """Decorate a function that makes one optimizer step, to register it under the function's name.

    The function is called as ``step(values, gradient, state, rate, hyper, number)`` and changes values and state in place, by
    elementwise operations only. It then works for stacked runs and for networks that train alone.

    - ``values``, ``gradient``: tensors of one shape. Stacked runs are the rows of a matrix ``(runs, parameters)``.
    - ``state``: the tensors that the decorator names, by name; they begin at 0.
    - ``rate``: the schedule's learning rate, a tensor that broadcasts with ``values``, because every run has its own.
    - ``hyper``: such tensors by name: weight_decay, beta1, beta2, eps, momentum and the decorator's ``options``.
    - ``number``: number of the step, from 1, as a tensor.

    Args:
        state: names of the state tensors.
        options: further options with their defaults; a study sets them in ``[training.options]``.

    Example:
        >>> from boolit.lab import register_optimizer
        >>> @register_optimizer("velocity", drag=0.1)
        ... def heavy_ball(values, gradient, state, rate, hyper, number):
        ...     state["velocity"].mul_(1 - hyper["drag"]).add_(gradient)
        ...     values.sub_(rate * state["velocity"])
    """
    if taken := sorted({*PER_RUN, "step"} & {*options, *state}):
        raise ValueError(f"{taken[0]!r} is a name that every optimizer has; give yours another one")

    from boolit.lab.training.optimizers import elementwise

    return _adder(OPTIMIZERS, lambda step: elementwise(step, state, options))


def register_schedule(schedule: Function) -> Function:
    """Register a learning-rate schedule under its own name; a decorator.

    Args:
        schedule: called as ``schedule(steps, total, highest, peak)`` with the numbers of some steps, ``(steps, 1)`` from 0, the
            number of all steps after the prelude, and ``learning_rate`` and ``peak`` of every run, ``(runs,)``. It returns
            rates ``(steps, runs)``.

    Example:
        >>> from boolit.lab import register_schedule
        >>> @register_schedule
        ... def linear(steps, total, highest, peak):
        ...     return highest * (1 - steps / total)
    """
    return SCHEDULES.add(schedule.__name__, schedule)


def register_loss(*tasks: Task) -> Callable[[Function], Function]:
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
    return _adder(LOSSES, lambda function: Loss(function, tasks))


def register_metric(goal: Goal, *tasks: Task, percent: bool = False) -> Callable[[Function], Function]:
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
    return _adder(METRICS, lambda function: MetricInfo(goal, percent, function, tasks or get_args(Task)))


def _adder(registry: Registry[T], entry: Callable[[Callable[..., Any]], T]) -> Callable[[Function], Function]:
    """Return a decorator that adds the entry of a function to a registry."""

    def add(function: Function) -> Function:
        registry.add(function.__name__, entry(function))
        return function

    return add


def known(registry: Registry[Any]) -> AfterValidator:
    """Return a validator of the names in a registry."""

    def check(name: str) -> str:
        registry.get(name)
        return name

    return AfterValidator(check)


class Recipe(BaseModel):
    """Optimizer, schedule and length of a training run.

    Args:
        optimizer: ``adam``, ``adamw`` or ``sgd``, as in ``torch.optim``, or a registered one.
        options: options of a registered optimizer.
        learning_rate: the highest rate of the schedule, or ``"find"`` to search for one.
        schedule: ``constant``; ``cosine``, down to 0; ``one-cycle``, as ``torch.optim.lr_scheduler.OneCycleLR`` without
            cycled momentum; ``triangular``, linear from 1e-8 to the highest rate and back; ``ramp``, linear to the highest rate
            in 100 steps and then constant, as the finder of learning rates trains; or a registered one.
        epochs, batch: length of the training and samples per step. The last, incomplete batch of an epoch is dropped.
        weight_decay: L2 penalty of Adam and SGD, decoupled decay of AdamW.
        decay_norm: whether weight decay applies to the parameters of normalization layers, too.
        beta1, beta2, eps, momentum: of the optimizer.
        peak: fraction of the schedule at which ``one-cycle`` and ``triangular`` reach the highest rate.
        loss: ``bce``, ``cross-entropy``, ``mse`` or a registered one. Defaults to the loss of the task.
        metrics: registered metrics to measure. Those that the study compares or stops by are added.
        augmentation: name of an augmentation of the training samples.
        patience: stop a run when ``patience_on`` has not improved on the split ``valid`` for that many epochs, and report its
            best epoch.
        patience_on: ``loss``, the metric of the task, an extra metric of the data, or a registered one.
        patience_goal: ``max`` or ``min``. Defaults to the direction that the metric declares.
        prelude: number of epochs before the schedule, at the constant rate ``prelude_rate``.
        precision: type of matrix products in training, by autocast. Evaluations are in float32.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    optimizer: Annotated[str, known(OPTIMIZERS)] = "adam"
    options: dict[str, float] = {}
    learning_rate: Annotated[float, Field(gt=0)] | Literal["find"] = 1e-3
    schedule: Annotated[str, known(SCHEDULES)] = "one-cycle"
    epochs: int = Field(ge=1, le=10**6)
    batch: int = Field(ge=1, le=10**7)
    weight_decay: float = Field(0.0, ge=0)
    decay_norm: bool = True
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    eps: float = Field(1e-8, ge=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    peak: float = Field(0.3, gt=0, lt=1)
    loss: Annotated[str, known(LOSSES)] | None = None
    metrics: list[Annotated[str, known(METRICS)]] = []
    augmentation: Annotated[str, known(AUGMENTATIONS)] | None = None
    patience: int | None = Field(None, ge=1)
    patience_on: str = "loss"
    patience_goal: Goal | None = None
    prelude: int = Field(0, ge=0)
    prelude_rate: float = Field(1e-5, ge=0)
    precision: Precision = "float32"

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if self.prelude >= self.epochs:
            raise ValueError(f"prelude is {self.prelude} of {self.epochs} epochs; it must be shorter than the training")
        if self.patience is not None and self.patience_goal is None and self.patience_on not in METRICS.names():
            rule = "is not a known metric; set training.patience_goal to 'max' or 'min'"
            raise ValueError(f"patience_on is {self.patience_on!r}, which {rule}")
        known_options = OPTIMIZERS.get(self.optimizer).options
        if unknown := [name for name in self.options if name not in known_options]:
            known_names = ", ".join(known_options) or "none of its own"
            raise ValueError(f"{unknown[0]!r} is not an option of {self.optimizer}; it has {known_names}")
        return self

    @property
    def stopping_sign(self) -> int:
        """Factor that turns the metric of early stopping into a value to be minimized."""
        return -1 if (self.patience_goal or METRICS.get(self.patience_on).goal) == "max" else 1
