"""The pre-activation ResNets of the paper on CIFAR-10 and CIFAR-100 (a:cifar).

Only the layers inside a block scale with the factor w. NOTE[paper]: the text also says that the embedding scales; then ReLU's
five networks would have 1.5 to 375 million parameters, where the tables have 6 to 225 million.

Its stem always has ReLU, nothing follows the last block but the mean over all pixels and a linear layer, and where a block
changes the shape its identity is a bare convolution of what entered the block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.lab.common.errors import UserError
from boolit.lab.models.base import Family, Stacked
from boolit.lab.models.mlp import SMALL
from boolit.lab.models.unstacked import UnstackedRuns
from boolit.nn import Activation
from boolit.nn.conv1x1 import Conv1x1
from boolit.nn.width import count_parameters, round_width, width_for_budget

# How wide the stages of the pre-activation ResNets on CIFAR are (a:cifar), and the width factors of each kind of
# activation.

Depth = Literal[18, 34, 50, 101, 152]

BLOCKS: dict[Depth, tuple[int, ...]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
STRIDES = (1, 2, 2, 2)
BOTTLENECK = 4  # channels of the embedding per base width, in networks of 50 layers and more

# Width factors by how many channels an activation makes of one; five networks each, of about equal size by place.
FACTORS = {
    Fraction(1): ("0.25", "0.5", "1", "2", "4"),
    Fraction(1, 2): ("0.375", "0.75", "1.5", "3", "6"),
    Fraction(3, 2): ("0.2", "0.4", "0.75", "1.5", "3"),
}


def expansion(depth: Depth) -> int:
    """Channels of the embedding per base width."""
    return BOTTLENECK if depth >= 50 else 1


def base_widths(base: int, divisor: int) -> list[int]:
    """The base width of each stage, cut down to a multiple of what the activation needs.

    Example:
        >>> base_widths(64, 2), base_widths(64, 6)
        ([64, 128, 256, 512], [60, 126, 252, 510])
    """
    nominal = [base * 2**stage for stage in range(len(STRIDES))]
    return [divisor * max(1, width // divisor) for width in nominal]


def hidden_widths(bases: Sequence[int], factor: Fraction, divisor: int) -> list[int]:
    """The widths inside the blocks of each stage: the multiples of the divisor nearest to factor times base.

    Example:
        >>> hidden_widths([64, 128, 256, 512], Fraction("0.2"), 2)
        [12, 26, 52, 102]
        >>> hidden_widths([60, 126, 252, 510], Fraction("1.5"), 6)
        [90, 192, 378, 768]
    """
    return [round_width(factor * width, divisor) for width in bases]


# One pre-activation ResNet (He et al. 2016) as the paper trains it on CIFAR (a:cifar), a plain torch network.


@dataclass(frozen=True)
class BlockShape:
    """Channels that enter a block, are inside it and leave it, and its stride."""

    entering: int
    hidden: int
    leaving: int
    stride: int

    @property
    def projected(self) -> bool:
        """Whether the identity needs a convolution."""
        return self.stride != 1 or self.entering != self.leaving


def block_shapes(depth: Depth, base: int, widths: Sequence[int], divisor: int) -> tuple[int, list[BlockShape]]:
    """The channels of the stem, and all blocks in their order."""
    bases = base_widths(base, divisor)
    entering, shapes = bases[0], []
    for channels, hidden, blocks, first in zip(bases, widths, BLOCKS[depth], STRIDES, strict=True):
        for block in range(blocks):
            shapes.append(BlockShape(entering, hidden, expansion(depth) * channels, 1 if block else first))
            entering = shapes[-1].leaving
    return bases[0], shapes


class Step(nn.Sequential):
    """Batch norm, activation, convolution.

    Shape: ``(batch, channels, height, width)`` to ``(batch, out_channels, height / stride, width / stride)``, rounded up.
    """

    def __init__(self, spec: str, channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        activation = boolit.activation(spec, dim=1)
        features = activation.out_features(channels)
        convolution = nn.Conv2d(features, out_channels, kernel, stride, padding=kernel // 2, bias=False)
        super().__init__()
        self.norm, self.activation, self.convolution = nn.BatchNorm2d(channels), activation, convolution


class Block(nn.Module):
    """A residual block: two convolutions of 3 × 3, or one between two of 1 × 1 (``bottleneck``).

    Shape: ``(batch, entering, height, width)`` to ``(batch, leaving, height / stride, width / stride)``, rounded up.
    """

    def __init__(self, spec: str, shape: BlockShape, bottleneck: bool) -> None:
        super().__init__()
        self.identity = Conv1x1(shape.entering, shape.leaving, shape.stride, bias=False) if shape.projected else None
        if bottleneck:
            first = [Step(spec, shape.entering, shape.hidden, 1), Step(spec, shape.hidden, shape.hidden, 3, shape.stride)]
        else:
            first = [Step(spec, shape.entering, shape.hidden, 3, shape.stride)]
        self.steps = nn.Sequential(*first, Step(spec, shape.hidden, shape.leaving, 1 if bottleneck else 3))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.steps(x) + (x if self.identity is None else self.identity(x))
        return result


class Network(nn.Module):
    """One network; its pictures have their channels last in memory, where convolutions are faster on a CPU.

    ``widths`` are those inside the blocks of each of the four stages.

    Shape: ``(batch, channels, height, width)`` to ``(batch, outputs)``.

    Example:
        >>> network = Network(3, 10, [12, 24, 48, 96], "or_ail", depth=50, base=8)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, channels: int, outputs: int, widths: Sequence[int], spec: str, depth: Depth, base: int) -> None:
        super().__init__()
        stem, shapes = block_shapes(depth, base, widths, boolit.activation(spec).divisor)
        self.stem, self.norm = nn.Conv2d(channels, stem, 3, padding=1, bias=False), nn.BatchNorm2d(stem)
        self.blocks = nn.Sequential(*(Block(spec, shape, expansion(depth) > 1) for shape in shapes))
        self.linear = nn.Linear(shapes[-1].leaving, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.clone(memory_format=torch.channels_last))  # a clone, as grey pictures would keep the order they have
        x = self.blocks(F.relu(self.norm(x)))
        outputs: Tensor = self.linear(x.mean((2, 3)))
        return outputs


NEAR = 1.25  # how many times larger or smaller than a network of the paper a budget for it may be


class PreactResnet(Family):
    """``depth`` is 18 or 34 (basic blocks), 50, 101 or 152 (bottlenecks); ``base`` is the base width of the first stage.

    The embedding that passes through follows from both, and only the layers inside the blocks change with the size: a width
    is that of the first stage, which doubles from stage to stage, or a list of four. With ``sizes = "paper"`` a budget of
    parameters stands for that one of the paper's five width factors for the activation's map whose network comes nearest.
    ``initialisation`` is ``torch`` or ``small`` (the linear layer uniform in ±0.005 without bias, as the authors' code).
    """

    name: Literal["preact-resnet"] = "preact-resnet"
    depth: Depth = 50
    base: int = Field(default=64, ge=1)
    sizes: Literal["any", "paper"] = "any"
    initialisation: Literal["torch", "small"] = "torch"

    @property
    def trains_alone(self) -> bool:
        return True

    def widths(self, size: int, depth: int) -> list[int]:
        _check_depth(depth)
        return [size * 2**stage for stage in range(len(STRIDES))]

    def widths_for_budget(
        self, budget: int, depth: int, inputs: Sequence[int], outputs: int, activation: Activation
    ) -> list[int]:
        _check_depth(depth)
        if self.sizes == "paper":
            return self._nearest_of_paper(budget, inputs, outputs, activation)
        first = base_widths(self.base, activation.divisor)[0]

        def widths(size: int) -> list[int]:
            return self._hidden(Fraction(size, first), activation)

        def count(size: int) -> int:
            return self.parameters(inputs, outputs, widths(size), activation)

        return widths(width_for_budget(count, budget, activation.divisor))

    def of_paper(self, activation: Activation) -> list[list[int]]:
        """The widths of the paper's five networks for an activation, from the smallest."""
        factors = FACTORS.get(activation.feature_factor)
        if factors is None:
            into, out = activation.map
            rule = "the paper has width factors for 1→1, 2→1, 2→2 and 2→3 only; use sizes = 'any'"
            raise UserError(f"{activation.spec} maps {into}→{out}: {rule}")
        return [self._hidden(Fraction(factor), activation) for factor in factors]

    def _hidden(self, factor: Fraction, activation: Activation) -> list[int]:
        return hidden_widths(base_widths(self.base, activation.divisor), factor, activation.divisor)

    def _nearest_of_paper(self, budget: int, inputs: Sequence[int], outputs: int, activation: Activation) -> list[int]:
        counts = {self.parameters(inputs, outputs, widths, activation): widths for widths in self.of_paper(activation)}
        nearest = min(counts, key=lambda count: abs(math.log(count / budget)))
        if not 1 / NEAR <= nearest / budget <= NEAR:
            rule = f"the paper's networks with {activation.spec} have {', '.join(f'{count:,}' for count in counts)} parameters"
            raise UserError(f"a budget of {budget:,}: {rule}; ask for about one of these, or use sizes = 'any'")
        return counts[nearest]

    def parameters(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        stem, blocks = self._shapes(widths, activation)
        own = count_parameters(activation)
        total = 9 * _sizes(inputs)[0] * stem + 2 * stem + (blocks[-1].leaving + 1) * outputs
        for block in blocks:
            total += block.entering * block.leaving if block.projected else 0
            for channels, out_channels, kernel in self._layers(block):
                total += 2 * channels + own + kernel**2 * activation.out_features(channels) * out_channels
        return total

    def saved_numel(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        _, height, width = _sizes(inputs)
        stem, blocks = self._shapes(widths, activation)
        total = math.prod(inputs) + stem * height * width + blocks[-1].leaving + outputs
        for block in blocks:
            for i, (channels, _, _) in enumerate(self._layers(block)):
                total += height * width * (channels + activation.out_features(channels))
                if i == self._strided:
                    height, width = -(-height // block.stride), -(-width // block.stride)
        return total

    def build(self, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return StackedPreactResnet(self, runs, inputs, outputs, widths, spec)

    def network(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Network:
        """One plain network."""
        _check_widths(widths)
        return Network(_sizes(inputs)[0], outputs, widths, spec, self.depth, self.base)

    @property
    def _strided(self) -> int:
        """Which layer of a block has its stride."""
        return 1 if expansion(self.depth) > 1 else 0

    def _shapes(self, widths: Sequence[int], activation: Activation) -> tuple[int, list[BlockShape]]:
        _check_widths(widths)
        return block_shapes(self.depth, self.base, widths, activation.divisor)

    def _layers(self, block: BlockShape) -> list[tuple[int, int, int]]:
        """The pre-activation channels, channels out and kernel of each layer of a block."""
        if expansion(self.depth) == 1:
            return [(block.entering, block.hidden, 3), (block.hidden, block.leaving, 3)]
        return [(block.entering, block.hidden, 1), (block.hidden, block.hidden, 3), (block.hidden, block.leaving, 1)]


class StackedPreactResnet(UnstackedRuns):
    """The networks of some runs.

    Shape: ``(runs, batch, channels, height, width)`` to ``(runs, batch, outputs)``.
    """

    def __init__(
        self, family: PreactResnet, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str
    ) -> None:
        with torch.random.fork_rng(devices=[]):  # torch's layers draw weights that `initialise` is going to replace
            network = family.network(inputs, outputs, widths, spec)
        super().__init__(runs, network)
        self._linear_bound = None if family.initialisation == "torch" else SMALL

    def bound(self, layer: nn.Module) -> float | None:
        return self._linear_bound if isinstance(layer, nn.Linear) else None


def _check_depth(depth: int) -> None:
    if depth != 1:
        raise UserError(f"a sweep.depth of {depth}: layers of a ResNet are counted by model.depth; leave sweep.depth out")


def _check_widths(widths: Sequence[int]) -> None:
    if len(widths) != len(STRIDES):
        raise UserError(f"{len(widths)} widths ({list(widths)}) for a ResNet of {len(STRIDES)} stages; give {len(STRIDES)}")


def _sizes(inputs: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width of a picture."""
    if len(inputs) != 3:
        raise UserError(f"samples of shape {tuple(inputs)}: a ResNet takes pictures (channels, height, width); use such data")
    channels, height, width = inputs
    return channels, height, width
