"""AIL: OR and XNOR by comparison, addition and sign changes only.

The selections are constants of the derivative. At a tie the first operand is taken and gets the whole gradient; an operand
that is exactly zero counts as not positive for OR, and as of positive sign for XNOR. So some operand always has a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def or_ail(x: Tensor, y: Tensor) -> Tensor:
    """x + y where both are positive, max(x, y) elsewhere (eq:or_ail)."""
    both = (x > 0) & (y > 0)
    first = x >= y
    take_x = both | first | x.isnan()
    take_y = both | ~first | y.isnan()
    return torch.where(take_x, x, 0) + torch.where(take_y, y, 0)


def xnor_ail(x: Tensor, y: Tensor) -> Tensor:
    """sgn(x y) min(|x|, |y|) (eq:xnor_ail); its derivative at x = 0 is the sign of y."""
    first = (x.abs() <= y.abs()) | x.isnan()
    return torch.where(first, torch.where(y < 0, -x, x), torch.where(x < 0, -y, y))


def or_ail_many(operands: Tensor) -> Tensor:
    """The sum of the positive ones along dimension 0, or the largest if there are none."""
    positive = operands > 0
    largest = operands.gather(0, operands.detach().argmax(0, keepdim=True))[0]
    total = torch.where(positive | operands.isnan(), operands, 0).sum(0)
    return torch.where(positive.any(0), total, largest)


def xnor_ail_many(operands: Tensor) -> Tensor:
    """The one of least magnitude along dimension 0, its sign changed for each other negative one."""
    taken = operands.gather(0, operands.detach().abs().argmin(0, keepdim=True))[0]
    odd = (operands < 0).sum(0) % 2 == 1
    return torch.where(odd ^ (taken < 0), -taken, taken)
