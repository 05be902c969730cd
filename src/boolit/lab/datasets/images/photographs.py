"""Photographs of various sizes: Caltech-101, Stanford Cars and Oxford Flowers (s:transfer)."""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from boolit.errors import UserError
from boolit.lab.common.devices import map_in_threads
from boolit.lab.common.files import atomic_write, cache_key, data_folder
from boolit.lab.common.progress import count_progress
from boolit.lab.datasets import download, images
from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.datasets.download import PublishedDataset, PublishedFile, published_files


class Photographs(PublishedDataset, ABC):
    """The central square of every image, scaled to ``size``. Shape: images are stored as ``(samples, 3, size, size)`` bytes."""

    size: images.ImageSize = 224
    normalization: images.Normalization = "imagenet"

    @abstractmethod
    def _splits(self) -> dict[str, Split]:
        """Return the splits as bytes."""

    @property
    def inputs(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of an image."""
        return 3, self.size, self.size

    def load(self) -> Dataset:
        return Dataset(self._splits(), self.task, self.classes, encode=images.normalizer(self.normalization))

    def _decode(self, published: PublishedFile, parts: Mapping[str, images.Labelled]) -> dict[str, Split]:
        """Return the images of some parts, decoded on first use and mapped from a file after that."""
        path, names = download.fetch(published), [name for part in parts.values() for name, _ in part]
        identity = images.files_identity({"": [path, *sorted(path.rglob("*"))]})
        kept = published.path.parent / "decoded" / cache_key(images.VERSION, identity, self.size, *names)
        shape = (len(names), *self.inputs)
        if not kept.is_file():
            download.note_unverified(published)
            kept.parent.mkdir(parents=True, exist_ok=True)
            rows = {name: row for row, name in enumerate(names)}
            # An archive is read in its own order, and every image is written to its row.
            contents = ((rows.pop(name), read(), name) for name, read in download.archive_files(published) if name in rows)
            with atomic_write(kept) as part, part.open("xb") as file, count_progress() as begin:
                advance = begin("decoding images", len(names))
                decoded = map_in_threads(lambda each: (each[0], images.decode_image(*each[1:], self.size)), contents)
                for row, pixels in decoded:
                    file.seek(row * math.prod(self.inputs))
                    file.write(pixels.data)
                    advance(1)
                if rows:
                    raise UserError(f"the image {next(iter(rows))} is missing; put the complete dataset there")
        x = torch.from_numpy(np.memmap(kept, np.uint8, "c", shape=shape))  # copy-on-write: torch has no read-only tensors
        y = torch.tensor([number for part in parts.values() for _, number in part])
        sizes = [len(part) for part in parts.values()]
        return {name: Split(*both) for name, *both in zip(parts, x.split(sizes), y.split(sizes), strict=True)}


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
            return self._decode(archive, images.split_stratified(self._list(archive), self.samples, 0, "caltech101", "split"))
        splits: dict[str, Split] = {}
        for name, inner in (("train", "train"), ("valid", "val"), ("test", "test")):
            folder = PublishedFile("caltech101", inner, unpacked=inner)
            splits |= self._decode(folder, {name: self._list(folder)})
        return splits

    def _list(self, published: PublishedFile) -> images.Labelled:
        """Return the images of an archive or folder and the numbers of their classes; each class has a folder."""
        paths = [name.split("/") for name, _ in download.archive_files(published) if name.endswith(".jpg")]
        labelled = [path for path in sorted(paths) if path[0] == published.unpacked and path[1] != "BACKGROUND_Google"]
        numbers = {category: number for number, category in enumerate(sorted({path[1] for path in labelled}))}
        if len(numbers) != self.classes:
            raise published.error(download.fetch(published), f"has images of {len(numbers)} classes, not of {self.classes}")
        return [("/".join(path), numbers[path[1]]) for path in labelled if not path[-1].startswith(".")]


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

    def _labelled(self, folder: str, annotations: PublishedFile) -> images.Labelled:
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
        archive, labels = self.files
        numbers = _read_mat(labels, "labels").tolist()
        labelled = [(f"jpg/image_{place:05d}.jpg", number - 1) for place, number in enumerate(numbers, start=1)]
        return self._decode(archive, images.split_stratified(labelled, self.samples, 0, "flowers", "split"))


def _read_mat(published: PublishedFile, variable: str) -> Any:
    from scipy.io import loadmat

    (content,) = download.read_contents([published]).values()
    try:
        return loadmat(io.BytesIO(content), variable_names=[variable])[variable].ravel()
    except Exception as error:  # a damaged file may raise anything
        raise published.error(download.fetch(published), f"has no MATLAB variable {variable} ({error})") from None
