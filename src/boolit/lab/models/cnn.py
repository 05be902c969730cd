"""The paper's CNN for MNIST: six convolutions, with pooling after every second one, and three linear layers (a:mnist).

NOTE[paper]: the paper does not say how a budget becomes widths. The authors' code doubles or halves the size, in ever smaller
steps, until an estimate of the parameter count without batch norm is within 200 plus 1 % of the budget. It then rounds every
width down to what the activation can take (its ``width_multiple``). We do the same, because it gives the networks of the
paper's table, although they have up to 15 % fewer parameters than their budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.models.base import SMALL, Family, Shape, check_depth, round_down
from boolit.nn import Activation

Structure = Literal["small", "large"]

# Pre-activation widths of six convolutions and two hidden linear layers in units of the size.
RATIOS: dict[Structure, tuple[float, ...]] = {"small": (1, 1, 1, 1, 1.5, 1.5, 2, 1.5), "large": (1, 2, 4, 4, 8, 8, 32, 16)}
FIRST_SIZE: dict[Structure, float] = {"small": 4, "large": 2}  # where the search for a size begins
TOLERANCE, RELATIVE_TOLERANCE = 200, 0.01
MIN_FACTOR = 1 + 1e-6  # the search stops when its steps are smaller, where a budget cannot be met
CONVOLUTIONS, HIDDEN = 6, 2
FIXED_DEPTH = f"the CNN always has {CONVOLUTIONS} convolutions"
SHRINKAGE = 8  # of height and width, by three poolings


class Cnn(Family):
    """Six convolutions and two hidden linear layers.

    Args:
        structure: ``small``, ``large``, or ``auto``: small for budgets below ``small_below`` parameters.
        small_below: NOTE[paper]: the paper changes the structure at 10⁶ parameters, the sweeps behind tab:cnn-mnist at 10⁵.
        normalized: convolutions that are followed by batch norm: ``all``, or ``first`` of every pair before a pooling
            (convolutions 1, 3 and 5), as in the sweeps behind tab:cnn-mnist.
        initialization: ``torch``, or ``small`` (linear layers uniform in ±0.005 with zero bias, as the authors' code).
    """

    name: Literal["cnn"] = "cnn"
    structure: Literal["auto", "small", "large"] = "auto"
    small_below: int = Field(default=1_000_000, ge=1)
    normalized: Literal["all", "first"] = "all"
    initialization: Literal["torch", "small"] = "torch"

    def widths(self, size: int, depth: int) -> list[int]:
        check_depth(depth, FIXED_DEPTH)
        if self.structure == "auto":
            raise UserError(f"width {size}: structure = 'auto' follows from a budget; use 'small' or 'large', or sweep.params")
        return [int(width) for width in nominal_widths(self.structure, size)]

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        check_depth(depth, FIXED_DEPTH)
        channels, cells = _image(inputs)
        count = partial(approximate_parameters, channels, cells, outputs, float(activation.feature_factor))
        by_budget: Structure = "small" if budget < self.small_below else "large"
        structure = by_budget if self.structure == "auto" else self.structure
        size = size_for_budget(count, budget, structure)
        return [round_down(width, activation.width_multiple) for width in nominal_widths(structure, size)]

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        return CnnNetwork(inputs, outputs, widths, spec, self.normalized)

    def weight_bound(self, layer: nn.Module) -> float | None:
        return SMALL if self.initialization == "small" and isinstance(layer, nn.Linear) else None


def nominal_widths(structure: Structure, size: float) -> list[float]:
    """Return the eight widths of a size, before rounding.

    Example:
        >>> nominal_widths("small", 3)
        [3, 3, 3, 3, 4.5, 4.5, 6, 4.5]
    """
    return [ratio * size for ratio in RATIOS[structure]]


def size_for_budget(count: Callable[[Sequence[float]], float], budget: int, structure: Structure) -> float:
    """Return the size, a real number, whose approximate parameter count meets a budget."""
    size, factor = FIRST_SIZE[structure], 2.0
    excess = count(nominal_widths(structure, size)) - budget
    while abs(excess) > TOLERANCE + RELATIVE_TOLERANCE * budget and factor > MIN_FACTOR:
        size = size / factor if excess > 0 else size * factor
        before, excess = excess, count(nominal_widths(structure, size)) - budget
        if (before > 0) != (excess > 0):
            factor **= 0.75
    return size


def approximate_parameters(channels: int, cells: int, outputs: int, features: float, widths: Sequence[float]) -> float:
    """Return the authors' estimate of the parameter count for eight widths that are not rounded yet, without batch norm.

    ``cells`` are the pixels per channel after the last pooling, and ``features`` is the activation's feature factor.
    """
    total, inputs = 0.0, float(channels)
    for width in widths[:CONVOLUTIONS]:
        total += (9 * inputs + 1) * width
        inputs = features * width
    inputs *= cells
    for width in (*widths[CONVOLUTIONS:], outputs):
        total += (int(inputs) + 1) * int(width)
        inputs = features * width
    return total


class CnnNetwork(nn.Module):
    """One network, from ``(batch, height, width)`` or ``(batch, channels, height, width)`` to ``(batch, outputs)``.

    Images have channels last in memory, which makes convolution and pooling faster on a CPU, and activations see that order.
    """

    def __init__(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str, normalized: str = "all") -> None:
        super().__init__()
        if len(widths) != CONVOLUTIONS + HIDDEN:
            layers = f"{CONVOLUTIONS} convolutions and {HIDDEN} hidden linear layers"
            raise UserError(f"widths {list(widths)}: a CNN has {layers}; give a width for each")
        features, cells = _image(inputs)
        self.convolution, self.norm, self.linear = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.activation = nn.ModuleList(boolit.activation(spec, dim=-1) for _ in widths)
        out_features = boolit.activation(spec).out_features
        for i, width in enumerate(widths[:CONVOLUTIONS]):
            self.convolution.append(nn.Conv2d(features, width, 3, padding=1))
            self.norm.append(nn.BatchNorm2d(width) if normalized == "all" or i % 2 == 0 else nn.Identity())
            features = out_features(width)
        features *= cells
        for width in widths[CONVOLUTIONS:]:
            self.linear.append(nn.Linear(features, width))
            features = out_features(width)
        self.linear.append(nn.Linear(features, outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1) if x.dim() == 3 else x
        x = x.clone(memory_format=torch.channels_last)  # not `contiguous`, which does nothing with one channel
        for i, (convolution, norm) in enumerate(zip(self.convolution, self.norm, strict=True)):
            x = self.activation[i](norm(convolution(x)).movedim(1, -1)).movedim(-1, 1)
            x = F.max_pool2d(x, 2) if i % 2 else x
        x = x.flatten(1)
        for linear, activation in zip(self.linear, self.activation[CONVOLUTIONS:], strict=False):
            x = activation(linear(x))
        outputs: Tensor = self.linear[HIDDEN](x)
        return outputs


def _image(inputs: Shape) -> tuple[int, int]:
    """Return the channels of an image and its pixels per channel after the last pooling."""
    if len(inputs) not in (2, 3) or min(inputs[-2:]) < SHRINKAGE:
        rule = f"a CNN takes (height, width) or (channels, height, width) of at least {SHRINKAGE} pixels per side"
        raise UserError(f"samples of shape {tuple(inputs)}: {rule}")
    height, width = inputs[-2:]
    return inputs[0] if len(inputs) == 3 else 1, (height // SHRINKAGE) * (width // SHRINKAGE)
