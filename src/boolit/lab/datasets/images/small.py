"""Images of one size in few large files: CIFAR-10, CIFAR-100, SVHN (32 × 32) and STL-10 (96 × 96) (s:cifar, s:transfer)."""

from __future__ import annotations

import hashlib
import io
import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import stratified_order
from boolit.lab.datasets.base import Dataset, Description, Split, Subset, Validation, training_sizes
from boolit.lab.datasets.download import PublishedDataset, PublishedFile, Tensors, load_tensors, published_files
from boolit.lab.datasets.images.normalization import Normalization, normalizer


class SmallImages(PublishedDataset, ABC):
    """``validation`` is the share of the training images to hold out, the same of every class; ``subset`` is the share of the
    others to train on, the first ones.

    Shape: images are stored as ``(samples, 3, height, width)`` bytes.
    """

    validation: Validation = 0.0
    subset: Subset = 1.0
    normalization: Normalization = "imagenet"

    classes: ClassVar[int] = 10
    side: ClassVar[int] = 32

    @staticmethod
    @abstractmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        """Return the tensors ``train_x``, ``train_y``, ``test_x`` and ``test_y``."""

    def describe(self) -> Description:
        train, valid = training_sizes(self.samples["train"], self.validation, self.subset)
        samples = {"train": train, "test": self.samples["test"]} | ({"valid": valid} if valid else {})
        return Description((3, self.side, self.side), self.classes, self.task, samples)

    def load(self) -> Dataset:
        tensors = load_tensors(self.files, 1, self.parse)
        splits = self._split(tensors["train_x"], tensors["train_y"])
        splits["test"] = Split(tensors["test_x"], tensors["test_y"])
        return Dataset(splits, self.task, self.classes, encode=normalizer(self.normalization))

    def _split(self, x: Tensor, y: Tensor) -> dict[str, Split]:
        train, valid = training_sizes(len(x), self.validation, self.subset)
        if not valid:  # slices of the mapped file instead of copies
            return {"train": Split(x[:train], y[:train])}
        order = stratified_order(y, 0, self.name, "validation")
        rows = {"valid": order[:valid].sort().values, "train": order[valid:].sort().values[:train]}
        return {name: Split(x[taken], y[taken]) for name, taken in rows.items()}


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that calls nothing but numpy's constructors of arrays, as CIFAR's pickles do."""

    ALLOWED: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core") if _HAS_CORE else module, name)


_HAS_CORE = hasattr(np, "_core")  # numpy 2 renamed the module


def unpickle_batch(content: bytes, labels: bytes, name: str) -> tuple[Tensor, Tensor]:
    """Return the images of a CIFAR batch, red before green before blue, and its labels.

    Shape: ``(samples, 3, 32, 32)`` bytes and ``(samples,)`` class numbers.
    """
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        x = torch.from_numpy(np.ascontiguousarray(batch[b"data"], np.uint8)).view(-1, 3, 32, 32)
        y = torch.tensor(batch[labels], dtype=torch.int64)
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(f"{name} is not a batch of CIFAR images ({error}); fetch it again") from None
    if y.shape != x.shape[:1]:
        raise UserError(f"{name} has {len(x):,} images, but labels of the shape {tuple(y.shape)}; fetch it again")
    return x, y


class Cifar10(SmallImages):
    """CIFAR-10 with pixels scaled to −1 … 1, as in the authors' code.

    NOTE[paper]: the scaling of pixels is not given.
    """

    name: Literal["cifar10"] = "cifar10"
    normalization: Normalization = "half"

    samples: ClassVar[Mapping[str, int]] = {"train": 50_000, "test": 10_000}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("cifar10")

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        parts = []
        for name, expected in Cifar10.files[0].members.items():
            x, y = unpickle_batch(contents[name], b"labels", name)
            digest = hashlib.sha256(x.numpy().tobytes() + y.to(torch.uint8).numpy().tobytes()).hexdigest()
            if expected and expected != f"arrays:{digest}":
                raise UserError(f"{name} has other images or labels than the published batch; run `boolit fetch cifar10`")
            parts.append((x, y))
        *train, (test_x, test_y) = parts
        train_x, train_y = (torch.cat(column) for column in zip(*train, strict=True))
        return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


class Cifar100(SmallImages):
    """CIFAR-100 with its fine labels; pixels as in `Cifar10`."""

    name: Literal["cifar100"] = "cifar100"
    normalization: Normalization = "half"

    classes: ClassVar[int] = 100
    samples: ClassVar[Mapping[str, int]] = {"train": 50_000, "test": 10_000}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("cifar100")

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        batches = (unpickle_batch(contents[f"cifar-100-python/{part}"], b"fine_labels", part) for part in ("train", "test"))
        (train_x, train_y), (test_x, test_y) = batches
        return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


class Svhn(SmallImages):
    """House numbers in street views, cut to one digit; without the 531,131 easier "extra" images."""

    name: Literal["svhn"] = "svhn"

    samples: ClassVar[Mapping[str, int]] = {"train": 73_257, "test": 26_032}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("svhn")

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        from scipy.io import loadmat

        tensors = {}
        for part, content in zip(("train", "test"), contents.values(), strict=True):
            variables = loadmat(io.BytesIO(content), variable_names=("X", "y"))
            images = np.ascontiguousarray(variables["X"].transpose(3, 2, 0, 1))  # stored as row, column, color, sample
            tensors[f"{part}_x"] = torch.from_numpy(images)
            tensors[f"{part}_y"] = torch.from_numpy(variables["y"].ravel().astype(np.int64)) % 10  # a 0 is labelled 10
        return tensors


class Stl10(SmallImages):
    """STL-10: its labelled photographs, with all ten folds of the training part together."""

    name: Literal["stl10"] = "stl10"

    side: ClassVar[int] = 96
    samples: ClassVar[Mapping[str, int]] = {"train": 5_000, "test": 8_000}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("stl10")

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        tensors = {}
        for part in ("train", "test"):
            columns = np.frombuffer(contents[f"stl10_binary/{part}_X.bin"], np.uint8).reshape(-1, 3, 96, 96)
            tensors[f"{part}_x"] = torch.from_numpy(np.ascontiguousarray(columns.swapaxes(2, 3)))  # stored by columns
            tensors[f"{part}_y"] = torch.tensor(list(contents[f"stl10_binary/{part}_y.bin"])) - 1
        return tensors
