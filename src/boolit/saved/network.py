"""The network of a saved model: a plain module from features in their own units to answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boolit.nn import activation


class Standardise(nn.Module):
    """``(x − mean) / scale`` by feature, in float64, as float32 would lose small differences of large numbers.

    Shape: ``(rows, features)``, unchanged; the result is float32.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(features, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.scale).to(torch.float32)


class InUnit(nn.Module):
    """Standardised answers in the target's own unit.

    Shape: ``(rows, 1)``, unchanged; the result is float64.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.mean


class Probabilities(nn.Module):
    """Logits as one probability a class; a single logit is that of the second of two classes.

    Shape: ``(rows, outputs)`` to ``(rows, classes)``.

    Example:
        >>> Probabilities()(torch.zeros(1, 1))
        tensor([[0.5000, 0.5000]])
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.sigmoid(-x), torch.sigmoid(x)], 1) if x.shape[1] == 1 else torch.softmax(x, 1)


def network(features: int, widths: Sequence[int], outputs: int, spec: str, in_unit: bool) -> nn.Sequential:
    """Standardise, then Linear, batch normalisation and activation for every width, and a last Linear.

    With ``in_unit`` the answers are brought to the target's unit. Widths are counted before the activation.

    Example:
        >>> network(3, [8], 2, "or_ail", in_unit=False).eval()(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    layers: list[nn.Module] = [Standardise(features)]
    for width in widths:
        function = activation(spec)
        layers += [nn.Linear(features, width), nn.BatchNorm1d(width), function]
        features = function.out_features(width)
    layers.append(nn.Linear(features, outputs))
    return nn.Sequential(*layers, *([InUnit()] if in_unit else []))
