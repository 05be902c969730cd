"""Mean and standard deviation of every gate under independent N(0,1) operands (a:normalization).

`moments` reads moments.csv for k = 2…64 and derives larger k once. ``python -m boolit.logic.moments`` prints the table.
Every integrand below is smooth and decays fast at both ends, where the trapezoid rule converges faster than any power of
its step: no nodes or weights are needed. With u = 2⁻⁵³ and k operands, rounding leaves every number right to (32 k + 128) u:
a factor of a product of k is an exponential (its argument is at most 40 where it matters: 40 u) summed in pairs (12 u), the
standard deviation is a root of such products, which halves their error, and what is subtracted from a sum of positive terms
makes it smaller by at most a factor of k/2.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from importlib import resources

import torch
from torch import Tensor

from boolit.logic.operations import FORMS, OPERATIONS, Program, as_group_size, check_choice, is_normalized

_NORMAL = torch.arange(769, dtype=torch.float64) / 64  # one half of the line; beyond 12 lies less than 1e-30
_ORDERS = torch.arange(1, 3001, dtype=torch.float64)  # of a series; the terms after the last add at most Φ(-log n)² < 1e-30
_WEIGHT = torch.exp(-(_NORMAL**2) / 2) / math.sqrt(2 * math.pi) / 64

_LINES = resources.files(__package__).joinpath("moments.csv").read_text(encoding="utf-8").splitlines()
# Read at import: torch.compile traces `moments` and cannot read files.
_TABLE = {(base, form, int(k)): (float(mean), float(sd)) for base, form, k, mean, sd in list(csv.reader(_LINES))[1:]}


def moments(op: str, form: str, k: int = 2) -> tuple[float, float]:
    """Return the mean and standard deviation of a gate of k independent N(0,1) logits.

    Example:
        >>> mean, sd = moments("or", "ail")
        >>> round(mean, 5), round(sd, 5)
        (0.68104, 0.97229)
    """
    check_choice("operation", op, OPERATIONS)
    check_choice("form", form, FORMS)
    k = as_group_size(k)
    if form in ("nil", "nail"):
        return 0.0, 1.0
    operation = OPERATIONS[op]
    mean, sd = _TABLE.get((operation.base, form, k)) or derive(operation.base, form, k)
    return operation.output_sign(k) * mean + 0.0, sd


def check_precision(program: Program, dtype: torch.dtype) -> None:
    """Raise ValueError if a normalized gate cannot be computed in the type.

    The sd of XNOR IL halves with every operand, and most values are far smaller: there must be 50 bits below it.
    """
    if program.k <= 60:  # float32 is enough
        return
    least = torch.finfo(torch.promote_types(dtype, torch.float32)).tiny * 2.0**50
    for name, form in program.members:
        if is_normalized(form) and moments(name, form[1:], program.k)[1] < least:
            raise ValueError(f"{name}_{form} of k={program.k} logits is too small for {dtype}; use fewer operands or float64")


@cache
def derive(base: str, form: str, k: int) -> tuple[float, float]:
    """Return the mean and sd of OR or XNOR of k operands, computed from their definition."""
    formulas = {("or", "ail"): _or_ail, ("xnor", "ail"): _xnor_ail, ("or", "il"): _or_il, ("xnor", "il"): _xnor_il}
    return formulas[base, form](k)


def _or_ail(k: int) -> tuple[float, float]:
    """Add the moments of the positives' sum, in closed form, and of the maximum where all k are negative.

    That maximum has distribution Φᵏ, so its moments follow by parts: -∫Φᵏ and -2∫xΦᵏ over the negative axis.
    """
    if k == 2:
        mean = 1 / math.sqrt(2 * math.pi) + 1 / (2 * math.sqrt(math.pi))
        return mean, math.sqrt(5 / 4 - 1 / (math.sqrt(2) * math.pi) - 1 / (4 * math.pi))
    x, weight = _half_line(40.0)
    tail = torch.special.ndtr(-x) ** k
    mean = k / math.sqrt(2 * math.pi) - float((tail * weight).sum())
    square = k / 2 + k * (k - 1) / (2 * math.pi) + float((2 * x * tail * weight).sum())
    return mean, math.sqrt(square - mean**2)


def _xnor_ail(k: int) -> tuple[float, float]:
    """Use that ±min|xᵢ| has mean 0 by symmetry, and E[min²] = ∫ 2m P(|x| > m)ᵏ dm."""
    if k == 2:
        return 0.0, math.sqrt(1 - 2 / math.pi)
    m, weight = _half_line(40.0)
    return 0.0, math.sqrt(float((2 * m * torch.special.erfc(m / math.sqrt(2)) ** k * weight).sum()))


def _xnor_il(k: int) -> tuple[float, float]:
    """Use f = 2 atanh(Π tᵢ), tᵢ = tanh(xᵢ/2), and atanh²(u) = Σₙ (1 + 1/3 + … + 1/(2n-1)) u²ⁿ / n.

    The tᵢ are independent, so E[f²] = 4 Σₙ (…)/n · E[t²ⁿ]ᵏ: positive terms, hence full relative accuracy at any k, even
    where f itself is of the order 1e-24.
    """
    n = _ORDERS
    log_tanh = torch.log(torch.tanh(_NORMAL[1:] / 2))
    power = torch.stack([(torch.exp(2 * term * log_tanh) * 2 * _WEIGHT[1:]).sum() for term in n.tolist()])
    odd_harmonic = torch.cumsum(1 / (2 * n - 1), 0)
    return 0.0, math.sqrt(4 * float((odd_harmonic / n * power**k).sum()))


def _or_il(k: int) -> tuple[float, float]:
    """Use f = log(eˢ-1) = s + g with s = Σ softplus(xᵢ) and g = log(1 - e⁻ˢ) = -Σₙ e⁻ⁿˢ / n.

    Its square is g² = 2 Σₙ (1 + … + 1/(n-1)) e⁻ⁿˢ / n.

    The xᵢ are independent, so E[e⁻ⁿˢ] = aₙᵏ and E[s e⁻ⁿˢ] = k bₙ aₙᵏ⁻¹ with aₙ = E[σ(-x)ⁿ] and bₙ = E[softplus(x) σ(-x)ⁿ]: no
    operand is integrated over but one at a time. a₁ = 1/2, so what g adds vanishes as 2⁻ᵏ.
    """
    n = _ORDERS
    one, variance, a, b = _softplus_moments()
    lost = float((a**k / n).sum())
    square = float((2 * (torch.cumsum(1 / n, 0) - 1 / n) / n * a**k).sum())
    product = -k * float((b * a ** (k - 1) / n).sum())
    return k * one - lost, math.sqrt(k * variance + 2 * (product + k * one * lost) + square - lost**2)


@cache
def _softplus_moments() -> tuple[float, float, Tensor, Tensor]:
    """Return the mean and variance of softplus(x), and aₙ and bₙ of `_or_il`."""
    x = torch.cat([-_NORMAL[1:].flip(0), _NORMAL])
    weight = torch.cat([_WEIGHT[1:].flip(0), _WEIGHT])
    softplus = torch.logaddexp(x, torch.zeros_like(x))
    mean = float((softplus * weight).sum())
    powers = [torch.exp(-term * softplus) * weight for term in _ORDERS.tolist()]
    a, b = (torch.stack(sums) for sums in zip(*((power.sum(), (power * softplus).sum()) for power in powers), strict=True))
    return mean, float(((softplus - mean) ** 2 * weight).sum()), a, b


def _half_line(reach: float) -> tuple[Tensor, Tensor]:
    """Return points and weights for ∫₀^∞ of a function smooth on it but not across 0: tanh-sinh after x = exp(u - e⁻ᵘ)."""
    u = torch.linspace(-4.0, math.log(reach), 4001, dtype=torch.float64)
    x = torch.exp(u - torch.exp(-u))
    return x, x * (1 + torch.exp(-u)) * (u[1] - u[0])


if __name__ == "__main__":
    print("base,form,k,mean,sd")
    for _key in _TABLE:
        print(",".join(map(str, _key)), *map(repr, derive(*_key)), sep=",")
