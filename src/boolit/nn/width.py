"""Widths and parameter counts, for a fair comparison of activations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction

from torch import nn


def round_width(nominal: float | Fraction, width_multiple: int) -> int:
    """Return the multiple of ``width_multiple`` nearest to a nominal width (ties to even), at least ``width_multiple``.

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


def width_for_budget(count: Callable[[int], int], budget: int, width_multiple: int = 1) -> int:
    """Return the multiple of ``width_multiple`` whose parameter count is nearest to the budget (the narrower width at a tie).

    ``count`` must grow with the width.

    Example:
        >>> width_for_budget(lambda w: w * w, 1000, width_multiple=2)
        32
    """

    def count_of(multiples: int) -> int:
        return count(multiples * width_multiple)

    bound = 1
    while count_of(bound) < budget:
        bound *= 2
    high = bisect_left(range(bound), budget, lo=max(1, bound // 2), key=count_of)  # the first that reaches the budget
    low = max(1, high - 1)
    return width_multiple * (low if budget - count_of(low) <= count_of(high) - budget else high)
