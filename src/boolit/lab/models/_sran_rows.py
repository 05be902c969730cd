"""Which panels are in which rows and pairs of rows, for layers that are linear in them.

A row is three panels, a pair six. What a linear layer or a convolution makes of them is a sum over the panels, so that every
panel goes through it once a place it has, instead of once a row or pair it is in.
"""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS, CONTEXT, CANDIDATES = 3, 8, 8
PANELS = CONTEXT + CANDIDATES
ROWS = 2 + CANDIDATES  # the first, the second, and the third completed by each candidate
PAIRS = 1 + 2 * CANDIDATES


def left_and_middle(panels: Tensor) -> Tensor:
    """What the three rows begin with.

    Shape: ``(batch, 16, …)`` to ``(batch, 3, 2, …)``.
    """
    return panels[:, : COLUMNS**2].reshape(-1, COLUMNS, COLUMNS, *panels.shape[2:])[:, :, :2]


def right(panels: Tensor) -> Tensor:
    """What the ten rows end with.

    Shape: ``(batch, 16, …)`` to ``(batch, 10, …)``.
    """
    return torch.cat([panels[:, 2:3], panels[:, 5:6], panels[:, CONTEXT:]], 1)


def in_rows(begun: Tensor, ended: Tensor) -> Tensor:
    """The ten sums of how rows begin and how they end.

    Shape: ``(batch, 3, …)`` and ``(batch, 10, …)`` to ``(batch, 10, …)``.
    """
    return torch.cat([begun[:, :2] + ended[:, :2], begun[:, 2:] + ended[:, 2:]], 1)


def in_pairs(before: Tensor, after: Tensor) -> Tensor:
    """The sums of what rows are worth as first and as second of a pair: 1 and 2, 1 and each 3, 2 and each 3; then reversed.

    Shape: ``(batch, 10, …)`` twice to ``(batch, 34, …)``.
    """
    return torch.cat([*_one_way(before, after), *_one_way(after, before)], 1)


def both_ways(pairs: Tensor) -> Tensor:
    """The sum over both orders of a pair.

    Shape: ``(batch, 34, …)`` to ``(batch, 17, …)``.
    """
    return torch.add(*pairs.chunk(2, 1))


def _one_way(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    with_third = first[:, :2].unsqueeze(2) + second[:, 2:].unsqueeze(1)
    return first[:, :1] + second[:, 1:2], with_third.flatten(1, 2)
