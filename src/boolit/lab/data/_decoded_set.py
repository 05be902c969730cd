"""Datasets of photographs of all sizes: decoded to one size, split in some order, mapped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeAlias

import torch
from pydantic import Field
from torch import Tensor

from boolit.lab.data._album import Album, pictures, stamp_of
from boolit.lab.data._dataset import Dataset, Description, Split, Task
from boolit.lab.data._fetch import fetch_missing
from boolit.lab.data._normalisation import Normalisation, normaliser
from boolit.lab.data._published import Published
from boolit.lab.data._remote import Remote
from boolit.lab.data._stratified import interleaved
from boolit.lab.data._verified import check

Labelled: TypeAlias = Sequence[tuple[str, int]]  # names of pictures, and their classes
SMALLEST, LARGEST = 8, 1024


class DecodedSet(Published, ABC):
    """The square in the middle of every picture, scaled to ``size``. ``subset`` is the share of the training pictures to train
    on, the first ones.

    Shape: pictures are stored as ``(samples, 3, size, size)`` bytes.
    """

    size: int = Field(224, ge=SMALLEST, le=LARGEST)
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
        """How many published pictures each of `splits` has."""
        return self.samples

    def load(self) -> Dataset:
        fetch_missing(self.remotes)
        splits = self.splits()
        train = splits["train"]
        trained = max(1, round(self.subset * len(train)))
        splits["train"] = Split(train.x[:trained], train.y[:trained])
        return Dataset(splits, self.task, self.classes, encode=normaliser(self.normalisation))


def album_of(remote: Remote) -> Album:
    """The pictures in a published archive, or in the folder in its place."""
    path = remote.kept or remote.path
    return Album(path, remote.path.parent / "decoded", stamp_of(path))


def published_splits(remote: Remote, parts: Mapping[str, Labelled], side: int) -> dict[str, Split]:
    """Splits of the pictures in a published archive, which is verified before they are decoded."""
    album = album_of(remote)
    return splits_of(pictures(album, _names(parts), side, partial(check, remote, album.path)), parts)


def splits_of(x: Tensor, parts: Mapping[str, Labelled]) -> dict[str, Split]:
    """Pictures, in the order of some parts, cut into these: every one stays a part of the mapped file."""
    cut = x.split([len(part) for part in parts.values()])
    targets = [torch.tensor([number for _, number in part]) for part in parts.values()]
    return {name: Split(*both) for name, *both in zip(parts, cut, targets, strict=True)}


def stratified(labelled: Labelled, sizes: Mapping[str, int], seed: int, *words: str) -> dict[str, Labelled]:
    """Random parts of some sizes, each with its share of every class."""
    order = interleaved(torch.tensor([number for _, number in labelled]), seed, *words)
    rows = order.split(list(sizes.values()))
    return {name: [labelled[row] for row in part.tolist()] for name, part in zip(sizes, rows, strict=True)}


def scaled(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Sizes of splits in the proportions of some others, with ``count`` in all; those of the others if they have as many.

    Example:
        >>> scaled({"train": 6552, "valid": 819, "test": 818}, 100)
        {'train': 81, 'valid': 10, 'test': 9}
    """
    total = sum(sizes.values())
    first, *rest = sizes
    small = {name: max(1, sizes[name] * count // total) for name in rest}
    return {first: count - sum(small.values()), **small}


def _names(parts: Mapping[str, Labelled]) -> list[str]:
    return [name for part in parts.values() for name, _ in part]
