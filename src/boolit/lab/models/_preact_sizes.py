"""How wide the stages of the pre-activation ResNets on CIFAR are (a:cifar), and the width factors of each kind of activation.

Only the layers inside a block scale with the factor w. NOTE[paper]: the text also says that the embedding scales; then ReLU's
five networks would have 1.5 to 375 million parameters, where the tables have 6 to 225 million.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from boolit.nn.width import round_width

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
