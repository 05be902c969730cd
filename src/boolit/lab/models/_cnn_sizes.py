"""How wide the layers of the CNNs on MNIST are (a:mnist): ratios to one size, and the size that a budget of parameters gives.

NOTE[paper]: the paper does not say how a budget becomes widths. The authors' code doubles or halves the size until the
parameters without batch norm are within 200 and one hundredth of the budget, in ever smaller steps, and then cuts every width
down to a multiple of what the activation needs. Both are kept, as they make the networks of the paper's table, although these
then have up to 15 % fewer parameters than their budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

Structure = Literal["small", "large"]

# Pre-activation widths of six convolutions and two hidden linear layers, in units of the size, and the size a search begins at.
RATIOS: dict[Structure, tuple[float, ...]] = {"small": (1, 1, 1, 1, 1.5, 1.5, 2, 1.5), "large": (1, 2, 4, 4, 8, 8, 32, 16)}
FIRST_SIZE: dict[Structure, float] = {"small": 4, "large": 2}
TOLERATED = 200
TOLERATED_SHARE = 0.01
FINEST = 1 + 1e-6  # steps of the search below which a budget is given up as impossible to meet


def nominal(structure: Structure, size: float) -> list[float]:
    """The eight widths of a size.

    Example:
        >>> nominal("small", 3)
        [3, 3, 3, 3, 4.5, 4.5, 6, 4.5]
    """
    return [ratio * size for ratio in RATIOS[structure]]


def truncated(width: float, divisor: int) -> int:
    """The largest multiple of a divisor that is not above a width; at least one multiple.

    Example:
        >>> truncated(39.9, 2), truncated(0.7, 2)
        (38, 2)
    """
    return divisor * max(1, int(width // divisor))


def size_for_budget(count: Callable[[Sequence[float]], float], budget: int, structure: Structure) -> float:
    """The size, a real number, whose count of parameters is about a budget."""
    size, factor = FIRST_SIZE[structure], 2.0
    excess = count(nominal(structure, size)) - budget
    while abs(excess) > TOLERATED + TOLERATED_SHARE * budget and factor > FINEST:
        size = size / factor if excess > 0 else size * factor
        before, excess = excess, count(nominal(structure, size)) - budget
        if (before > 0) != (excess > 0):
            factor **= 0.75
    return size


def approximate_parameters(channels: int, cells: int, outputs: int, features: float, widths: Sequence[float]) -> float:
    """Parameters without batch norm for nominal widths, as the authors count them: in whole neurons for the linear layers only.

    ``cells`` is how many pixels each channel of the last convolution is pooled to; ``features`` is the activation's factor.
    """
    total, inputs = 0.0, float(channels)
    for width in widths[:6]:
        total += (9 * inputs + 1) * width
        inputs = features * width
    inputs *= cells
    for width in (*widths[6:], outputs):
        total += (int(inputs) + 1) * int(width)
        inputs = features * width
    return total
