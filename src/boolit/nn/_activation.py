"""What every activation module tells about itself: how many channels it turns into how many, and its name."""

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import ClassVar

from torch import Tensor, nn


class Activation(nn.Module, ABC):
    """An activation with a known map of channels; ``dim`` is the dimension they lie along."""

    dim: int  # no postponed annotations in this file: torch.jit.script reads this one
    __jit_unused_properties__: ClassVar[list[str]] = ["spec", "map", "divisor", "feature_factor", "parts"]  # not to be scripted

    @property
    @abstractmethod
    def spec(self) -> str:
        """The name `boolit.activation` makes this module from."""

    @property
    @abstractmethod
    def map(self) -> tuple[int, int]:
        """Channels in → channels out, in lowest terms of one group: (1, 1), (2, 1), (2, 2), (2, 3), …"""

    @property
    def divisor(self) -> int:
        """What the number of channels must be a multiple of."""
        return self.map[0]

    @property
    def feature_factor(self) -> Fraction:
        """Channels out per channel in."""
        return Fraction(self.map[1], self.map[0])

    def out_features(self, n: int) -> int:
        """How many channels come out of n."""
        if n % self.divisor:
            below, above = n - n % self.divisor, n + -n % self.divisor
            near = f"{below} or {above}" if below else above
            raise ValueError(f"{self.spec} needs a multiple of {self.divisor} channels, got {n}; use {near}")
        return int(n * self.feature_factor)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The activated tensor."""

    def extra_repr(self) -> str:
        return f"{self.spec!r}, dim={self.dim}, map={self.map[0]}→{self.map[1]}"
