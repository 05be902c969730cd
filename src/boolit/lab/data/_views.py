"""What a frozen encoder sees of pictures: whole ones, or the paper's augmented views of them (a:transfer).

A view is a crop of a share of 0.7 to 1 of the picture's area, its sides 3:4 to 4:3, scaled to a square; mirrored or not; and
brightness, contrast and saturation each changed by a factor of 0.6 to 1.4, in any order. NOTE[paper]: "colour jitter (intensity
0.4)" does not say whether hue is meant; these three are what that one number stands for in timm, which has the other
settings' names, too.

Everything is done on bytes, as Pillow would. Crops have all sizes, so they are scaled one by one, by torch's own resampling of
bytes: 0.2 ms of one core for a view of 224 × 224, and its colours 3 ms, where the encoder takes 40.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.lab.data._picture_operations import brightened, coloured, contrasted

SMALLEST_AREA, LARGEST_AREA = 0.7, 1.0
WIDEST = 4 / 3
JITTER = 0.4
TRIES = 10  # crops drawn until one fits into its picture; if none does, the whole picture is taken
CHANCES = 2 * TRIES + 2 + 1 + 4  # of a view: crops, the place of one, mirrored, three factors and their order
CHANGES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (brightened, contrasted, coloured)
ORDERS = list(permutations(range(len(CHANGES))))


def clean_view(pictures: Tensor, size: int) -> Tensor:
    """Whole pictures.

    NOTE[paper]: how test pictures are cut is not said.

    Shape: ``(n, 3, side, side)`` to ``(n, 3, size, size)`` bytes.
    """
    return pictures if pictures.shape[-2:] == (size, size) else _scaled(pictures, size)


def augmented_view(pictures: Tensor, chances: Tensor, size: int, flip: bool) -> Tensor:
    """A view of every picture.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 27)`` numbers in [0, 1) to ``(n, 3, size, size)`` bytes.
    """
    crops, place, mirrored, colours = chances.split([2 * TRIES, 2, 1, 4], 1)
    corners = boxes(crops.unflatten(1, (TRIES, 2)), place, *pictures.shape[-2:]).tolist()
    cut = (picture[:, y : y + h, x : x + w] for picture, (y, x, h, w) in zip(pictures, corners, strict=True))
    views = torch.cat([_scaled(crop.unsqueeze(0), size) for crop in cut])
    if flip:
        views = torch.where((mirrored < 0.5).view(-1, 1, 1, 1), views.flip(-1), views)
    return jittered(views, colours)


def boxes(crops: Tensor, place: Tensor, height: int, width: int) -> Tensor:
    """Random crops as top, left, height and width; areas are uniform, and so are the logarithms of width over height.

    Shape: ``(n, tries, 2)`` and ``(n, 2)`` numbers in [0, 1) to ``(n, 4)``, integers.
    """
    area = (SMALLEST_AREA + (LARGEST_AREA - SMALLEST_AREA) * crops[..., 0]) * height * width
    ratio = (math.log(WIDEST) * (2 * crops[..., 1] - 1)).exp()
    tall, wide = (area / ratio).sqrt().round().long(), (area * ratio).sqrt().round().long()
    fits = (tall <= height) & (wide <= width)
    first = fits.int().argmax(1, keepdim=True)
    found = fits.any(1)
    tall = torch.where(found, tall.gather(1, first).squeeze(1), height)
    wide = torch.where(found, wide.gather(1, first).squeeze(1), width)
    top, left = (place[:, 0] * (height - tall + 1)).long(), (place[:, 1] * (width - wide + 1)).long()
    return torch.stack([top, left, tall, wide], 1)


def jittered(pictures: Tensor, chances: Tensor) -> Tensor:
    """Pictures with other brightness, contrast and saturation.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 4)`` numbers in [0, 1) to pictures of the same shape.
    """
    factors, order = 1 + JITTER * (2 * chances[:, :3] - 1), (chances[:, 3] * len(ORDERS)).long()
    result = torch.empty_like(pictures)
    for number, changes in enumerate(ORDERS):
        rows = (order == number).nonzero().squeeze(1)
        changed = pictures[rows]
        for change in changes if len(rows) else ():
            changed = CHANGES[change](changed, factors[rows, change])
        result[rows] = changed
    return result


def _scaled(pictures: Tensor, size: int) -> Tensor:
    return F.interpolate(pictures, (size, size), mode="bilinear", antialias=True)
