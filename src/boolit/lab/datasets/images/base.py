"""What datasets of images share: normalisation, published parts of one size, and photographs decoded to one size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor

from boolit.lab.common.devices import DeviceCopies
from boolit.lab.common.random import stratified_order
from boolit.lab.datasets.base import Dataset, Description, Encode, Split, Task
from boolit.lab.datasets.download.fetch import Tensors, fetch_missing, load_tensors
from boolit.lab.datasets.download.published import PublishedDataset, PublishedFile, verify_file
from boolit.lab.datasets.images.archive import ImageArchive, file_stamp, load_images

Normalisation: TypeAlias = Literal["half", "imagenet"]
# Mean and standard deviation of red, green and blue, as fractions of 255. Those of ImageNet are the ones everybody's networks
# were trained with.
SCALES: Mapping[Normalisation, tuple[tuple[float, ...], tuple[float, ...]]] = MappingProxyType(
    {"half": ((0.5,) * 3, (0.5,) * 3), "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}
)


def normaliser(kind: Normalisation) -> Encode:
    """What gives pixels of 0 … 255 the usual scale.

    Shape: what is returned takes ``(…, 3, height, width)`` and keeps it.

    Example:
        >>> normaliser("half")(torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1)).flatten()
        tensor([-1.0000,  1.0000, -0.6000])
    """
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in SCALES[kind])
    scale, shift = DeviceCopies(1 / (255 * deviation)), DeviceCopies(-mean / deviation)
    return lambda x: torch.addcmul(shift.on(x.device), x.float(), scale.on(x.device))


class FixedSizeImageDataset(PublishedDataset, ABC):
    """``validation`` is the share of the training images to hold out as the split ``valid``, the same of every class;
    ``subset`` the share of the others to train on, the first ones.

    Shape: images are stored as ``(samples, 3, height, width)`` bytes.
    """

    validation: float = Field(0.0, ge=0, lt=1)
    subset: float = Field(1.0, gt=0, le=1)
    normalisation: Normalisation = "imagenet"

    task: ClassVar[Task] = "classes"
    classes: ClassVar[int] = 10
    side: ClassVar[int] = 32
    version: ClassVar[int] = 1

    @staticmethod
    @abstractmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        """The tensors ``train_x``, ``train_y``, ``test_x`` and ``test_y`` in some files."""

    def describe(self) -> Description:
        trained, held_out = self._rows(self.samples["train"])
        samples = {"train": trained, "test": self.samples["test"]} | ({"valid": held_out} if held_out else {})
        return Description((3, self.side, self.side), self.classes, self.task, samples)

    def load(self) -> Dataset:
        found = load_tensors(self.files, self.version, self.parse)
        splits = self._split(found["train_x"], found["train_y"])
        splits["test"] = Split(found["test_x"], found["test_y"])
        return Dataset(splits, self.task, self.classes, encode=normaliser(self.normalisation))

    def _split(self, x: Tensor, y: Tensor) -> dict[str, Split]:
        trained, held_out = self._rows(len(x))
        if not held_out:  # parts of the mapped file, rather than copies
            return {"train": Split(x[:trained], y[:trained])}
        order = stratified_order(y, 0, self.name, "validation")
        rows = {"valid": order[:held_out].sort().values, "train": order[held_out:].sort().values[:trained]}
        return {name: Split(x[taken], y[taken]) for name, taken in rows.items()}

    def _rows(self, count: int) -> tuple[int, int]:
        """How many of the training images are trained on, and how many are held out."""
        held_out = round(self.validation * count)
        return max(1, round(self.subset * (count - held_out))), held_out


Labelled: TypeAlias = Sequence[tuple[str, int]]  # names of images, and their classes
ImageSize: TypeAlias = Annotated[int, Field(ge=8, le=1024)]  # the side of an image


class PhotographDataset(PublishedDataset, ABC):
    """The square in the middle of every image, scaled to ``size``. ``subset`` is the share of the training images to train
    on, the first ones.

    Shape: images are stored as ``(samples, 3, size, size)`` bytes.
    """

    size: ImageSize = 224
    subset: float = Field(1.0, gt=0, le=1)
    normalisation: Normalisation = "imagenet"

    task: ClassVar[Task] = "classes"
    classes: ClassVar[int]

    @abstractmethod
    def splits(self) -> dict[str, Split]:
        """The splits; the files are here."""

    def describe(self) -> Description:
        samples = self.sizes()
        trained = max(1, round(self.subset * samples["train"]))
        return Description((3, self.size, self.size), self.classes, self.task, {**samples, "train": trained})

    def sizes(self) -> Mapping[str, int]:
        """How many published images each of `splits` has."""
        return self.samples

    def load(self) -> Dataset:
        fetch_missing(self.files)
        splits = self.splits()
        train = splits["train"]
        trained = max(1, round(self.subset * len(train)))
        splits["train"] = Split(train.x[:trained], train.y[:trained])
        return Dataset(splits, self.task, self.classes, encode=normaliser(self.normalisation))


def image_archive(published: PublishedFile) -> ImageArchive:
    """The images in a published archive, or in the folder in its place."""
    path = published.kept or published.path
    return ImageArchive(path, published.path.parent / "decoded", file_stamp(path))


def published_splits(published: PublishedFile, parts: Mapping[str, Labelled], side: int) -> dict[str, Split]:
    """Splits of the images in a published archive, which is verified before they are decoded."""
    archive = image_archive(published)
    return decode_splits(archive, parts, side, partial(verify_file, published, archive.path))


def decode_splits(
    archive: ImageArchive, parts: Mapping[str, Labelled], side: int, verify: Callable[[], None] = lambda: None
) -> dict[str, Split]:
    """Splits of the images in an archive; every one is a part of the mapped file. See `load_images`."""
    names = [name for part in parts.values() for name, _ in part]
    cut = load_images(archive, names, side, verify).split([len(part) for part in parts.values()])
    targets = [torch.tensor([number for _, number in part]) for part in parts.values()]
    return {name: Split(*both) for name, *both in zip(parts, cut, targets, strict=True)}


def split_stratified(labelled: Labelled, sizes: Mapping[str, int], seed: int, *words: str) -> dict[str, Labelled]:
    """Random parts in the proportions of some sizes, each with its share of every class; of these sizes if all are used."""
    sizes = scale_sizes(sizes, len(labelled))
    order = stratified_order(torch.tensor([number for _, number in labelled]), seed, *words)
    rows = order.split(list(sizes.values()))
    return {name: [labelled[row] for row in part.tolist()] for name, part in zip(sizes, rows, strict=True)}


def scale_sizes(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Sizes of splits in the proportions of some others, with ``count`` in all; those of the others if they have as many.

    Example:
        >>> scale_sizes({"train": 6552, "valid": 819, "test": 818}, 100)
        {'train': 81, 'valid': 10, 'test': 9}
    """
    total = sum(sizes.values())
    first, *rest = sizes
    small = {name: max(1, sizes[name] * count // total) for name in rest}
    return {first: count - sum(small.values()), **small}
