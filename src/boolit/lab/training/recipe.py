"""How a run is trained: the ``[training]`` table of a study, and which of it may differ within a cohort."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from boolit.lab.datasets.images.augmentation import Augmentation

Optimiser = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "cosine", "one-cycle"]
Precision = Literal["float32", "bfloat16", "float16"]
Loss = Literal["bce", "cross-entropy", "mse"]

PER_RUN = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "momentum", "peak")

SINGLE_NETWORK_OPTIONS = ("accumulate", "precision", "clip", "ema", "compile", "sync_batch_norm")
MOST_EPOCHS, LARGEST_BATCH = 10**6, 10**7


class Recipe(BaseModel):
    """Optimiser, schedule and length of a training. The numbers of `PER_RUN` may differ from run to run of a cohort.

    ``learning_rate`` is the highest of the schedule, or ``"find"``; ``peak`` is where in the cycle one-cycle reaches it;
    ``warmup`` is in epochs. Adam's weight decay is L2 and AdamW's is decoupled, as in torch. With ``patience`` a run ends when
    its loss on the split ``valid``, or its metric that ``patience_on`` names, has not become better for so many epochs,
    and is left as it was after its best one. ``prelude`` is how many of the epochs come before the schedule, at the constant
    ``prelude_rate``.

    `SINGLE_NETWORK_OPTIONS` make each run a training of its own: ``accumulate`` is the micro-batches of a step, ``precision``
    that of products in training, ``clip`` the longest gradient, ``ema`` the decay of the averaged weights, ``compile``
    torch.compile, and ``sync_batch_norm`` whether several processes share their batch norms' statistics.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    optimiser: Optimiser = "adam"
    learning_rate: float | Literal["find"] = 1e-3
    schedule: Schedule = "one-cycle"
    epochs: int = Field(ge=1, le=MOST_EPOCHS)
    batch: int = Field(ge=1, le=LARGEST_BATCH)
    weight_decay: float = Field(0.0, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    eps: float = Field(1e-8, ge=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    peak: float = Field(0.3, gt=0, lt=1)
    warmup: float = Field(0.0, ge=0)
    loss: Loss | None = None
    augmentation: str | None = None
    patience: int | None = Field(None, ge=1)
    patience_on: str = "loss"
    prelude: int = Field(0, ge=0)
    prelude_rate: float = Field(1e-5, ge=0)
    accumulate: int = Field(1, ge=1)
    precision: Precision = "float32"
    clip: float | None = Field(None, gt=0)
    ema: float | None = Field(None, gt=0, lt=1)
    compile: bool = False
    sync_batch_norm: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.warmup and self.schedule == "one-cycle":
            raise ValueError("warmup and one-cycle exclude each other: one-cycle warms up by itself; set warmup = 0")
        if self.warmup + self.prelude >= self.epochs:
            early = f"prelude is {self.prelude} and warmup {self.warmup}" if self.prelude else f"warmup is {self.warmup}"
            raise ValueError(f"{early} epochs of {self.epochs}; it must be shorter than the training")
        if self.batch % self.accumulate:
            raise ValueError(f"a batch of {self.batch} cannot be cut into {self.accumulate} equal parts; change accumulate")
        return self

    @field_validator("learning_rate")
    @classmethod
    def _positive_rate(cls, rate: float | str) -> float | str:
        if rate != "find" and not (isinstance(rate, float) and 0 < rate < math.inf):
            raise ValueError(f'{rate} is no learning rate; it must be above 0 and finite, or "find"')
        return rate

    @field_validator("augmentation")
    @classmethod
    def _known_augmentation(cls, name: str | None) -> str | None:
        if name is None:
            return None
        from boolit.lab.datasets.images.augmentation import AUGMENTATIONS

        if name not in AUGMENTATIONS:
            raise ValueError(f"unknown augmentation {name!r}; choose one of {', '.join(AUGMENTATIONS)}")
        return name

    @property
    def augment(self) -> Augmentation | None:
        """The function of the augmentation, imported only where there is one."""
        if self.augmentation is None:
            return None
        from boolit.lab.datasets.images.augmentation import AUGMENTATIONS

        return AUGMENTATIONS[self.augmentation]

    @property
    def single_network(self) -> bool:
        """Whether an option is set that only a network trained alone can have."""
        return any(getattr(self, name) != type(self).model_fields[name].default for name in SINGLE_NETWORK_OPTIONS)

    def shape(self) -> dict[str, object]:
        """What must be equal throughout a cohort."""
        return self.model_dump(exclude=set(PER_RUN)) | {"find": self.learning_rate == "find"}
