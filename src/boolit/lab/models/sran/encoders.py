"""The encoders of SRAN: ResNet-18s, or narrow ones that a CPU trains in minutes. Both begin with a bare convolution.

A row is three panels, a pair six. What a linear layer or a convolution makes of them is a sum over the panels, so that every
panel goes through it once a place it has, instead of once a row or pair it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Which panels are in which rows and pairs of rows, for layers that are linear in them.

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


class Encoder(Protocol):
    """What turns pictures into features, in two steps: ``conv1``, which is linear, and the rest."""

    conv1: nn.Conv2d

    def continued(self, x: Tensor) -> Tensor:
        """The features of what ``conv1`` gives."""


class NarrowEncoder(nn.Module):
    """Convolutions with batch norm and ReLU: a first one with a stride, and others that halve the sides; then the mean.

    Shape: ``(batch, channels, height, width)`` to ``(batch, widths[-1])``.
    """

    def __init__(self, channels: int, widths: Sequence[int], stride: int = 2) -> None:
        super().__init__()
        kernel = 2 * stride + 1
        self.conv1 = nn.Conv2d(channels, widths[0], kernel, stride, padding=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.stages = nn.Sequential()
        for before, width in pairwise(widths):
            self.stages.append(nn.Conv2d(before, width, 3, 2, padding=1, bias=False))
            self.stages.append(nn.BatchNorm2d(width))
            self.stages.append(nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.continued(self.conv1(x))

    def continued(self, x: Tensor) -> Tensor:
        """The features of what the first convolution gives."""
        maps: Tensor = self.stages(F.relu(self.bn1(x), inplace=True))
        # Not `mean`: its gradient would have its channels first in memory, and a third of the time be spent on reordering.
        return maps.sum((2, 3)) / maps[0, 0].numel()


def of_panels(encoder: Encoder, panels: Tensor) -> Tensor:
    """The features of every panel.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 16, features)``.
    """
    return _continued(encoder, _convolved(panels.unsqueeze(2), encoder.conv1, encoder.conv1.weight))


def of_rows(encoder: Encoder, panels: Tensor) -> Tensor:
    """The features of every row, a picture of three channels.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 10, features)``.
    """
    return _continued(encoder, _rows(panels, encoder.conv1, encoder.conv1.weight))


def of_pairs(encoder: Encoder, panels: Tensor) -> Tensor:
    """The features of every pair of rows, a picture of six channels; the sum over both orders.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 17, features)``.
    """
    before, after = (_rows(panels, encoder.conv1, weight) for weight in encoder.conv1.weight.split(COLUMNS, 1))
    return both_ways(_continued(encoder, in_pairs(before, after)))


def _rows(panels: Tensor, convolution: nn.Conv2d, weight: Tensor) -> Tensor:
    """What a convolution of three channels makes of the rows, its channels last.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 10, height, width, channels)``.
    """
    begun = _convolved(left_and_middle(panels), convolution, weight[:, :2])
    ended = _convolved(right(panels).unsqueeze(2), convolution, weight[:, 2:])
    return in_rows(begun, ended)


def _convolved(pictures: Tensor, convolution: nn.Conv2d, weight: Tensor) -> Tensor:
    """Shape: ``(batch, pictures, channels, height, width)`` to ``(batch, pictures, height, width, channels)``."""
    flat = pictures.flatten(0, 1).clone(memory_format=torch.channels_last)  # with one channel, `contiguous` would do nothing
    stride, padding = convolution.stride[0], convolution.kernel_size[0] // 2
    maps = F.conv2d(flat, weight, None, stride, padding).permute(0, 2, 3, 1)
    return maps.view(*pictures.shape[:2], *maps.shape[1:])


def _continued(encoder: Encoder, maps: Tensor) -> Tensor:
    return encoder.continued(maps.flatten(0, 1).permute(0, 3, 1, 2)).view(*maps.shape[:2], -1)
