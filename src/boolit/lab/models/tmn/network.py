"""One task-driven modular network (Purushwalkam et al. 2019): how well an image and a pair of words match.

The words open and close the connections between small modules in layers; the last layer outputs the score of the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import boolit
from boolit.lab.models.tmn.layers import FirstLayer, HeadLayer, InnerLayer, mix

IMAGES_AT_ONCE = 64  # with all pairs, in evaluation
ROWS_AT_ONCE = 2**14  # images times pairs, of an evaluation


@dataclass(frozen=True)
class TmnShape:
    """The sizes of a network; ``projected`` says whether modules end with a linear layer (TMNx) or with their activation."""

    features: int
    pairs: int
    attributes: int
    objects: int
    vectors: int
    modules: int
    layers: int
    embedding: int
    width: int
    gater_width: int
    spec: str
    gater_spec: str
    projected: bool

    @property
    def gates(self) -> list[int]:
        """The number of gates into the image, the first layer, each further layer, and the head.

        The first two have one sender and are always 1, but the original has weights for them.
        """
        return [1, self.modules, *[self.modules**2] * (self.layers - 1), self.modules]


class GatingNetwork(nn.Module):
    """The gates of some pairs of words; in training, its batch norm counts each pair ``counts`` times.

    Shape: ``(pairs, 2 · vectors)`` and ``(pairs,)`` to ``(pairs, gates)``, before the softmax over each receiver's senders.
    """

    def __init__(self, shape: TmnShape) -> None:
        super().__init__()
        features = boolit.activation(shape.gater_spec).out_features(shape.gater_width)
        self.first = nn.Linear(2 * shape.vectors, shape.gater_width, bias=False)
        self.norm, self.activation = nn.BatchNorm1d(shape.gater_width), boolit.activation(shape.gater_spec, dim=1)
        self.last = nn.Linear(features, sum(shape.gates), bias=False)

    def forward(self, words: Tensor, counts: Tensor) -> Tensor:
        hidden = self.first(words)
        if self.training:
            repeated = self.norm(hidden.repeat_interleave(counts, 0))
            hidden = repeated.index_select(0, counts.cumsum(0) - counts)
        else:
            hidden = self.norm(hidden)
        gates: Tensor = self.last(self.activation(hidden))
        return gates


class TmnNetwork(nn.Module):
    """Scores of the pairs in the list ``pairs``, or of those candidates whose numbers follow an image's features.

    What depends on the image alone is computed once per image, and gates once per distinct pair of a batch.

    Shape: ``(batch, features)`` to ``(batch, pairs)``; ``(batch, features + candidates)`` to ``(batch, candidates)``.
    """

    pairs: Tensor

    def __init__(self, shape: TmnShape) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("pairs", torch.zeros(shape.pairs, 2, dtype=torch.int64))
        # The last row is for padding, as in the original. Not drawn here: `initialise` does, and on meta a draw takes a second.
        words = (torch.zeros(count + 1, shape.vectors) for count in (shape.attributes, shape.objects))
        self.attributes, self.objects = (nn.Embedding.from_pretrained(vectors, freeze=False) for vectors in words)
        self.gater = GatingNetwork(shape)
        projected = shape.embedding if shape.projected else None
        sizes = (shape.width, shape.spec, projected)
        self.first = FirstLayer(shape.modules, shape.features, *sizes)
        self.inner = nn.ModuleList(InnerLayer(shape.modules, shape.embedding, *sizes) for _ in range(shape.layers - 1))
        self.head = HeadLayer(shape.embedding)

    def forward(self, x: Tensor) -> Tensor:
        images, candidates = x[:, : self.shape.features], x[:, self.shape.features :].long()
        if candidates.shape[1]:
            return self._of_candidates(images, candidates)
        listed = torch.arange(len(self.pairs), device=x.device)
        if self.training:
            return self._of_candidates(images, listed.expand(len(x), -1))
        gates = self._gates(listed, torch.ones_like(listed))
        return torch.cat([self._of_all(piece, gates) for piece in images.split(IMAGES_AT_ONCE)])

    def _of_candidates(self, images: Tensor, candidates: Tensor) -> Tensor:
        distinct, numbers = candidates.flatten().unique(return_inverse=True)
        order = numbers.argsort(stable=True)
        outputs = self.first(images).index_select(1, order // candidates.shape[1])
        counts = numbers.bincount()
        sorted_scores = self._scores(self._gates(distinct, counts), outputs, counts.tolist())
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        return sorted_scores.index_select(0, back).view(candidates.shape)

    def _of_all(self, images: Tensor, gates: Sequence[Tensor]) -> Tensor:
        """The scores of all pairs, in pieces of pairs."""
        outputs, size = self.first(images), max(1, ROWS_AT_ONCE // len(images))
        pieces = []
        for first in range(0, len(self.pairs), size):
            some = [layer[first : first + size] for layer in gates]
            pairs = len(some[0])
            rows = self._scores(some, outputs.repeat(1, pairs, 1), [len(images)] * pairs)
            pieces.append(rows.view(pairs, len(images)))
        return torch.cat(pieces).T

    def _gates(self, numbers: Tensor, counts: Tensor) -> list[Tensor]:
        """The gates of some listed pairs, with their counts, into each layer after the first, and into the head.

        Shape: ``(pairs,)`` twice, to ``(pairs, receivers, senders)`` each.
        """
        attributes, objects = self.pairs[numbers].unbind(1)
        words = torch.cat([self.attributes(attributes), self.objects(objects)], 1)
        _, _, *used = self.gater(words, counts).split(self.shape.gates, 1)
        return [gates.view(len(numbers), -1, self.shape.modules).softmax(2) for gates in used]

    def _scores(self, gates: Sequence[Tensor], outputs: Tensor, counts: Sequence[int]) -> Tensor:
        """The scores of rows, sorted by pair, from the first layer's outputs.

        Shape: ``(modules, rows, embedding)`` to ``(rows,)``.
        """
        for layer, own in zip(self.inner, gates, strict=False):
            outputs = layer(mix(own, outputs, counts))
        scores: Tensor = self.head(mix(gates[-1], outputs, counts).squeeze(0))
        return scores
