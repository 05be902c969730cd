"""The user's own images: a folder with a folder for each class."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from boolit.errors import UserError
from boolit.lab.common.files import data_folder, name_bytes, read_bounded
from boolit.lab.datasets.base import Dataset, Description, Source
from boolit.lab.datasets.images.decoding import ImageFiles, Labelled, decode_splits, split_stratified
from boolit.lab.datasets.images.normalization import Normalization, normalizer

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
Share = Annotated[float, Field(gt=0, lt=1)]
ImageSize = Annotated[int, Field(ge=8, le=1024)]  # the side of an image


class ImageFolder(Source):
    """The central square of every image, scaled to ``size``. ``test`` is the share of all images to test on, ``validation``
    the share of the others to hold out, both stratified and drawn with ``seed``.

    ``digest`` is the hash of names and contents of the images; it is computed if it is not given, and part of every run's key.
    """

    name: Literal["pictures"] = "pictures"
    path: str
    size: ImageSize = 224
    test: Share = 0.2
    validation: Share = 0.125
    seed: int = 0
    normalization: Normalization = "imagenet"
    digest: str

    @model_validator(mode="before")
    @classmethod
    def _with_digest(cls, options: Any) -> Any:
        if isinstance(options, dict) and "digest" not in options and isinstance(options.get("path"), str):
            return options | {"digest": folder_digest(Path(options["path"]))}
        return options

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of their numbers."""
        return sorted(images_by_class(Path(self.path)))

    def describe(self) -> Description:
        samples = self._sizes(len(labelled_images(Path(self.path))))
        return Description((3, self.size, self.size), len(self.classes), "classes", samples)

    def load(self) -> Dataset:
        folder = Path(self.path)
        labelled = labelled_images(folder)
        parts = split_stratified(labelled, self._sizes(len(labelled)), self.seed, "pictures")
        cache = data_folder() / "pictures" / "decoded"
        splits = decode_splits(parts, self.size, cache, self.digest, lambda: folder_files(folder, labelled))
        return Dataset(splits, "classes", len(self.classes), encode=normalizer(self.normalization))

    def _sizes(self, count: int) -> Mapping[str, int]:
        test = max(1, round(self.test * count))
        valid = max(1, round(self.validation * (count - test)))
        if test + valid >= count:
            rule = f"test = {self.test} and validation = {self.validation} leave none to train on; add images, or lower one"
            raise UserError(f"{self.path} has {count} images, of which {rule}")
        return {"train": count - test - valid, "valid": valid, "test": test}


def folder_digest(folder: Path) -> str:
    """Return the hash of the names and contents of the images in a folder."""
    digest = hashlib.sha256()
    for name in sorted(name for name, _ in labelled_images(folder)):
        content = read_bounded(folder / name, fix="replace or remove it")
        digest.update(hashlib.sha256(name_bytes(name)).digest() + hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def labelled_images(folder: Path) -> Labelled:
    """Return the images in a folder of classes as paths relative to it, with the number of their class."""
    by_class = images_by_class(folder)
    return [
        (path.relative_to(folder).as_posix(), number) for number, name in enumerate(sorted(by_class)) for path in by_class[name]
    ]


def folder_files(folder: Path, labelled: Labelled) -> ImageFiles:
    """Return the names of images with functions that read them."""
    return ((name, (folder / name).read_bytes) for name, _ in labelled)


def images_by_class(folder: Path) -> dict[str, list[Path]]:
    """Return the images in each class folder that has any; fewer than two classes are an error."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give one that has a folder of images for each class")
    if name_bytes(str(folder)) != str(folder).encode(errors="replace"):  # it becomes part of what is stored of a run
        raise UserError(f"the name of {folder} is not UTF-8; rename it")
    classes = {}
    for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        paths = (path for path in inner.rglob("*") if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))
        if images := sorted(path for path in paths if path.is_file()):
            classes[inner.name] = images
    if len(classes) < 2:
        rule = "a class is a folder of images, and there must be two"
        raise UserError(f"{folder} has images ({', '.join(SUFFIXES)}) in {len(classes)} of its folders; {rule}")
    return classes
