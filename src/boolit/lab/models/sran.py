"""The Stratified Rule-Aware Networks of the paper on I-RAVEN (tab:sran; Hu et al. 2021).

A network reads the panels of a Raven's matrix, its rows and its pairs of rows. Three encoders read each as an image; three
gated modules, whose seven activations the paper replaces, join the features of the parts. The output for a pair of rows is
its rule, and the answer is the candidate that gives the third row the rule of the first two rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.models.base import Family, SeededDropout, Shape, check_depth
from boolit.lab.models.resnet18 import FEATURES, Resnet18
from boolit.nn import Activation
from boolit.nn.width import round_width

COLUMNS, CONTEXT, CANDIDATES = 3, 8, 8
PANELS = CONTEXT + CANDIDATES
META_TARGETS = 9  # logits of the problem's rules; the published loss gives them a weight of 0
ACTIVATIONS = 7
BRIGHTEST = 255
RESNET_SIDE = 224
CHANNELS = (1, COLUMNS, 2 * COLUMNS)  # of a panel, a row and a pair of rows
EXPANSION = 8  # features per channel of an encoder's first convolution, as in ResNet-18
EMBEDDED = (1, 5, 6)  # layers whose activations output an embedding, which stays as wide for every activation
LAST_OF_PAIRS = 3

# Panels 0…7 are the context row by row, 8…15 the candidates. Ten rows: two of the context, and the third with each candidate.
ROW_PANELS = [[0, 1, 2], [3, 4, 5], *([6, 7, CONTEXT + candidate] for candidate in range(CANDIDATES))]
# 17 pairs of rows: 1 and 2, 1 and each third, 2 and each third.
PAIR_ROWS = [[0, 1], *([first, third] for first in (0, 1) for third in range(2, 2 + CANDIDATES))]


class Sran(Family):
    """Stratified Rule-Aware Network. A width is that of the embeddings; the widths of the seven layers follow from it.

    Args:
        size: ``paper``: ResNet-18 encoders that read gray levels. ``small``: narrow encoders that read how black a pixel is.
        layout: ``layernorm``, the paper's, or ``published``, the original SRAN. NOTE[paper]: the paper adds layer norms and
            replaces seven activations, but these alone give 44.04 and 44.31 million parameters, where tab:sran has 45.6 and
            44.6. Both are right if the module of pairs has a second layer of twice the width followed by a linear layer, and
            every other embedding has its width after the activation. This was found by search; the layers were not published.
        dropout: in the module of rules.
        channels: of the first convolution of a narrow encoder.
        resize: side that panels are resized to; 224 for ResNets by default, 0 for no change.
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

    def widths(self, size: int, depth: int) -> list[int]:
        check_depth(depth, "SRAN always has the same layers")
        last_of_pairs = 2 * size if self.layout == "layernorm" else size
        return [3 * size, size, 4 * size, last_of_pairs, 2 * size, size, size]

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:  # noqa: ARG002
        """Embeddings stay as wide after every activation, as far as its width multiple allows."""
        _check_widths(widths)
        embedded = EMBEDDED if self.layout == "layernorm" else (*EMBEDDED, LAST_OF_PAIRS)
        factor, width_multiple = activation.feature_factor, activation.width_multiple
        if factor == 1:
            return widths
        return [round_width(width / factor, width_multiple) if i in embedded else width for i, width in enumerate(widths)]

    def scaled_widths(self, size: int, depth: int, activation: Activation) -> list[int]:
        return self.widths_for_activation(self.widths(size, depth), (), 0, activation)

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        _check_widths(widths)
        if len(inputs) != 3 or inputs[0] != PANELS or inputs[1] != inputs[2] or outputs != CANDIDATES:
            rule = f"SRAN takes ({PANELS}, side, side) and scores {CANDIDATES} candidates; use the dataset iraven"
            raise UserError(f"samples of shape {tuple(inputs)} with {outputs} outputs: {rule}")
        side = self.resize if self.resize is not None else RESNET_SIDE * (self.size == "paper")
        return SranNetwork(self, side or inputs[1], widths, spec)

    def weight_bound(self, layer: nn.Module) -> float | None:
        """As in torchvision, weights of ResNets have a variance of 2 over the number of outputs that they contribute to."""
        if self.size == "small" or not isinstance(layer, nn.Conv2d):
            return None
        return math.sqrt(3 * 2 / (layer.out_channels * math.prod(layer.kernel_size)))


def _check_widths(widths: Sequence[int]) -> None:
    if len(widths) != ACTIVATIONS:
        raise UserError(f"widths {list(widths)}: SRAN has {ACTIVATIONS} activations; give a width for each, or a single one")


class NarrowEncoder(nn.Module):
    """Convolutions with batch norm and ReLU: the first with a stride, others that halve the sides; then the mean.

    Shape: ``(batch, channels, height, width)`` to ``(batch, widths[-1])``.
    """

    def __init__(self, channels: int, widths: Sequence[int], stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, widths[0], 2 * stride + 1, stride, padding=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.stages = nn.Sequential()
        for before, width in pairwise(widths):
            self.stages.append(nn.Conv2d(before, width, 3, 2, padding=1, bias=False))
            self.stages.append(nn.BatchNorm2d(width))
            self.stages.append(nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.after_conv1(self.conv1(x))

    def after_conv1(self, x: Tensor) -> Tensor:
        """Return the features from the output of the first convolution."""
        maps: Tensor = self.stages(F.relu(self.bn1(x), inplace=True))
        # Not `mean`: its gradient has channels first in memory, and reordering would take a third of the time.
        return maps.sum((2, 3)) / maps[0, 0].numel()


class SranNetwork(nn.Module):
    """One network, from ``(batch, 16, height, width)``, resized to ``side``, to scores ``(batch, 8)``."""

    rows: Tensor
    pairs: Tensor

    def __init__(self, family: Sran, side: int, widths: Sequence[int], spec: str) -> None:
        super().__init__()
        self.side, self.inverted = side, family.size == "small"
        self.register_buffer("rows", torch.tensor(ROW_PANELS), persistent=False)
        self.register_buffer("pairs", torch.tensor(PAIR_ROWS + [pair[::-1] for pair in PAIR_ROWS]), persistent=False)
        features = EXPANSION * family.channels if self.inverted else FEATURES
        narrow = ([family.channels, features // 2, features], 2), *[([family.channels, features], 4)] * 2
        self.panel_encoder, self.row_encoder, self.pair_encoder = (
            NarrowEncoder(channels, *layers) if self.inverted else Resnet18(channels)
            for channels, layers in zip(CHANNELS, narrow, strict=True)
        )
        normalized = family.layout == "layernorm"
        row, pair, embedding = (boolit.activation(spec).out_features(widths[i]) for i in (1, 3, 6))
        last = embedding if normalized else None
        self.row_module = _gated_module(COLUMNS * features, widths[:2], None, spec, normalized)
        self.pair_module = _gated_module(2 * (row + features), widths[2:4], last, spec, normalized)
        self.rule_module = _gated_module((last or pair) + features, widths[4:], embedding + META_TARGETS, spec, normalized)
        self.rule_module.insert(len(self.rule_module) - 1, SeededDropout(family.dropout))

    def forward(self, x: Tensor) -> Tensor:
        x = (BRIGHTEST - x) / BRIGHTEST if self.inverted else x
        if x.shape[-1] != self.side:
            x = F.interpolate(x, (self.side, self.side), mode="bilinear")
        of_rows = x[:, self.rows]
        panels = _encode(self.panel_encoder, x.unsqueeze(2))
        pair_features = _encode_pairs(self.pair_encoder, of_rows, self.pairs)
        rows = torch.cat([self.row_module(panels[:, self.rows].flatten(2)), _encode(self.row_encoder, of_rows)], -1)
        both_orders = (self.pair_module(rows[:, self.pairs].flatten(2)), pair_features)
        pairs = torch.cat([torch.add(*features.chunk(2, 1)) for features in both_orders], -1)
        rules: Tensor = self.rule_module(pairs)[..., :-META_TARGETS]
        alike = rules[:, 1:] @ rules[:, 0].unsqueeze(2)
        return alike.view(-1, 2, CANDIDATES).sum(1)


def _encode(encoder: nn.Module, images: Tensor) -> Tensor:
    """Encode ``(batch, images, channels, height, width)`` as ``(batch, images, features)``."""
    flat = images.flatten(0, 1).clone(memory_format=torch.channels_last)  # `contiguous` does nothing with one channel
    features: Tensor = encoder(flat)
    return features.view(*images.shape[:2], -1)


def _encode_pairs(encoder: Resnet18 | NarrowEncoder, rows: Tensor, pairs: Tensor) -> Tensor:
    """Encode pairs of rows as images of six channels.

    The first convolution of a pair is the sum of those of its rows, so that every row is convolved once per place in a pair
    instead of once per pair; otherwise a step of the small networks takes 1.4 times as long.

    Args:
        encoder: the encoder of pairs.
        rows: ``(batch, 10, 3, height, width)``.
        pairs: numbers of the two rows, ``(pairs, 2)``.
    """
    first = encoder.conv1
    flat = rows.flatten(0, 1).contiguous(memory_format=torch.channels_last)
    halves = (F.conv2d(flat, weight, None, first.stride, first.padding) for weight in first.weight.split(COLUMNS, 1))
    before, after = (maps.permute(0, 2, 3, 1).unflatten(0, rows.shape[:2]) for maps in halves)
    maps = (before[:, pairs[:, 0]] + after[:, pairs[:, 1]]).flatten(0, 1).permute(0, 3, 1, 2)
    return encoder.after_conv1(maps).view(len(rows), len(pairs), -1)


def _gated_module(inputs: int, widths: Sequence[int], outputs: int | None, spec: str, normalized: bool) -> nn.Sequential:
    """Linear, layer norm and activation for every width, and a last linear layer with ``outputs``, if any."""
    layers, features = nn.Sequential(), inputs
    for width in widths:
        layers.append(nn.Linear(features, width))
        if normalized:
            layers.append(nn.LayerNorm(width))
        activation = boolit.activation(spec)
        layers.append(activation)
        features = activation.out_features(width)
    if outputs is not None:
        layers.append(nn.Linear(features, outputs))
    return layers
