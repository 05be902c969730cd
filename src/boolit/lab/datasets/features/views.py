"""What a frozen encoder sees of images, and in which order: whole ones, the paper's augmented views, photographs in files.

A view is a crop of a share of 0.7 to 1 of the image's area, its sides 3:4 to 4:3, scaled to a square; mirrored or not; and
brightness, contrast and saturation each changed by a factor of 0.6 to 1.4, in any order. NOTE[paper]: "colour jitter (intensity
0.4)" does not say whether hue is meant; these three are what that one number stands for in timm, which has the other
settings' names, too.

Everything is done on bytes, as Pillow would. Crops have all sizes, so they are scaled one by one, by torch's own resampling of
bytes: 0.2 ms of one core for a view of 224 × 224, and its colours 3 ms, where the encoder takes 40.

Every view depends on seed, image and number of the view only, whatever is seen before.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import name_bytes, read_bounded
from boolit.lab.common.random import generator, keys, uniform
from boolit.lab.datasets.base import Split
from boolit.lab.datasets.images.decoding import decode_image
from boolit.lab.datasets.images.operations import adjust_brightness, adjust_contrast, adjust_saturation

SMALLEST_AREA, LARGEST_AREA = 0.7, 1.0
WIDEST = 4 / 3
JITTER = 0.4
TRIES = 10  # crops drawn until one fits into its image; if none does, the whole image is taken
CHANCES = 2 * TRIES + 2 + 1 + 4  # of a view: crops, the place of one, mirrored, three factors and their order
CHANGES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (adjust_brightness, adjust_contrast, adjust_saturation)
ORDERS = list(permutations(range(len(CHANGES))))


def whole_view(images: Tensor, size: int) -> Tensor:
    """Whole images.

    NOTE[paper]: how test images are cut is not said.

    Shape: ``(n, 3, side, side)`` to ``(n, 3, size, size)`` bytes.
    """
    return images if images.shape[-2:] == (size, size) else _resize(images, size)


def augmented_view(images: Tensor, chances: Tensor, size: int, flip: bool) -> Tensor:
    """A view of every image.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 27)`` numbers in [0, 1) to ``(n, 3, size, size)`` bytes.
    """
    crops, place, mirrored, colours = chances.split([2 * TRIES, 2, 1, 4], 1)
    corners = boxes(crops.unflatten(1, (TRIES, 2)), place, *images.shape[-2:]).tolist()
    cut = (image[:, y : y + h, x : x + w] for image, (y, x, h, w) in zip(images, corners, strict=True))
    views = torch.cat([_resize(crop.unsqueeze(0), size) for crop in cut])
    if flip:
        views = torch.where((mirrored < 0.5).view(-1, 1, 1, 1), views.flip(-1), views)
    return jitter_colours(views, colours)


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


def jitter_colours(images: Tensor, chances: Tensor) -> Tensor:
    """Images with other brightness, contrast and saturation.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 4)`` numbers in [0, 1) to images of the same shape.
    """
    factors, order = 1 + JITTER * (2 * chances[:, :3] - 1), (chances[:, 3] * len(ORDERS)).long()
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


BATCH = 64  # images that are seen together


@dataclass(frozen=True)
class ViewBatch:
    """Some images of a split, all in the same view; ``view`` is none for whole images."""

    split: str
    rows: range
    view: int | None


@dataclass(frozen=True)
class ViewPlan:
    """Images by split, and how they are looked at: the ``size`` of a view, whether it may be mirrored, and the seed."""

    splits: Mapping[str, Split]
    size: int
    flip: bool
    seed: int

    @property
    def whole(self) -> list[str]:
        """The splits whose images are seen whole, in order."""
        return sorted(name for name in self.splits if name != "train")

    def first_row(self, split: str) -> int:
        """How many views come before those of a split; of the training images, before the first of each."""
        before = self.whole[: self.whole.index(split)] if split in self.whole else self.whole
        return sum(len(self.splits[name]) for name in before)

    def count(self, views: int) -> int:
        """How many views there are of all images together, with so many of each training image."""
        return self.first_row("train") + views * len(self.splits["train"])

    def batches(self, views: int, done: int) -> Iterator[ViewBatch]:
        """What remains to be seen after the first ``done`` views."""
        blocks: list[tuple[str, int | None]] = [(name, None) for name in self.whole]
        blocks += [("train", view) for view in range(views)]
        for split, view in blocks:
            count = len(self.splits[split])
            for first in range(min(done, count), count, BATCH):
                yield ViewBatch(split, range(first, min(first + BATCH, count)), view)
            done = max(0, done - count)

    def views(self, batch: ViewBatch) -> Tensor:
        """The views of a batch.

        Shape: ``(images, 3, size, size)`` bytes.
        """
        images = self.splits[batch.split].x[batch.rows.start : batch.rows.stop]
        if batch.view is None:
            return whole_view(images, self.size)
        return self._augment(images, list(batch.rows), "view", batch.view)

    def refresh_batches(self) -> tuple[Tensor, ...]:
        """The training images in batches of mixed classes that are nearly equal in size.

        Shape: ``(images,)`` row numbers each.
        """
        order = torch.randperm(len(self.splits["train"]), generator=generator(self.seed, "refresh"))
        return order.tensor_split(-(-len(order) // BATCH))

    def refresh_views(self, rows: Tensor) -> Tensor:
        """A view of some training images that is none of those of the pieces.

        Shape: ``(images,)`` row numbers to ``(images, 3, size, size)`` bytes.
        """
        return self._augment(self.splits["train"].x[rows], rows.tolist(), "refresh", 0)

    def _augment(self, images: Tensor, rows: list[int], purpose: str, view: int) -> Tensor:
        chances = uniform(keys(rows, purpose, self.seed), view, (CHANCES,))
        return augmented_view(images, chances, self.size, self.flip)


SCALED, SEEN = 256, 224  # the shorter side of an image, and the side of the square that is cut from its middle


@dataclass(frozen=True)
class PhotographPlan(ViewPlan):
    """Files by split, none of which is augmented."""

    files: Mapping[str, Sequence[Path]]

    @staticmethod
    def of(files: Mapping[str, Sequence[Path]]) -> PhotographPlan:
        """All files of some splits."""
        splits = {name: Split(rows := torch.arange(len(paths)), rows) for name, paths in files.items()}
        return PhotographPlan(splits, SEEN, flip=False, seed=0, files=files)

    @property
    def whole(self) -> list[str]:
        return list(self.splits)

    def count(self, views: int) -> int:  # noqa: ARG002 (each image is seen once)
        return sum(map(len, self.splits.values()))

    def views(self, batch: ViewBatch) -> Tensor:
        edge = (SCALED - SEEN) // 2
        images = [_decode(self.files[batch.split][row]) for row in batch.rows]
        return torch.stack(images)[..., edge : edge + SEEN, edge : edge + SEEN].contiguous()

    def identity(self) -> str:
        """What tells these files from others: names, sizes and times."""
        digest = hashlib.sha256()
        for split, paths in self.files.items():
            for path in paths:
                with _report_unreadable(path):
                    state = path.stat()
                file = f"{path.parent.name}/{path.name}"
                digest.update(name_bytes(f"{split}\n{file}\n{state.st_size} {state.st_mtime_ns}\n"))
        return digest.hexdigest()


def _decode(path: Path) -> Tensor:
    with _report_unreadable(path):
        content = read_bounded(path)
    return torch.from_numpy(decode_image(content, str(path), SCALED))


@contextmanager
def _report_unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"the image {path} cannot be read ({error.strerror}); put the whole set there") from None
