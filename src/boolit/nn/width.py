"""Widths and parameter counts, for a fair comparison of activations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import torch
from torch import nn

from boolit.nn.gates import Activation
from boolit.nn.mlp import MLP

PARABOLAS = 6  # guesses by interpolation before bisection


def round_width(nominal: float | Fraction, width_multiple: int) -> int:
    """Return the multiple of ``width_multiple`` nearest to a nominal width, half to even, at least one multiple.

    Example:
        >>> round_width(650, 4), round_width(650, 6), round_width(70, 4)
        (648, 648, 72)
    """
    return width_multiple * max(1, round(Fraction(nominal) / width_multiple))


def count_parameters(module: nn.Module) -> int:
    """Return the number of trainable parameters of a module.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def mlp_parameters(inputs: int, widths: Sequence[int], outputs: int, activation: Activation, batch_norm: bool = False) -> int:
    """Return the parameters of Linear [BatchNorm] activation … Linear with pre-activation widths ``widths`` and biases.

    Example:
        >>> from boolit.nn import activation
        >>> mlp_parameters(784, [250, 250], 10, activation("relu"), batch_norm=True)
        262510
    """
    with torch.device("meta"):  # needs neither memory nor random numbers
        return count_parameters(MLP(inputs, widths, outputs, activation, normalisation="batch" if batch_norm else "none"))


def width_for_budget(count: Callable[[int], int], budget: int, width_multiple: int = 1) -> int:
    """Return the multiple of ``width_multiple`` whose parameter count is nearest to the budget (the narrower width at a tie).

    ``count`` must grow with the width.

    Example:
        >>> width_for_budget(lambda w: w * w, 1000, width_multiple=2)
        32
    """
    points = [(n, count(n * width_multiple)) for n in (1, 2, 3)]
    if points[0][1] >= budget:
        return width_multiple
    for attempt in itertools.count():
        low, below = max(point for point in points if point[1] < budget)
        high, above = min((point for point in points if point[1] >= budget), default=(0, 0))
        if high == low + 1:
            break
        guess = _parabola_root(points[-3:], budget) if attempt < PARABOLAS else 0  # counts are nearly quadratic in the width
        guess = max(guess or ((low + high) // 2 if high else 2 * low), low + 1)
        points.append((n := min(guess, high - 1) if high else guess, count(n * width_multiple)))
    return width_multiple * (low if budget - below <= above - budget else high)


def _parabola_root(points: Sequence[tuple[int, int]], value: int) -> int:
    """Return the largest integer at which the parabola through three points stays below a value; 0 if there is none."""
    (a, at_a), (b, at_b), (c, at_c) = points
    first, second = (at_b - at_a) / (b - a), (at_c - at_b) / (c - b)
    curvature = (second - first) / (c - a)
    slope = second + curvature * (c - b)
    root = slope + math.sqrt(max(0.0, slope**2 + 4 * curvature * (value - at_c)))
    return max(0, math.floor(c + 2 * (value - at_c) / root)) if root > 0 else 0
