"""The order in which an encoder sees pictures: whole ones of the splits to test on, then the training pictures' views.

Every view depends on seed, picture and number of the view only, whatever is seen before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from boolit.lab.data._dataset import Split
from boolit.lab.data._views import CHANCES, augmented_view, clean_view
from boolit.lab.randomness import generator, keys, uniform

BATCH = 64  # pictures that are seen together


@dataclass(frozen=True)
class Piece:
    """Some pictures of a split, all in the same view; ``view`` is none for whole pictures."""

    split: str
    rows: range
    view: int | None


@dataclass(frozen=True)
class Gallery:
    """Pictures by split, and how they are looked at: the ``size`` of a view, whether it may be mirrored, and the seed."""

    splits: Mapping[str, Split]
    size: int
    flip: bool
    seed: int

    @property
    def whole(self) -> list[str]:
        """The splits whose pictures are seen whole, in order."""
        return sorted(name for name in self.splits if name != "train")

    def place(self, split: str) -> int:
        """How many views come before those of a split; of the training pictures, before the first of each."""
        before = self.whole[: self.whole.index(split)] if split in self.whole else self.whole
        return sum(len(self.splits[name]) for name in before)

    def count(self, views: int) -> int:
        """How many views there are of all pictures together, with so many of each training picture."""
        return self.place("train") + views * len(self.splits["train"])

    def pieces(self, views: int, done: int) -> Iterator[Piece]:
        """What remains to be seen after the first ``done`` views."""
        blocks: list[tuple[str, int | None]] = [(name, None) for name in self.whole]
        blocks += [("train", view) for view in range(views)]
        for split, view in blocks:
            count = len(self.splits[split])
            for first in range(min(done, count), count, BATCH):
                yield Piece(split, range(first, min(first + BATCH, count)), view)
            done = max(0, done - count)

    def seen(self, piece: Piece) -> Tensor:
        """The views of a piece.

        Shape: ``(pictures, 3, size, size)`` bytes.
        """
        pictures = self.splits[piece.split].x[piece.rows.start : piece.rows.stop]
        if piece.view is None:
            return clean_view(pictures, self.size)
        return self._augmented(pictures, list(piece.rows), "view", piece.view)

    def shuffled(self) -> tuple[Tensor, ...]:
        """The training pictures in batches of mixed classes that are nearly equal in size.

        Shape: ``(pictures,)`` row numbers each.
        """
        order = torch.randperm(len(self.splits["train"]), generator=generator(self.seed, "refresh"))
        return order.tensor_split(-(-len(order) // BATCH))

    def further(self, rows: Tensor) -> Tensor:
        """A view of some training pictures that is none of those of the pieces.

        Shape: ``(pictures,)`` row numbers to ``(pictures, 3, size, size)`` bytes.
        """
        return self._augmented(self.splits["train"].x[rows], rows.tolist(), "refresh", 0)

    def _augmented(self, pictures: Tensor, rows: list[int], purpose: str, view: int) -> Tensor:
        chances = uniform(keys(rows, purpose, self.seed), view, (CHANCES,))
        return augmented_view(pictures, chances, self.size, self.flip)
