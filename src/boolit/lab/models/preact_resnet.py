"""The pre-activation ResNets of the paper on CIFAR-10 and CIFAR-100 (a:cifar)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from boolit.lab.errors import UserError
from boolit.lab.models import register
from boolit.lab.models._family import Family, Stacked
from boolit.lab.models._looped import Looped
from boolit.lab.models._preact_network import BlockShape, Network, block_shapes
from boolit.lab.models._preact_sizes import FACTORS, STRIDES, Depth, base_widths, expansion, hidden_widths
from boolit.lab.models.mlp import SMALL
from boolit.nn import Activation
from boolit.nn.width import count_parameters, width_for_budget

NEAR = 1.25  # how many times larger or smaller than a network of the paper a budget for it may be


@register
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
    def big(self) -> bool:
        return True

    def hidden(self, size: int, depth: int) -> list[int]:
        _check_depth(depth)
        return [size * 2**stage for stage in range(len(STRIDES))]

    def fitted(self, budget: int, depth: int, inputs: Sequence[int], outputs: int, activation: Activation) -> list[int]:
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

    def kept(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
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


class StackedPreactResnet(Looped):
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
