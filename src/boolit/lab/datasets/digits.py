"""Handwritten digits, 8 × 8, from scikit-learn: a real dataset without a download."""

from __future__ import annotations

from typing import Literal

import torch

from boolit.lab.common.random import generator
from boolit.lab.datasets.base import Dataset, Description, PixelScale, Source, Split, Validation, training_sizes

TRAIN, TEST = 1_437, 360
SCALE = PixelScale(2 / 16, 1.0)  # grey levels 0 … 16 to −1 … 1


class Digits(Source):
    """A fixed random 80:20 split; ``validation`` is the share of the training images to hold out."""

    name: Literal["digits"] = "digits"
    validation: Validation = 0.0

    def describe(self) -> Description:
        train, valid = training_sizes(TRAIN, self.validation)
        samples = {"train": train, "test": TEST} | ({"valid": valid} if valid else {})
        return Description((8, 8), 10, "classes", samples)

    def load(self) -> Dataset:
        from sklearn.datasets import load_digits

        digits = load_digits()
        x, y = torch.from_numpy(digits.images).to(torch.uint8), torch.from_numpy(digits.target).long()
        train, valid = training_sizes(TRAIN, self.validation)
        order = torch.randperm(len(x), generator=generator(0, "digits", "split"))
        parts = dict(zip(("train", "valid", "test"), order.split([train, valid, TEST]), strict=True))
        splits = {name: Split(x[rows], y[rows]) for name, rows in parts.items() if len(rows)}
        return Dataset(splits, "classes", 10, encode=SCALE)
