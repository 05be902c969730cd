"""SVHN: house numbers in street views, cut to one digit, 32 × 32 (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from boolit.lab.datasets.download.fetch import Tensors
from boolit.lab.datasets.download.mat import read_variable
from boolit.lab.datasets.images.base import FixedSizeImageDataset


class Svhn(FixedSizeImageDataset, published="svhn"):
    """The cut-out digits, without the 531,131 easier "extra" ones."""

    name: Literal["svhn"] = "svhn"

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        parts = (digits(content, file) for file, content in contents.items())
        (train_x, train_y), (test_x, test_y) = parts
        return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


def digits(content: bytes, file: str) -> tuple[Tensor, Tensor]:
    """The images of a file and their digits.

    Shape: ``(samples, 3, 32, 32)`` bytes and ``(samples,)`` class numbers.
    """
    images, labels = (read_variable(content, name, file) for name in ("X", "y"))
    x = np.ascontiguousarray(images.transpose(3, 2, 0, 1))  # there: row, column, colour, sample
    return torch.from_numpy(x), torch.from_numpy(labels.ravel().astype(np.int64)) % 10  # a 0 is labelled 10
