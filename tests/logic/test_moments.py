"""Normalization constants against independent computations."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from mpmath import erfc, exp, inf, log1p, mp, mpf, ncdf, quad, sqrt

from boolit.logic import FORMS, OPERATIONS, Program, evaluate, moments
from boolit.logic.moments import _TABLE, derive


def test_closed_forms_of_the_paper() -> None:
    mean, sd = moments("or", "ail")
    assert mean == pytest.approx(1 / math.sqrt(2 * math.pi) + 1 / (2 * math.sqrt(math.pi)), abs=1e-15)
    assert sd == pytest.approx(math.sqrt(5 / 4 - 1 / (math.sqrt(2) * math.pi) - 1 / (4 * math.pi)), abs=1e-15)
    assert moments("xnor", "ail") == (0.0, pytest.approx(math.sqrt(1 - 2 / math.pi), abs=1e-15))


@pytest.mark.parametrize("k", [3, 7, 64])
def test_approximate_gates_against_adaptive_quadrature(k: int) -> None:
    with mp.workdps(25):
        missing = quad(lambda x: ncdf(-x) ** k, [0, 1, 4, 10])
        mean = k / sqrt(2 * mp.pi) - missing
        square = mpf(k) / 2 + k * (k - 1) / (2 * mp.pi) + quad(lambda x: 2 * x * ncdf(-x) ** k, [0, 1, 4, 10])
        least = quad(lambda m: 2 * m * erfc(m / sqrt(2)) ** k, [0, 0.05, 0.2, 1, 4, inf])
        assert moments("or", "ail", k) == (
            pytest.approx(float(mean), abs=1e-10),
            pytest.approx(float(sqrt(square - mean**2)), abs=1e-10),
        )
        assert moments("xnor", "ail", k)[1] == pytest.approx(float(sqrt(least)), rel=1e-10)


@pytest.mark.parametrize("op", ["or", "xnor"])
@pytest.mark.parametrize(("k", "count"), [(2, 2001), (3, 201)])
def test_exact_gates_against_a_product_rule(op: str, k: int, count: int) -> None:
    """The trapezoid rule in every operand: slow, and ignorant of the algebra the table is made by."""
    x = torch.linspace(-10, 10, count, dtype=torch.float64)
    weight = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    value = evaluate(torch.cartesian_prod(*[x] * k), Program(((op, "il"),), k=k), 1)[:, 0]
    weights = torch.cartesian_prod(*[weight] * k).prod(1)
    mean = float((value * weights).sum())
    sd = math.sqrt(float(((value - mean) ** 2 * weights).sum()))
    assert moments(op, "il", k) == (pytest.approx(mean, abs=1e-10), pytest.approx(sd, abs=1e-10))


@pytest.mark.parametrize(("op", "form"), [(op, form) for op in ("or", "xnor") for form in ("il", "ail")])
def test_the_table_is_what_the_derivation_gives(op: str, form: str) -> None:
    assert all((op, form, k) in _TABLE for k in range(2, 65))
    for k in (2, 3, 10, 31, 64):
        bound = (32 * k + 128) * 2**-53  # what rounding may do on any processor: see the head of moments.py
        assert moments(op, form, k) == pytest.approx(derive(op, form, k), rel=2 * bound)


def test_the_or_of_many_is_a_sum_of_softplus() -> None:
    """log(eˢ - 1) is s but for what vanishes as 2⁻ᵏ, and the moments of s are k times those of one softplus."""
    with mp.workdps(30):
        density, softplus = (lambda x: exp(-(x**2) / 2) / sqrt(2 * mp.pi)), (lambda x: log1p(exp(x)))
        places = [-14, -8, -4, -2, 0, 2, 4, 8, 14]
        mean = quad(lambda x: softplus(x) * density(x), places)
        variance = quad(lambda x: (softplus(x) - mean) ** 2 * density(x), places)
        for k in (60, 64, 100):
            expected = float(k * mean), float(sqrt(k * variance))
            assert moments("or", "il", k) == pytest.approx(expected, rel=(32 * k + 128) * 2**-53)


def test_group_sizes_beyond_the_table_continue_it() -> None:
    """OR of k events is nearly a sum: from k = 64 on, mean and variance grow by a constant an operand."""
    means, variances = zip(*[(m, s**2) for m, s in (moments("or", "il", k) for k in (62, 63, 64, 65, 66))], strict=True)
    for row in (means, variances):
        steps = [b - a for a, b in pairwise(row)]
        assert max(steps) - min(steps) < 1e-9


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("op", OPERATIONS)
def test_normalised_gates_have_mean_0_and_sd_1(op: str, k: int) -> None:
    if k > 2 and OPERATIONS[op].flips in ("first", "second"):
        with pytest.raises(ValueError, match="exactly 2 logits"):
            Program(((op, "nil"),), k=k)
        return
    x = torch.randn(400_000, k, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for form in ("nil", "nail"):
        value = evaluate(x, Program(((op, form),), k=k), 1)
        assert value.mean().item() == pytest.approx(0, abs=0.01)
        assert value.std().item() == pytest.approx(1, abs=0.02)


def test_wrong_names_are_named() -> None:
    with pytest.raises(ValueError, match="unknown operation 'nope'"):
        moments("nope", "il")
    with pytest.raises(ValueError, match="unknown form 'x'"):
        moments("or", "x")
    with pytest.raises(ValueError, match="k=1"):
        moments("or", "il", 1)
    assert all(moments("and", form) == (0.0, 1.0) for form in FORMS if form.startswith("n"))
