"""MNIST: handwritten digits, 28 × 28 (s:mnist)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.datasets.base import Dataset, Description, PixelScale, Split, Subset, Validation, training_sizes
from boolit.lab.datasets.download import PublishedDataset, PublishedFile, Tensors, load_tensors, published_files

MEAN, SD = 0.1307, 0.3081  # of the training pixels, as fractions of 255
VERSION = 1
normalize = PixelScale(1 / (255 * SD), MEAN / SD)


class Mnist(PublishedDataset):
    """``validation`` is the share of the training images to hold out, the last ones (by default 10,000 of 60,000); ``subset``
    is the share of the others to train on.

    NOTE[paper]: the scaling of pixels is not given; they are normalized as in the authors' code.
    NOTE[paper]: tab:datasets counts 60,000 training images, and a:mnist trains on the first 50,000 during its search; which of
    them the tabulated networks saw is not given.
    """

    name: Literal["mnist"] = "mnist"
    validation: Validation = 1 / 6
    subset: Subset = 1.0

    samples: ClassVar[Mapping[str, int]] = {"train": 60_000, "test": 10_000}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("mnist")

    def describe(self) -> Description:
        train, valid = training_sizes(self.samples["train"], self.validation, self.subset)
        samples = {"train": train, "test": self.samples["test"]} | ({"valid": valid} if valid else {})
        return Description((28, 28), 10, self.task, samples)

    def load(self) -> Dataset:
        tensors = load_tensors(self.files, VERSION, parse)
        x, y = tensors["train_x"], tensors["train_y"]
        train, valid = training_sizes(len(x), self.validation, self.subset)
        splits = {"train": Split(x[:train], y[:train]), "test": Split(tensors["test_x"], tensors["test_y"])}
        if valid:
            splits["valid"] = Split(x[-valid:], y[-valid:])
        return Dataset(splits, self.task, 10, encode=normalize)


def parse(contents: Mapping[str, bytes]) -> Tensors:
    """Return images as bytes and labels as class numbers."""
    train_x, train_y, test_x, test_y = (parse_idx(content, file) for file, content in contents.items())
    return {"train_x": train_x, "train_y": train_y.long(), "test_x": test_x, "test_y": test_y.long()}


def parse_idx(content: bytes, name: str) -> Tensor:
    """Return the array in an IDX file of bytes; ``name`` is for errors."""
    # Two zeros, the code of unsigned bytes, the number of dimensions, and the sizes as big-endian integers.
    header = 4 + 4 * content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    shape = struct.unpack(f">{content[3]}I", content[4:header]) if 0 < header <= len(content) else (-1,)
    if len(content) != header + math.prod(shape):
        raise UserError(f"{name} is not an IDX file of bytes; fetch it again")
    return torch.from_numpy(np.frombuffer(content, np.uint8)[header:].reshape(shape).copy())
