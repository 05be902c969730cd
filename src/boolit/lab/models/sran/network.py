"""One Stratified Rule-Aware Network (Hu et al. 2021), a plain torch network: scores of the eight answers of a Raven's matrix.

It reads panels, rows and pairs of rows. Three encoders read each as an image; three gated modules, whose seven activations
the paper replaces, join the features of the parts. The output for a pair of rows is its rule, and the answer is the candidate
that gives the third row the rule of the first two rows.

Encoders are ResNet-18s, or narrow ones that a CPU trains in minutes. Both begin with a bare convolution. A row is three panels,
a pair six. A linear layer or a convolution of them is a sum over the panels, so every panel goes through it once per position,
instead of once per row or pair it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boolit
from boolit.lab.models.unstacked import SingleRunDropout

COLUMNS, CONTEXT, CANDIDATES = 3, 8, 8
PANELS = CONTEXT + CANDIDATES
ROWS = 2 + CANDIDATES  # the first, the second, and the third completed by each candidate
PAIRS = 1 + 2 * CANDIDATES
META_TARGETS = 9  # logits of the problem's rules; the published loss gives them a weight of 0
ACTIVATIONS = (2, 2, 3)  # of each gated module
BRIGHTEST = 255


def left_and_middle(panels: Tensor) -> Tensor:
    """The first two panels of the three rows.

    Shape: ``(batch, 16, …)`` to ``(batch, 3, 2, …)``.
    """
    return panels[:, : COLUMNS**2].reshape(-1, COLUMNS, COLUMNS, *panels.shape[2:])[:, :, :2]


def right(panels: Tensor) -> Tensor:
    """The last panel of the ten rows.

    Shape: ``(batch, 16, …)`` to ``(batch, 10, …)``.
    """
    return torch.cat([panels[:, 2:3], panels[:, 5:6], panels[:, CONTEXT:]], 1)


def in_rows(beginnings: Tensor, ends: Tensor) -> Tensor:
    """The ten sums of the parts from the first two panels and from the last.

    Shape: ``(batch, 3, …)`` and ``(batch, 10, …)`` to ``(batch, 10, …)``.
    """
    return torch.cat([beginnings[:, :2] + ends[:, :2], beginnings[:, 2:] + ends[:, 2:]], 1)


def in_pairs(before: Tensor, after: Tensor) -> Tensor:
    """The sums of the parts from the first and second row of a pair: 1 and 2, 1 and each 3, 2 and each 3; then reversed.

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
    """A network from images to features in two steps: ``conv1``, which is linear, and the rest."""

    conv1: nn.Conv2d

    def after_conv1(self, x: Tensor) -> Tensor:
        """The features from the output of ``conv1``."""


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
        return self.after_conv1(self.conv1(x))

    def after_conv1(self, x: Tensor) -> Tensor:
        """The features from the output of the first convolution."""
        maps: Tensor = self.stages(F.relu(self.bn1(x), inplace=True))
        # Not `mean`: its gradient has channels first in memory, and reordering would take a third of the time.
        return maps.sum((2, 3)) / maps[0, 0].numel()


def encode_panels(encoder: Encoder, panels: Tensor) -> Tensor:
    """The features of every panel.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 16, features)``.
    """
    return _encode(encoder, _convolve(panels.unsqueeze(2), encoder.conv1, encoder.conv1.weight))


def encode_rows(encoder: Encoder, panels: Tensor) -> Tensor:
    """The features of every row, an image of three channels.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 10, features)``.
    """
    return _encode(encoder, _convolve_rows(panels, encoder.conv1, encoder.conv1.weight))


def encode_pairs(encoder: Encoder, panels: Tensor) -> Tensor:
    """The features of every pair of rows, an image of six channels; the sum over both orders.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 17, features)``.
    """
    before, after = (_convolve_rows(panels, encoder.conv1, weight) for weight in encoder.conv1.weight.split(COLUMNS, 1))
    return both_ways(_encode(encoder, in_pairs(before, after)))


def _convolve_rows(panels: Tensor, convolution: nn.Conv2d, weight: Tensor) -> Tensor:
    """The output of a convolution of three channels on the rows, channels last.

    Shape: ``(batch, 16, height, width)`` to ``(batch, 10, height, width, channels)``.
    """
    beginnings = _convolve(left_and_middle(panels), convolution, weight[:, :2])
    ends = _convolve(right(panels).unsqueeze(2), convolution, weight[:, 2:])
    return in_rows(beginnings, ends)


def _convolve(images: Tensor, convolution: nn.Conv2d, weight: Tensor) -> Tensor:
    """Shape: ``(batch, images, channels, height, width)`` to ``(batch, images, height, width, channels)``."""
    flat = images.flatten(0, 1).clone(memory_format=torch.channels_last)  # `contiguous` does nothing with one channel
    stride, padding = convolution.stride[0], convolution.kernel_size[0] // 2
    maps = F.conv2d(flat, weight, None, stride, padding).permute(0, 2, 3, 1)
    return maps.view(*images.shape[:2], *maps.shape[1:])


def _encode(encoder: Encoder, maps: Tensor) -> Tensor:
    return encoder.after_conv1(maps.flatten(0, 1).permute(0, 3, 1, 2)).view(*maps.shape[:2], -1)


class SranNetwork(nn.Module):
    """One network; ``encoders`` are those of panels, rows and pairs, with ``features`` outputs each.

    ``resize`` is the side panels are resized to. With ``inverted`` the encoders read how black pixels are, from 0 to 1. With
    layer norms (``normalised``) the module of pairs ends with a linear layer: see `boolit.lab.models.sran.Sran`.

    Shape: ``(batch, 16, height, width)``, the context row by row and then the candidates, to ``(batch, 8)``.
    """

    def __init__(
        self,
        encoders: Sequence[nn.Module],
        features: Sequence[int],
        widths: Sequence[int],
        spec: str,
        normalised: bool = True,
        dropout: float = 0.5,
        resize: int | None = None,
        inverted: bool = False,
    ) -> None:
        super().__init__()
        self.resize, self.inverted = resize, inverted
        self.panel_encoder, self.row_encoder, self.pair_encoder = encoders
        of_panel, of_row, of_pair = features
        row, pair, embedding = (boolit.activation(spec).out_features(widths[i]) for i in (1, 3, 6))
        last = embedding if normalised else None
        self.row_module = _gated_module(COLUMNS * of_panel, widths[:2], None, spec, normalised)
        self.pair_module = _gated_module(2 * (row + of_row), widths[2:4], last, spec, normalised)
        rule_inputs = (last or pair) + of_pair
        self.rule_module = _gated_module(rule_inputs, widths[4:], embedding + META_TARGETS, spec, normalised)
        self.rule_module.insert(len(self.rule_module) - 1, SingleRunDropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        x = self._prepare(x)
        panels = encode_panels(cast(Encoder, self.panel_encoder), x)
        of_rows = encode_rows(cast(Encoder, self.row_encoder), x)
        of_pairs = encode_pairs(cast(Encoder, self.pair_encoder), x)
        rows = torch.cat([self._rows(panels), of_rows], -1)
        pairs = torch.cat([self._pairs(rows), of_pairs], -1)
        rules: Tensor = self.rule_module(pairs)[..., :-META_TARGETS]
        alike = rules[:, 1:] @ rules[:, 0].unsqueeze(2)
        return alike.view(-1, 2, CANDIDATES).sum(1)

    def _prepare(self, x: Tensor) -> Tensor:
        x = (BRIGHTEST - x) / BRIGHTEST if self.inverted else x
        if self.resize in (None, x.shape[-1]):
            return x
        return F.interpolate(x, (self.resize, self.resize), mode="bilinear")

    def _rows(self, panels: Tensor) -> Tensor:
        """Shape: ``(batch, 16, features)`` to ``(batch, 10, embedding)``."""
        first = cast(nn.Linear, self.row_module[0])
        beginning, end = first.weight.split([2 * panels.shape[2], panels.shape[2]], 1)
        beginnings = F.linear(left_and_middle(panels).flatten(2), beginning, first.bias)
        return cast(Tensor, self.row_module[1:](in_rows(beginnings, F.linear(right(panels), end))))

    def _pairs(self, rows: Tensor) -> Tensor:
        """Shape: ``(batch, 10, …)`` to ``(batch, 17, embedding)``."""
        first = cast(nn.Linear, self.pair_module[0])
        before, after = first.weight.split(rows.shape[2], 1)
        hidden = in_pairs(F.linear(rows, before, first.bias), F.linear(rows, after))
        return both_ways(self.pair_module[1:](hidden))


def _gated_module(inputs: int, widths: Sequence[int], outputs: int | None, spec: str, normalised: bool) -> nn.Sequential:
    """Linear, layer norm, activation, again, and a last linear layer with ``outputs``, if any."""
    layers, features = nn.Sequential(), inputs
    for width in widths:
        layers.append(nn.Linear(features, width))
        if normalised:
            layers.append(nn.LayerNorm(width))
        activation = boolit.activation(spec)
        layers.append(activation)
        features = activation.out_features(width)
    if outputs is not None:
        layers.append(nn.Linear(features, outputs))
    return layers
