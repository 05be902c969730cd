"""Photographs of various sizes: Caltech-101, Stanford Cars and Oxford Flowers (s:transfer)."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from boolit.errors import UserError
from boolit.lab.common.files import cache_key, data_folder
from boolit.lab.datasets.base import Dataset, Description, Split, Subset, Validation, training_sizes
from boolit.lab.datasets.download import (
    PublishedDataset,
    PublishedFile,
    archive_files,
    fetch,
    note_unverified,
    published_files,
    read_file,
    read_members,
)
from boolit.lab.datasets.images.decoding import ImageFiles, Labelled, decode_splits, split_stratified
from boolit.lab.datasets.images.folder import ImageSize, folder_files, labelled_images
from boolit.lab.datasets.images.normalization import Normalization, normalizer


class Photographs(PublishedDataset, ABC):
    """The central square of every image, scaled to ``size``. ``subset`` is the share of the training images to train on, the
    first ones.

    Shape: images are stored as ``(samples, 3, size, size)`` bytes.
    """

    size: ImageSize = 224
    subset: Subset = 1.0
    normalization: Normalization = "imagenet"

    classes: ClassVar[int]

    @abstractmethod
    def splits(self) -> dict[str, Split]:
        """Return the splits with all training images."""

    def sizes(self) -> Mapping[str, int]:
        """Return the number of images in each of `splits`."""
        return self.samples

    def describe(self) -> Description:
        sizes = self.sizes()
        train, _ = training_sizes(sizes["train"], 0.0, self.subset)
        return Description((3, self.size, self.size), self.classes, self.task, {**sizes, "train": train})

    def load(self) -> Dataset:
        splits = self.splits()
        x, y = splits["train"].x, splits["train"].y
        train, _ = training_sizes(len(x), 0.0, self.subset)
        splits["train"] = Split(x[:train], y[:train])
        return Dataset(splits, self.task, self.classes, encode=normalizer(self.normalization))

    def _decode(self, published: PublishedFile, parts: Mapping[str, Labelled]) -> dict[str, Split]:
        def files() -> ImageFiles:
            note_unverified(published)
            return archive_files(published)

        return decode_splits(parts, self.size, published.path.parent / "decoded", _file_stamp(fetch(published)), files)


def _file_stamp(path: Path) -> str:
    """Return a hash of the size and time of a file, or of all files in a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    states = ((file.relative_to(path), file.stat()) for file in files if file.is_file())
    return cache_key(*(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states))


class Caltech101(Photographs):
    """``split`` is "spinalnet" or "random" and is computed if it is not given.

    The paper's split is that of SpinalNet: the folders train, val (or eval) and test of the Kaggle dataset
    huangruichu/caltech101, which are read if they are in the folder of the dataset.
    NOTE[paper]: otherwise, the split is another random one of the same sizes, with 6,162 training and 1,695 test images.
    """

    name: Literal["caltech101"] = "caltech101"
    split: Literal["spinalnet", "random"]

    classes: ClassVar[int] = 101
    samples: ClassVar[Mapping[str, int]] = {"train": 6_162, "valid": 820, "test": 1_695}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("caltech101")

    @model_validator(mode="before")
    @classmethod
    def _with_split(cls, options: Any) -> Any:
        if isinstance(options, dict) and "split" not in options:
            return options | {"split": "spinalnet" if (_caltech_folder() / "train").is_dir() else "random"}
        return options

    def sizes(self) -> Mapping[str, int]:
        if self.split == "random":
            return self.samples
        return {name: len(part) for name, part in self._folders.items()}

    def splits(self) -> dict[str, Split]:
        if self.split == "random":
            parts = split_stratified(self._list_archive(), self.samples, 0, "caltech101", "split")
            return self._decode(self.files[0], parts)
        folder, images = _caltech_folder(), [image for part in self._folders.values() for image in part]
        stamp = cache_key(*(_file_stamp(folder / name) for name in ("train", self._valid_folder, "test")))
        return decode_splits(self._folders, self.size, folder / "decoded", stamp, lambda: folder_files(folder, images))

    @property
    def _valid_folder(self) -> str:
        return "val" if (_caltech_folder() / "val").is_dir() else "eval"

    @property
    def _folders(self) -> dict[str, Labelled]:
        folder = _caltech_folder()
        parts: dict[str, Labelled] = {}
        for name, inner in (("train", "train"), ("valid", self._valid_folder), ("test", "test")):
            labelled = labelled_images(folder / inner)
            if len({number for _, number in labelled}) != self.classes:
                raise UserError(f"{folder / inner} has not {self.classes} folders of images; put SpinalNet's folders there")
            parts[name] = [(f"{inner}/{image}", number) for image, number in labelled]
        return parts

    def _list_archive(self) -> Labelled:
        (published,) = self.files
        paths = [name.split("/") for name, _ in archive_files(published) if name.endswith(".jpg")]
        images = [path for path in sorted(paths) if path[0] == "101_ObjectCategories" and path[1] != "BACKGROUND_Google"]
        numbers = {category: number for number, category in enumerate(sorted({path[1] for path in images}))}
        if len(numbers) != self.classes:
            raise published.error(fetch(published), f"has images of {len(numbers)} classes, not of {self.classes}")
        return [("/".join(path), numbers[path[1]]) for path in images if not path[-1].startswith(".")]


def _caltech_folder() -> Path:
    return data_folder() / "caltech101"


class Cars(Photographs):
    """The published split; ``validation`` is the share of the training images to hold out, the same of every class."""

    name: Literal["cars"] = "cars"
    validation: Validation = 0.0

    classes: ClassVar[int] = 196
    samples: ClassVar[Mapping[str, int]] = {"train": 8_144, "test": 8_041}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("cars")

    def sizes(self) -> Mapping[str, int]:
        train, valid = training_sizes(self.samples["train"], self.validation)
        return {**self.samples, "train": train} | ({"valid": valid} if valid else {})

    def splits(self) -> dict[str, Split]:
        train_images, test_images, devkit, test_annotations = self.files
        (annotations,) = read_members(devkit).values()
        train = self._labelled("cars_train", annotations, devkit)
        test = self._labelled("cars_test", read_file(test_annotations), test_annotations)
        count, valid = training_sizes(len(train), self.validation)
        parts = (
            split_stratified(train, {"train": count, "valid": valid}, 0, "cars", "validation") if valid else {"train": train}
        )
        return self._decode(train_images, parts) | self._decode(test_images, {"test": test})

    def _labelled(self, folder: str, content: bytes, published: PublishedFile) -> Labelled:
        records = _loadmat(content, "annotations", published)
        return [(f"{folder}/{record['fname'].item()}", int(record["class"].item()) - 1) for record in records]


OFFICIAL_SIZES = {"train": 1_020, "valid": 1_020, "test": 6_149}
OFFICIAL = {"train": "trnid", "valid": "valid", "test": "tstid"}


class Flowers(Photographs):
    """``split`` is "paper", or "official": the 1,020 / 1,020 / 6,149 images of setid.mat.

    NOTE[paper]: tab:datasets has 6,552 training and 818 test images, which is not the official split; which images is not
    known. These are random ones of the same numbers, with every class in every split; the other 819 are for validation.
    """

    name: Literal["flowers"] = "flowers"
    split: Literal["paper", "official"] = "paper"

    classes: ClassVar[int] = 102
    samples: ClassVar[Mapping[str, int]] = {"train": 6_552, "valid": 819, "test": 818}
    files: ClassVar[tuple[PublishedFile, ...]] = published_files("flowers")

    def sizes(self) -> Mapping[str, int]:
        return self.samples if self.split == "paper" else OFFICIAL_SIZES

    def splits(self) -> dict[str, Split]:
        images, labels, ids = self.files
        numbers = _loadmat(read_file(labels), "labels", labels).tolist()
        labelled = [(f"jpg/image_{place:05d}.jpg", number - 1) for place, number in enumerate(numbers, start=1)]
        if self.split == "paper":
            return self._decode(images, split_stratified(labelled, self.samples, 0, "flowers", "split"))
        content = read_file(ids)
        parts = {name: [labelled[row - 1] for row in _loadmat(content, key, ids).tolist()] for name, key in OFFICIAL.items()}
        return self._decode(images, parts)


def _loadmat(content: bytes, variable: str, published: PublishedFile) -> Any:
    from scipy.io import loadmat

    try:
        return loadmat(io.BytesIO(content), variable_names=[variable])[variable].ravel()
    except Exception as error:  # a damaged file may raise anything
        raise published.error(fetch(published), f"has no MATLAB variable {variable} ({error})") from None
