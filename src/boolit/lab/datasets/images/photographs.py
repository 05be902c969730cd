"""Photographs of all sizes: Caltech-101, Stanford Cars and Oxford Flowers (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from boolit.errors import UserError
from boolit.lab.datasets.base import Split
from boolit.lab.datasets.download.mat import read_records, read_variable
from boolit.lab.datasets.download.published import PublishedFile, UnreadableError, archive_entries, read_verified, verify_file
from boolit.lab.datasets.images.archive import list_names
from boolit.lab.datasets.images.base import Labelled, PhotographDataset, image_archive, published_splits, split_stratified

FOLDER = "101_ObjectCategories"
CLUTTER = "BACKGROUND_Google"  # images of nothing in particular, which no class is made of


class Caltech101(PhotographDataset, published="caltech101"):
    """A fixed random split with every class in every part.

    NOTE[paper]: the split was another publication's, of which only the sizes are known: 6,162 training and 1,695 test images.
    These are random ones of these numbers; the other 820 of the 8,677 are for validation.
    """

    name: Literal["caltech101"] = "caltech101"

    classes: ClassVar[int] = 101

    def splits(self) -> dict[str, Split]:
        (published,) = self.files
        labelled = self._list_labelled(published)
        parts = split_stratified(labelled, self.samples, 0, "caltech101", "split")
        return published_splits(published, parts, self.size)

    def _list_labelled(self, published: PublishedFile) -> Labelled:
        archive = image_archive(published)
        paths = [
            name.split("/")
            for name in sorted(list_names(archive, partial(verify_file, published, archive.path)))
            if name.endswith(".jpg")
        ]
        found = [path for path in paths if len(path) == 3 and path[0] == FOLDER and path[1] != CLUTTER]
        numbers = {category: number for number, category in enumerate(sorted({path[1] for path in found}))}
        if len(numbers) != self.classes:
            raise published.error(archive.path, f"has images of {len(numbers)} classes in {FOLDER}, not of {self.classes}")
        return [("/".join(path), numbers[path[1]]) for path in found if not path[2].startswith(".")]


TRAIN_ANNOTATIONS = "devkit/cars_train_annos.mat"


class Cars(PhotographDataset, published="cars"):
    """The published split, by the published annotations; ``validation`` is the share of the training images to hold out as
    the split ``valid``, the same of every class.
    """

    name: Literal["cars"] = "cars"
    validation: float = Field(0.0, ge=0, lt=1)

    classes: ClassVar[int] = 196

    def sizes(self) -> Mapping[str, int]:
        held_out = round(self.validation * self.samples["train"])
        return {**self.samples, "train": self.samples["train"] - held_out} | ({"valid": held_out} if held_out else {})

    def splits(self) -> dict[str, Split]:
        train_images, test_images, devkit, test_annotations = self.files
        train = read_annotations("cars_train", _member(devkit, TRAIN_ANNOTATIONS), TRAIN_ANNOTATIONS)
        content = read_verified(test_annotations, test_annotations.path)
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
        raise published.error(path, str(error)) from None
    raise published.error(path, f"lacks {name}")


OFFICIAL_SIZES = {"train": 1_020, "valid": 1_020, "test": 6_149}
OFFICIAL = {"train": "trnid", "valid": "valid", "test": "tstid"}


class Flowers(PhotographDataset, published="flowers"):
    """``split`` is "paper", or "official": the 1,020 / 1,020 / 6,149 images of setid.mat.

    NOTE[paper]: tab:datasets has 6,552 training and 818 test images, not the official split; which ones is not known. These
    are random ones of these numbers, the same at every time, with every class in every split; the other 819 are for validation.
    """

    name: Literal["flowers"] = "flowers"
    split: Literal["paper", "official"] = "paper"

    classes: ClassVar[int] = 102

    def sizes(self) -> Mapping[str, int]:
        return self.samples if self.split == "paper" else OFFICIAL_SIZES

    def splits(self) -> dict[str, Split]:
        images, _, _ = self.files
        return published_splits(images, self._parts(self._list_labelled()), self.size)

    def _parts(self, labelled: Labelled) -> Mapping[str, Labelled]:
        if self.split == "official":
            return {name: [labelled[number - 1] for number in _column(self.files[2], ids)] for name, ids in OFFICIAL.items()}
        return split_stratified(labelled, self.samples, 0, "flowers", "split")

    def _list_labelled(self) -> Labelled:
        labels = _column(self.files[1], "labels")
        return [(f"jpg/image_{number:05d}.jpg", label - 1) for number, label in enumerate(labels, start=1)]


def _column(published: PublishedFile, name: str) -> list[int]:
    content = read_verified(published, published.path)
    return [int(value) for value in read_variable(content, name, published.name).ravel()]
