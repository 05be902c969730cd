"""SVHN: house numbers in street views, cut to one digit, 32 × 32 (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.lab.datasets.download.fetch import Tensors
from boolit.lab.datasets.download.mat import read_variable
from boolit.lab.datasets.download.published import PublishedFile
from boolit.lab.datasets.images.base import FixedSizeImageDataset

HOME = "http://ufldl.stanford.edu/housenumbers/"
FILES = (
    ("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8", 182_040_794),
    ("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b", 64_275_384),
)


class Svhn(FixedSizeImageDataset):
    """The cut-out digits, without the 531,131 easier "extra" ones."""

    name: Literal["svhn"] = "svhn"

    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 73_257, "test": 26_032})
    home: ClassVar[str] = "Netzer et al. 2011, ufldl.stanford.edu/housenumbers"
    licence: ClassVar[str] = "for non-commercial use only"
    files: ClassVar[tuple[PublishedFile, ...]] = tuple(
        PublishedFile("svhn", file, (HOME + file,), sha256, size) for file, sha256, size in FILES
    )

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
