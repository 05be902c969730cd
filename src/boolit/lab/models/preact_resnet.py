"""The pre-activation ResNets of the paper on CIFAR-10 and CIFAR-100 (a:cifar).

Only the layers inside a block scale with the width factor. NOTE[paper]: the text says that the embedding
scales as well. ReLU's five networks would then have 1.5 to 375 million parameters, but the tables have 6 to 225 million.

The stem always has ReLU. The last block is followed by the mean over all pixels and a linear layer. Where a block changes the
shape, its shortcut is a 1×1 convolution of the block's input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.models.base import SMALL, Family, Shape, check_depth, round_down
from boolit.nn import Activation
from boolit.nn.conv1x1 import Conv1x1
from boolit.nn.width import round_width

Depth = Literal[18, 34, 50, 101, 152]

BLOCKS: dict[Depth, tuple[int, ...]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
STRIDES = (1, 2, 2, 2)
FIXED_DEPTH = "the layers of a ResNet are counted by model.depth"
BOTTLENECK = 4  # channels of the embedding per base width, in networks of 50 layers and more

# Width factors by the feature factor of an activation; the five networks are about equally large in each row.
FACTORS = {
    Fraction(1): ("0.25", "0.5", "1", "2", "4"),
    Fraction(1, 2): ("0.375", "0.75", "1.5", "3", "6"),
    Fraction(3, 2): ("0.2", "0.4", "0.75", "1.5", "3"),
}


def base_widths(base: int, width_multiple: int) -> list[int]:
    """Return the base width of each stage, rounded down to a multiple of the activation's width multiple.

    Example:
        >>> base_widths(64, 2), base_widths(64, 6)
        ([64, 128, 256, 512], [60, 126, 252, 510])
    """
    # NOTE[paper]: the text has a stem of 64 and an embedding of 2,048; the counts of {OR, AND, XNOR (p)} need 60 and 2,040.
    return [round_down(base * 2**stage, width_multiple) for stage in range(len(STRIDES))]


def hidden_widths(base: int, factor: Fraction, width_multiple: int) -> list[int]:
    """Return the widths inside the blocks of each stage: the multiples of width_multiple nearest to factor times base width.

    Example:
        >>> hidden_widths(64, Fraction("0.2"), 2), hidden_widths(64, Fraction("1.5"), 6)
        ([12, 26, 52, 102], [90, 192, 378, 768])
    """
    return [round_width(factor * width, width_multiple) for width in base_widths(base, width_multiple)]


class PreactConv(nn.Sequential):
    """Batch norm, activation, convolution."""

    def __init__(self, spec: str, channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        activation = boolit.activation(spec, dim=1)
        features = activation.out_features(channels)
        self.norm, self.activation = nn.BatchNorm2d(channels), activation
        self.convolution = nn.Conv2d(features, out_channels, kernel, stride, padding=kernel // 2, bias=False)


class PreactBlock(nn.Module):
    """A residual block: two 3×3 convolutions, or one between two 1×1 convolutions (``bottleneck``)."""

    def __init__(self, spec: str, channels: int, hidden: int, out_channels: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        projected = stride != 1 or channels != out_channels
        self.identity = Conv1x1(channels, out_channels, stride, bias=False) if projected else None
        if bottleneck:
            layers = [(channels, hidden, 1, 1), (hidden, hidden, 3, stride), (hidden, out_channels, 1, 1)]
        else:
            layers = [(channels, hidden, 3, stride), (hidden, out_channels, 3, 1)]
        self.steps = nn.Sequential(*(PreactConv(spec, *layer) for layer in layers))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.steps(x) + (x if self.identity is None else self.identity(x))
        return result


class PreactNetwork(nn.Module):
    """One network (He et al. 2016), from ``(batch, channels, height, width)`` to ``(batch, outputs)``.

    Images have channels last in memory, which makes convolutions faster on a CPU. ``widths`` are those inside the blocks of
    each of the four stages.

    Example:
        >>> network = PreactNetwork(3, 10, [12, 24, 48, 96], "or_ail", depth=50, base=8)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, channels: int, outputs: int, widths: Sequence[int], spec: str, depth: Depth, base: int) -> None:
        super().__init__()
        if len(widths) != len(STRIDES):
            raise UserError(f"widths {list(widths)}: a ResNet has {len(STRIDES)} stages; give {len(STRIDES)} widths")
        bases, bottleneck = base_widths(base, boolit.activation(spec).width_multiple), depth >= 50
        features = bases[0]
        self.stem, self.norm = nn.Conv2d(channels, features, 3, padding=1, bias=False), nn.BatchNorm2d(features)
        self.blocks = nn.Sequential()
        for stage, hidden, blocks, stride in zip(bases, widths, BLOCKS[depth], STRIDES, strict=True):
            embedding = stage * BOTTLENECK if bottleneck else stage
            for block in range(blocks):
                self.blocks.append(PreactBlock(spec, features, hidden, embedding, 1 if block else stride, bottleneck))
                features = embedding
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.clone(memory_format=torch.channels_last))  # a clone, as `contiguous` does nothing with one channel
        x = self.blocks(F.relu(self.norm(x)))
        outputs: Tensor = self.linear(x.mean((2, 3)))
        return outputs


NEAR = 1.25  # the largest ratio between a budget and the count of the network of the paper it stands for


class PreactResnet(Family):
    """Pre-activation ResNet. Only the layers inside the blocks change with the size.

    A width is that of the first stage, which doubles from stage to stage, or a list of four.

    Args:
        depth: 18 or 34 (basic blocks), 50, 101 or 152 (bottlenecks).
        base: base width of the first stage, which determines the embedding.
        sizes: ``any``, or ``paper``: a budget selects the nearest of the paper's five networks for the activation's map.
        initialization: ``torch``, or ``small`` (the linear layer uniform in ±0.005 with zero bias, as the authors' code).
    """

    name: Literal["preact-resnet"] = "preact-resnet"
    depth: Depth = 50
    base: int = Field(default=64, ge=1)
    sizes: Literal["any", "paper"] = "any"
    initialization: Literal["torch", "small"] = "torch"

    @property
    def trains_alone(self) -> bool:
        return True

    def widths(self, size: int, depth: int) -> list[int]:
        check_depth(depth, FIXED_DEPTH)
        return [size * 2**stage for stage in range(len(STRIDES))]

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        check_depth(depth, FIXED_DEPTH)
        if self.sizes == "paper":
            return self._nearest_of_paper(budget, inputs, outputs, activation)
        return super().widths_for_budget(budget, depth, inputs, outputs, activation)

    def scaled_widths(self, size: int, depth: int, activation: Activation) -> list[int]:  # noqa: ARG002
        first = base_widths(self.base, activation.width_multiple)[0]
        return hidden_widths(self.base, Fraction(size, first), activation.width_multiple)

    def paper_widths(self, activation: Activation) -> list[list[int]]:
        """Return the widths of the paper's five networks for an activation, from the smallest."""
        factors = FACTORS.get(activation.feature_factor)
        if factors is None:
            into, out = activation.channels
            rule = "the paper has width factors for 1→1, 2→1, 2→2 and 2→3 only; use sizes = 'any'"
            raise UserError(f"{activation.spec} maps {into}→{out}: {rule}")
        return [hidden_widths(self.base, Fraction(factor), activation.width_multiple) for factor in factors]

    def _nearest_of_paper(self, budget: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        counts = {self.parameters(inputs, outputs, widths, activation): widths for widths in self.paper_widths(activation)}
        nearest = min(counts, key=lambda count: abs(math.log(count / budget)))
        if not 1 / NEAR <= nearest / budget <= NEAR:
            rule = f"the paper's networks with {activation.spec} have {', '.join(f'{count:,}' for count in counts)} parameters"
            raise UserError(f"a budget of {budget:,}: {rule}; ask for about one of these, or use sizes = 'any'")
        return counts[nearest]

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        if len(inputs) != 3:
            raise UserError(f"samples of shape {tuple(inputs)}: a ResNet takes images (channels, height, width)")
        return PreactNetwork(inputs[0], outputs, widths, spec, self.depth, self.base)

    def weight_bound(self, layer: nn.Module) -> float | None:
        return SMALL if self.initialization == "small" and isinstance(layer, nn.Linear) else None
