"""The kernels do what the reference says, for every type, shape, thread count and instruction set."""

from __future__ import annotations

import copy
import itertools
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch
from gate_cases import DTYPES, assert_agree, ensembles, singles
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from ways import calls_by, libraries

from boolit.logic import Program, cpu, evaluate
from boolit.logic.reference import evaluate_reference

pytestmark = pytest.mark.skipif(cpu.LIBRARY is None, reason=cpu.status().reason)

GROUPINGS = [(2, "adjacent"), (2, "halves"), (3, "adjacent"), (3, "halves"), (5, "adjacent")]
PROGRAMS = [program for k, pairing in GROUPINGS for program in (*singles(k, pairing)[:12], *ensembles(k, pairing))]
PROGRAMS += singles(2)[12:]
MIXED = [program for program in PROGRAMS if len({form for _, form in program.members}) > 1]
AROUND = [((7,), ()), ((3,), (5,)), ((2, 3), (17,))]  # sizes before and after dim
every_level = pytest.mark.parametrize("level", libraries() or [None])


def both_ways(x: Tensor, program: Program, dim: int, level: str | None = None) -> list[tuple[Tensor, Tensor]]:
    """Return outputs and gradients as pairs: by kernel, and by the reference."""
    results = []
    program = copy.copy(program)  # without the plans for another instruction set
    with calls_by(libraries()[level] if level else cpu.LIBRARY):
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(evaluate(x, program, dim).shape, generator=generator).to(x.dtype)
        for function in (evaluate, evaluate_reference):
            leaf = x.clone().requires_grad_()
            out = function(leaf, program, dim)
            results.append([out.detach(), *torch.autograd.grad(out, leaf, weights)])
    return list(zip(*results, strict=True))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.spec)
def test_kernels_agree_with_the_reference(program: Program) -> None:
    for (before, after), dtype in itertools.product(AROUND, DTYPES):
        channels = 3 * program.width_multiple + (program.k if program.strategy in ("pu", "pl") else 0)
        x = (3 * torch.randn(*before, channels, *after)).to(dtype)
        for actual, expected in both_ways(x, program, len(before)):
            assert_agree(actual, expected)


@every_level
@pytest.mark.parametrize("program", [*MIXED, *singles(2)[:12], *singles(3)[:12:3]], ids=lambda program: program.spec)
def test_kernels_agree_across_blocks(program: Program, level: str | None) -> None:
    # A block has 512 groups, or several short rows.
    for rows, groups in ((2, 511), (2, 512), (2, 513), (2, 1031), (50, 6), (50, 21)):
        groups = groups // 3 * 3 if program.strategy == "p" else groups
        for actual, expected in both_ways(3 * torch.randn(rows, groups * program.k), program, 1, level):
            assert_agree(actual, expected)


@every_level
@settings(max_examples=100)
@given(
    program=st.sampled_from(PROGRAMS),
    dtype=st.sampled_from(DTYPES),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    data=st.data(),
)
def test_kernels_agree_on_any_shape(
    program: Program, dtype: torch.dtype, sizes: list[int], data: st.DataObject, level: str | None
) -> None:
    dim = data.draw(st.integers(0, len(sizes) - 1))
    sizes[dim] = program.width_multiple * data.draw(st.integers(1, 6))
    drawn = torch.randn(sizes, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 2**32))))
    # A value minus its mean, and a gradient that is a sum over several members, may be far smaller than their terms' round-off.
    least = 1.0 if len(program.members) > 1 or program.members[0][1].startswith("n") else 0.0
    for actual, expected in both_ways((2 * drawn).to(dtype), program, dim, level):
        assert_agree(actual, expected, least=least)


@every_level
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("gate", ["or_il", "and_nil", "xnor_il", "or_ail", "and_nail", "xnor_ail"])
def test_kernels_agree_at_huge_tiny_and_tied_logits(gate: str, k: int, dtype: torch.dtype, level: str | None) -> None:
    points = (-1e30, -3.0, -1e-30, 0.0, 1e-30, 3.0, 1e30) if k < 5 else (-1e30, -3.0, 0.0, 3.0)
    x = torch.tensor(list(itertools.product(points, repeat=k)), dtype=dtype)
    unit = torch.finfo(dtype).eps
    for actual, expected in both_ways(x, Program.parse(f"{gate}_k{k}"), 1, level):
        assert actual.isfinite().all()
        torch.testing.assert_close(actual, expected, rtol=16 * unit, atol=16 * unit)


@pytest.mark.parametrize("program", [*MIXED[::3], *singles(2)[:12:4], *singles(3)[:12:4]], ids=lambda program: program.spec)
def test_any_number_of_threads_gives_the_same_bits(program: Program) -> None:
    x = torch.randn(41, 180 * program.k, 5)  # more than 32768 elements per thread
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        leaf = x.clone().requires_grad_()
        out = evaluate(leaf, program, 1)
        results.append((out, *torch.autograd.grad(out.square().sum(), leaf)))
    torch.set_num_threads(threads)
    for out, gradient in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_many_threads_with_changing_shapes_equal_a_single_one() -> None:
    program = Program.parse("or_and_xnor_nail_d")
    inputs = [torch.randn(1 + i % 7, 2 * (1 + i % 11)) for i in range(200)]

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        out = evaluate(leaf, program, 1)
        return out.detach(), torch.autograd.grad(out.square().sum(), leaf)[0]

    expected = [work(x) for x in inputs]
    program.plans.clear()
    with mock.patch("boolit.logic.dispatch.MAX_PLANS", 8), ThreadPoolExecutor(16) as pool:  # plans come and go
        for _ in range(3):
            for actual, wanted in zip(pool.map(work, inputs), expected, strict=True):
                assert all(torch.equal(*pair) for pair in zip(actual, wanted, strict=True))


@pytest.mark.parametrize("count", [16, 17, 40])
@pytest.mark.parametrize("strategy", ["d", "p"])
def test_ensembles_of_any_number_of_gates_use_the_kernels(count: int, strategy: str) -> None:
    """17 and more silently used the reference."""
    program = Program(tuple((("or", "and", "xnor", "implies")[i % 4], ("ail", "nil")[i % 2]) for i in range(count)), strategy)
    with mock.patch("boolit.logic.dispatch.evaluate_reference", side_effect=AssertionError):
        evaluate(torch.randn(3, 2 * count), program, 1)
    for actual, expected in both_ways(torch.randn(3, 2 * count), program, 1):
        assert_agree(actual, expected)


@pytest.mark.parametrize("program", PROGRAMS[::2], ids=lambda program: program.spec)
def test_nothing_is_written_outside_the_results(program: Program) -> None:
    with mock.patch.object(torch, "empty_like", fenced):
        for dtype, (before, after) in itertools.product(DTYPES, AROUND):
            x = torch.randn(*before, 3 * program.width_multiple, *after).to(dtype)
            plan = cpu.Plan(program, dtype, x.shape, len(before))
            out, kept = plan.forward(x, True)
            gradient = plan.backward(torch.ones(out.shape, dtype=dtype), x if kept is None else kept)
            assert (kept is not None) == program.approximate
            for tensor in (out, gradient, kept):
                assert tensor is None or is_fence_whole(tensor)


def fenced(like: Tensor) -> Tensor:
    """Return a tensor in the middle of a larger storage full of 77s, at an odd address of its type."""
    size = like.numel()
    return torch.full((size + 129,), 77).to(like.dtype)[65 : 65 + size].view(like.shape)


def is_fence_whole(tensor: Tensor) -> bool:
    ground = tensor.new_empty(0).set_(tensor.untyped_storage(), 0, (tensor.numel() + 129,))  # type: ignore[call-overload]
    return bool((ground[:65] == 77).all() and (ground[65 + tensor.numel() :] == 77).all())


@settings(max_examples=100)
@given(st.sampled_from(PROGRAMS), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.booleans(), st.data())
def test_fake_results_have_the_shapes_of_real_ones(program: Program, sizes: list[int], keep: bool, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, len(sizes) - 1))
    sizes[dim] = program.width_multiple * data.draw(st.integers(0, 9))
    keep = keep and program.approximate
    results = [torch.ops.boolit.gates(torch.zeros(sizes, device=device), program.spec, dim, keep) for device in ("cpu", "meta")]
    real, fake = ([(tensor.shape, tensor.dtype) for tensor in result] for result in results)
    assert real == fake


@pytest.mark.parametrize(("dtype", "k"), [(torch.float16, 61), (torch.float32, 61), (torch.float64, 900)])
def test_xnor_nil_of_too_many_operands_is_refused(dtype: torch.dtype, k: int) -> None:
    """It returned 0 or NaN."""
    with pytest.raises(ValueError, match=rf"^xnor_nil of k={k} logits is too small for torch.float\d\d; use fewer"):
        evaluate(torch.randn(2, k, dtype=dtype), Program((("xnor", "nil"),), k=k), 1)
    assert evaluate(torch.randn(2, 60, dtype=dtype), Program((("xnor", "nil"),), k=60), 1).isfinite().all()
