"""Handwritten digits, 8 × 8, that come with scikit-learn: a real dataset without a download."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.lab.datasets.base import Dataset, Description, PixelScale, Split, Task
from boolit.lab.datasets.download.published import PublishedDataset

BRIGHTEST = 16
TEST = 360  # a fifth of the 1,797
SCALE = PixelScale(2 / BRIGHTEST, 1.0)  # −1 … 1


class Digits(PublishedDataset, published="digits"):
    """A fixed random 80:20 split; ``validation`` of the training images become the split ``valid``."""

    name: Literal["digits"] = "digits"
    validation: int = Field(0, ge=0, lt=1_437)

    task: ClassVar[Task] = "classes"

    def describe(self) -> Description:
        samples = {**self.samples, "train": self.samples["train"] - self.validation}
        return Description((8, 8), 10, self.task, samples | ({"valid": self.validation} if self.validation else {}))

    def load(self) -> Dataset:
        x, y = _load_bundled()
        order = torch.randperm(len(x), generator=generator(0, "digits", "split"))
        train, valid, test = order.split([len(x) - self.validation - TEST, self.validation, TEST])
        parts = {"train": train, "test": test} | ({"valid": valid} if self.validation else {})
        return Dataset({name: Split(x[rows], y[rows]) for name, rows in parts.items()}, self.task, 10, encode=SCALE)


def _load_bundled() -> tuple[Tensor, Tensor]:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise UserError(
            "the dataset digits comes with scikit-learn, which is not installed; pip install scikit-learn"
        ) from None
    found = load_digits()
    return torch.from_numpy(found.images).to(torch.uint8), torch.from_numpy(found.target).long()
