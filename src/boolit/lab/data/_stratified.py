"""An order of samples in which every stretch has its share of every class."""

from __future__ import annotations

import torch
from torch import Tensor

from boolit.lab.randomness import generator


def interleaved(y: Tensor, seed: int, *words: str | int) -> Tensor:
    """A random order with the classes spread evenly: so the splits cut out of it are stratified, and may be cut anywhere.

    The i-th of n samples of a class has the place (i + u) / n, with u drawn for the class.

    Shape: ``(samples,)`` class numbers to ``(samples,)`` row numbers.

    Example:
        >>> y = torch.tensor([0] * 20 + [1] * 10)
        >>> y[interleaved(y, 0)[:6]].bincount().tolist()
        [4, 2]
    """
    draw = generator(seed, *words, "order")
    shuffled = torch.randperm(len(y), generator=draw)
    by_class = shuffled[y[shuffled].argsort(stable=True)]
    counts = y.bincount()
    ends = counts.cumsum(0)
    ranks = torch.arange(len(y)) - (ends - counts)[y[by_class]]
    offsets = torch.rand(len(counts), generator=draw, dtype=torch.float64)
    places = (ranks + offsets[y[by_class]]) / counts[y[by_class]]
    return by_class[places.argsort(stable=True)]
