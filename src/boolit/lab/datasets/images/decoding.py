"""Encoded images to the bytes that are stored, by worker processes. They import this file, so it is light."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boolit.errors import UserError
from boolit.lab.common.parallel import map_in_processes, processors

if TYPE_CHECKING:
    from PIL import Image

Pixels: TypeAlias = NDArray[np.uint8]
TRANSPARENT = ("RGBA", "LA", "PA", "RGBa", "La")
# Named, as Pillow would otherwise try all it knows, and start Ghostscript for one of them.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
MOST_PIXELS = 40_000_000  # to be decoded, at no more than 24 bytes each on the way: under a gibibyte
MOST_HEADER_PIXELS = 89_000_000  # of a JPEG that is decoded at a part of its size; Pillow warns of more


def decode_image(content: bytes, name: str, side: int) -> Pixels:
    """The square in the middle of an image, scaled to a side; ``name`` is for what is said of a bad one.

    Shape: ``(3, side, side)``.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with _open(content) as image:
            _refuse_huge(image, name, MOST_HEADER_PIXELS)
            image.draft(None, (2 * side, 2 * side))  # a JPEG far larger than that is decoded at a half, quarter or eighth
            _refuse_huge(image, name, MOST_PIXELS)
            upright = ImageOps.exif_transpose(image)
            fitted = ImageOps.fit(_convert_to_rgb(upright), (side, side), Image.Resampling.BILINEAR)
            return np.ascontiguousarray(np.asarray(fitted).transpose(2, 0, 1))
    except UserError:
        raise
    except UnidentifiedImageError:
        raise UserError(f"{name} is an image in none of the formats {', '.join(FORMATS)}; replace it or take it away") from None
    except Exception as error:  # a damaged image may fail with any exception
        raise UserError(f"{name} cannot be decoded ({type(error).__name__}: {error}); replace it or take it away") from None


def _open(content: bytes) -> Image.Image:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # of what is refused in a line of our own
        return Image.open(io.BytesIO(content), formats=FORMATS)


def _refuse_huge(image: Image.Image, name: str, most: int) -> None:
    """Before anything is decoded, by the size in the header."""
    width, height = image.size
    if width * height > most:
        raise UserError(f"{name} has {width:,} × {height:,} pixels, more than {most:,}; scale it down or take it away")


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits per pixel, which convert() would cut off at 255
        return Image.fromarray((np.asarray(image).clip(0, 2**16 - 1) // 256).astype(np.uint8)).convert("RGB")
    if image.mode in TRANSPARENT or "transparency" in image.info:
        white = Image.new("RGBA", image.size, "white")  # the colour under what is transparent is anyone's guess
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


Encoded: TypeAlias = tuple[int, str, bytes]  # row, name and content of an image
Decoded: TypeAlias = tuple[int, Pixels]
TOGETHER = 16  # images a worker gets at once
WORTH_A_PROCESS = 400  # images: starting a process, which imports torch, takes about as long as decoding them


def decode_all(images: Iterable[Encoded], count: int, side: int) -> Iterator[Decoded]:
    """Decodes about ``count`` images, in the order they come."""
    workers = min(processors(), count // WORTH_A_PROCESS)
    work = partial(decode_portion, side=side)
    return chain.from_iterable(map_in_processes(work, _portions(images), workers, "decodes images"))


def decode_portion(portion: list[Encoded], side: int) -> list[Decoded]:
    """Decodes some images in this process."""
    return [(row, decode_image(content, name, side)) for row, name, content in portion]


def _portions(images: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    remaining = iter(images)
    return iter(lambda: list(islice(remaining, TOGETHER)), [])
