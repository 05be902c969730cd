"""Images of the user's own: a folder with a folder for each class."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from boolit.errors import UserError
from boolit.lab.common.files import data_folder, name_bytes, read_bounded
from boolit.lab.datasets.base import Dataset, Description, Source
from boolit.lab.datasets.images.archive import ImageArchive
from boolit.lab.datasets.images.base import ImageSize, Labelled, Normalisation, decode_splits, normaliser, split_stratified

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
Share = Annotated[float, Field(gt=0, lt=1)]


class ImageFolder(Source):
    """The square in the middle of every image, scaled to ``size``; ``test`` and ``validation`` are shares of all images,
    the same of every class, drawn with ``seed``.

    ``digest`` is of the images' names and contents and found if it is not given: so it is part of every run's key, and
    changed images are other data.
    """

    name: Literal["pictures"] = "pictures"
    path: str
    size: ImageSize = 224
    test: Share = 0.2
    validation: Share = 0.1
    seed: int = 0
    normalisation: Normalisation = "imagenet"
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
        return sorted(_by_class(Path(self.path)))

    def describe(self) -> Description:
        samples = self._sizes(len(_list_labelled(Path(self.path).resolve())))
        return Description((3, self.size, self.size), len(self.classes), "classes", samples)

    def load(self) -> Dataset:
        folder = Path(self.path).resolve()
        labelled = _list_labelled(folder)
        parts = split_stratified(labelled, self._sizes(len(labelled)), self.seed, "pictures")
        archive = ImageArchive(folder, data_folder() / "pictures" / "decoded", self.digest)
        splits = decode_splits(archive, parts, self.size)
        return Dataset(splits, "classes", len(self.classes), encode=normaliser(self.normalisation))

    def _sizes(self, count: int) -> Mapping[str, int]:
        test, valid = (max(1, round(share * count)) for share in (self.test, self.validation))
        if test + valid >= count:
            raise UserError(
                f"{self.path} has {count} images, of which test = {self.test} and validation = {self.validation} leave none "
                "to train on; lower one of them"
            )
        return {"train": count - test - valid, "valid": valid, "test": test}


def folder_digest(folder: Path) -> str:
    """The hash of the names and contents of the images in a folder."""
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in _of_all_classes(folder)):
        digest.update(hashlib.sha256(name_bytes(name)).digest() + hashlib.sha256(_content(path)).digest())
    return digest.hexdigest()[:16]


def _list_labelled(folder: Path) -> Labelled:
    by_class = _by_class(folder)
    return [
        (f"{folder.name}/{path.relative_to(folder).as_posix()}", number)
        for number, name in enumerate(sorted(by_class))
        for path in by_class[name]
    ]


def _of_all_classes(folder: Path) -> list[Path]:
    return [path for paths in _by_class(folder).values() for path in paths]


def _by_class(folder: Path) -> dict[str, list[Path]]:
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; give one that has a folder of images for each class")
    if name_bytes(str(folder)) != str(folder).encode(errors="replace"):  # it becomes part of what is stored of a run
        raise UserError(f"the name of {folder} is not UTF-8, as only those of the images in it may be; rename it")
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    found = {path.name: _images_in(path) for path in folders}
    full = {name: paths for name, paths in found.items() if paths}
    if len(full) < 2:
        raise UserError(
            f"{folder} has images ({', '.join(SUFFIXES)}) in {len(full)} of its folders; a class is a folder of images, "
            "and there must be two"
        )
    return full


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _content(path: Path) -> bytes:
    try:
        return read_bounded(path, fix="replace it or take it away")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}); replace it or take it away") from None
