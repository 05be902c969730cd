"""How a run is trained: the ``[training]`` table of a study."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from boolit.lab.common.plugins import Registry
from boolit.lab.datasets import Task
from boolit.lab.training.extensions import LOSSES, METRICS, OPTIMIZERS, SCHEDULES, Goal

if TYPE_CHECKING:
    from boolit.lab.datasets.images.augmentation import Augmentation

Precision = Literal["float32", "bfloat16", "float16"]

LOSS_OF_TASK: dict[Task, str] = {"binary": "bce", "classes": "cross-entropy", "regression": "mse"}
METRIC_OF_TASK: dict[Task, str] = {"binary": "accuracy", "classes": "accuracy", "regression": "rmse"}
# Options that may differ between runs of a cohort.
PER_RUN = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "momentum", "peak")


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
            cycled momentum; ``triangular``, linear from 1e-8 to the highest rate and back; or a registered one.
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
        sync_batch_norm: whether batch norms use the statistics of all processes on GPUs under torchrun.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    optimizer: Annotated[str, known(OPTIMIZERS)] = "adam"
    options: dict[str, float] = {}
    learning_rate: float | Literal["find"] = 1e-3
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
        if self.patience is not None and self.patience_goal is None and self.patience_on not in METRICS.names():
            rule = "is not a known metric; set training.patience_goal to 'max' or 'min'"
            raise ValueError(f"patience_on is {self.patience_on!r}, which {rule}")
        own = OPTIMIZERS.get(self.optimizer).options
        if unknown := [name for name in self.options if name not in own]:
            raise ValueError(
                f"{unknown[0]!r} is not an option of {self.optimizer}; it has {', '.join(own) or 'none of its own'}"
            )
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
        return -1 if (self.patience_goal or METRICS.get(self.patience_on).goal) == "max" else 1

    def shape(self) -> dict[str, object]:
        """Return the options that all runs of a cohort share."""
        return self.model_dump(exclude=set(PER_RUN)) | {"find": self.learning_rate == "find"}
