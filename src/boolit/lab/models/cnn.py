"""The CNN of the paper on MNIST: six convolutions, pooled after every second, and three linear layers (a:mnist).

NOTE[paper]: the paper does not say how a budget becomes widths. The authors' code doubles or halves the size, in ever smaller
steps, until an estimate of the parameters without batch norm is within 200 plus 1 % of the budget, and then rounds every width
down to a multiple of the activation's divisor. We do the same, as it gives the networks of the paper's table, although they
then have up to 15 % fewer parameters than their budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.models.base import Shape
from boolit.lab.models.layers import SMALL
from boolit.lab.models.unstacked import UnstackedFamily
from boolit.nn import Activation

Structure = Literal["small", "large"]

# Pre-activation widths of six convolutions and two hidden linear layers, in units of the size, and the size a search begins at.
RATIOS: dict[Structure, tuple[float, ...]] = {"small": (1, 1, 1, 1, 1.5, 1.5, 2, 1.5), "large": (1, 2, 4, 4, 8, 8, 32, 16)}
FIRST_SIZE: dict[Structure, float] = {"small": 4, "large": 2}
TOLERATED = 200
TOLERATED_SHARE = 0.01
FINEST = 1 + 1e-6  # the search stops at steps smaller than this, where a budget cannot be met


def nominal_widths(structure: Structure, size: float) -> list[float]:
    """The eight widths of a size.

    Example:
        >>> nominal_widths("small", 3)
        [3, 3, 3, 3, 4.5, 4.5, 6, 4.5]
    """
    return [ratio * size for ratio in RATIOS[structure]]


def round_down(width: float, divisor: int) -> int:
    """The largest multiple of a divisor that is not above a width; at least one multiple.

    Example:
        >>> round_down(39.9, 2), round_down(0.7, 2)
        (38, 2)
    """
    return divisor * max(1, int(width // divisor))


def size_for_budget(count: Callable[[Sequence[float]], float], budget: int, structure: Structure) -> float:
    """The size, a real number, whose count of parameters is about a budget."""
    size, factor = FIRST_SIZE[structure], 2.0
    excess = count(nominal_widths(structure, size)) - budget
    while abs(excess) > TOLERATED + TOLERATED_SHARE * budget and factor > FINEST:
        size = size / factor if excess > 0 else size * factor
        before, excess = excess, count(nominal_widths(structure, size)) - budget
        if (before > 0) != (excess > 0):
            factor **= 0.75
    return size


def approximate_parameters(channels: int, cells: int, outputs: int, features: float, widths: Sequence[float]) -> float:
    """The authors' estimate for nominal widths: no batch norm, and whole neurons in the linear layers only.

    ``cells`` is the number of pixels per channel after the last pooling; ``features`` is the activation's feature factor.
    """
    total, inputs = 0.0, float(channels)
    for width in widths[:6]:
        total += (9 * inputs + 1) * width
        inputs = features * width
    inputs *= cells
    for width in (*widths[6:], outputs):
        total += (int(inputs) + 1) * int(width)
        inputs = features * width
    return total


CONVOLUTIONS, HIDDEN = 6, 2
SHRINKAGE = 8  # of height and width, by three poolings


class Cnn(UnstackedFamily):
    """``structure`` is ``small``, ``large``, or ``auto``: small for budgets below ``small_below`` parameters.

    ``initialisation`` is ``torch`` or ``small`` (linear layers uniform in ±0.005 without bias, as the authors' code).
    NOTE[paper]: the paper changes the structure at 10⁶ parameters, the authors' code at 10⁵; only the paper's column 260k would
    be a different network, and its count is too close to tell which it was.
    """

    name: Literal["cnn"] = "cnn"
    structure: Literal["auto", "small", "large"] = "auto"
    small_below: int = Field(default=1_000_000, ge=1)
    initialisation: Literal["torch", "small"] = "torch"

    def widths(self, size: int, depth: int) -> list[int]:
        _check_depth(depth)
        if self.structure == "auto":
            rule = 'which follows from a budget of parameters; use "small" or "large", or sweep.params'
            raise UserError(f"a width of {size} with structure 'auto', {rule}")
        return [int(width) for width in nominal_widths(self.structure, size)]

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        _check_depth(depth)
        channels, _, _, cells = _sizes(inputs)
        count = partial(approximate_parameters, channels, cells, outputs, float(activation.feature_factor))
        by_budget: Structure = "small" if budget < self.small_below else "large"
        structure = by_budget if self.structure == "auto" else self.structure
        size = size_for_budget(count, budget, structure)
        return [round_down(width, activation.divisor) for width in nominal_widths(structure, size)]

    def saved_numel(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        convolutions, linear = _parts(widths)
        _, height, width, _ = _sizes(inputs)
        total = math.prod(inputs) + sum(width + activation.out_features(width) for width in linear) + outputs
        for i, channels in enumerate(convolutions):
            features, pixels = activation.out_features(channels), (height >> i // 2) * (width >> i // 2)
            total += pixels * (channels + features)
            if i % 2:
                total += 3 * features * pixels // 4  # pooled values, and the positions of the maxima as int64
        return total

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> CnnNetwork:
        return CnnNetwork(inputs, outputs, widths, spec)

    def weight_limit(self, layer: nn.Module) -> float | None:
        return SMALL if self.initialisation == "small" and isinstance(layer, nn.Linear) else None


class CnnNetwork(nn.Module):
    """One network. Images have channels last in memory: convolutions and pooling are then faster on a CPU.

    Shape: ``(batch, height, width)`` or ``(batch, channels, height, width)`` to ``(batch, outputs)``.
    """

    def __init__(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> None:
        super().__init__()
        convolutions, linear = _parts(widths)
        features, _, _, cells = _sizes(inputs)
        self.convolution, self.norm, self.linear = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.activation = nn.ModuleList(boolit.activation(spec, dim=1) for _ in widths)
        out_features = boolit.activation(spec).out_features
        for width in convolutions:
            self.convolution.append(nn.Conv2d(features, width, 3, padding=1))
            self.norm.append(nn.BatchNorm2d(width))
            features = out_features(width)
        features *= cells
        for width in linear:
            self.linear.append(nn.Linear(features, width))
            features = out_features(width)
        self.linear.append(nn.Linear(features, outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1) if x.dim() == 3 else x
        x = x.clone(memory_format=torch.channels_last)  # not `contiguous`: with one channel both orders are, in name
        layers = zip(self.convolution, self.norm, self.activation, strict=False)
        for i, (convolution, norm, activation) in enumerate(layers):
            x = activation(norm(convolution(x)))
            x = F.max_pool2d(x, 2) if i % 2 else x
        x = x.flatten(1)
        for linear, activation in zip(self.linear, self.activation[CONVOLUTIONS:], strict=False):
            x = activation(linear(x))
        outputs: Tensor = self.linear[HIDDEN](x)
        return outputs


def _check_depth(depth: int) -> None:
    if depth != 1:
        raise UserError(f"a depth of {depth}: the CNN always has {CONVOLUTIONS} convolutions; leave sweep.depth out")


def _parts(widths: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The widths of the convolutions and of the hidden linear layers."""
    if len(widths) != CONVOLUTIONS + HIDDEN:
        rule = f"of {CONVOLUTIONS} convolutions and {HIDDEN} linear layers; give {CONVOLUTIONS + HIDDEN}"
        raise UserError(f"{len(widths)} widths ({list(widths)}) for a CNN {rule}")
    return widths[:CONVOLUTIONS], widths[CONVOLUTIONS:]


def _sizes(inputs: Shape) -> tuple[int, int, int, int]:
    """Channels, height and width of an image, and the pixels per channel after the last pooling."""
    if len(inputs) not in (2, 3) or min(inputs[-2:]) < SHRINKAGE:
        rule = f"a CNN takes (height, width) or (channels, height, width) of at least {SHRINKAGE} pixels per side"
        raise UserError(f"samples of shape {tuple(inputs)}: {rule}")
    channels, (height, width) = inputs[0] if len(inputs) == 3 else 1, inputs[-2:]
    return channels, height, width, (height // SHRINKAGE) * (width // SHRINKAGE)
