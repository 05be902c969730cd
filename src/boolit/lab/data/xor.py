"""XOR as four noisy clusters in the plane (a:xor)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field

from boolit.lab.data import register
from boolit.lab.data._dataset import Dataset, Description, Source, Split
from boolit.lab.randomness import generator


@register
class Xor(Source):
    """Normal clusters at (±1, ±1); the target is 1 where the signs of the centre differ.

    NOTE[paper]: the number of samples and their spread are not given.
    """

    name: Literal["xor"] = "xor"
    train: int = Field(256, ge=4)
    test: int = Field(1024, ge=4)
    spread: float = Field(0.25, ge=0)
    seed: int = 0

    generated: ClassVar[bool] = True

    def describe(self) -> Description:
        return Description((2,), 1, "binary", {"train": self.train, "test": self.test})

    def load(self) -> Dataset:
        splits = {"train": self._drawn("train", self.train), "test": self._drawn("test", self.test)}
        return Dataset(splits, "binary", 1)

    def _drawn(self, split: str, samples: int) -> Split:
        drawn = generator(self.seed, "xor", split)
        centres = 2.0 * torch.randint(2, (samples, 2), generator=drawn) - 1
        x = centres + self.spread * torch.randn(samples, 2, generator=drawn)
        return Split(x, (centres.prod(1, keepdim=True) < 0).to(x.dtype))
