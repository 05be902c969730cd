"""MNIST: handwritten digits, 28 × 28 (s:mnist)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.datasets.base import Dataset, Description, PixelScale, Split, Task
from boolit.lab.datasets.download.fetch import Tensors, load_tensors
from boolit.lab.datasets.download.published import PublishedDataset

BYTES = bytes([0, 0, 8])  # two zeros and the code of unsigned bytes; the number of dimensions follows


def parse_idx(content: bytes, name: str) -> Tensor:
    """The array in an IDX file of bytes; ``name`` is for what is said of a bad one.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "labels")
        tensor([7, 9], dtype=torch.uint8)
    """
    if content[:3] != BYTES or len(content) < 4:
        raise UserError(
            f"{name} begins with the bytes {content[:4].hex(' ')!r}, an IDX file of bytes with '00 00 08'; fetch it again"
        )
    header = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}I", content[4:header]) if len(content) >= header else (0,)
    if len(content) != header + math.prod(shape):
        raise UserError(f"{name} has {len(content):,} bytes, not what its header says for the shape {shape}; fetch it again")
    values = np.frombuffer(content, np.uint8)[header:].reshape(shape)
    return torch.from_numpy(values.copy())  # a copy, as torch warns of memory that cannot be written to


MEAN, SD = 0.1307, 0.3081  # of the training pixels, as fractions of 255
VERSION = 1
SIDE, CLASSES, TRAIN = 28, 10, 60_000
normalise = PixelScale(1 / (255 * SD), MEAN / SD)  # mean 0 and standard deviation 1 over the training images


class Mnist(PublishedDataset, published="mnist"):
    """The last ``validation`` training images are the split ``valid``; of the others a share, ``subset``, is trained on.

    NOTE[paper]: how pixels are scaled is not said; they are normalised as in the authors' code.
    NOTE[paper]: tab:datasets counts 60,000 training images and a:mnist trains on the first 50,000 during its search; which of
    both the tabulated networks saw is not said.
    """

    name: Literal["mnist"] = "mnist"
    validation: int = Field(10_000, ge=0, lt=TRAIN)
    subset: float = Field(1.0, gt=0, le=1)

    task: ClassVar[Task] = "classes"

    def describe(self) -> Description:
        trained, first = self._rows(TRAIN)
        samples = {"train": trained, "test": self.samples["test"]} | ({"valid": TRAIN - first} if self.validation else {})
        return Description((SIDE, SIDE), CLASSES, self.task, samples)

    def load(self) -> Dataset:
        found = load_tensors(self.files, VERSION, parse)
        x, y = found["train_x"], found["train_y"]
        trained, first = self._rows(len(x))
        splits = {"train": Split(x[:trained], y[:trained]), "test": Split(found["test_x"], found["test_y"])}
        if self.validation:
            splits["valid"] = Split(x[first:], y[first:])
        return Dataset(splits, self.task, CLASSES, encode=normalise)

    def _rows(self, count: int) -> tuple[int, int]:
        """How many of the training images are trained on, and where those for validation begin."""
        first = count - self.validation
        return max(1, round(self.subset * first)), first


def parse(contents: Mapping[str, bytes]) -> Tensors:
    """Images as bytes and labels as class numbers, of both parts."""
    arrays = [parse_idx(content, file) for file, content in contents.items()]
    train_x, train_y, test_x, test_y = arrays
    return {"train_x": train_x, "train_y": train_y.long(), "test_x": test_x, "test_y": test_y.long()}
