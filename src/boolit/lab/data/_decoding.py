"""One encoded picture to the bytes that are stored. Worker processes import this."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boolit.lab.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

Pixels: TypeAlias = NDArray[np.uint8]
TRANSPARENT = ("RGBA", "LA", "PA", "RGBa", "La")


def decoded_picture(content: bytes, name: str, side: int) -> Pixels:
    """The square in the middle of a picture, scaled to a side; ``name`` is for what is said of a bad one.

    Shape: ``(3, side, side)``.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as picture:
            picture.draft(None, (2 * side, 2 * side))  # a JPEG far larger than that is decoded at a half, quarter or eighth
            upright = ImageOps.exif_transpose(picture)
            fitted = ImageOps.fit(_in_colours(upright), (side, side), Image.Resampling.BILINEAR)
            return np.ascontiguousarray(np.asarray(fitted).transpose(2, 0, 1))
    except UnidentifiedImageError:
        raise UserError(f"{name} is a picture in no format that Pillow knows; replace it or take it away") from None
    except Exception as error:  # a damaged picture may fail with any exception
        raise UserError(f"{name} cannot be decoded ({type(error).__name__}: {error}); replace it or take it away") from None


def _in_colours(picture: Image.Image) -> Image.Image:
    from PIL import Image

    if picture.mode.startswith("I"):  # 16 bits a pixel, which convert() would cut off at 255
        return Image.fromarray((np.asarray(picture).clip(0, 2**16 - 1) // 256).astype(np.uint8)).convert("RGB")
    if picture.mode in TRANSPARENT or "transparency" in picture.info:
        white = Image.new("RGBA", picture.size, "white")  # the colour under what is transparent is anyone's guess
        return Image.alpha_composite(white, picture.convert("RGBA")).convert("RGB")
    return picture.convert("RGB")
