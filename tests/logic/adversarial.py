"""Groups of logits that try an exact gate: all magnitudes, ties, points where it changes its expression, results near 0."""

from __future__ import annotations

import math

import numpy as np
import torch


def draw(rng: np.random.Generator, n: int, k: int, dtype: torch.dtype) -> np.ndarray:
    """n groups of k logits that try a gate, as float64 numbers that the type holds exactly."""
    finfo = torch.finfo(dtype)
    half = dtype == torch.float16
    kinds = [_wide, _moderate, _near_ties, _equal, _switches, _close, _roots, _underflow, _zeros, _huge]
    parts = [kind(rng, n // len(kinds) + 1, k, float(finfo.eps), half) for kind in kinds]
    x = np.concatenate(parts)[rng.permutation(n)]
    reach = float(finfo.max) / (2 * k)
    return torch.tensor(np.clip(x, -reach, reach)).to(dtype).double().numpy()


def _signs(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Independent signs in half of the groups, one sign in each of the others."""
    return np.where(rng.random((n, 1)) < 0.5, rng.choice([-1.0, 1.0], (n, k)), rng.choice([-1.0, 1.0], (n, 1)))


def _wide(rng: np.random.Generator, n: int, k: int, _eps: float, half: bool) -> np.ndarray:
    return 10 ** rng.uniform(*((-7, 4.5) if half else (-30, 30)), (n, k)) * _signs(rng, n, k)


def _moderate(rng: np.random.Generator, n: int, k: int, _eps: float, _half: bool) -> np.ndarray:
    middle = rng.uniform(-3, 2.5, (n, 1))
    return 10 ** (middle + rng.uniform(-1, 1, (n, k)) * rng.random((n, 1))) * _signs(rng, n, k)


def _near_ties(rng: np.random.Generator, n: int, k: int, eps: float, _half: bool) -> np.ndarray:
    size = 10 ** rng.uniform(-4, 2.5, (n, 1))
    return size * (1 + eps * rng.integers(-4, 5, (n, k))) * _signs(rng, n, k)


def _equal(rng: np.random.Generator, n: int, k: int, _eps: float, _half: bool) -> np.ndarray:
    return 10 ** rng.uniform(-2, 2.2, (n, 1)) * _signs(rng, n, k)


def _switches(rng: np.random.Generator, n: int, k: int, eps: float, _half: bool) -> np.ndarray:
    """Around the numbers at which some expression gives way to another, or exp and log change their exponent."""
    small = [0.5, 1.0, 1.5, 2.0, 3.0, 16.0, 20.0, 30.0, 40.0, 80.0, 87.3, 88.0, 104.0, 700.0, 708.4, 745.2]
    switches = np.array(small + [math.log(2) * (i + 0.5) for i in range(12)] + [math.log(2 ** (i + 0.5) - 1) for i in range(8)])
    around = rng.choice(switches, (n, k)) * (1 + eps * rng.integers(-3, 4, (n, k)))
    apart = rng.choice(switches, (n, 1)) + rng.choice([0.0, 1.0, -1.0], (n, k)) * rng.choice(switches, (n, 1))
    return np.where(rng.random((n, 1)) < 0.5, around, apart) * _signs(rng, n, k)


def _close(rng: np.random.Generator, n: int, k: int, _eps: float, _half: bool) -> np.ndarray:
    centre = 10 ** rng.uniform(-2, 2.3, (n, 1))
    return (centre + rng.normal(size=(n, k)) * 10 ** rng.uniform(-8, 0.7, (n, 1))) * _signs(rng, n, k)


def _roots(rng: np.random.Generator, n: int, k: int, eps: float, _half: bool) -> np.ndarray:
    """OR is nearly 0: the last logit makes the probability of none 1/2."""
    x = -(10 ** rng.uniform(-1, 1.3, (n, k))) - math.log(k)
    none = np.logaddexp(0, x[:, :-1]).sum(1)
    left = np.maximum(math.log(2) - none, 1e-3)
    x[:, -1] = np.log(np.expm1(left)) * (1 + eps * rng.integers(-2, 3, n))
    return x


def _underflow(rng: np.random.Generator, n: int, k: int, eps: float, half: bool) -> np.ndarray:
    """One or two uncertain events beside nearly certain ones, or sizes whose product is hardly a number."""
    low, high = (86.0, 105.0) if eps > 1e-10 else (700.0, 746.0)
    tails = rng.uniform(low, high, (n, k)) * _signs(rng, n, k)
    tails[:, 0] = rng.choice([0.0, -0.0, 1e-30, -1e-30, 0.3, -2.0], n)
    total = rng.uniform(-330, -300, n) if eps < 1e-10 else rng.uniform(-46, -36, n)
    share = rng.dirichlet(np.ones(k), n)
    least = -7 if half else -30 if eps > 1e-10 else -300
    tiny = 10 ** np.maximum(total[:, None] * share, least) * _signs(rng, n, k)
    mixed = np.where(rng.random((n, k)) < 0.5, tiny, rng.uniform(1, 6, (n, k)))
    which = rng.random((n, 1))
    return np.where(which < 0.5, tails, np.where(which < 0.75, tiny, mixed))


def _zeros(rng: np.random.Generator, n: int, k: int, _eps: float, half: bool) -> np.ndarray:
    some = rng.choice([0.0, -0.0, 1e-5 if half else 1e-30, 1.0, -40.0, 100.0], (n, k)) * _signs(rng, n, k)
    return np.where(rng.random((n, k)) < 0.4, some, rng.normal(size=(n, k)) * 10 ** rng.uniform(-3, 2, (n, 1)))


def _huge(rng: np.random.Generator, n: int, k: int, eps: float, half: bool) -> np.ndarray:
    top = 4.8 if half else 308 if eps < 1e-10 else 38.5
    huge = 10 ** rng.uniform(0.8 * top, top, (n, k))
    return np.where(rng.random((n, k)) < 0.7, huge, rng.normal(size=(n, k))) * _signs(rng, n, k)
