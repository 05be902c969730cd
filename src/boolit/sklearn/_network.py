"""The network of an estimator: standardised inputs, hidden layers, outputs in the target's own units."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from boolit.nn import Activation, Pointwise
from boolit.nn.width import mlp_parameters, width_for_budget

RELU_WIDTH = 64
NORMALISATIONS: dict[str, type[nn.BatchNorm1d | nn.LayerNorm]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class Affine(nn.Module):
    """``(x − shift) · scale`` by column, with constants that are not trained.

    Shape: ``(…, columns)``, unchanged.

    Example:
        >>> Affine(torch.tensor([1.0]), torch.tensor([2.0]))(torch.tensor([[4.0]]))
        tensor([[6.]])
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.shift) * self.scale

    def inverse(self) -> Affine:
        """What undoes it."""
        return Affine(-self.shift * self.scale, 1 / self.scale)


class GeneratedDropout(nn.Module):
    """Dropout from a generator of its own: torch's global one is neither used nor changed."""

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self.generator = p, generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = torch.empty_like(x).bernoulli_(1 - self.p, generator=self.generator)
        return x * kept.div_(1 - self.p)


def width_for(budget: int | None, inputs: int, outputs: int, depth: int, activation: Activation, normalised: bool) -> int:
    """The width before each activation that brings the network's parameters nearest to the budget.

    Without a budget it is what a ReLU network of width 64 has, so that activations compared by their names alone are
    compared at equal size.
    """

    def count(width: int, by: Activation = activation) -> int:
        return mlp_parameters(inputs, [width] * depth, outputs, by, batch_norm=normalised)

    return width_for_budget(count, budget or count(RELU_WIDTH, Pointwise("relu")), activation.divisor)


def build(
    inputs: int,
    widths: Sequence[int],
    outputs: int,
    activation: Activation,
    normalisation: str,
    dropout: float,
    generator: torch.Generator,
) -> nn.Sequential:
    """Linear, normalisation, activation, dropout, again, and a last Linear; in float32, drawn from the generator."""
    layers: list[nn.Module] = []
    for width in widths:
        layers.append(_linear(inputs, width, generator))
        if normalisation != "none":
            layers.append(NORMALISATIONS[normalisation](width, dtype=torch.float32))
        layers.append(copy.deepcopy(activation).float())
        if dropout:
            layers.append(GeneratedDropout(dropout, generator))
        inputs = activation.out_features(width)
    return nn.Sequential(*layers, _linear(inputs, outputs, generator))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """``nn.Linear`` with its usual distribution of weights."""
    layer: nn.Linear = skip_init(nn.Linear, inputs, outputs, dtype=torch.float32)
    bound = 1 / math.sqrt(inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator)
    return layer


def finished(before: Affine | None, trained: nn.Sequential, after: Affine | None) -> nn.Sequential:
    """What the estimator keeps: inputs as given to outputs as wanted, of picklable layers, in float64, ready to evaluate.

    In float32 a sample's prediction would depend, in its last digits, on how many samples are beside it.
    """
    layers = [nn.Dropout(layer.p) if isinstance(layer, GeneratedDropout) else layer for layer in trained]
    return nn.Sequential(*(layer for layer in (before, *layers, after) if layer is not None)).double().eval()
