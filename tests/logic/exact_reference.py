"""The gates in 60-digit arithmetic, and points that try them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from mpmath import exp, expm1, log1p, mp, mpf

mp.dps = 60


def or_il(x: mpf, y: mpf) -> tuple[mpf, mpf, mpf]:
    """OR of two logits and its partial derivatives."""
    high, low = max(x, y), min(x, y)
    if low > 0:
        a, b = exp(-low), exp(-high)
        total, value = 1 + a + b, high + low + log1p(a + b)
        to_high, to_low = (1 + a) / total, (1 + b) / total
    else:
        a, b = exp(low), exp(low - high)
        total, value = 1 + a + b, high + log1p(a + b)
        to_high, to_low = (1 + a) / total, (a + b) / total
    return (value, to_high, to_low) if x >= y else (value, to_low, to_high)


def xnor_il(x: mpf, y: mpf) -> tuple[mpf, mpf, mpf]:
    """XNOR of two logits and its partial derivatives."""
    sign_x, sign_y = (1 if x >= 0 else -1), (1 if y >= 0 else -1)
    m, large = min(abs(x), abs(y)), max(abs(x), abs(y))
    if m < 50:
        size = log1p(expm1(m) * -expm1(-large) / (1 + exp(m - large)))
    else:
        size = m + log1p(exp(-m - large)) - log1p(exp(m - large))
    return sign_x * sign_y * size, sign_y * _along(abs(x), abs(y)), sign_x * _along(abs(y), abs(x))


def _along(size: mpf, other: mpf) -> mpf:
    """|∂f/∂x| = sinh|y| / (cosh x + cosh y), without overflow."""
    if size - other > 2000:  # e^-2000 is 0 for every type here
        return mpf(0)
    return -expm1(-2 * other) / ((1 + exp(size - other)) * (1 + exp(-size - other)))


REFERENCES = {"or": or_il, "xnor": xnor_il}


def fold(base: str, row: list[float]) -> tuple[mpf, list[mpf]]:
    """A gate of any number of logits, and its partial derivatives."""
    f, weights = mpf(row[0]), [mpf(1)]
    for logit in row[1:]:
        f, left, right = REFERENCES[base](f, mpf(logit))
        weights = [weight * left for weight in weights] + [right]
    return f, weights


def points(count: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """About ``count`` pairs: all magnitudes, ties and near ties, opposite signs, zeros of OR, both signs, exact zeros."""
    rng = np.random.default_rng(seed)
    n = count // 6
    reach = {torch.float16: (-7.0, 4.5), torch.bfloat16: (-30.0, 30.0)}.get(dtype, (-30.0, 30.0))
    wide = 10 ** rng.uniform(*reach, n) * rng.choice([-1, 1], n)
    usual = rng.normal(size=n) * 10 ** rng.uniform(-2, 2.3, n)
    near = usual + rng.normal(size=n) * 10 ** rng.uniform(-8, 1, n)
    root = rng.uniform(-6, -0.01, n)  # OR(root, other) = 0 where other = -log(sinh-like); solved below
    other = np.log(-np.expm1(root) / (1 + np.exp(root)))
    special = [0.0, 1.0, -1.0, 1e-30, -1e30, 1e30, 2.0, 40.0, -40.0, 69.0, -100.0, math.log(2), -0.8813735870195430]
    pairs = [(a, b) for a in special for b in special]
    x = np.concatenate([wide, usual, usual, near, wide, root, [a for a, _ in pairs]])
    y = np.concatenate([rng.permutation(wide), rng.permutation(usual), near, usual, usual, other, [b for _, b in pairs]])
    x_typed, y_typed = torch.tensor(x).to(dtype), torch.tensor(y).to(dtype)
    keep = x_typed.isfinite() & y_typed.isfinite()
    return x_typed[keep], y_typed[keep]


@cache
def solved(
    base: str, count: int, dtype: torch.dtype, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, list[tuple[mpf, mpf, mpf]]]:
    """Points and, for each, the exact value and partial derivatives."""
    x, y = points(count, dtype, seed)
    return x, y, [REFERENCES[base](mpf(a), mpf(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
