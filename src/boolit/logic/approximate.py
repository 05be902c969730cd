"""AIL: OR and XNOR by comparison, addition and sign changes only.

The selections are constants of the derivative. At a tie the first operand is taken and gets the whole gradient; an operand
that is exactly zero counts as not positive for OR, and as of positive sign for XNOR. So some operand always has a gradient.
NaN counts as positive for OR, and as the smallest for XNOR, so that it is taken.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boolit.logic.finite import add, reduce


def or_ail(x: Tensor, y: Tensor) -> Tensor:
    """x + y where both are positive, max(x, y) elsewhere (eq:or_ail)."""
    both = ~((x <= 0) | (y <= 0))
    first = (x >= y) | x.isnan()
    return add(torch.where(both | first, x, 0), torch.where(both | ~first, y, 0))


def xnor_ail(x: Tensor, y: Tensor) -> Tensor:
    """sgn(x y) min(|x|, |y|) (eq:xnor_ail); its derivative at x = 0 is the sign of y."""
    first = (x.abs() <= y.abs()) | x.isnan()
    return torch.where(first, torch.where(y < 0, -x, x), torch.where(x < 0, -y, y))


def or_ail_many(operands: Tensor) -> Tensor:
    """The sum of the positive ones along dimension 0, or the largest if there are none."""
    positive = ~(operands <= 0)
    largest = operands.gather(0, operands.detach().argmax(0, keepdim=True))[0]
    return torch.where(positive.any(0), reduce(torch.where(positive, operands, 0), add), largest)


def xnor_ail_many(operands: Tensor) -> Tensor:
    """The one of least magnitude along dimension 0, its sign changed for each other negative one."""
    taken = operands.gather(0, operands.detach().abs().argmin(0, keepdim=True))[0]
    odd = (operands < 0).sum(0) % 2 == 1
    return torch.where(odd ^ (taken < 0), -taken, taken)
