"""What a frozen encoder sees of images: whole images, the paper's augmented views, and photographs in files.

A view is a crop with a share of 0.7 to 1 of the image's area and an aspect ratio of 3:4 to 4:3, scaled to a square; mirrored or
not; with brightness, contrast and saturation each changed by a factor of 0.6 to 1.4, in any order. NOTE[paper]: "colour jitter
(intensity 0.4)" does not say whether hue is included; these three are what that number stands for in timm, whose names the
other settings have.

Everything is done on bytes. A view depends only on seed, image and number of the view.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.lab.common.files import name_bytes, read_bounded
from boolit.lab.common.random import generator, keys, uniform
from boolit.lab.datasets.base import Split
from boolit.lab.datasets.images.autoaugment import adjust_brightness, adjust_contrast, adjust_saturation
from boolit.lab.datasets.images.decoding import decode_image

SMALLEST_AREA, LARGEST_AREA = 0.7, 1.0
WIDEST = 4 / 3
JITTER = 0.4
TRIES = 10  # crops drawn until one fits into its image; otherwise the whole image is taken
NUMBERS = 2 * TRIES + 2 + 1 + 4  # per view: crops, place, mirrored, three factors and their order
CHANGES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (adjust_brightness, adjust_contrast, adjust_saturation)
ORDERS = list(permutations(range(len(CHANGES))))
BATCH = 64
SCALED, SEEN = 256, 224  # side of a decoded photograph, and of the square that is cut from its center


def augmented_view(images: Tensor, numbers: Tensor, size: int, flip: bool) -> Tensor:
    """Return a view of every image.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 27)`` numbers in [0, 1) to ``(n, 3, size, size)`` bytes.
    """
    crops, place, mirrored, colors = numbers.split([2 * TRIES, 2, 1, 4], 1)
    corners = boxes(crops.unflatten(1, (TRIES, 2)), place, *images.shape[-2:]).tolist()
    cut = (image[:, y : y + h, x : x + w] for image, (y, x, h, w) in zip(images, corners, strict=True))
    views = torch.cat([_resize(crop.unsqueeze(0), size) for crop in cut])
    if flip:
        views = torch.where((mirrored < 0.5).view(-1, 1, 1, 1), views.flip(-1), views)
    return jitter_colors(views, colors)


def boxes(crops: Tensor, place: Tensor, height: int, width: int) -> Tensor:
    """Return random crops as top, left, height and width; areas and the logarithms of aspect ratios are uniform.

    Shape: ``(n, tries, 2)`` and ``(n, 2)`` numbers in [0, 1) to ``(n, 4)`` integers.
    """
    area = (SMALLEST_AREA + (LARGEST_AREA - SMALLEST_AREA) * crops[..., 0]) * height * width
    ratio = (math.log(WIDEST) * (2 * crops[..., 1] - 1)).exp()
    tall, wide = (area / ratio).sqrt().round().long(), (area * ratio).sqrt().round().long()
    fits = (tall <= height) & (wide <= width)
    first, any_fits = fits.int().argmax(1, keepdim=True), fits.any(1)
    tall = torch.where(any_fits, tall.gather(1, first).squeeze(1), height)
    wide = torch.where(any_fits, wide.gather(1, first).squeeze(1), width)
    top, left = (place[:, 0] * (height - tall + 1)).long(), (place[:, 1] * (width - wide + 1)).long()
    return torch.stack([top, left, tall, wide], 1)


def jitter_colors(images: Tensor, numbers: Tensor) -> Tensor:
    """Change brightness, contrast and saturation of every image.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 4)`` numbers in [0, 1) to images of the same shape.
    """
    factors, order = 1 + JITTER * (2 * numbers[:, :3] - 1), (numbers[:, 3] * len(ORDERS)).long()
    result = torch.empty_like(images)
    for number, changes in enumerate(ORDERS):
        rows = (order == number).nonzero().squeeze(1)
        changed = images[rows]
        for change in changes if len(rows) else ():
            changed = CHANGES[change](changed, factors[rows, change])
        result[rows] = changed
    return result


def _resize(images: Tensor, size: int) -> Tensor:
    return F.interpolate(images, (size, size), mode="bilinear", antialias=True)


@dataclass(frozen=True)
class ViewBatch:
    """Images of a split in the same view; ``view`` is None for whole images."""

    split: str
    rows: range
    view: int | None


@dataclass(frozen=True)
class ViewPlan:
    """Images by split, the ``size`` of a view, whether it may be mirrored, and the seed.

    Views are numbered: first the whole images of all splits except ``train``, by name, then every view of all training images.
    """

    splits: Mapping[str, Split]
    size: int
    flip: bool
    seed: int

    @property
    def whole(self) -> list[str]:
        """The splits whose images are seen whole, in order."""
        return sorted(name for name in self.splits if name != "train")

    def first_row(self, split: str) -> int:
        """Return the number of the first view of a split."""
        before = self.whole[: self.whole.index(split)] if split in self.whole else self.whole
        return sum(len(self.splits[name]) for name in before)

    def count(self, views: int) -> int:
        """Return the number of views of all images, with ``views`` of each training image."""
        return self.first_row("train") + views * len(self.splits["train"])

    def batches(self, views: int, done: int) -> Iterator[ViewBatch]:
        """Yield the batches after the first ``done`` views."""
        blocks: list[tuple[str, int | None]] = [(name, None) for name in self.whole]
        blocks += [("train", view) for view in range(views)]
        for split, view in blocks:
            count = len(self.splits[split])
            for first in range(min(done, count), count, BATCH):
                yield ViewBatch(split, range(first, min(first + BATCH, count)), view)
            done = max(0, done - count)

    def views(self, batch: ViewBatch) -> Tensor:
        """Return the views of a batch as bytes ``(images, 3, size, size)``.

        NOTE[paper]: how test images are cut is not given; they are scaled as a whole.
        """
        images = self.splits[batch.split].x[batch.rows.start : batch.rows.stop]
        if batch.view is None:
            return images if images.shape[-2:] == (self.size, self.size) else _resize(images, self.size)
        return self._augment(images, list(batch.rows), "view", batch.view)

    def refresh_batches(self) -> tuple[Tensor, ...]:
        """Return the rows of the training images in shuffled batches of nearly equal size."""
        order = torch.randperm(len(self.splits["train"]), generator=generator(self.seed, "refresh"))
        return order.tensor_split(-(-len(order) // BATCH))

    def refresh_views(self, rows: Tensor) -> Tensor:
        """Return a further view of training images, as bytes ``(images, 3, size, size)``."""
        return self._augment(self.splits["train"].x[rows], rows.tolist(), "refresh", 0)

    def _augment(self, images: Tensor, rows: list[int], purpose: str, view: int) -> Tensor:
        numbers = uniform(keys(rows, purpose, self.seed), view, (NUMBERS,))
        return augmented_view(images, numbers, self.size, self.flip)


@dataclass(frozen=True)
class PhotographPlan(ViewPlan):
    """Files by split, none of which is augmented: scaled to 256, with the central 224 × 224 cut out."""

    files: Mapping[str, Sequence[Path]]

    @staticmethod
    def of(files: Mapping[str, Sequence[Path]]) -> PhotographPlan:
        """Return the plan for all files of some splits."""
        splits = {name: Split(rows := torch.arange(len(paths)), rows) for name, paths in files.items()}
        return PhotographPlan(splits, SEEN, flip=False, seed=0, files=files)

    @property
    def whole(self) -> list[str]:
        return list(self.splits)

    def count(self, views: int) -> int:  # noqa: ARG002 (each image is seen once)
        return sum(map(len, self.splits.values()))

    def views(self, batch: ViewBatch) -> Tensor:
        edge, paths = (SCALED - SEEN) // 2, (self.files[batch.split][row] for row in batch.rows)
        images = [torch.from_numpy(decode_image(read_bounded(path), str(path), SCALED)) for path in paths]
        return torch.stack(images)[..., edge : edge + SEEN, edge : edge + SEEN].contiguous()

    def identity(self) -> str:
        """Return a hash of the names, sizes and times of the files."""
        digest = hashlib.sha256()
        for split, paths in self.files.items():
            for path in paths:
                state, file = path.stat(), f"{path.parent.name}/{path.name}"
                digest.update(name_bytes(f"{split}\n{file}\n{state.st_size} {state.st_mtime_ns}\n"))
        return digest.hexdigest()
