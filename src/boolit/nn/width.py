"""Widths and parameter counts: what makes a comparison of activations fair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import torch
from torch import nn

from boolit.nn.activations import Activation
from boolit.nn.mlp import MLP


def round_width(nominal: float | Fraction, divisor: int) -> int:
    """The multiple of ``divisor`` nearest to a nominal width, half to even, at least one multiple.

    Example:
        >>> round_width(650, 4), round_width(650, 6), round_width(70, 4)
        (648, 648, 72)
    """
    return divisor * max(1, round(Fraction(nominal) / divisor))


def count_parameters(module: nn.Module) -> int:
    """Trainable parameters of a module.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def mlp_parameters(inputs: int, widths: Sequence[int], outputs: int, activation: Activation, batch_norm: bool = False) -> int:
    """Parameters of Linear [BatchNorm] activation … Linear, with pre-activation widths ``widths`` and biases everywhere.

    Example:
        >>> from boolit.nn import activation
        >>> mlp_parameters(784, [250, 250], 10, activation("relu"), batch_norm=True)
        262510
    """
    with torch.device("meta"):  # neither memory nor random numbers are spent on weights
        return count_parameters(MLP(inputs, widths, outputs, activation, normalisation="batch" if batch_norm else "none"))


def width_for_budget(count: Callable[[int], int], budget: int, divisor: int = 1) -> int:
    """The width, a multiple of ``divisor``, whose parameter count is nearest to the budget (the narrower at a tie).

    ``count`` must grow with the width.

    Example:
        >>> width_for_budget(lambda w: w * w, 1000, divisor=2)
        32
    """
    if count(divisor) >= budget:
        return divisor
    low, high = 1, 2
    while count(high * divisor) < budget:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle * divisor) < budget else (low, middle)
    nearer_below = budget - count(low * divisor) <= count(high * divisor) - budget
    return divisor * (low if nearer_below else high)
