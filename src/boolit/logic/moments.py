"""Mean and standard deviation of every gate under independent N(0,1) operands (a:normalization).

`moments` reads a table for k = 2…64 and derives larger k once. ``python -m boolit.logic.moments`` prints the table anew.
Every integrand below is smooth and decays fast at both ends, where the trapezoid rule converges faster than any power of
its step: no nodes or weights are needed.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from boolit.logic._moments_table import TABLE
from boolit.logic.vocabulary import FORMS, OPERATIONS, as_group_size, check_word


def moments(op: str, form: str, k: int = 2) -> tuple[float, float]:
    """Mean and standard deviation of a gate of k independent N(0,1) logits.

    Example:
        >>> mean, sd = moments("or", "ail")
        >>> round(mean, 5), round(sd, 5)
        (0.68104, 0.97229)
    """
    check_word("operation", op, OPERATIONS)
    check_word("form", form, FORMS)
    k = as_group_size(k)
    if form in ("nil", "nail"):
        return 0.0, 1.0
    operation = OPERATIONS[op]
    table = TABLE[operation.base, form]
    mean, sd = table[k - 2] if k - 2 < len(table) else derive(operation.base, form, k)
    return operation.output_sign(k) * mean + 0.0, sd


@cache
def derive(base: str, form: str, k: int) -> tuple[float, float]:
    """Mean and sd of OR or XNOR of k operands, computed from their definition."""
    return {
        ("or", "ail"): _or_ail,
        ("xnor", "ail"): _xnor_ail,
        ("or", "il"): _or_il,
        ("xnor", "il"): _xnor_il,
    }[base, form](k)


def _or_ail(k: int) -> tuple[float, float]:
    """The positives' sum has moments in closed form; what is left is the maximum where all k are negative.

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
    """±min|xᵢ| has mean 0 by symmetry, and E[min²] = ∫ 2m P(|x| > m)ᵏ dm."""
    if k == 2:
        return 0.0, math.sqrt(1 - 2 / math.pi)
    m, weight = _half_line(40.0)
    return 0.0, math.sqrt(float((2 * m * torch.special.erfc(m / math.sqrt(2)) ** k * weight).sum()))


def _xnor_il(k: int) -> tuple[float, float]:
    """f = 2 atanh(Π tᵢ), tᵢ = tanh(xᵢ/2), and atanh²(u) = Σₙ (1 + 1/3 + … + 1/(2n-1)) u²ⁿ / n.

    The tᵢ are independent, so E[f²] = 4 Σₙ (…)/n · E[t²ⁿ]ᵏ: positive terms, hence full relative accuracy at any k, even
    where f itself is of the order 1e-24.
    """
    n = torch.arange(1, 3001, dtype=torch.float64)
    x = torch.linspace(0, 12, 6001, dtype=torch.float64)
    density = torch.exp(-(x**2) / 2) * math.sqrt(2 / math.pi) * (x[1] - x[0])
    density[0] /= 2
    log_tanh = torch.log(torch.tanh(x / 2))
    power = torch.stack([(torch.exp(2 * term * log_tanh) * density).sum() for term in n.tolist()])
    odd_harmonic = torch.cumsum(1 / (2 * n - 1), 0)
    return 0.0, math.sqrt(4 * float((odd_harmonic / n * power**k).sum()))


def _or_il(k: int) -> tuple[float, float]:
    """f = log(eˢ - 1) with s = Σ softplus(xᵢ): a function of one sum, whose density is a k-fold convolution (by FFT)."""
    step = 1 / 2048
    reach = k + 12 * math.sqrt(k) + 12  # E[softplus] < 1, sd < 1: beyond lies less than 1e-30
    length = 1 << math.ceil(math.log2(reach / step))
    s = torch.arange(1, length, dtype=torch.float64) * step
    x = s + torch.log(-torch.expm1(-s))
    density = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) / -torch.expm1(-s) * step
    spectrum = torch.fft.rfft(torch.cat([density.new_zeros(1), density]))
    total = torch.fft.irfft(spectrum**k, n=length)[1:]
    mean = float((x * total).sum())
    return mean, math.sqrt(float(((x - mean) ** 2 * total).sum()))


def _half_line(reach: float) -> tuple[Tensor, Tensor]:
    """Points and weights for ∫₀^∞ of a function smooth on it but not across 0: tanh-sinh after x = exp(u - e⁻ᵘ)."""
    u = torch.linspace(-4.0, math.log(reach), 4001, dtype=torch.float64)
    x = torch.exp(u - torch.exp(-u))
    return x, x * (1 + torch.exp(-u)) * (u[1] - u[0])


def _print_table() -> None:
    print('"""Made by ``python -m boolit.logic.moments``: (mean, sd) of each base and form for k = 2, 3, …, 64."""\n')
    print("TABLE: dict[tuple[str, str], tuple[tuple[float, float], ...]] = {")
    for base in ("or", "xnor"):
        for form in ("il", "ail"):
            print(f'    ("{base}", "{form}"): (')
            for k in range(2, 65):
                print("        ({!r}, {!r}),".format(*derive(base, form, k)))
            print("    ),")
    print("}")


if __name__ == "__main__":
    _print_table()
