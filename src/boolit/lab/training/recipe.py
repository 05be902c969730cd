"""How a run is trained, the ``[training]`` table of a study, and the losses and metrics it is measured by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from boolit.lab.datasets import Task

if TYPE_CHECKING:
    from boolit.lab.datasets.images.augmentation import Augmentation

Loss = Literal["bce", "cross-entropy", "mse"]
Goal = Literal["max", "min"]
Optimizer = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "cosine", "one-cycle", "triangular"]
Precision = Literal["float32", "bfloat16", "float16"]

LOSS_OF_TASK: dict[Task, Loss] = {"binary": "bce", "classes": "cross-entropy", "regression": "mse"}
METRIC_OF_TASK: dict[Task, str] = {"binary": "accuracy", "classes": "accuracy", "regression": "rmse"}
TASKS_OF_LOSS: dict[Loss, tuple[Task, ...]] = {
    "bce": ("binary",),
    "cross-entropy": ("classes",),
    "mse": ("regression", "binary"),
}
# Options that may differ between runs of a cohort.
PER_RUN = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "momentum", "peak")


class MetricInfo(NamedTuple):
    """Direction of a metric (``max`` if higher values are better), and whether it is shown in percent."""

    goal: Goal
    percent: bool


RATE, ERROR = MetricInfo("max", percent=True), MetricInfo("min", percent=False)
IRAVEN = (
    *("center_single", "distribute_four", "distribute_nine"),
    *("in_center_single_out_center_single", "in_distribute_four_out_center_single"),
    *("left_center_single_right_center_single", "up_center_single_down_center_single"),
)
METRICS: dict[str, MetricInfo] = {
    "loss": ERROR,
    "rmse": ERROR,
    "accuracy": RATE,
    **{f"accuracy_{configuration}": RATE for configuration in IRAVEN},
    **dict.fromkeys(("auc", "auc2", "auc3", "seen", "unseen", "harmonic"), RATE),  # compositional zero-shot learning
    "patterns": MetricInfo("max", percent=False),  # solved sign patterns of parity
}


class Recipe(BaseModel):
    """Optimizer, schedule and length of a training run.

    Args:
        optimizer: ``adam``, ``adamw`` or ``sgd``, as in ``torch.optim``.
        learning_rate: the highest rate of the schedule, or ``"find"`` to search for one.
        schedule: ``constant``; ``cosine``, down to 0; ``one-cycle``, as ``torch.optim.lr_scheduler.OneCycleLR`` without
            cycled momentum; or ``triangular``, linear from 1e-8 to the highest rate and back.
        epochs, batch: length of the training and samples per step. The last, incomplete batch of an epoch is dropped.
        weight_decay: L2 penalty of Adam and SGD, decoupled decay of AdamW.
        decay_norm: whether weight decay applies to the parameters of normalization layers, too.
        beta1, beta2, eps, momentum: of the optimizer.
        peak: fraction of the schedule at which ``one-cycle`` and ``triangular`` reach the highest rate.
        loss: ``bce``, ``cross-entropy`` or ``mse``. Defaults to the loss of the task.
        augmentation: name of an augmentation of the training samples.
        patience: stop a run when ``patience_on`` has not improved on the split ``valid`` for that many epochs, and report its
            best epoch.
        patience_on: ``loss``, the metric of the task, or an extra metric of the data.
        patience_goal: ``max`` or ``min``. Defaults to the direction that the metric declares.
        prelude: number of epochs before the schedule, at the constant rate ``prelude_rate``.
        precision: type of matrix products in training, by autocast. Evaluations are in float32.
        sync_batch_norm: whether batch norms use the statistics of all processes on GPUs under torchrun.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    optimizer: Optimizer = "adam"
    learning_rate: float | Literal["find"] = 1e-3
    schedule: Schedule = "one-cycle"
    epochs: int = Field(ge=1, le=10**6)
    batch: int = Field(ge=1, le=10**7)
    weight_decay: float = Field(0.0, ge=0)
    decay_norm: bool = True
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    eps: float = Field(1e-8, ge=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    peak: float = Field(0.3, gt=0, lt=1)
    loss: Loss | None = None
    augmentation: str | None = None
    patience: int | None = Field(None, ge=1)
    patience_on: str = "loss"
    patience_goal: Goal | None = None
    prelude: int = Field(0, ge=0)
    prelude_rate: float = Field(1e-5, ge=0)
    precision: Precision = "float32"
    sync_batch_norm: bool = True

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if self.prelude >= self.epochs:
            raise ValueError(f"prelude is {self.prelude} of {self.epochs} epochs; it must be shorter than the training")
        if self.patience is not None and self.patience_goal is None and self.patience_on not in METRICS:
            rule = "is not a built-in metric; set training.patience_goal to 'max' or 'min'"
            raise ValueError(f"patience_on is {self.patience_on!r}, which {rule}")
        return self

    @field_validator("learning_rate")
    @classmethod
    def _check_rate(cls, rate: float | str) -> float | str:
        if rate != "find" and not (isinstance(rate, float) and 0 < rate < math.inf):
            raise ValueError(f'{rate} is not a learning rate; it must be above 0 and finite, or "find"')
        return rate

    @field_validator("augmentation")
    @classmethod
    def _check_augmentation(cls, name: str | None) -> str | None:
        if name is None:
            return None
        from boolit.lab.datasets.images.augmentation import AUGMENTATIONS

        if name not in AUGMENTATIONS:
            raise ValueError(f"unknown augmentation {name!r}; choose one of {', '.join(AUGMENTATIONS)}")
        return name

    @property
    def augment(self) -> Augmentation | None:
        """The augmentation as a function."""
        if self.augmentation is None:
            return None
        from boolit.lab.datasets.images.augmentation import AUGMENTATIONS

        return AUGMENTATIONS[self.augmentation]

    @property
    def stopping_sign(self) -> int:
        """Factor that turns the metric of early stopping into a value to be minimized."""
        return -1 if (self.patience_goal or METRICS[self.patience_on].goal) == "max" else 1

    def shape(self) -> dict[str, object]:
        """Return the options that all runs of a cohort share."""
        return self.model_dump(exclude=set(PER_RUN)) | {"find": self.learning_rate == "find"}
