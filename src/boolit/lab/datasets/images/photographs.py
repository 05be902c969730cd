"""Photographs of various sizes: Caltech-101, Stanford Cars and Oxford Flowers (s:transfer)."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from boolit.lab.common.files import data_folder
from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.datasets.download import (
    PublishedDataset,
    PublishedFile,
    archive_files,
    fetch,
    note_unverified,
    published_files,
    read_contents,
)
from boolit.lab.datasets.images import (
    ImageFiles,
    ImageSize,
    Labelled,
    Normalization,
    decode_splits,
    files_identity,
    normalizer,
    split_stratified,
)


class Photographs(PublishedDataset, ABC):
    """The central square of every image, scaled to ``size``. Shape: images are stored as ``(samples, 3, size, size)`` bytes."""

    size: ImageSize = 224
    normalization: Normalization = "imagenet"

    @abstractmethod
    def _splits(self) -> dict[str, Split]:
        """Return the splits as bytes."""

    @property
    def inputs(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of an image."""
        return 3, self.size, self.size

    def load(self) -> Dataset:
        return Dataset(self._splits(), self.task, self.classes, encode=normalizer(self.normalization))

    def _decode(self, published: PublishedFile, parts: Mapping[str, Labelled]) -> dict[str, Split]:
        def files() -> ImageFiles:
            note_unverified(published)
            return archive_files(published)

        path = fetch(published)
        stamp = files_identity({"": [path, *sorted(path.rglob("*"))]})
        return decode_splits(parts, self.size, published.path.parent / "decoded", stamp, files)


class Caltech101(Photographs):
    """``split`` is "spinalnet" or "random" and is computed if it is not given.

    The paper's split is that of SpinalNet: the folders train, val and test of the Kaggle dataset huangruichu/caltech101, which
    are read if they are in the folder of the dataset.
    NOTE[paper]: otherwise, the split is another random one of the same sizes, with 6,162 training and 1,695 test images.
    """

    name: Literal["caltech101"] = "caltech101"
    split: Literal["spinalnet", "random"]

    classes = 101
    samples: ClassVar = {"train": 6_162, "valid": 820, "test": 1_695}
    files = published_files("caltech101")

    @classmethod
    def identify(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG003
        return {"split": "spinalnet" if (data_folder() / "caltech101" / "train").is_dir() else "random"}

    def _splits(self) -> dict[str, Split]:
        if self.split == "random":
            (archive,) = self.files
            return self._decode(archive, split_stratified(self._list(archive), self.samples, 0, "caltech101", "split"))
        splits: dict[str, Split] = {}
        for name, inner in (("train", "train"), ("valid", "val"), ("test", "test")):
            folder = PublishedFile("caltech101", inner, unpacked=inner)
            splits |= self._decode(folder, {name: self._list(folder)})
        return splits

    def _list(self, published: PublishedFile) -> Labelled:
        """Return the images of an archive or folder and the numbers of their classes; each class has a folder."""
        paths = [name.split("/") for name, _ in archive_files(published) if name.endswith(".jpg")]
        images = [path for path in sorted(paths) if path[0] == published.unpacked and path[1] != "BACKGROUND_Google"]
        numbers = {category: number for number, category in enumerate(sorted({path[1] for path in images}))}
        if len(numbers) != self.classes:
            raise published.error(fetch(published), f"has images of {len(numbers)} classes, not of {self.classes}")
        return [("/".join(path), numbers[path[1]]) for path in images if not path[-1].startswith(".")]


class Cars(Photographs):
    """The published split."""

    name: Literal["cars"] = "cars"

    classes = 196
    samples: ClassVar = {"train": 8_144, "test": 8_041}
    files = published_files("cars")

    def _splits(self) -> dict[str, Split]:
        train_images, test_images, devkit, test_annotations = self.files
        train, test = self._labelled("cars_train", devkit), self._labelled("cars_test", test_annotations)
        return self._decode(train_images, {"train": train}) | self._decode(test_images, {"test": test})

    def _labelled(self, folder: str, annotations: PublishedFile) -> Labelled:
        records = _read_mat(annotations, "annotations")
        return [(f"{folder}/{record['fname'].item()}", int(record["class"].item()) - 1) for record in records]


class Flowers(Photographs):
    """A random split of the paper's sizes.

    NOTE[paper]: tab:datasets has 6,552 training and 818 test images, which is not the official split; which images is not
    known. These are random ones of the same numbers, with every class in every split; the other 819 are for validation.
    """

    name: Literal["flowers"] = "flowers"

    classes = 102
    samples: ClassVar = {"train": 6_552, "valid": 819, "test": 818}
    files = published_files("flowers")

    def _splits(self) -> dict[str, Split]:
        images, labels = self.files
        numbers = _read_mat(labels, "labels").tolist()
        labelled = [(f"jpg/image_{place:05d}.jpg", number - 1) for place, number in enumerate(numbers, start=1)]
        return self._decode(images, split_stratified(labelled, self.samples, 0, "flowers", "split"))


def _read_mat(published: PublishedFile, variable: str) -> Any:
    from scipy.io import loadmat

    (content,) = read_contents([published]).values()
    try:
        return loadmat(io.BytesIO(content), variable_names=[variable])[variable].ravel()
    except Exception as error:  # a damaged file may raise anything
        raise published.error(fetch(published), f"has no MATLAB variable {variable} ({error})") from None
