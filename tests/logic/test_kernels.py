"""The kernels do what the formulas say, for every type, layout and instruction set; without them the formulas do."""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from gate_cases import DTYPES, assert_agree, ensembles, singles
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from ways import calls_by, libraries

from boolit.logic import Program, evaluate
from boolit.logic.kernels import library, operators, status
from boolit.logic.kernels.library import plan_for
from boolit.logic.reference import formula

GROUPINGS = [(2, "adjacent"), (2, "halves"), (3, "adjacent"), (3, "halves"), (5, "adjacent")]
BASIC = [program for k, pairing in GROUPINGS for program in (*singles(k, pairing)[:12], *ensembles(k, pairing))]
PROGRAMS = [*BASIC, *singles(2)[12:]]
BLOCKY = [
    program for k, pairing in GROUPINGS for program in ensembles(k, pairing) if len({form for _, form in program.members}) > 1
]
AROUND = [((), ()), ((7,), ()), ((3,), (5,)), ((2, 3), (17,))]  # sizes before and after dim: one row, rows, an inner size
INFINITY = float("inf")


every_level = pytest.mark.parametrize("level", libraries() or [None])


@contextmanager
def instructions(level: str | None) -> Iterator[None]:
    """The kernels of this level, instead of those the process has loaded."""
    with calls_by(libraries()[level] if level else library.LIBRARY):
        yield


def both_ways(x: Tensor, program: Program, dim: int, level: str | None = None) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradient by kernel, and by formula."""
    results = []
    with instructions(level):
        weights = torch.randn(evaluate(x, program, dim).shape, dtype=torch.float64).to(x.dtype)
        for function in (evaluate, formula):
            leaf = x.clone().requires_grad_()
            out = function(leaf, program, dim)
            results.append([out.detach(), *torch.autograd.grad(out, leaf, weights)])
    return results[0], results[1]


def test_the_kernels_are_in_use_at_the_level_wished_for() -> None:
    assert status().active, status().reason
    wish = os.environ.get("BOOLIT_INSTRUCTIONS", "")
    if wish == "baseline" or platform.machine() != "x86_64":
        assert status().instructions == "baseline"
    elif wish:
        assert status().instructions == wish
    assert str(status().instructions) in status().reason


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_kernel_agrees_with_formula(program: Program, dtype: torch.dtype) -> None:
    for before, after in AROUND:
        channels = 3 * program.divisor + (program.k if program.uneven else 0)
        x = (3 * torch.randn(*before, channels, *after)).to(dtype)
        kernel, expected = both_ways(x, program, len(before))
        for actual, wanted in zip(kernel, expected, strict=True):
            assert_agree(actual, wanted)
        assert torch.equal(evaluate(x, program, len(before)), kernel[0]), "without a gradient the value must be the same"


@every_level
@pytest.mark.parametrize("program", [*BLOCKY, *singles(2)[:12], *singles(3)[:12]], ids=str)
def test_kernel_agrees_with_formula_across_blocks(program: Program, level: str | None) -> None:
    for groups in (255, 256, 257, 519):  # the kernels' block is 256 groups
        groups = groups if program.uneven or program.strategy == "d" else groups // 3 * 3
        kernel, expected = both_ways(3 * torch.randn(2, groups * program.k), program, 1, level)
        for actual, wanted in zip(kernel, expected, strict=True):
            assert_agree(actual, wanted)


@every_level
@settings(max_examples=150)
@given(
    program=st.sampled_from(PROGRAMS),
    dtype=st.sampled_from(DTYPES),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    data=st.data(),
)
def test_kernel_agrees_with_formula_on_any_shape(
    program: Program, dtype: torch.dtype, sizes: list[int], data: st.DataObject, level: str | None
) -> None:
    dim = data.draw(st.integers(0, len(sizes) - 1))
    sizes[dim] = program.divisor * data.draw(st.integers(1, 6))
    drawn = torch.randn(sizes, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 2**32))))
    kernel, expected = both_ways((2 * drawn).to(dtype), program, dim, level)
    # Where a single value remains and the mean was taken off it, what is left may be far smaller than its round-off.
    least = 1.0 if any(form.startswith("n") for _, form in program.members) else 0.0
    for actual, wanted in zip(kernel, expected, strict=True):
        assert_agree(actual, wanted, least=least)


@every_level
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("gate", ["or_il", "and_nil", "xnor_il", "or_ail", "and_nail", "xnor_ail"])
def test_kernel_agrees_with_formula_at_huge_tiny_and_tied_logits(
    gate: str, k: int, dtype: torch.dtype, level: str | None
) -> None:
    op, form = gate.split("_")
    points = (-1e30, -3.0, -1e-30, 0.0, 1e-30, 3.0, 1e30) if k < 5 else (-1e30, -3.0, 0.0, 3.0)
    x = torch.tensor(list(itertools.product(points, repeat=k)), dtype=dtype)
    unit = torch.finfo(dtype).eps
    kernel, expected = both_ways(x, Program(((op, form),), "d", k), 1, level)
    assert torch.isfinite(kernel[0]).all()
    for actual, wanted in zip(kernel, expected, strict=True):  # element by element, not of the largest
        torch.testing.assert_close(actual, wanted, rtol=16 * unit, atol=16 * unit)


@every_level
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("gate", ["or_il", "and_nil", "xnor_il", "or_ail", "and_nail", "xnor_ail"])
def test_kernel_agrees_with_formula_at_certain_events(gate: str, k: int, level: str | None) -> None:
    op, form = gate.split("_")
    x = torch.tensor(list(itertools.product((-INFINITY, -2.0, 0.0, 2.0, INFINITY), repeat=k)))
    kernel, expected = both_ways(x, Program(((op, form),), "d", k), 1, level)
    assert not kernel[0].isnan().any()
    torch.testing.assert_close(kernel[0], expected[0])
    torch.testing.assert_close(kernel[1], expected[1])
    assert kernel[1].isfinite().all()
    poisoned = x.index_fill(1, torch.tensor([k - 1]), float("nan"))
    with instructions(level):
        assert evaluate(poisoned, Program(((op, form),), "d", k), 1).isnan().all()


@pytest.mark.parametrize("program", [*BLOCKY, *singles(2)[:12:4], *singles(3)[:12:4]], ids=str)
def test_any_number_of_threads_gives_the_same_bits(program: Program) -> None:
    x = torch.randn(41, 180 * program.k, 5)  # more than 32768 elements a thread
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        leaf = x.clone().requires_grad_()
        out = evaluate(leaf, program, 1)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaf)))
    torch.set_num_threads(threads)
    for out, grad in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(grad, results[0][1])


@pytest.mark.parametrize("program", BASIC, ids=str)
def test_nothing_is_written_outside_the_results(program: Program) -> None:
    kernels = next(iter(libraries().values()))
    operators.connect(kernels, empty_like=fenced)
    try:
        for dtype, (before, after) in itertools.product(DTYPES, AROUND):
            shape = torch.Size((*before, 3 * program.divisor + (program.k if program.uneven else 0), *after))
            with calls_by(kernels):
                plan = plan_for(program, dtype, shape, len(before))
            x = torch.randn(shape).to(dtype)
            results = plan.forward(x, True)
            assert results is not None
            out, kept = results
            grad_x = plan.backward(torch.ones(out.shape, dtype=dtype), x if kept is None else kept)
            assert (kept is not None) == program.approximate
            for tensor in (out, grad_x, kept):
                assert tensor is None or fence_is_whole(tensor)
    finally:
        operators.connect(kernels)


def fenced(like: Tensor) -> Tensor:
    """A tensor in the middle of a larger storage full of 77s, at an odd address of its type."""
    size = like.numel()
    return torch.full((size + 129,), 77).to(like.dtype)[65 : 65 + size].view(like.shape)


def fence_is_whole(tensor: Tensor) -> bool:
    ground = tensor.new_empty(0).set_(tensor.untyped_storage(), 0, (tensor.numel() + 129,))  # type: ignore[call-overload]
    return bool((ground[:65] == 77).all() and (ground[65 + tensor.numel() :] == 77).all())


def shapes_and_types(x: Tensor, program: Program, dim: int, keep: bool) -> list[tuple[torch.Size, torch.dtype]]:
    keep = keep and all(form.endswith("ail") for _, form in program.members)
    return [(result.shape, result.dtype) for result in torch.ops.boolit.gates(x, str(program), dim, keep)]


@settings(max_examples=200)
@given(st.sampled_from(PROGRAMS), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.booleans(), st.data())
def test_fake_results_have_the_shapes_of_real_ones(program: Program, sizes: list[int], keep: bool, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, len(sizes) - 1))
    sizes[dim] = program.divisor * data.draw(st.integers(0, 9))
    real, fake = (shapes_and_types(torch.zeros(sizes, device=device), program, dim, keep) for device in ("cpu", "meta"))
    assert real == fake


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_fake_results_where_some_gates_have_no_group(groups: int, pairing: str) -> None:
    program = Program((("or", "ail"), ("and", "ail"), ("xnor", "ail")), "p", 2, pairing, uneven=True)
    real, fake = (shapes_and_types(torch.zeros(5, groups * 2, device=device), program, 1, True) for device in ("cpu", "meta"))
    assert real == fake
    kernel, expected = both_ways(torch.randn(5, groups * 2), program, 1)
    for actual, wanted in zip(kernel, expected, strict=True):
        assert_agree(actual, wanted)
