"""Photographs of all sizes: Caltech-101, Stanford Cars and Oxford Flowers (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Literal

from pydantic import Field

from boolit.lab.common.errors import UserError
from boolit.lab.datasets.base import Split
from boolit.lab.datasets.download.mat import read_records, read_variable
from boolit.lab.datasets.download.published import (
    PublishedFile,
    UnreadableError,
    archive_entries,
    file_error,
    read_verified,
    verify_file,
)
from boolit.lab.datasets.images.archive import list_names
from boolit.lab.datasets.images.base import (
    Labelled,
    PhotographDataset,
    image_archive,
    published_splits,
    scale_sizes,
    split_stratified,
)

# Caltech-101: photographs of 101 kinds of objects (s:transfer).

FOLDER = "101_ObjectCategories"
CLUTTER = "BACKGROUND_Google"  # images of nothing in particular, which no class is made of
CALTECH_SIZES = {"train": 6_162, "valid": 820, "test": 1_695}


class Caltech101(PhotographDataset):
    """A fixed random split with every class in every part.

    NOTE[paper]: the split was another publication's, of which only the sizes are known: 6,162 training and 1,695 test images.
    These are random ones of these numbers; the other 820 of the 8,677 are for validation.
    """

    name: Literal["caltech101"] = "caltech101"

    classes: ClassVar[int] = 101
    samples: ClassVar[Mapping[str, int]] = MappingProxyType(CALTECH_SIZES)
    home: ClassVar[str] = "Fei-Fei, Fergus and Perona 2004, data.caltech.edu/records/mzrjq-6wc02"
    licence: ClassVar[str] = "CC BY 4.0"
    files: ClassVar[tuple[PublishedFile, ...]] = (
        PublishedFile(
            "caltech101",
            "caltech-101.zip",
            ("https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip?download=1",),
            "331234750fc7f77520e50d9565e8b6907b03565e30320da1401130db08c61f91",
            137_414_764,
            FOLDER,
        ),
    )

    def splits(self) -> dict[str, Split]:
        (published,) = self.files
        labelled = self._labelled(published)
        parts = split_stratified(labelled, scale_sizes(CALTECH_SIZES, len(labelled)), 0, "caltech101", "split")
        return published_splits(published, parts, self.size)

    def _labelled(self, published: PublishedFile) -> Labelled:
        archive = image_archive(published)
        paths = [
            name.split("/")
            for name in sorted(list_names(archive, partial(verify_file, published, archive.path)))
            if name.endswith(".jpg")
        ]
        found = [path for path in paths if len(path) == 3 and path[0] == FOLDER and path[1] != CLUTTER]
        numbers = {category: number for number, category in enumerate(sorted({path[1] for path in found}))}
        if len(numbers) != self.classes:
            raise file_error(
                published, archive.path, f"has images of {len(numbers)} classes in {FOLDER}, not of {self.classes}"
            )
        return [("/".join(path), numbers[path[1]]) for path in found if not path[2].startswith(".")]


# Stanford Cars: photographs of 196 models of cars (s:transfer).

# The addresses of the images answer no more, and their copies elsewhere ask for an account: they are put here by hand.
NOWHERE: tuple[str, ...] = ()
TRAIN_ANNOTATIONS = "devkit/cars_train_annos.mat"


class Cars(PhotographDataset):
    """The published split, by the published annotations; ``validation`` is the share of the training images to hold out as
    the split ``valid``, the same of every class.
    """

    name: Literal["cars"] = "cars"
    validation: float = Field(0.0, ge=0, lt=1)

    classes: ClassVar[int] = 196
    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 8_144, "test": 8_041})
    home: ClassVar[str] = "Krause, Stark, Deng and Fei-Fei 2013, ai.stanford.edu/~jkrause/cars/car_dataset.html"
    licence: ClassVar[str] = "none stated; for non-commercial research and education, as ImageNet's"
    files: ClassVar[tuple[PublishedFile, ...]] = (
        PublishedFile(
            "cars",
            "cars_train.tgz",
            NOWHERE,
            "512b227b30e2f0a8aab9e09485786ab4479582073a144998da74d64b801fd288",
            979_269_282,
            "cars_train",
        ),
        PublishedFile(
            "cars",
            "cars_test.tgz",
            NOWHERE,
            "bffea656d6f425cba3c91c6d83336e4c5f86c6cffd8975b0f375d3a10da8e243",
            977_350_468,
            "cars_test",
        ),
        PublishedFile(
            "cars",
            "car_devkit.tgz",
            NOWHERE,
            "b97deb463af7d58b6bfaa18b2a4de9829f0f79e8ce663dfa9261bf7810e9accd",
            330_960,
            "devkit",
        ),
        PublishedFile(
            "cars",
            "cars_test_annos_withlabels.mat",
            NOWHERE,
            "790f75be8ea34eeded134cc559332baf23e30e91367e9ddca97d26ed9b895f05",
            185_758,
        ),
    )

    def sizes(self) -> Mapping[str, int]:
        held_out = round(self.validation * self.samples["train"])
        return {**self.samples, "train": self.samples["train"] - held_out} | ({"valid": held_out} if held_out else {})

    def splits(self) -> dict[str, Split]:
        train_images, test_images, devkit, test_annotations = self.files
        train = read_annotations("cars_train", _member(devkit, TRAIN_ANNOTATIONS), TRAIN_ANNOTATIONS)
        content = b"".join(read_verified(test_annotations, test_annotations.path))
        test = read_annotations("cars_test", content, test_annotations.name)
        splits = published_splits(train_images, self._parts(train), self.size)
        return splits | published_splits(test_images, {"test": test}, self.size)

    def _parts(self, train: Labelled) -> Mapping[str, Labelled]:
        held_out = round(self.validation * len(train))
        if not held_out:
            return {"train": train}
        return split_stratified(train, {"train": len(train) - held_out, "valid": held_out}, 0, "cars", "validation")


def read_annotations(folder: str, content: bytes, file: str) -> Labelled:
    """The images an annotation file names, in a folder, and their classes."""
    found = read_records(content, "annotations", ("fname", "class"), file)
    if not all(isinstance(number, int) and 1 <= number <= Cars.classes for _, number in found):
        raise UserError(f"{file} has a class that is none of 1 to {Cars.classes}; put the published one there")
    return [(f"{folder}/{image}", int(number) - 1) for image, number in found]


def _member(published: PublishedFile, name: str) -> bytes:
    path = published.kept or published.path
    verify_file(published, path)
    try:
        for entry in archive_entries(path):
            if entry.name == name:
                return entry.read()
    except UnreadableError as error:
        raise file_error(published, path, str(error)) from None
    raise file_error(published, path, f"lacks {name}")


# Oxford Flowers: photographs of 102 kinds of flowers (s:transfer).

HOME = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
FLOWERS_SIZES = {"train": 6_552, "valid": 819, "test": 818}
OFFICIAL_SIZES = {"train": 1_020, "valid": 1_020, "test": 6_149}
OFFICIAL = {"train": "trnid", "valid": "valid", "test": "tstid"}


class Flowers(PhotographDataset):
    """``split`` is "paper", or "official": the 1,020 / 1,020 / 6,149 images of setid.mat.

    NOTE[paper]: tab:datasets has 6,552 training and 818 test images, not the official split; which ones is not known. These
    are random ones of these numbers, the same at every time, with every class in every split; the other 819 are for validation.
    """

    name: Literal["flowers"] = "flowers"
    split: Literal["paper", "official"] = "paper"

    classes: ClassVar[int] = 102
    samples: ClassVar[Mapping[str, int]] = MappingProxyType(FLOWERS_SIZES)
    home: ClassVar[str] = "Nilsback and Zisserman 2008, www.robots.ox.ac.uk/~vgg/data/flowers/102"
    licence: ClassVar[str] = "none stated"
    files: ClassVar[tuple[PublishedFile, ...]] = (
        PublishedFile(
            "flowers",
            "102flowers.tgz",
            (HOME + "102flowers.tgz",),
            "2d01ecc807db462958cfe3d92f57a8c252b4abd240eb955770201e45f783b246",
            344_862_509,
            "jpg",
        ),
        PublishedFile(
            "flowers",
            "imagelabels.mat",
            (HOME + "imagelabels.mat",),
            "4903e94206bac23bf772aadf06451916df56b58fc483a62db32a97b82656651d",
            502,
        ),
        PublishedFile(
            "flowers",
            "setid.mat",
            (HOME + "setid.mat",),
            "46b8678f91fd95d3c8f4feab80d271a6c834a1dd896fe29fd3e6ad9ce5c8dccd",
            14_989,
        ),
    )

    def sizes(self) -> Mapping[str, int]:
        return FLOWERS_SIZES if self.split == "paper" else OFFICIAL_SIZES

    def splits(self) -> dict[str, Split]:
        images, _, _ = self.files
        return published_splits(images, self._parts(self._labelled()), self.size)

    def _parts(self, labelled: Labelled) -> Mapping[str, Labelled]:
        if self.split == "official":
            return {name: [labelled[number - 1] for number in _column(self.files[2], ids)] for name, ids in OFFICIAL.items()}
        return split_stratified(labelled, scale_sizes(FLOWERS_SIZES, len(labelled)), 0, "flowers", "split")

    def _labelled(self) -> Labelled:
        labels = _column(self.files[1], "labels")
        return [(f"jpg/image_{number:05d}.jpg", label - 1) for number, label in enumerate(labels, start=1)]


def _column(published: PublishedFile, name: str) -> list[int]:
    content = b"".join(read_verified(published, published.path))
    return [int(value) for value in read_variable(content, name, published.name).ravel()]
