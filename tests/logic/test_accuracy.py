"""The exact gates stay within the promised error of 60-digit arithmetic, by kernel and by formula.

With u the unit round-off, f the exact value and c = max(|f|, |x ∂f/∂x| + |y ∂f/∂y|): values err by at most 4u·c, derivatives
by at most 16u relative to max(|∂f|, 1e-30). A subnormal result may come out as 0, so the smallest normal number is allowed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exact_reference import REFERENCES, solved
from mpmath import mpf
from torch import Tensor

from boolit.logic import OPERATIONS, Program, evaluate, moments
from boolit.logic.formulas import formula

WAYS: dict[str, Callable[[Tensor, Program, int], Tensor]] = {"kernel": evaluate, "formula": formula}
GATES = [(op, form) for op in ("or", "and", "xnor") for form in ("il", "nil")]


def _gate(op: str, form: str, way: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value and partial derivatives of a gate."""
    pairs = torch.stack([x, y], 1).requires_grad_()
    value = WAYS[way](pairs, Program(((op, form),)), 1)
    (partials,) = torch.autograd.grad(value.sum(), pairs)
    return value.detach()[:, 0], partials[:, 0], partials[:, 1]


def _check(op: str, form: str, way: str, dtype: torch.dtype, count: int) -> None:
    operation = OPERATIONS[op]
    flip = -1 if operation.flips == "all" else 1
    sign = operation.output_sign(2)
    mean, sd = moments(op, "il") if form == "nil" else (0.0, 1.0)
    x, y, exact = solved(operation.base, count, dtype)
    results = _gate(op, form, way, flip * x, flip * y)
    u = torch.finfo(dtype).eps / 2
    floor = torch.finfo(dtype).smallest_normal / sd
    for a, b, value, along_x, along_y, (f, f_x, f_y) in zip(
        x.tolist(), y.tolist(), *(r.tolist() for r in results), exact, strict=True
    ):
        c = max(abs(f), abs(a * f_x) + abs(b * f_y))
        target = (sign * f - mpf(mean)) / mpf(sd)
        allowed = 4 * u * c / sd + floor + (u * (abs(target) + abs(mean) / sd) if form == "nil" else 0)
        assert abs(value - target) <= allowed, f"{op}_{form}({flip * a!r}, {flip * b!r}) = {value!r}, exactly {target}"
        for got, partial in ((along_x, f_x), (along_y, f_y)):
            expected = sign * flip * partial / mpf(sd)
            assert abs(got - expected) <= 16 * u * max(abs(expected), 1e-30), (
                f"∂ at ({a!r}, {b!r}): {got!r}, exactly {expected}"
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("op", "form"), GATES)
def test_error_bounds(op: str, form: str, way: str, dtype: torch.dtype) -> None:
    _check(op, form, way, dtype, 2_000)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("op", "form"), GATES)
def test_error_bounds_on_the_full_set(op: str, form: str, way: str, dtype: torch.dtype) -> None:
    _check(op, form, way, dtype, 100_000)


def _check_16_bit(op: str, dtype: torch.dtype, count: int) -> None:
    x, y, exact = solved(op, count, dtype)
    value, _, _ = _gate(op, "il", "kernel", x, y)
    u, finfo = torch.finfo(dtype).eps / 2, torch.finfo(dtype)
    for a, b, got, (f, f_x, f_y) in zip(x.tolist(), y.tolist(), value.tolist(), exact, strict=True):
        if abs(f) > finfo.max:
            continue
        inner = 4 * 2**-24 * max(abs(f), abs(a * f_x) + abs(b * f_y))
        assert abs(got - f) <= (1 + 1e-3) * u * abs(f) + inner + max(finfo.smallest_normal * finfo.eps, 2**-126), (a, b, got, f)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["or", "xnor"])
def test_16_bit_types_are_rounded_once(op: str, dtype: torch.dtype) -> None:
    _check_16_bit(op, dtype, 2_000)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", ["or", "xnor"])
def test_16_bit_types_on_the_full_set(op: str, dtype: torch.dtype) -> None:
    _check_16_bit(op, dtype, 100_000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("op", "form"), [(op, form) for op in ("or", "and", "xnor") for form in ("ail", "nail")])
def test_approximate_gates_are_exact_up_to_rounding(op: str, form: str, dtype: torch.dtype, way: str) -> None:
    x, y, _ = solved("or", 2_000, dtype)
    value, along_x, along_y = _gate(op, form, way, x, y)
    mean, sd = moments(op, "ail") if form == "nail" else (0.0, 1.0)
    a, b = x.double(), y.double()
    plain = {
        "or": torch.where((a > 0) & (b > 0), a + b, torch.maximum(a, b)),
        "and": torch.where((a < 0) & (b < 0), a + b, torch.minimum(a, b)),
        "xnor": torch.sign(a) * torch.sign(b) * torch.minimum(a.abs(), b.abs()),
    }[op]
    u = torch.finfo(dtype).eps / 2
    assert ((value.double() - (plain - mean) / sd).abs() <= 4 * u * (plain.abs() + abs(mean)) / sd).all()
    assert (((along_x * sd).round() - along_x * sd).abs() < 1e-5).all()
    assert ((along_x.abs() + along_y.abs()) * sd > 1 - 1e-5).all(), "some operand always has a gradient"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [3, 8, 17])
@pytest.mark.parametrize("op", ["or", "xnor"])
def test_many_operands_fold_as_two(op: str, k: int, way: str) -> None:
    """k operands against a fold in 60 digits, ordinary and very large sizes; errors grow with k, not with the size."""
    reference = REFERENCES[op]
    generator = torch.Generator().manual_seed(k)
    sizes = 10 ** torch.empty(60, 1, dtype=torch.float64).uniform_(-2, 4, generator=generator)
    x = (torch.randn(60, k, dtype=torch.float64, generator=generator) * sizes).requires_grad_()
    value = WAYS[way](x, Program(((op, "il"),), k=k), 1)
    (partials,) = torch.autograd.grad(value.sum(), x)
    for row, got, gradient in zip(x.tolist(), value[:, 0].tolist(), partials.tolist(), strict=True):
        f, weights = mpf(row[0]), [mpf(1)]
        for logit in row[1:]:
            f, left, right = reference(f, mpf(logit))
            weights = [w * left for w in weights] + [right]
        c = max(abs(f), sum(abs(logit * w) for logit, w in zip(row, weights, strict=True)))
        assert abs(got - f) <= 8 * k * 2**-53 * c
        assert all(abs(g - w) <= 16 * k * 2**-53 * max(abs(w), 1e-30) for g, w in zip(gradient, weights, strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["il", "ail"])
def test_infinities_are_certain_events(form: str, dtype: torch.dtype, way: str) -> None:
    y = torch.tensor([-3.0, -1e-4, 0.0, 0.5, 7.0, float("inf"), -float("inf")], dtype=dtype)
    inf = torch.full_like(y, float("inf"))

    def gate(op: str, a: Tensor, b: Tensor) -> Tensor:
        return WAYS[way](torch.stack([a, b], 1), Program(((op, form),)), 1)[:, 0]

    torch.testing.assert_close(gate("and", inf, y), y)
    torch.testing.assert_close(gate("or", -inf, y), y)
    torch.testing.assert_close(gate("xnor", inf, y), y)
    torch.testing.assert_close(gate("xnor", -inf, y), -y)
    torch.testing.assert_close(gate("or", y, inf), inf)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("form", ["il", "ail"])
@pytest.mark.parametrize("op", ["and", "or", "xnor"])
def test_nan_propagates_and_finite_stays_finite(op: str, form: str, k: int, way: str) -> None:
    program = Program(((op, form),), k=k)
    for place in range(k):
        for filling in (-1e30, -2.0, 0.0, 3.0, 1e30, float("inf")):
            x = torch.full((1, k), filling)
            x[0, place] = float("nan")
            assert WAYS[way](x, program, 1).isnan().all(), (place, filling)
    extremes = torch.cartesian_prod(*[torch.tensor([-1e30, -88.0, -1e-30, 0.0, 1e-30, 88.0, 1e30])] * k).requires_grad_()
    value = WAYS[way](extremes, program, 1)
    (gradient,) = torch.autograd.grad(value.sum(), extremes)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
