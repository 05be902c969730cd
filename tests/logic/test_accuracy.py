"""The exact gates stay within the promised error of 60-digit arithmetic, by the reference and by every instruction set.

With u the unit round-off, f the exact value, c = max(|f|, Σ|x ∂f/∂x|) and L = ⌈log2 k⌉, k ≤ 64: values err by at most 4u·c·L.
Derivatives err by at most 16u relative to max(|∂f|, 1e-30) for pairs, and by 8u·L·(4 + m) for more operands, where m is the
largest |x|: a node's value that is off by u·m changes an exponential by as much. 2 (k - 1) times the smallest subnormal is
allowed besides. What normalizing adds is derived in docs/accuracy.md. benchmarks/accuracy.py tries millions of points; here are
few, and those that once failed.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from adversarial import draw
from exact_reference import fold
from mpmath import mpf
from torch import Tensor
from ways import ways

from boolit.logic import Program, moments

WAYS = list(ways())
COUNTS = {2: 200, 3: 100, 8: 40, 64: 8}

ONCE_WRONG = [
    ("xnor", torch.float64, [12.703943948870455, 0.34698697963066516]),  # 4.9u·c
    ("xnor", torch.float32, [3.069760714424774e-05, 14.104344367980957]),  # 4.7u·c
    ("or", torch.float32, [0.0, -88.0]),  # 0
    ("or", torch.float32, [-0.0, -88.0, -88.0]),  # 0
    ("or", torch.float64, [-700.0, -709.0, -745.0, 0.0]),  # off by 1.2e-4 (as AND of the negated)
    ("or", torch.float32, [-0.0074166906997561455, -1.3261431455612183]),  # 4.2u·c
    ("or", torch.float64, [0.08195278275920119, -1.2947541610670195]),  # 4.6u·c
    ("or", torch.float64, [0.05971213747184649, -1.227541246706603]),  # 4.3u·c
    ("xnor", torch.float32, [1e-25, 1e-19, 1.8225784, 4.7523141]),  # a product that is subnormal on its way
    *(("xnor", dtype, [1.2095623016357422] * 64) for dtype in (torch.float32, torch.float64)),  # derivatives: 152u
    *(("or", dtype, [1.8127402067184448] * 64) for dtype in (torch.float32, torch.float64)),  # 31u·c
    *(("or", dtype, [-33.304627075353935] * 64) for dtype in (torch.float32, torch.float64)),  # derivatives: 137u
]


def check(base: str, form: str, way: str, x: Tensor, exact: list[tuple[mpf, list[mpf]]]) -> None:
    """Each group of x within the bounds."""
    k, finfo = x.shape[1], torch.finfo(x.dtype)
    u, rounds, subnormal = finfo.eps / 2, math.ceil(math.log2(k)), 2 * (k - 1) * finfo.smallest_normal * finfo.eps
    mean, sd = moments(base, "il", k) if form == "nil" else (0.0, 1.0)
    subnormal += subnormal / sd if form == "nil" else 0
    values, gradients = ways()[way](x, Program(((base, form),), k=k))
    for row, value, gradient, (f, slopes) in zip(x.tolist(), values[:, 0].tolist(), gradients.tolist(), exact, strict=True):
        c = max(abs(f), sum(abs(logit * slope) for logit, slope in zip(row, slopes, strict=True)))
        target = max(-finfo.max, min(finfo.max, (f - mpf(mean)) / mpf(sd)))
        reach = c if form == "il" else (c + abs(f) + abs(mean)) / sd
        assert abs(value - target) <= 4 * u * rounds * reach + subnormal, f"{base}_{form}{row} = {value!r}, exactly {target}"
        allowed = (16 * u if k == 2 else 8 * u * rounds * (4 + max(map(abs, row)))) + (2 * u if form == "nil" else 0)
        for got, slope in zip(gradient, slopes, strict=True):
            assert abs(got - slope / mpf(sd)) <= allowed * max(abs(slope), 1e-30) / sd, f"∂{row}: {got!r}, exactly {slope / sd}"


@cache
def solved(base: str, k: int, dtype: torch.dtype) -> tuple[Tensor, list[tuple[mpf, list[mpf]]]]:
    """Adversarial groups, the exact values and the exact derivatives."""
    x = torch.from_numpy(draw(np.random.default_rng([k, dtype.itemsize]), COUNTS[k], k, dtype))
    return x.to(dtype), [fold(base, row) for row in x.tolist()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", COUNTS)
@pytest.mark.parametrize("base", ["or", "xnor"])
def test_error_bounds(base: str, k: int, dtype: torch.dtype, way: str) -> None:
    for form in ("il", "nil") if k <= 60 else ("il",):
        check(base, form, way, *solved(base, k, dtype))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("base", "dtype", "row"), ONCE_WRONG, ids=str)
def test_points_that_were_wrong(base: str, dtype: torch.dtype, row: list[float], way: str) -> None:
    x = torch.tensor([row], dtype=dtype)
    check(base, "il", way, x, [fold(base, x[0].tolist())])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [2, 5])
def test_the_other_operations_differ_from_these_two_by_signs_alone(k: int, way: str) -> None:
    x = torch.from_numpy(draw(np.random.default_rng(k), 500, k, torch.float64))
    compute, parity = ways()[way], -1 if k % 2 == 0 else 1
    for op, base, inner, outer in (
        ("and", "or", -1, -1),
        ("nand", "or", -1, 1),
        ("nor", "or", 1, -1),
        ("xor", "xnor", 1, parity),
    ):
        value, gradient = compute(x, Program(((op, "il"),), k=k))
        expected, slope = compute(inner * x, Program(((base, "il"),), k=k))
        assert torch.equal(value, outer * expected)
        assert torch.equal(gradient, inner * outer * slope)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("base", ["or", "xnor"])
def test_16_bit_types_are_rounded_once(base: str, k: int, dtype: torch.dtype, way: str) -> None:
    x, exact = solved(base, k, dtype)
    finfo, rounds = torch.finfo(dtype), math.ceil(math.log2(k))
    values, _ = ways()[way](x, Program(((base, "il"),), k=k))
    for row, got, (f, slopes) in zip(x.tolist(), values[:, 0].tolist(), exact, strict=True):
        c = max(abs(f), sum(abs(logit * slope) for logit, slope in zip(row, slopes, strict=True)))
        inner = 4 * rounds * 2**-24 * c
        once = max(finfo.eps / 2 * (abs(f) + inner), finfo.smallest_normal * finfo.eps / 2)
        assert abs(got - f) <= once + inner + (k - 1) * 2**-149, (row, got, f)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("op", "form"), [(op, form) for op in ("or", "and", "xnor") for form in ("ail", "nail")])
def test_approximate_gates_are_exact_up_to_rounding(op: str, form: str, dtype: torch.dtype, way: str) -> None:
    x = torch.from_numpy(draw(np.random.default_rng(1), 2000, 2, dtype)).to(dtype)
    value, gradient = ways()[way](x, Program(((op, form),)))
    mean, sd = moments(op, "ail") if form == "nail" else (0.0, 1.0)
    a, b = x.double().unbind(1)
    plain = {
        "or": torch.where((a > 0) & (b > 0), a + b, torch.maximum(a, b)),
        "and": torch.where((a < 0) & (b < 0), a + b, torch.minimum(a, b)),
        "xnor": torch.sign(a) * torch.sign(b) * torch.minimum(a.abs(), b.abs()),
    }[op]
    u = torch.finfo(dtype).eps / 2
    error = (value[:, 0].double() - (plain - mean) / sd).abs()
    assert (error <= 4 * u * (plain.abs() + abs(mean)) / sd + torch.finfo(dtype).smallest_normal * 2 * u).all()
    assert (((gradient * sd).round() - gradient * sd).abs() < 1e-5).all()
    assert (gradient.abs().sum(1) * sd > 1 - 1e-5).all(), "some operand always has a gradient"
