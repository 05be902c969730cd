"""IL: the exact logit of OR and XNOR of independent events, accurate everywhere and differentiable to any order.

Each ``torch.where`` below chooses between two expressions of the *same* analytic function, so autograd is right on both
sides of every boundary and on it, at every order; the choice only decides which expression rounds well.
"""

from __future__ import annotations

import torch
from torch import Tensor


def or_il(x: Tensor, y: Tensor) -> Tensor:
    """logit(1 - σ(-x) σ(-y)) = log(eˣ + eʸ + eˣ⁺ʸ) (eq:or-il).

    With h ≥ l this is h + max(l, 0) + log1p(…): the AIL value plus a correction between 0 and ln 3.
    """
    first = x >= y
    high, low = torch.where(first, x, y), torch.where(first, y, x)
    positive = low > 0
    difference, slip = _difference(low, high)
    from_low = torch.exp(torch.where(positive, -low, low))
    from_gap = torch.exp(torch.where(positive, -high, difference)) * (1 + torch.where(positive, 0, slip))
    return high + torch.where(positive, low, 0) + torch.log1p(from_low + from_gap)


def xnor_il(x: Tensor, y: Tensor) -> Tensor:
    """logit(σ(x) σ(y) + σ(-x) σ(-y)) = 2 atanh(tanh(x/2) tanh(y/2)) (eq:xnor_il).

    It is odd in each operand, so it is computed on magnitudes m ≤ M. For small m, log1p of
    (eᵐ-1)(1-e⁻ᴹ)/(1+eᵐ⁻ᴹ) keeps all digits down to x·y/2; for large m, m + log1p(e⁻ᴹ⁻ᵐ) - log1p(eᵐ⁻ᴹ) does not overflow.
    """
    sign_x, sign_y = _sign(x), _sign(y)
    size_x, size_y = sign_x * x, sign_y * y
    first = size_x <= size_y
    small, large = torch.where(first, size_x, size_y), torch.where(first, size_y, size_x)
    difference, slip = _difference(small, large)
    ratio = torch.exp(difference) * (1 + slip)

    near = small <= 2
    # (1-e⁻ᴹ)/(1+eᵐ⁻ᴹ), for M ≥ 1 as one minus something small: three roundings less
    few = large < 1
    share = (torch.exp(-large) + ratio) / (1 + ratio)
    factor = torch.where(few, -torch.expm1(-torch.where(few, large, 0)) / (1 + ratio), 1 - share)
    near_value = torch.log1p(torch.expm1(torch.where(near, small, 0)) * factor)
    far_value = small + torch.log1p(torch.exp(-(large + small))) - torch.log1p(ratio)
    return sign_x * sign_y * torch.where(near, near_value, far_value)


def or_il_many(operands: Tensor) -> Tensor:
    """OR of all along dimension 0, in closed form.

    With h the largest logit, f = h + Σ softplus(others) + log1p(e⁻ʰ P(any other)). The probability is gathered as a sum of
    positive terms, scaled by e⁻ᶜ with c = min(h, 0) so that it does not underflow; a fold of pairs would lose ln 2 beside 1e30.
    """
    scale = operands.detach().amax(0).clamp(max=0)
    high, any_other, softplus = operands[0], torch.zeros_like(operands[0]), torch.zeros_like(operands[0])
    for logit in operands[1:]:
        larger = logit > high
        other, high = torch.where(larger, high, logit), torch.where(larger, logit, high)
        positive = other > 0
        decay = torch.exp(torch.where(positive, -other, other))
        difference, slip = _difference(torch.where(positive, 0, other), scale)
        probability = torch.exp(difference) * (1 + slip) / (1 + decay)
        any_other = any_other * (torch.where(positive, decay, 1) / (1 + decay)) + probability
        softplus = softplus + torch.where(positive, other, 0) + torch.log1p(decay)
    return high + softplus + torch.log1p(any_other * torch.exp(-_difference(high, scale)[0]))


def xnor_il_many(operands: Tensor) -> Tensor:
    """XNOR of all along dimension 0, in closed form.

    |f| = log((1+t)/(1-t)) with t = Π tanh(|xᵢ|/2); 1 - t is gathered as a sum of positive terms, scaled by eᵐ with m the
    least magnitude.
    """
    signs = _sign(operands)
    sizes = signs * operands
    least = sizes.detach().amin(0)
    product, apart = torch.ones_like(least), torch.zeros_like(least)
    for size in sizes:
        difference, slip = _difference(-size, -least)
        whole = 1 + torch.exp(-size)
        agreement = _one_minus_exp(size) / whole
        apart = apart * agreement + 2 * torch.exp(difference) * (1 + slip) / whole
        product = product * agreement
    near = least <= 20
    near_value = torch.log1p(2 * product * torch.exp(torch.where(near, least, 0)) / apart)
    far_value = least + torch.log1p(product) - torch.log(apart)
    return signs.prod(0) * torch.where(near, near_value, far_value)


def _sign(x: Tensor) -> Tensor:
    """±1, and +1 at zero: the derivative of XNOR at x = 0 must not vanish."""
    return 1 - 2 * (x < 0).to(x.dtype)


def _one_minus_exp(x: Tensor) -> Tensor:
    """1 - e⁻ˣ for x ≥ 0, with an accurate value and an accurate derivative e⁻ˣ.

    expm1's own derivative is computed from its result and loses e⁻ˣ to rounding when x is large.
    """
    near = x < 1
    return torch.where(near, -torch.expm1(-torch.where(near, x, 0)), 1 - torch.exp(-x))


def _difference(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x - y, and what rounding dropped from it (Knuth's TwoSum): e^(x-y) would turn that into a relative error.

    Equal infinities differ by 0, not by NaN.
    """
    rounded = torch.where((x == y) & x.isinf(), 0, x - y)
    with torch.no_grad():
        back = rounded - x
        dropped = (x - (rounded - back)) - (y + back)
        dropped = torch.where(dropped.isfinite(), dropped, 0)
    return rounded, dropped
