"""Infinities are certain events, NaN propagates, and finite in is finite out: values and derivatives, in every way alike.

The expected results are written down as rules, not taken from a way: an operand that cannot matter is left out, and what is
left is a gate of fewer operands.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from gate_cases import DTYPES, FORMS
from torch import Tensor
from ways import by_reference, calls_by, libraries, ways

from boolit.logic import Program, cpu, evaluate, moments

INFINITY = math.inf
WAYS = list(ways())
OPERATIONS = ("or", "and", "xnor", "nand", "nor", "xor")


def table(k: int, dtype: torch.dtype, *others: float) -> Tensor:
    """Every combination of infinities, the largest numbers, ordinary ones and others."""
    largest = torch.finfo(dtype).max
    return torch.tensor(
        list(itertools.product((-INFINITY, -largest, -1.0, 0.0, 1.0, largest, INFINITY, *others), repeat=k)), dtype=dtype
    )


def expected(base: str, form: str, row: list[float]) -> tuple[float, list[float]]:
    """Value and derivatives of a gate, some operand of which is infinite and none NaN."""
    infinite = [i for i, logit in enumerate(row) if math.isinf(logit)]
    rest = [i for i in range(len(row)) if i not in infinite]
    gradient = [0.0] * len(row)
    if base == "or" and INFINITY in row:  # the limit: x + softplus(y), or x + max(y, 0)
        for i, logit in enumerate(row):
            gradient[i] = float(logit > 0) if form == "ail" else 1 / (1 + math.exp(min(-logit, 700)))
        return INFINITY, gradient
    sign = math.prod(math.copysign(1, row[i]) for i in infinite) if base == "xnor" else 1.0
    if not rest:  # all certain: the first has the gradient
        gradient[0] = sign * math.copysign(1, row[0]) if base == "xnor" else 1.0
        return (sign * INFINITY if base == "xnor" else -INFINITY), gradient
    if len(rest) == 1:
        gradient[rest[0]] = sign
        return sign * row[rest[0]], gradient
    value, partials = by_reference(
        torch.tensor([[row[i] for i in rest]], dtype=torch.float64), Program(((base, form),), k=len(rest))
    )
    for i, partial in zip(rest, partials[0].tolist(), strict=True):
        gradient[i] = sign * partial
    return sign * value.item(), gradient


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["il", "ail"])
@pytest.mark.parametrize("base", ["or", "xnor"])
@pytest.mark.parametrize("k", [2, 3])
def test_infinities_are_certain_events(k: int, base: str, form: str, dtype: torch.dtype, way: str) -> None:
    x = table(k, dtype)
    x = x[x.isinf().any(1)]
    values, gradients = ways()[way](x, Program(((base, form),), k=k))
    exact = [expected(base, form, row) for row in x.tolist()]
    finfo = torch.finfo(dtype)
    wanted = torch.tensor([value for value, _ in exact], dtype=torch.float64)
    wanted = torch.where(wanted.isinf(), wanted, wanted.clamp(-finfo.max, finfo.max))  # OR(-inf, max, max)
    slopes = torch.tensor([gradient for _, gradient in exact], dtype=torch.float64)
    torch.testing.assert_close(values[:, 0].double(), wanted, rtol=8 * finfo.eps, atol=finfo.eps)
    torch.testing.assert_close(gradients.double(), slopes, rtol=16 * finfo.eps, atol=finfo.eps)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("op", OPERATIONS)
def test_finite_in_finite_out(op: str, k: int, dtype: torch.dtype, way: str) -> None:
    x = table(k, dtype)
    x = x[x.isfinite().all(1)]
    for form in FORMS:
        value, gradient = ways()[way](x, Program(((op, form),), k=k))
        assert value.isfinite().all(), form
        assert gradient.isfinite().all(), form


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", [2, 3])
def test_what_is_too_large_becomes_the_largest_number_and_still_learns(k: int, dtype: torch.dtype, way: str) -> None:
    largest = torch.finfo(dtype).max
    x = torch.full((40, k), largest, dtype=dtype)
    for op, sign in (("or", 1), ("and", -1)):
        for form in FORMS:
            value, gradient = ways()[way](sign * x, Program(((op, form),), k=k))
            _, sd = moments(op, form.removeprefix("n"), k) if form.startswith("n") else (0.0, 1.0)
            # the value is kept within the type it is computed in, then scaled, then kept within the type it is stored in
            reach = min(largest, min(k * largest, torch.finfo(torch.promote_types(dtype, torch.float32)).max) / sd)
            torch.testing.assert_close(value, torch.full_like(value, sign * reach))
            torch.testing.assert_close(gradient, torch.full_like(gradient, 1 / sd))


def test_an_ensemble_of_too_large_values_is_finite() -> None:
    program = Program((("or", "nil"), ("and", "ail"), ("xnor", "nil")))
    x = table(2, torch.float32)
    x = x[x.isfinite().all(1)]
    for compute in ways().values():
        value, gradient = compute(x, program)
        assert value.isfinite().all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("op", OPERATIONS)
def test_every_way_agrees_on_infinities_and_nan(op: str, k: int, dtype: torch.dtype) -> None:
    x, unit = table(k, dtype, math.nan), torch.finfo(dtype).eps
    poisoned = x.isnan().any(1)
    for form in FORMS:
        program = Program(((op, form),), k=k)
        value, gradient = by_reference(x, program)
        assert torch.equal(value[:, 0].isnan(), poisoned)
        if not program.approximate:  # an approximate gate gives the gradient to the operands it took, NaN or not
            assert torch.equal(gradient.isnan().any(1), poisoned)
        rows = ~poisoned if k > 2 else slice(None)  # in a tree, NaN need not reach operands whose derivative is 0
        for way in WAYS[1:]:
            actual, slopes = ways()[way](x, program)
            torch.testing.assert_close(actual, value, rtol=8 * unit, atol=8 * unit, equal_nan=True)
            torch.testing.assert_close(slopes[rows], gradient[rows], rtol=16 * unit, atol=16 * unit, equal_nan=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("op", ["or", "and", "xnor"])
def test_operands_that_an_approximate_gate_does_not_take_get_no_infinite_gradient(op: str, k: int, way: str) -> None:
    """For k > 2 this was NaN."""
    x = torch.randn(50, k)
    program = Program(((op, "ail"),), k=k)
    _, slopes = by_reference(x, program)
    if way == "reference":
        leaf = x.clone().requires_grad_()
        out = evaluate(leaf, program, 1)
        (gradient,) = torch.autograd.grad(out, leaf, torch.full_like(out, INFINITY))
    else:
        with calls_by(libraries()[way]):
            plan = cpu.Plan(program, x.dtype, x.shape, 1)
        out, kept = plan.forward(x, True)
        assert kept is not None
        gradient = plan.backward(torch.full_like(out, INFINITY), kept)
    assert torch.equal(gradient, torch.where(slopes == 0, 0.0, slopes * INFINITY))
