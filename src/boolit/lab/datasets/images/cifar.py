"""CIFAR-10 and CIFAR-100: photographs of 10 and of 100 classes, 32 × 32 (s:cifar).

Their "python version" is pickled dicts with an array of images and a list of labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.datasets.download.fetch import Tensors
from boolit.lab.datasets.download.pickles import unpickle_arrays
from boolit.lab.datasets.download.published import UnreadableError
from boolit.lab.datasets.images.base import FixedSizeImageDataset, Normalisation

SIDE = 32


def batch(content: bytes, labels: bytes) -> tuple[Tensor, Tensor]:
    """The images of a batch, red before green before blue, and its labels of that name.

    Shape: ``(samples, 3, 32, 32)`` bytes and ``(samples,)`` class numbers.
    """
    found = unpickle_arrays(content)
    try:
        x = torch.from_numpy(np.ascontiguousarray(found[b"data"], np.uint8)).view(-1, 3, SIDE, SIDE)
        y = torch.tensor(found[labels], dtype=torch.int64)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, IndexError) as error:
        raise UnreadableError(f"is no batch of images with {labels.decode()} ({type(error).__name__}: {error})") from None
    if y.shape != x.shape[:1]:
        raise UnreadableError(f"has {len(x):,} images, but labels of the shape {tuple(y.shape)}")
    return x, y


def arrays_digest(content: bytes) -> str:
    """The SHA-256 of a batch's images and labels, however they were pickled."""
    images, labels = batch(content, b"labels")
    digest = hashlib.sha256(images.numpy().data)
    digest.update(labels.to(torch.uint8).numpy().data)
    return digest.hexdigest()


def parts(contents: Mapping[str, bytes], train: Sequence[str], test: str, labels: bytes) -> Tensors:
    """The training and the test part of the batches with some names."""
    batches = []
    for name in (*train, test):
        try:
            batches.append(batch(contents[name], labels))
        except UnreadableError as error:
            raise UserError(f"{name} {error}; fetch it again") from None
    *parts, (test_x, test_y) = batches
    # One part stays as it is: it would be copied.
    train_x, train_y = parts[0] if len(parts) == 1 else (torch.cat(column) for column in zip(*parts, strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


FOLDER, FOLDER_100 = "cifar-10-batches-py", "cifar-100-python"
TRAIN = [f"{FOLDER}/data_batch_{number}" for number in range(1, 6)]


class Cifar10(FixedSizeImageDataset, published="cifar10", hash_member=arrays_digest):
    """Pixels are scaled to −1 … 1, as in the authors' code, unless ``normalisation`` says otherwise.

    NOTE[paper]: how pixels are scaled is not said.
    """

    name: Literal["cifar10"] = "cifar10"
    normalisation: Normalisation = "half"

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        return parts(contents, TRAIN, f"{FOLDER}/test_batch", b"labels")


class Cifar100(FixedSizeImageDataset, published="cifar100"):
    """The fine labels. Pixels as `Cifar10`'s."""

    name: Literal["cifar100"] = "cifar100"
    normalisation: Normalisation = "half"

    classes: ClassVar[int] = 100

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        return parts(contents, [f"{FOLDER_100}/train"], f"{FOLDER_100}/test", b"fine_labels")
