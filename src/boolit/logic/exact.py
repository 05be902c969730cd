"""IL: the exact logit of OR and XNOR of independent events, accurate everywhere and differentiable to any order.

Each ``torch.where`` below chooses between two expressions of the *same* analytic function, so autograd is right on both
sides of every boundary and on it, at every order; the choice only decides which expression rounds well. Where the expression
with the better value has the worse derivative, one gives the value and another the derivatives (`gradient_of`).
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import torch
from torch import Tensor

from boolit.logic.finite import add, gradient_of, reduce


def or_il(x: Tensor, y: Tensor) -> Tensor:
    """logit(1 - σ(-x) σ(-y)) = log(eˣ + eʸ + eˣ⁺ʸ) (eq:or-il).

    With h ≥ l this is h + max(l, 0) + log1p(…): the AIL value plus a correction between 0 and ln 3.
    """
    first = x >= y
    high, low = torch.where(first, x, y), torch.where(first, y, x)
    positive = low > 0
    from_low = torch.exp(torch.where(positive, -low, low))
    from_gap = _exp_of_difference(torch.where(positive, 0, low), high)
    return add(high, torch.where(positive, low, 0)) + torch.log1p(from_low + from_gap)


def xnor_il(x: Tensor, y: Tensor) -> Tensor:
    """logit(σ(x) σ(y) + σ(-x) σ(-y)) = 2 atanh(tanh(x/2) tanh(y/2)) (eq:xnor_il).

    Beyond 2, tanh says too little of its argument: with magnitudes m ≤ M, |f| = m + log1p(-σ(m-M) (1-e⁻²ᵐ)) is m less a
    correction that needs no cancellation.
    """
    sign_x, sign_y = _sign(x), _sign(y)
    size_x, size_y = sign_x * x, sign_y * y
    first = size_x <= size_y
    small, large = torch.where(first, size_x, size_y), torch.where(first, size_y, size_x)
    near = large < 2
    half_x, half_y = torch.where(near, x, 0) / 2, torch.where(near, y, 0) / 2
    difference, slip = _difference(small, large)
    share = torch.sigmoid(difference)
    share = share * (1 + slip * (1 - share.detach()))
    far_value = small + torch.log1p(share * torch.expm1(-2 * small))
    return torch.where(near, 2 * torch.atanh(torch.tanh(half_x) * torch.tanh(half_y)), sign_x * sign_y * far_value)


def or_il_many(operands: Tensor) -> Tensor:
    """OR of all along dimension 0: log(eˢ - 1), with s the sum of their softplus.

    For s < 2 the odds o = eˢ - 1 are joined in pairs, a + b + a·b, scaled by e⁻ʰ with h the largest logit so that none
    underflows. All of them give the derivatives; the value is h + log1p(…) of the others, or a small h would drown.
    """
    index = operands.detach().argmax(0, keepdim=True)
    high = operands.gather(0, index)[0]
    positive = operands > 0
    decay = torch.exp(torch.where(positive, -operands, operands))
    total = reduce(torch.where(positive, operands, 0) + torch.log1p(decay), add)
    low = total < 2
    far_value = total + torch.log1p(-torch.exp(-torch.where(low, 2, total)))

    top = high.detach()
    impossible = top == -torch.inf
    near = low & ~impossible
    floor = torch.where(near, top, 0)
    unscale = torch.exp(floor)
    odds = _exp_of_difference(torch.where(near, operands, 0), floor)
    others = odds.detach().scatter(0, index, 0)
    value = top + torch.log1p(_join_odds(others, unscale) * (1 + unscale))
    near_value = value + gradient_of(torch.log(_join_odds(odds, unscale)))
    return torch.where(impossible, high, torch.where(near, near_value, far_value))


def xnor_il_many(operands: Tensor) -> Tensor:
    """XNOR of all along dimension 0: |f| = log((1+t)/(1-t)) with t = Π tanh(|xᵢ|/2).

    For t ≥ 1/2 the distances 1 - tᵢ from certainty are joined in pairs, a + b - a·b, scaled by eᵐ with m the least
    magnitude so that none underflows.
    """
    signs = _sign(operands)
    sizes = signs * operands
    small = sizes.gather(0, sizes.detach().argmin(0, keepdim=True))[0]
    # 1 - 2σ(-x) has the derivatives of tanh(x/2), and keeps the digits of small ones
    agreement = _tanh_of_half(sizes.detach()) - 2 * gradient_of(torch.sigmoid(-sizes))
    product = agreement[0]
    for other in agreement[1:]:  # in pairs, equal operands would round alike, and a product adds up what its factors are off
        product = product * other
    near = product < 0.5
    part = torch.where(near, product, 0)
    near_value = torch.log1p(2 * part / (1 - part))

    certain = small == torch.inf
    apart_sizes = torch.where(near | certain, 1, sizes)
    least = torch.where(near | certain, 1, small.detach())
    unscale = torch.exp(-least)
    apart = 2 * _exp_of_difference(-apart_sizes, -least) / (1 + torch.exp(-apart_sizes))
    apart = reduce(apart, lambda a, b: a + b * (1 - a * unscale))
    far_value = least + torch.log((2 - apart * unscale) / apart)
    return signs.prod(0) * torch.where(near, near_value, torch.where(certain, small, far_value))


def _join_odds(odds: Tensor, unscale: Tensor) -> Tensor:
    return reduce(odds, lambda a, b: a + b + a * b * unscale)


def _sign(x: Tensor) -> Tensor:
    """±1, and +1 at zero: the derivative of XNOR at x = 0 must not vanish."""
    return 1 - 2 * (x < 0).to(x.dtype)


def _difference(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x - y for x ≤ y, and what rounding dropped from it (Knuth's TwoSum): e^(x-y) would turn that into a relative error.

    Equal infinities are as far apart as can be: so the first of two certain events gets the gradient, as at a tie of AIL.
    """
    rounded = torch.where((x == y) & x.isinf(), -torch.inf, x - y)
    with torch.no_grad():
        back = rounded - x
        dropped = (x - (rounded - back)) - (y + back)
        dropped = torch.where(dropped.isfinite(), dropped, 0)
    return rounded, dropped


def _exp_of_difference(x: Tensor, y: Tensor) -> Tensor:
    """e^(x-y) for x ≤ y."""
    rounded, dropped = _difference(x, y)
    return torch.exp(rounded) * (1 + dropped)


_STEPS, _FIRST, _LAST = 32, 8, 64  # a step of the table is 1/32; it is used from 1/4 to 2


def _table(dtype: torch.dtype) -> tuple[list[float], list[float]]:
    """tanh(i/32) rounded to the type, and what that dropped."""
    with localcontext() as context:
        context.prec = 40
        grown = [(Decimal(2 * i) / _STEPS).exp() for i in range(_LAST + 1)]
        exact = [(e - 1) / (e + 1) for e in grown]
        rounded = torch.tensor([float(t) for t in exact], dtype=torch.float64).to(dtype).tolist()
        return rounded, [float(t - Decimal(r)) for t, r in zip(exact, rounded, strict=True)]


_TANH = {dtype: _table(dtype) for dtype in (torch.float32, torch.float64)}


def _tanh_of_half(sizes: Tensor) -> Tensor:
    """tanh(x/2) for x ≥ 0, hardly worse than correctly rounded: a product of k multiplies what is off by k.

    tanh(a+b) = T + (1-T²) tanh(b) / (1 + T tanh(b)) with T = tanh(a) from a table and b small; below 1/4, a = 0 and b is all
    of x/2. There b - tanh(b) is a small part of b, and Lambert's continued fraction gives it.
    """
    y = sizes / 2
    step = torch.where(y.isnan(), 0, (y * _STEPS).round().clamp(max=_LAST))
    step = torch.where(step < _FIRST, 0, step)
    b = y - step / _STEPS
    square = b * b
    fraction = torch.full_like(b, 13)
    for odd in (11, 9, 7, 5, 3):
        fraction = odd + square / fraction
    fraction = square / fraction
    tanh_b = torch.where(step < _LAST, b - b * (fraction / (1 + fraction)), torch.tanh(b))
    index = step.long()
    start, rest = (torch.tensor(column, dtype=y.dtype, device=y.device)[index] for column in _TANH[y.dtype])
    return start + (rest + (1 - start) * (1 + start) * tanh_b / (1 + start * tanh_b))
