"""Image files: a folder with a folder for each class, decoding to bytes of one size, and normalization of colors."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from boolit.errors import UserError
from boolit.lab.common.random import stratified_order
from boolit.lab.datasets.base import Encode, scale_and_shift

if TYPE_CHECKING:
    from PIL import Image

VERSION = 1  # to be increased whenever an image is decoded differently
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")  # Pillow would start Ghostscript for others
ImageSize = Annotated[int, Field(ge=8, le=1024)]  # the side of an image
Labelled: TypeAlias = Sequence[tuple[str, int]]  # names of images and their classes
Normalization: TypeAlias = Literal["half", "imagenet"]
# Mean and standard deviation of red, green and blue, as fractions of 255.
SCALES: Mapping[Normalization, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "half": ((0.5,) * 3, (0.5,) * 3),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def normalizer(kind: Normalization) -> Encode:
    """Return an encoding of bytes ``(…, 3, height, width)`` with the mean and standard deviation of ``kind``."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in SCALES[kind])
    return scale_and_shift(1 / (255 * deviation), -mean / deviation)


def files_identity(files: Mapping[str, Sequence[Path]]) -> str:
    """Return a hash of the names, sizes and times of files by split."""
    digest = hashlib.sha256()
    for split, paths in files.items():
        for path in paths:
            state, file = path.stat(), f"{path.parent.name}/{path.name}"
            digest.update(os.fsencode(f"{split}\n{file}\n{state.st_size} {state.st_mtime_ns}\n"))
    return digest.hexdigest()


def images_by_class(folder: Path) -> dict[str, list[Path]]:
    """Return the images in each class folder that has any, by name; fewer than two classes are an error."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give one that has a folder of images for each class")
    classes = {}
    for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        paths = (path for path in inner.rglob("*") if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))
        if images := sorted(path for path in paths if path.is_file()):
            classes[inner.name] = images
    if len(classes) < 2:
        rule = "a class is a folder of images, and there must be two"
        raise UserError(f"{folder} has images ({', '.join(SUFFIXES)}) in {len(classes)} of its folders; {rule}")
    return classes


def split_stratified(labelled: Labelled, sizes: Mapping[str, int], seed: int, *words: str) -> dict[str, Labelled]:
    """Return random, stratified parts with the proportions of ``sizes``, and exactly these sizes if all images are used."""
    total = sum(sizes.values())
    first, *rest = sizes
    counts = {name: max(1, sizes[name] * len(labelled) // total) for name in rest}
    counts = {first: len(labelled) - sum(counts.values()), **counts}
    order = stratified_order(torch.tensor([number for _, number in labelled]), seed, *words)
    rows = order.split(list(counts.values()))
    return {name: [labelled[row] for row in part.tolist()] for name, part in zip(counts, rows, strict=True)}


def decode_image(content: bytes, name: str, side: int) -> NDArray[np.uint8]:
    """Return the central square of an image, scaled to ``side``; ``name`` is for errors. Shape: ``(3, side, side)``."""
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            image.draft(None, (2 * side, 2 * side))  # decodes a much larger JPEG at a half, quarter or eighth
            upright = ImageOps.exif_transpose(image)
            fitted = ImageOps.fit(_to_rgb(upright), (side, side), Image.Resampling.BILINEAR)
            return np.ascontiguousarray(np.asarray(fitted).transpose(2, 0, 1))
    except Exception as error:  # a damaged image may raise anything
        raise UserError(f"{name} cannot be decoded ({type(error).__name__}: {error}); replace or remove it") from None


def _to_rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits per pixel, which convert() would clip at 255
        return Image.fromarray((np.asarray(image).clip(0, 2**16 - 1) // 256).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")
