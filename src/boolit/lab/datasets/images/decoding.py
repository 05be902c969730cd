"""Encoded images to bytes of one size, decoded once and kept as mapped memory."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, cache_key
from boolit.lab.common.parallel import map_in_threads
from boolit.lab.common.progress import count_progress
from boolit.lab.common.random import stratified_order
from boolit.lab.datasets.base import Split

if TYPE_CHECKING:
    from PIL import Image

VERSION = 1  # to be increased whenever an image is decoded differently
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")  # Pillow would start Ghostscript for others
Labelled: TypeAlias = Sequence[tuple[str, int]]  # names of images and their classes
ImageFiles: TypeAlias = Iterable[tuple[str, Callable[[], bytes]]]  # names of images and functions that read them


def decode_splits(
    parts: Mapping[str, Labelled], side: int, cache: Path, identity: str, files: Callable[[], ImageFiles]
) -> dict[str, Split]:
    """Return splits of images as bytes ``(images, 3, side, side)`` that are mapped from a file.

    Args:
        parts: the images of each split.
        side: the side of a decoded image.
        cache: the folder of decoded images.
        identity: identifies the images, so that others are decoded again.
        files: returns all images, among them those of the parts.
    """
    names = [name for part in parts.values() for name, _ in part]
    kept, shape = cache / cache_key(VERSION, identity, side, *names), (len(names), 3, side, side)
    if not (kept.is_file() and kept.stat().st_size == math.prod(shape)):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kept) as part, part.open("xb") as file, count_progress(lines=False) as begin:
            advance = begin("decoding images", len(names))
            for row, pixels in map_in_threads(partial(_decode_row, side), _wanted(names, files())):
                file.seek(row * pixels.nbytes)
                file.write(pixels.data)
                advance(1)
    images = torch.from_numpy(np.memmap(kept, np.uint8, "c", shape=shape))  # copy-on-write: torch has no read-only tensors
    x = images.split([len(part) for part in parts.values()])
    y = [torch.tensor([number for _, number in part]) for part in parts.values()]
    return {name: Split(*both) for name, *both in zip(parts, x, y, strict=True)}


def _wanted(names: Sequence[str], files: ImageFiles) -> Iterator[tuple[int, str, bytes]]:
    rows = {name: row for row, name in enumerate(names)}
    for name, read in files:
        if name in rows:
            yield rows.pop(name), name, read()
    if rows:
        raise UserError(f"the image {next(iter(rows))} is missing; put the complete dataset there")


def _decode_row(side: int, image: tuple[int, str, bytes]) -> tuple[int, NDArray[np.uint8]]:
    row, name, content = image
    return row, decode_image(content, name, side)


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


def split_stratified(labelled: Labelled, sizes: Mapping[str, int], seed: int, *words: str) -> dict[str, Labelled]:
    """Return random, stratified parts with the proportions of ``sizes``, and exactly these sizes if all images are used."""
    total = sum(sizes.values())
    first, *rest = sizes
    counts = {name: max(1, sizes[name] * len(labelled) // total) for name in rest}
    counts = {first: len(labelled) - sum(counts.values()), **counts}
    order = stratified_order(torch.tensor([number for _, number in labelled]), seed, *words)
    rows = order.split(list(counts.values()))
    return {name: [labelled[row] for row in part.tolist()] for name, part in zip(counts, rows, strict=True)}
