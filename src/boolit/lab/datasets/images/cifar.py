"""CIFAR-10 and CIFAR-100: photographs of 10 and of 100 classes, 32 × 32 (s:cifar)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.lab.common.errors import UserError
from boolit.lab.datasets.download.fetch import Tensors
from boolit.lab.datasets.download.pickles import unpickle_arrays
from boolit.lab.datasets.download.published import ArchiveMember, PublishedFile, UnreadableError
from boolit.lab.datasets.images.base import FixedSizeImageDataset, Normalisation, joined

# The format of CIFAR's "python version": pickled dicts with an array of images and a list of labels.

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
    batches = [_named(contents, name, labels) for name in train]
    test_x, test_y = _named(contents, test, labels)
    train_x, train_y = (joined(list(column)) for column in zip(*batches, strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


def _named(contents: Mapping[str, bytes], name: str, labels: bytes) -> tuple[Tensor, Tensor]:
    try:
        return batch(contents[name], labels)
    except UnreadableError as error:
        raise UserError(f"{name} {error}; fetch it again") from None


# CIFAR-10: photographs of 10 classes, 32 × 32 (s:cifar).

FOLDER = "cifar-10-batches-py"
# Of images and labels alone: the same in a batch that was pickled anew. The training images with these have the mean
# 0.49139968, 0.48215841, 0.44653091 and deviation 0.24703223, 0.24348513, 0.26158784 that are in everybody's code.
BATCHES = {
    "data_batch_1": "ba52cb2d72c412975d7556bb26bd094956f1c002d1937053f6f1252f2ac17114",
    "data_batch_2": "350ff9000489d02f2568c0dcf4912ffdbae9e50932147905fb1b8159ad54f0ac",
    "data_batch_3": "a2b8653fc457df407af6c38b7e0d1a12530f3b5f81fce9f81516efd065daf722",
    "data_batch_4": "133e6292c377755074c305db8a684d48d5397372cb0aba34f52b4335eab35d97",
    "data_batch_5": "eb08cdc11fd1267ef871cf4790f193684b3f556d13317be68f4eb374a078ea87",
    "test_batch": "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a",
}
*TRAIN, TEST = (f"{FOLDER}/{name}" for name in BATCHES)


class Cifar10(FixedSizeImageDataset):
    """Pixels are scaled to −1 … 1, as in the authors' code, unless ``normalisation`` says otherwise.

    NOTE[paper]: how pixels are scaled is not said.
    """

    name: Literal["cifar10"] = "cifar10"
    normalisation: Normalisation = "half"

    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 50_000, "test": 10_000})
    home: ClassVar[str] = "Krizhevsky 2009, www.cs.toronto.edu/~kriz/cifar.html"
    licence: ClassVar[str] = "none stated"
    files: ClassVar[tuple[PublishedFile, ...]] = (
        PublishedFile(
            "cifar10",
            "cifar-10-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "",
            170_498_071,
            FOLDER,
            tuple(ArchiveMember(f"{FOLDER}/{name}", digest, arrays_digest) for name, digest in BATCHES.items()),
        ),
    )

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        return parts(contents, TRAIN, TEST, b"labels")


# CIFAR-100: photographs of 100 classes, 32 × 32 (s:cifar).

FOLDER_100 = "cifar-100-python"
TRAIN_100, TEST_100 = f"{FOLDER_100}/train", f"{FOLDER_100}/test"


class Cifar100(FixedSizeImageDataset):
    """The fine labels. Pixels as `Cifar10`'s."""

    name: Literal["cifar100"] = "cifar100"
    normalisation: Normalisation = "half"

    classes: ClassVar[int] = 100
    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 50_000, "test": 10_000})
    home: ClassVar[str] = "Krizhevsky 2009, www.cs.toronto.edu/~kriz/cifar.html"
    licence: ClassVar[str] = "none stated"
    files: ClassVar[tuple[PublishedFile, ...]] = (
        PublishedFile(
            "cifar100",
            "cifar-100-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            "",
            169_001_437,
            FOLDER_100,
            # The MD5s that torchvision compares: of the pickles themselves, as nobody published one of the arrays.
            (
                ArchiveMember(TRAIN_100, "16019d7e3df5f24257cddd939b257f8d"),
                ArchiveMember(TEST_100, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
            ),
        ),
    )

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        return parts(contents, [TRAIN_100], TEST_100, b"fine_labels")
