"""Images of one size in few files: digits, MNIST and Fashion-MNIST, CIFAR-10 and -100, SVHN and STL-10."""

from __future__ import annotations

import codecs
import hashlib
import io
import pickle
from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.lab.datasets.base import Encode, Split, Validation, pixel_scale
from boolit.lab.datasets.download import ArrayDataset, PublishedFile, published_files
from boolit.lab.datasets.images import Normalization, normalizer

MEAN, SD = 0.1307, 0.3081  # of MNIST's training pixels, as fractions of 255


class Mnist(ArrayDataset):
    """Handwritten digits (s:mnist). By default the last 10,000 of 60,000 training images are held out.

    NOTE[paper]: the scaling of pixels is not given; they are normalized as in the authors' code.
    NOTE[paper]: tab:datasets counts 60,000 training images, and a:mnist trains on the first 50,000 during its search; which of
    them the tabulated networks saw is not given.
    """

    name: Literal["mnist"] = "mnist"
    validation: Validation = 1 / 6

    inputs = (28, 28)
    ordered = True
    samples: ClassVar = {"train": 60_000, "test": 10_000}
    files = published_files("mnist")

    def _parse(self, contents: Mapping[str, bytes]) -> dict[str, Split]:
        train_x, train_y, test_x, test_y = map(_parse_idx, contents.values())
        return {"train": Split(train_x, train_y.long()), "test": Split(test_x, test_y.long())}

    def _encoding(self, _train: Tensor) -> Encode:
        return pixel_scale(1 / (255 * SD), MEAN / SD)


class Fashion(Mnist):
    """Fashion-MNIST: articles of clothing in the format of MNIST, with pixels scaled to −1 … 1."""

    name: Literal["fashion"] = "fashion"  # type: ignore[assignment]

    files: ClassVar[tuple[PublishedFile, ...]] = published_files("fashion")

    def _encoding(self, _train: Tensor) -> Encode:
        return pixel_scale(2 / 255, 1.0)


def _parse_idx(content: bytes) -> Tensor:
    # Two zeros, the code of unsigned bytes, the number of dimensions, and the sizes as big-endian integers.
    header = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:header], ">u4")
    return torch.from_numpy(np.frombuffer(content, np.uint8)[header:].reshape(shape).copy())


encode_digits = pixel_scale(2 / 16, 1.0)  # gray levels 0 … 16 to −1 … 1


class Digits(ArrayDataset):
    """Handwritten digits from scikit-learn, a real dataset without a download, in a fixed random 80:20 split."""

    name: Literal["digits"] = "digits"

    inputs = (8, 8)
    ordered = True
    samples: ClassVar = {"train": 1_437, "test": 360}
    files = ()

    def _parse(self, _contents: Mapping[str, bytes]) -> dict[str, Split]:
        from sklearn.datasets import load_digits

        digits = load_digits()
        x, y = torch.from_numpy(digits.images).to(torch.uint8), torch.from_numpy(digits.target).long()
        train, test = torch.randperm(len(x), generator=generator(0, "digits", "split")).split([1_437, 360])
        return {"train": Split(x[train], y[train]), "test": Split(x[test], y[test])}

    def _encoding(self, _train: Tensor) -> Encode:
        return encode_digits


class ColorImages(ArrayDataset, ABC):
    """Color images, stored as ``(samples, 3, height, width)`` bytes."""

    normalization: Normalization = "imagenet"

    inputs = (3, 32, 32)

    def _encoding(self, _train: Tensor) -> Encode:
        return normalizer(self.normalization)


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that calls nothing but numpy's constructors of arrays, as CIFAR's pickles do."""

    RECONSTRUCT = np.empty(0).__reduce__()[0]
    CALLED: ClassVar = {"numpy.core.multiarray._reconstruct": RECONSTRUCT, "numpy._core.multiarray._reconstruct": RECONSTRUCT}
    CALLED |= {"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype, "_codecs.encode": codecs.encode}

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self.CALLED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}")
        return self.CALLED[f"{module}.{name}"]


class Cifar(ColorImages, ABC):
    """Pickled batches of color images, with pixels scaled to −1 … 1 as in the authors' code (s:cifar).

    NOTE[paper]: the scaling of pixels is not given.
    """

    normalization: Normalization = "half"

    labels: ClassVar[bytes]  # name of the labels in a batch
    samples: ClassVar = {"train": 50_000, "test": 10_000}

    def _parse(self, contents: Mapping[str, bytes]) -> dict[str, Split]:
        *train, test = (self._unpickle(name, contents[name], known) for name, known in self.files[0].members.items())
        return {"train": Split(torch.cat([batch.x for batch in train]), torch.cat([batch.y for batch in train])), "test": test}

    def _unpickle(self, name: str, content: bytes, known: str) -> Split:
        try:
            batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
            x = torch.from_numpy(np.ascontiguousarray(batch[b"data"], np.uint8)).view(-1, 3, 32, 32)
            y = torch.tensor(batch[self.labels], dtype=torch.int64).view(len(x))
        except Exception as error:  # a damaged pickle may raise anything
            raise UserError(f"{name} is not a batch of CIFAR images ({error}); fetch it again") from None
        digest = hashlib.sha256(x.numpy().tobytes() + y.to(torch.uint8).numpy().tobytes()).hexdigest()
        if known.startswith("arrays:") and known != f"arrays:{digest}":
            raise UserError(f"{name} has other images or labels than the published batch; run `boolit fetch {self.name}`")
        return Split(x, y)


class Cifar10(Cifar):
    """CIFAR-10."""

    name: Literal["cifar10"] = "cifar10"

    labels = b"labels"
    files = published_files("cifar10")


class Cifar100(Cifar):
    """CIFAR-100 with its fine labels."""

    name: Literal["cifar100"] = "cifar100"

    labels = b"fine_labels"
    classes = 100
    files = published_files("cifar100")


class Svhn(ColorImages):
    """House numbers in street views, cut to one digit; without the 531,131 easier "extra" images (s:transfer)."""

    name: Literal["svhn"] = "svhn"

    samples: ClassVar = {"train": 73_257, "test": 26_032}
    files = published_files("svhn")

    def _parse(self, contents: Mapping[str, bytes]) -> dict[str, Split]:
        from scipy.io import loadmat

        splits = {}
        for part, content in zip(("train", "test"), contents.values(), strict=True):
            variables = loadmat(io.BytesIO(content), variable_names=("X", "y"))
            images = np.ascontiguousarray(variables["X"].transpose(3, 2, 0, 1))  # stored as row, column, color, sample
            labels = variables["y"].ravel().astype(np.int64) % 10  # a 0 is labelled 10
            splits[part] = Split(torch.from_numpy(images), torch.from_numpy(labels))
        return splits


class Stl10(ColorImages):
    """STL-10: its labelled photographs, with all ten folds of the training part together (s:transfer)."""

    name: Literal["stl10"] = "stl10"

    inputs = (3, 96, 96)
    samples: ClassVar = {"train": 5_000, "test": 8_000}
    files = published_files("stl10")

    def _parse(self, contents: Mapping[str, bytes]) -> dict[str, Split]:
        splits = {}
        for part in ("train", "test"):
            columns = np.frombuffer(contents[f"stl10_binary/{part}_X.bin"], np.uint8).reshape(-1, 3, 96, 96)
            images = np.ascontiguousarray(columns.swapaxes(2, 3))  # stored by columns
            splits[part] = Split(torch.from_numpy(images), torch.tensor(list(contents[f"stl10_binary/{part}_y.bin"])) - 1)
        return splits
