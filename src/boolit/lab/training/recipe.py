"""How a run is trained: the ``[training]`` table of a study, and which of it may differ within a cohort."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from boolit.lab.data.augmentations import AUGMENTATIONS

Optimiser = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "cosine", "one-cycle"]
Loss = Literal["bce", "cross-entropy", "mse"]

PER_RUN = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "momentum", "peak")


class Recipe(BaseModel):
    """Optimiser, schedule and length of a training. The numbers of `PER_RUN` may differ from run to run of a cohort.

    ``learning_rate`` is the highest of the schedule, or ``"find"``; ``peak`` is where in the cycle one-cycle reaches it;
    ``warmup`` is in epochs. Adam's weight decay is L2 and AdamW's is decoupled, as in torch. With ``patience`` a run ends when
    its loss on the split ``valid`` has not fallen for so many epochs, and is left as it was after its best one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    optimiser: Optimiser = "adam"
    learning_rate: float | Literal["find"] = 1e-3
    schedule: Schedule = "one-cycle"
    epochs: int = Field(ge=1)
    batch: int = Field(ge=1)
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

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.warmup and self.schedule == "one-cycle":
            raise ValueError("warmup and one-cycle exclude each other: one-cycle warms up by itself; set warmup = 0")
        if self.warmup >= self.epochs:
            raise ValueError(f"warmup is {self.warmup} epochs of {self.epochs}; it must be shorter than the training")
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
        if name is not None and name not in AUGMENTATIONS:
            raise ValueError(f"unknown augmentation {name!r}; choose one of {', '.join(AUGMENTATIONS)}")
        return name

    def shape(self) -> dict[str, object]:
        """What must be equal throughout a cohort."""
        return self.model_dump(exclude=set(PER_RUN)) | {"find": self.learning_rate == "find"}
