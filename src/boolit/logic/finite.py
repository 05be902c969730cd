"""Arithmetic that stays finite: a result beyond the largest number becomes that number, unless an operand is infinite.

The derivative is that of the plain expression all the same: a saturated gate still learns.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b."""
    total = a + b
    return _bounded(total, total.isinf() & a.isfinite() & b.isfinite(), gradient_of(a) + gradient_of(b))


def affine(x: Tensor, factor: float, shift: float) -> Tensor:
    """factor · x + shift."""
    result = x * factor + shift
    return _bounded(result, result.isinf() & x.isfinite(), gradient_of(x) * factor)


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x rounded to a type of fewer bits."""
    result = x.to(dtype)
    return _bounded(result, result.isinf() & x.isfinite(), gradient_of(x).to(dtype))


def gradient_of(x: Tensor) -> Tensor:
    """Zero (where x is finite), with the derivatives of x."""
    return x - x.detach()


def reduce(values: Tensor, node: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Dimension 0 joined in pairs, and the pairs in pairs: rounding errors grow with log2 of its size."""
    while (size := values.shape[0]) > 1:
        joined = node(values[: size // 2], values[size // 2 : size // 2 * 2])
        values = torch.cat([joined, values[-1:]]) if size % 2 else joined
    return values[0]


def _bounded(result: Tensor, overflowed: Tensor, gradient: Tensor) -> Tensor:
    largest = torch.finfo(result.dtype).max
    return torch.where(overflowed, result.detach().clamp(-largest, largest) + gradient, result)
