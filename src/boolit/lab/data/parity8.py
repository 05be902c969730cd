"""Nested XNOR_IL of eight logits, as a regression (a:parity)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from boolit.functional import combine
from boolit.lab.data import register
from boolit.lab.data._dataset import Dataset, Description, Source, Split
from boolit.lab.randomness import generator

INPUTS = 8


@register
class Parity8(Source):
    """Independent logits, uniform in ±``scale``, and their nested XNOR_IL.

    NOTE[paper]: the inputs' distribution is not given. An untrained network had an RMSE of 0.287 and a failing one 0.271,
    so the target's standard deviation lies near those: ±5 is the round number that gives 0.285. Nor is the number of samples;
    with 4,096 no network of the paper's size learns anything.
    """

    name: Literal["parity8"] = "parity8"
    train: int = Field(16384, ge=1)
    test: int = Field(4096, ge=1)
    scale: float = Field(5.0, gt=0)
    seed: int = 0

    generated: ClassVar[bool] = True

    def describe(self) -> Description:
        return Description((INPUTS,), 1, "regression", {"train": self.train, "test": self.test})

    def load(self) -> Dataset:
        splits = {"train": self._drawn("train", self.train), "test": self._drawn("test", self.test)}
        return Dataset(splits, "regression", 1)

    def _drawn(self, split: str, samples: int) -> Split:
        x = self.scale * (2 * torch.rand(samples, INPUTS, generator=generator(self.seed, "parity8", split)) - 1)
        return Split(x, nested_xnor(x))


def nested_xnor(x: Tensor) -> Tensor:
    """The labelling function of a:parity.

    Shape: ``(…, 8)`` to ``(…, 1)``.
    """
    pairs = [combine("xnor", x[..., i], x[..., j]) for i, j in ((2, 5), (3, 4), (6, 7), (0, 1))]
    return combine("xnor", combine("xnor", *pairs[:2]), combine("xnor", *pairs[2:])).unsqueeze(-1)
