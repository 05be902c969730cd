"""Second derivatives by kernel: those of the formulas, as accurate as the first, for every type, layout and instruction set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from adversarial import draw
from exact_reference import fold
from gate_cases import DTYPES, assert_agree, ensembles, singles
from mpmath import diff, mp, mpf
from torch import Tensor
from ways import calls_by, libraries

from boolit.logic import Program, evaluate
from boolit.logic.kernels import library
from boolit.logic.reference import formula

EXACT = [Program(((op, "il"),), "d", k) for op in ("or", "xnor") for k in (2, 3, 5)]
every_level = pytest.mark.parametrize("level", libraries() or [None])
Function = Callable[[Tensor, Program, int], Tensor]


def second(function: Function, x: Tensor, program: Program, dim: int) -> tuple[Tensor, ...]:
    """What a backward's result gives back to the gradient and to x."""
    generator = torch.Generator().manual_seed(1)
    leaf = x.clone().requires_grad_()
    out = function(leaf, program, dim)
    grad, towards = (torch.randn(shape, generator=generator).to(x.dtype) for shape in (out.shape, x.shape))
    grad.requires_grad_()
    (first,) = torch.autograd.grad(out, leaf, grad, create_graph=True)
    return torch.autograd.grad(first, (grad, leaf), towards, materialize_grads=True)


@pytest.mark.parametrize(("k", "pairing"), [(2, "adjacent"), (2, "halves"), (3, "adjacent"), (5, "halves")])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_agrees_with_the_formula(k: int, pairing: str, dtype: torch.dtype) -> None:
    some = [program for program in singles(k, pairing) if "ail" not in str(program)]
    for program in (*some, *ensembles(k, pairing)):
        for before, after in [((), ()), ((7,), ()), ((2, 3), (17,))]:
            x = (3 * torch.randn(*before, 6 * program.divisor + (k if program.uneven else 0), *after)).to(dtype)
            by_kernel, by_formula = (second(function, x, program, len(before)) for function in (evaluate, formula))
            for actual, expected in zip(by_kernel, by_formula, strict=True):
                assert_agree(actual, expected, units=64)  # the formula loses digits where 1 - p is small


@every_level
@pytest.mark.parametrize("program", [*EXACT, *ensembles(2)[-3:], *ensembles(3)[-3:]], ids=str)
def test_the_kernel_agrees_with_the_formula_across_blocks(program: Program, level: str | None) -> None:
    for groups in (255, 258, 519):  # the kernels' block is 256 groups
        x = 3 * torch.randn(2, groups // 3 * 3 * program.k, dtype=torch.float64)
        with calls_by(libraries()[level] if level else library.LIBRARY):
            by_kernel = second(evaluate, x, program, 1)
        for actual, expected in zip(by_kernel, second(formula, x, program, 1), strict=True):
            assert_agree(actual, expected, units=1024)


@pytest.mark.parametrize("program", [*EXACT, ensembles(2)[-3], ensembles(3)[-3]], ids=str)
def test_gradgradcheck(program: Program) -> None:
    x = (2 * torch.randn(2, 2 * program.k, 3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: evaluate(x, program, 1), (x,))


@pytest.mark.parametrize("program", EXACT, ids=str)
def test_third_derivatives_are_those_of_the_formula(program: Program) -> None:
    x = torch.randn(3, 2 * program.k, dtype=torch.float64)
    thirds = []
    for function in (evaluate, formula):
        leaf = x.clone().requires_grad_()
        current = function(leaf, program, 1).sum()
        for _ in range(3):
            (gradient,) = torch.autograd.grad(current, leaf, create_graph=True)
            current = (gradient * x).sum()
        thirds.append(gradient.detach())
    assert_agree(thirds[0], thirds[1], units=256)


def hessians(kernels: library.KernelModule, x: Tensor, program: Program) -> Tensor:
    """Second derivatives of each group along dimension 1, row by row."""
    plan = library._plan(kernels, program, x.dtype, x.shape, 1)
    rows = []
    for j in range(program.k):
        towards = torch.zeros_like(x).index_fill(1, torch.tensor([j]), 1)
        results = plan.double_backward(towards, x.new_ones(len(x), 1), x)
        assert results is not None
        rows.append(results[1])
    return torch.stack(rows, 1)


@every_level
@pytest.mark.parametrize("program", EXACT, ids=str)
def test_second_derivatives_are_accurate(program: Program, level: str | None) -> None:
    """Each within 16u·⌈log2 k⌉ of itself, as the first ones are."""
    if level is None:
        pytest.skip("no kernels")
    kernels = libraries()[level]
    x = torch.tensor(draw(np.random.default_rng(program.k), 5000, program.k, torch.float32))
    single, double = hessians(kernels, x.float(), program).double(), hessians(kernels, x, program)
    unit = 2.0**-24 * math.ceil(math.log2(program.k))
    assert ((single - double).abs() <= 16 * unit * double.abs().clamp(min=1e-30)).all()


@pytest.mark.parametrize("program", EXACT[:2] + EXACT[3:5], ids=str)
def test_second_derivatives_are_right_where_they_are_small(program: Program) -> None:
    k, ((op, _),) = program.k, program.members
    points = [-30.0, -0.5, 2.0, 25.0] if k == 2 else [-20.0, 1.5, 22.0]
    rows = [list(row) for row in itertools.product(points, repeat=k)]
    if library.LIBRARY is None:
        pytest.skip("no kernels")
    found = hessians(library.LIBRARY, torch.tensor(rows, dtype=torch.float64), program)
    with mp.workdps(90):
        for row, hessian in zip(rows, found.tolist(), strict=True):
            for i, j in itertools.product(range(k), repeat=2):

                def slope(logit: mpf, row: list[float] = row, i: int = i, j: int = j) -> mpf:
                    return fold(op, [*row[:j], logit, *row[j + 1 :]])[1][i]

                expected = float(diff(slope, row[j]))
                assert abs(hessian[i][j] - expected) <= 1e-14 * max(abs(expected), 1e-30)


def test_vmap_and_fake_tensors() -> None:
    program = EXACT[0]
    x, grad, towards = torch.randn(4, 3, 6), torch.randn(4, 3, 3), torch.randn(3, 6)
    operator = torch.ops.boolit.gates_double_backward
    mapped = torch.vmap(lambda g, x: operator(towards, g, x, str(program), 1))(grad, x)
    for index, expected in enumerate(operator(towards, g, y, str(program), 1) for g, y in zip(grad, x, strict=True)):
        assert torch.equal(mapped[0][index], expected[0])
        assert torch.equal(mapped[1][index], expected[1])
    torch.library.opcheck(operator.default, (towards, grad[0], x[0], str(program), 1))


def test_tensors_that_do_not_belong_together_are_named() -> None:
    x = torch.randn(3, 6)
    with pytest.raises(ValueError, match=r"or_il along dim 1 got tensors that do not belong together"):
        torch.ops.boolit.gates_double_backward(x, x, x, str(EXACT[0]), 1)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    program = ensembles(2)[0]
    x, threads = torch.randn(41, 360, 5), torch.get_num_threads()
    results = []
    for count in (1, 3):
        torch.set_num_threads(count)
        results.append(second(evaluate, x, program, 1))
    torch.set_num_threads(threads)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
