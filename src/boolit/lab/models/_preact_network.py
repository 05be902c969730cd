"""One pre-activation ResNet (He et al. 2016) as the paper trains it on CIFAR (a:cifar), a plain torch network.

Its stem always has ReLU, nothing follows the last block but the mean over all pixels and a linear layer, and where a block
changes the shape its identity is a bare convolution of what entered the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boolit
from boolit.lab.models._preact_sizes import BLOCKS, STRIDES, Depth, base_widths, expansion
from boolit.nn.conv1x1 import Conv1x1


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
