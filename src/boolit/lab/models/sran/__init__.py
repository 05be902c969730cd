"""The Stratified Rule-Aware Networks of the paper on I-RAVEN (tab:sran)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from torch import nn

from boolit.errors import UserError
from boolit.lab.models.base import Shape
from boolit.lab.models.resnet18 import BLOCKS, FEATURES, STAGES, Resnet18
from boolit.lab.models.sran.network import ACTIVATIONS, CANDIDATES, COLUMNS, PAIRS, PANELS, ROWS, NarrowEncoder, SranNetwork
from boolit.lab.models.unstacked import UnstackedFamily
from boolit.nn import Activation
from boolit.nn.width import round_width, width_for_budget

STEM = 64  # channels after a ResNet's first convolution


@dataclass(frozen=True)
class ResnetEncoderConfig:
    """ResNet-18, as published."""

    features: int = FEATURES

    def network(self, channels: int) -> nn.Module:
        return Resnet18(channels)

    def saved_numel(self, side: int) -> int:
        """About how many numbers an image saves for the backward pass."""
        side = -(-side // 2)
        total = 2 * STEM * side**2  # before the batch norm and after the ReLU
        for stage in range(STAGES):
            side = -(-side // 2)
            total += (STEM << stage) * side**2 * (4 * BLOCKS + (1 if stage else 3))  # the first pools: int64 positions
        return total


@dataclass(frozen=True)
class NarrowEncoderConfig:
    """Few channels, and no connection around any convolution."""

    widths: tuple[int, ...]
    stride: int

    @property
    def features(self) -> int:
        return self.widths[-1]

    def network(self, channels: int) -> nn.Module:
        return NarrowEncoder(channels, self.widths, self.stride)

    def saved_numel(self, side: int) -> int:
        """About how many numbers an image saves for the backward pass."""
        sides: list[int] = [-(-side // self.stride)]
        for _ in self.widths[1:]:
            sides.append(-(-sides[-1] // 2))
        return sum(2 * width * own**2 for width, own in zip(self.widths, sides, strict=True))


EncoderConfig = ResnetEncoderConfig | NarrowEncoderConfig
CHANNELS = (1, COLUMNS, 2 * COLUMNS)  # of a panel, a row and a pair of rows
IMAGES = (PANELS, ROWS, 2 * PAIRS)  # of each kind in one problem
RESNET_SIDE = 224
EXPANSION = 8  # features per channel of an encoder's first convolution, as in ResNet-18
EMBEDDED = (1, 5, 6)  # the layers whose activations output an embedding, which stays as wide for every activation
LAST_OF_PAIRS = 3


class Sran(UnstackedFamily):
    """A width is that of the embeddings; the pre-activation widths of the seven replaced layers follow from it.

    ``layout`` is ``layernorm``, the paper's, or ``published``, the original SRAN. NOTE[paper]: the paper adds layer norms and
    replaces seven activations, but with these alone the counts would be 44.04 and 44.31 million, where tab:sran has 45.6 and
    44.6. Both are right if the module of pairs has a second layer of twice the width followed by a linear layer, and every
    other embedding has its width after the activation: found by search, the layers themselves were never published.

    With ``size = "small"`` encoders are narrow, with ``channels`` in their first convolution, and read how black a pixel is,
    from 0 to 1; with ``paper`` they are ResNet-18s that read grey levels. ``resize`` is the side panels are resized to: 224 for
    ResNets by default, and 0 for no change.
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
    def encoders(self) -> tuple[EncoderConfig, EncoderConfig, EncoderConfig]:
        """The encoders of panels, rows and pairs of rows."""
        if self.size == "paper":
            return (ResnetEncoderConfig(),) * 3
        first, features = self.channels, EXPANSION * self.channels
        whole = NarrowEncoderConfig((first, features), stride=4)
        return NarrowEncoderConfig((first, features // 2, features), stride=2), whole, whole

    def widths(self, size: int, depth: int) -> list[int]:
        if depth != 1:
            raise UserError(f"a sweep.depth of {depth}: SRAN always has the same layers; leave sweep.depth out")
        last_of_pairs = 2 * size if self.normalised else size
        return [3 * size, size, 4 * size, last_of_pairs, 2 * size, size, size]

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:  # noqa: ARG002
        """Embeddings stay as wide after every activation, as far as its divisor allows."""
        _check_widths(widths)
        embedded = EMBEDDED if self.normalised else (*EMBEDDED, LAST_OF_PAIRS)
        factor, divisor = activation.feature_factor, activation.divisor
        if factor == 1:
            return widths
        return [round_width(width / factor, divisor) if i in embedded else width for i, width in enumerate(widths)]

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        def adapted(size: int) -> list[int]:
            return self.widths_for_activation(self.widths(size, depth), inputs, outputs, activation)

        def count(size: int) -> int:
            return self.parameters(inputs, outputs, adapted(size), activation)

        return adapted(width_for_budget(count, budget, activation.divisor))

    def saved_numel(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        _check_widths(widths)
        side = self._encoder_side(_side(inputs, outputs))
        encoded = sum(count * kind.saved_numel(side) for count, kind in zip(IMAGES, self.encoders, strict=True))
        times = [ROWS] * 2 + [2 * PAIRS] * 2 + [PAIRS] * 3
        hidden = sum(count * (3 * width + activation.out_features(width)) for count, width in zip(times, widths, strict=True))
        return PANELS * side**2 + encoded + hidden

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> SranNetwork:
        _check_widths(widths)
        side, small = self._encoder_side(_side(inputs, outputs)), self.size == "small"
        encoders = [kind.network(channels) for kind, channels in zip(self.encoders, CHANNELS, strict=True)]
        features = [kind.features for kind in self.encoders]
        return SranNetwork(encoders, features, widths, spec, self.normalised, self.dropout, side, small)

    def weight_limit(self, layer: nn.Module) -> float | None:
        """As torchvision, ResNets have a variance of 2 divided by the number of outputs a weight contributes to."""
        if self.size == "small" or not isinstance(layer, nn.Conv2d):
            return None
        return math.sqrt(3 * 2 / (layer.out_channels * math.prod(layer.kernel_size)))

    def _encoder_side(self, side: int) -> int:
        wanted = self.resize if self.resize is not None else RESNET_SIDE * (self.size == "paper")
        return wanted or side


def _check_widths(widths: Sequence[int]) -> None:
    if len(widths) != sum(ACTIVATIONS):
        rule = f"of {sum(ACTIVATIONS)} activations; give {sum(ACTIVATIONS)}, or one number for the embeddings"
        raise UserError(f"{len(widths)} widths ({list(widths)}) for SRAN's modules {rule}")


def _side(inputs: Shape, outputs: int) -> int:
    """The side of a panel."""
    if len(inputs) != 3 or inputs[0] != PANELS or inputs[1] != inputs[2] or outputs != CANDIDATES:
        rule = f"SRAN takes ({PANELS}, side, side) and scores {CANDIDATES} candidates; use the dataset iraven"
        raise UserError(f"samples of shape {tuple(inputs)} with {outputs} outputs: {rule}")
    return inputs[1]
