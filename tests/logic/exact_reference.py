"""The gates in 60-digit arithmetic."""

from __future__ import annotations

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
