"""The kinds of encoders SRAN has: what they are built of, how many parameters they have and what they keep."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from torch import nn

from boolit.lab.models._sran_encoders import NarrowEncoder
from boolit.lab.models.resnet18 import BLOCKS, FEATURES, STAGES, Resnet18

STEM = 64  # channels behind a ResNet's first convolution


class Kind(Protocol):
    """Encoders that differ in the number of channels they read only."""

    @property
    def features(self) -> int:
        """How many numbers a picture becomes."""

    def network(self, channels: int) -> nn.Module:
        """One of them."""

    def parameters(self, channels: int) -> int:
        """How many it has."""

    def kept(self, side: int) -> int:
        """About how many numbers a picture leaves for the backward pass."""


@dataclass(frozen=True)
class Residual:
    """ResNet-18, as published."""

    features: int = FEATURES

    def network(self, channels: int) -> nn.Module:
        return Resnet18(channels)

    def parameters(self, channels: int) -> int:
        total = 7**2 * channels * STEM + 2 * STEM
        for stage in range(STAGES):
            width = STEM << stage
            before = max(STEM, width // 2)
            total += 9 * before * width + (2 * BLOCKS - 1) * 9 * width**2 + 2 * BLOCKS * 2 * width
            total += before * width + 2 * width if stage else 0
        return total

    def kept(self, side: int) -> int:
        side = -(-side // 2)
        total = 2 * STEM * side**2  # in front of the batch norm and behind the ReLU
        for stage in range(STAGES):
            side = -(-side // 2)
            total += (STEM << stage) * side**2 * (4 * BLOCKS + (1 if stage else 3))  # the first pools: places take two numbers
        return total


@dataclass(frozen=True)
class Narrow:
    """Few channels, and no way around any convolution."""

    widths: tuple[int, ...]
    stride: int

    @property
    def features(self) -> int:
        return self.widths[-1]

    def network(self, channels: int) -> nn.Module:
        return NarrowEncoder(channels, self.widths, self.stride)

    def parameters(self, channels: int) -> int:
        first = (2 * self.stride + 1) ** 2 * channels * self.widths[0]
        return first + sum(9 * before * width for before, width in pairwise(self.widths)) + 2 * sum(self.widths)

    def kept(self, side: int) -> int:
        sides: list[int] = [-(-side // self.stride)]
        for _ in self.widths[1:]:
            sides.append(-(-sides[-1] // 2))
        return sum(2 * width * own**2 for width, own in zip(self.widths, sides, strict=True))
