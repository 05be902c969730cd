"""The Stratified Rule-Aware Networks of the paper on I-RAVEN (tab:sran)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

import torch
from pydantic import Field
from torch import nn

from boolit.lab.common.errors import UserError
from boolit.lab.models.base import Family, Stacked
from boolit.lab.models.resnet18 import BLOCKS, FEATURES, STAGES, Resnet18
from boolit.lab.models.sran.encoders import CANDIDATES, COLUMNS, PAIRS, PANELS, ROWS, NarrowEncoder
from boolit.lab.models.sran.network import ACTIVATIONS, Network, gated_modules
from boolit.lab.models.unstacked import UnstackedRuns
from boolit.nn import Activation
from boolit.nn.width import mlp_parameters, round_width, width_for_budget

# The kinds of encoders SRAN has: what they are built of, how many parameters they have and what they keep.

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

    def saved_numel(self, side: int) -> int:
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

    def saved_numel(self, side: int) -> int:
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

    def saved_numel(self, side: int) -> int:
        sides: list[int] = [-(-side // self.stride)]
        for _ in self.widths[1:]:
            sides.append(-(-sides[-1] // 2))
        return sum(2 * width * own**2 for width, own in zip(self.widths, sides, strict=True))


CHANNELS = (1, COLUMNS, 2 * COLUMNS)  # of a panel, a row and a pair of rows
PICTURES = (PANELS, ROWS, 2 * PAIRS)  # of each that a problem has
RESNET_SIDE = 224
EXPANSION = 8  # features for each channel of an encoder's first convolution, as ResNet-18 has
EMBEDDED = (1, 5, 6)  # the widths behind which an embedding leaves; what activations make of them stays the same
LAST_OF_PAIRS = 3


class Sran(Family):
    """A width is that of the embeddings; the pre-activation widths of the seven layers that are exchanged follow from it.

    ``layout`` is ``layernorm``, as the paper has it, or ``published``, SRAN as it was before. NOTE[paper]: the paper adds layer
    norms and exchanges seven activations, but with these alone the counts would be 44.04 and 44.31 million, where tab:sran has
    45.6 and 44.6. Both come out if the module of pairs has a second layer of twice the width and a linear layer behind it, and
    every other embedding its width behind the activation: found by search, the layers themselves were never published.

    With ``size = "small"`` encoders are narrow, ``channels`` in their first convolution, and see how black a pixel is, from
    0 to 1; with ``paper`` they are ResNet-18s that see grey levels. ``resize`` is the side panels are brought to: 224 for
    ResNets unless given, and 0 for the side they have.
    """

    name: Literal["sran"] = "sran"
    size: Literal["paper", "small"] = "paper"
    layout: Literal["layernorm", "published"] = "layernorm"
    dropout: float = Field(default=0.5, ge=0, lt=1)
    channels: int = Field(default=8, ge=1)
    resize: int | None = Field(default=None, ge=0)

    @property
    def trains_alone(self) -> bool:
        return self.size == "paper"

    @property
    def normalised(self) -> bool:
        """Whether there are layer norms."""
        return self.layout == "layernorm"

    @property
    def encoders(self) -> tuple[Kind, Kind, Kind]:
        """Those of panels, rows and pairs of rows."""
        if self.size == "paper":
            return (Residual(),) * 3
        first, features = self.channels, EXPANSION * self.channels
        whole = Narrow((first, features), stride=4)
        return Narrow((first, features // 2, features), stride=2), whole, whole

    def widths(self, size: int, depth: int) -> list[int]:
        _check_depth(depth)
        last_of_pairs = 2 * size if self.normalised else size
        return [3 * size, size, 4 * size, last_of_pairs, 2 * size, size, size]

    def widths_for_activation(
        self,
        widths: list[int],
        inputs: Sequence[int],  # noqa: ARG002
        outputs: int,  # noqa: ARG002
        activation: Activation,
    ) -> list[int]:
        """Embeddings stay as wide behind every activation, as near as its groups allow."""
        _check_widths(widths)
        embedded = EMBEDDED if self.normalised else (*EMBEDDED, LAST_OF_PAIRS)
        factor, divisor = activation.feature_factor, activation.divisor
        if factor == 1:
            return widths
        return [round_width(width / factor, divisor) if i in embedded else width for i, width in enumerate(widths)]

    def widths_for_budget(
        self, budget: int, depth: int, inputs: Sequence[int], outputs: int, activation: Activation
    ) -> list[int]:
        def widths(size: int) -> list[int]:
            return self.widths_for_activation(self.widths(size, depth), inputs, outputs, activation)

        def count(size: int) -> int:
            return self.parameters(inputs, outputs, widths(size), activation)

        return widths(width_for_budget(count, budget, activation.divisor))

    def parameters(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        _side(inputs, outputs)
        return sum(self.of_encoders()) + sum(self.of_modules(widths, activation))

    def of_encoders(self) -> list[int]:
        """The parameters of each encoder."""
        return [kind.parameters(channels) for kind, channels in zip(self.encoders, CHANNELS, strict=True)]

    def of_modules(self, widths: Sequence[int], activation: Activation) -> list[int]:
        """The parameters of each gated module."""
        _check_widths(widths)
        own = gated_modules(self._features, widths, activation, self.normalised)
        return [
            mlp_parameters(each.inputs, each.widths, each.outputs or 0, activation, batch_norm=self.normalised) for each in own
        ]

    def saved_numel(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        _check_widths(widths)
        side = self._side_seen(_side(inputs, outputs))
        seen = sum(count * kind.saved_numel(side) for count, kind in zip(PICTURES, self.encoders, strict=True))
        times = [ROWS] * 2 + [2 * PAIRS] * 2 + [PAIRS] * 3
        hidden = sum(count * (3 * width + activation.out_features(width)) for count, width in zip(times, widths, strict=True))
        return PANELS * side**2 + seen + hidden

    def build(self, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return StackedSran(self, runs, inputs, outputs, widths, spec)

    def network(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Network:
        """One plain network."""
        _check_widths(widths)
        side = self._side_seen(_side(inputs, outputs))
        encoders = [kind.network(channels) for kind, channels in zip(self.encoders, CHANNELS, strict=True)]
        small = self.size == "small"
        return Network(encoders, self._features, widths, spec, self.normalised, self.dropout, side, small)

    @property
    def _features(self) -> list[int]:
        return [kind.features for kind in self.encoders]

    def _side_seen(self, side: int) -> int:
        wanted = self.resize if self.resize is not None else RESNET_SIDE * (self.size == "paper")
        return wanted or side


class StackedSran(UnstackedRuns):
    """The networks of some runs.

    Shape: ``(runs, batch, 16, side, side)``, grey levels of 0 … 255, to ``(runs, batch, 8)``.
    """

    def __init__(self, family: Sran, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> None:
        with torch.random.fork_rng(devices=[]):  # torch's layers draw weights that `initialise` is going to replace
            network = family.network(inputs, outputs, widths, spec)
        super().__init__(runs, network)
        self._residual = family.size == "paper"

    def bound(self, layer: nn.Module) -> float | None:
        """Those of ResNets have the variance that torchvision gives them: 2 for each output a weight has a part in."""
        if not (self._residual and isinstance(layer, nn.Conv2d)):
            return None
        return math.sqrt(3 * 2 / (layer.out_channels * math.prod(layer.kernel_size)))


def _check_depth(depth: int) -> None:
    if depth != 1:
        raise UserError(f"a sweep.depth of {depth}: SRAN always has the same layers; leave sweep.depth out")


def _check_widths(widths: Sequence[int]) -> None:
    if len(widths) != sum(ACTIVATIONS):
        rule = f"of {sum(ACTIVATIONS)} activations; give {sum(ACTIVATIONS)}, or one number for the embeddings"
        raise UserError(f"{len(widths)} widths ({list(widths)}) for SRAN's modules {rule}")


def _side(inputs: Sequence[int], outputs: int) -> int:
    """The side of a panel."""
    if len(inputs) != 3 or inputs[0] != PANELS or inputs[1] != inputs[2] or outputs != CANDIDATES:
        rule = f"SRAN takes ({PANELS}, side, side) and scores {CANDIDATES} candidates; use the dataset iraven"
        raise UserError(f"samples of shape {tuple(inputs)} with {outputs} outputs: {rule}")
    return inputs[1]
