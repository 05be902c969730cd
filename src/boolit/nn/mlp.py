"""Multi-layer perceptrons with any activation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from boolit.logic.operations import check_choice
from boolit.nn.gates import Activation, RReLU
from boolit.nn.specs import activation as activation_of

NORMALIZATIONS: dict[str, type[nn.BatchNorm1d | nn.LayerNorm]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class MLP(nn.Sequential):
    """Linear, normalization, activation and dropout for every width, and a last Linear.

    Args:
        in_features: Columns of the input.
        widths: Widths of the hidden layers before each activation; multiples of its ``width_multiple``.
        out_features: Columns of the output.
        activation: What `boolit.activation` takes. Each layer has its own copy.
        normalization: ``batch``, ``layer`` or ``none``.
        dropout: Probability of a 0 after each activation.
        generator: Source of initial weights (torch's usual distribution), dropout and RReLU's slopes, in float32. The global
            generator is then neither used nor changed.

    Shape: ``(…, in_features)`` to ``(…, out_features)``.

    Example:
        >>> MLP(8, [64, 64], 3, "or_ail", normalization="batch")(torch.zeros(5, 8)).shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        in_features: int,
        widths: Sequence[int],
        out_features: int,
        activation: str | type[nn.Module] | Activation = "relu",
        *,
        normalization: str = "none",
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        check_choice("normalization", normalization, ("none", *NORMALIZATIONS))
        dtype = torch.float32 if generator else None
        function = activation_of(activation, dim=-1)
        layers: list[nn.Module] = []
        for width in widths:
            layers.append(_linear(in_features, width, generator))
            if normalization != "none":
                layers.append(NORMALIZATIONS[normalization](width, dtype=dtype))
            layers.append(deepcopy(function).to(dtype))
            if dropout:
                layers.append(GeneratedDropout(dropout, generator) if generator else nn.Dropout(dropout))
            in_features = function.out_features(width)
        super().__init__(*layers, _linear(in_features, out_features, generator))
        for module in self.modules():
            if isinstance(module, RReLU):
                module.generator = generator


class GeneratedDropout(nn.Module):
    """Dropout that draws from a given generator, with the same numbers on every device."""

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self.generator = p, generator

    def forward(self, x: Tensor) -> Tensor:
        """Return x with entries dropped, or x itself in evaluation mode."""
        if not self.training:
            return x
        kept = torch.empty_like(x, device=self.generator.device).bernoulli_(1 - self.p, generator=self.generator)
        return x * kept.div_(1 - self.p).to(x.device)


def _linear(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Linear:
    if generator is None:
        return nn.Linear(inputs, outputs)
    layer: nn.Linear = skip_init(nn.Linear, inputs, outputs, dtype=torch.float32)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs), generator)
    return layer
