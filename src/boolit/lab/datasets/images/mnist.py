"""MNIST: handwritten digits, 28 × 28 (s:mnist)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.datasets.base import Dataset, Description, PixelScale, Split, Subset, Validation, training_sizes
from boolit.lab.datasets.download import PublishedDataset, PublishedFile, Tensors, load_tensors

MEAN, SD = 0.1307, 0.3081  # of the training pixels, as fractions of 255
VERSION = 1
normalize = PixelScale(1 / (255 * SD), MEAN / SD)
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")


def _file(name: str, md5: str, content: str) -> PublishedFile:
    return PublishedFile("mnist", name, f"md5:{md5}", tuple(mirror + name for mirror in MIRRORS), content)


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

    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 60_000, "test": 10_000})
    files: ClassVar[tuple[PublishedFile, ...]] = (
        _file(
            "train-images-idx3-ubyte.gz",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        _file(
            "train-labels-idx1-ubyte.gz",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        _file(
            "t10k-images-idx3-ubyte.gz",
            "9fb629c4189551a2d022fa330f9573f3",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        _file(
            "t10k-labels-idx1-ubyte.gz",
            "ec29112dd5afa0611ce80d1b7f02629c",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    )

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
    """Return the array in an IDX file of bytes; ``name`` is for errors.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "labels")
        tensor([7, 9], dtype=torch.uint8)
    """
    # Two zeros, the code of unsigned bytes, the number of dimensions, and the sizes as big-endian integers.
    header = 4 + 4 * content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    shape = struct.unpack(f">{content[3]}I", content[4:header]) if 0 < header <= len(content) else (-1,)
    if len(content) != header + math.prod(shape):
        raise UserError(f"{name} is not an IDX file of bytes; fetch it again")
    return torch.from_numpy(np.frombuffer(content, np.uint8)[header:].reshape(shape).copy())
