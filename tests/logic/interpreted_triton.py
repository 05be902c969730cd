"""The Triton kernels on the CPU, by Triton's interpreter, against the reference and 60-digit arithmetic.

test_triton.py runs this file in its own process, since the interpreter must be chosen before Triton is imported.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
import test_accuracy
import torch
import triton.language as tl
from gate_cases import assert_agree, ensembles, singles
from torch import Tensor
from triton.runtime import interpreter

from boolit.logic import Program, cpu, dispatch, gpu
from boolit.logic.reference import evaluate_reference

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of infinities and NaN
convert_float = interpreter._convert_float


def convert_like_a_device(numbers: np.ndarray, source: tl.dtype, target: tl.dtype, rounding: object) -> np.ndarray:
    """To bfloat16 the interpreter truncates, where every device rounds to nearest (test_triton.py checks the instruction)."""
    if (source, target) == (tl.float32, tl.bfloat16):
        rounded = torch.from_numpy(np.array(numbers, dtype=np.float32)).to(torch.bfloat16)
        return rounded.view(torch.uint16).numpy()
    return convert_float(numbers, source, target, rounding)


class PatchOnce:
    """The interpreter patches Triton's language at every call of a function, which takes half of the time."""

    def __init__(self) -> None:
        self.patch, self.done = interpreter._patch_lang, False

    def __call__(self, function: Callable[..., object]) -> PatchOnce:
        if not self.done:
            self.patch(function)
            self.done = True
        return self

    def restore(self) -> None:
        """Keep the patch: this process interprets until it ends."""


@pytest.fixture(autouse=True, scope="module")
def _interpreter() -> Iterator[None]:
    with (
        mock.patch.object(interpreter, "_convert_float", convert_like_a_device),
        mock.patch.object(interpreter, "_patch_lang", PatchOnce()),
    ):
        yield


def by_triton(
    x: Tensor, program: Program, g: Tensor | None = None, wide: bool = False, block: int = 512
) -> tuple[Tensor, Tensor]:
    """Return values, and derivatives times g: from the bits if all gates are approximate."""
    plan = gpu.Plan(program, x.dtype, x.shape, 1, block)
    plan.constants["WIDE"] = wide
    value, kept = plan.forward(x.contiguous(), True)
    assert (kept is None) is not program.approximate
    return value, plan.backward(torch.ones_like(value) if g is None else g, x.contiguous() if kept is None else kept)


TYPES = (torch.float32, torch.bfloat16, torch.float16)
PROGRAMS = [program for pairing in ("adjacent", "halves") for program in (*singles(2, pairing)[::3], *ensembles(2, pairing))]
LAYOUTS = ((7,), (3, 5), (2, 8))  # rows and inner extents: with tails, and of whole bytes


@pytest.mark.parametrize("index", range(len(PROGRAMS)))
def test_gates_and_ensembles_agree_with_the_reference(index: int) -> None:
    """Types, layouts and widths of offsets take turns."""
    program = PROGRAMS[index]
    rows, *inner = LAYOUTS[index % 3]
    groups = 7 if program.strategy in ("pu", "pl") or len(program.members) == 1 else 6
    dtype = TYPES[(index + index // 3) % 3]
    x = (2 * torch.randn(rows, groups * 2, *inner)).to(dtype)
    leaf = x.clone().requires_grad_()
    expected = evaluate_reference(leaf, program, 1)
    g = torch.randn(expected.shape).to(dtype)
    actual, gradient = by_triton(x, program, g, wide=index % 5 == 0, block=64)
    assert_agree(actual, expected)
    assert_agree(gradient, torch.autograd.grad(expected, leaf, g)[0])


@pytest.mark.parametrize("base", ["or", "xnor"])
def test_exact_gates_stay_within_the_bounds(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_accuracy, "ways", lambda: {"triton": by_triton})
    test_accuracy.check(base, "il", "triton", *test_accuracy.solved(base, 2, torch.float32))


@pytest.mark.parametrize("gate", ["or_il", "xnor_nil", "and_nail", "xnor_ail"])
def test_nan_ties_zeros_and_infinities_as_by_the_reference(gate: str) -> None:
    values = [math.nan, 0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, 3e38, -3e38]
    x = torch.tensor(list(itertools.product(values, repeat=2)))
    leaf = x.clone().requires_grad_()
    expected = evaluate_reference(leaf, program := Program.parse(gate), 1)
    slopes = torch.autograd.grad(expected.sum(), leaf)[0]
    for actual, wanted in zip(by_triton(x, program), (expected.detach(), slopes), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=2e-6, atol=1e-6, equal_nan=True)


def test_offsets_beyond_32_bits() -> None:
    for channels, wide in ((2**21 - 2, False), (2**21, True)):
        assert gpu.Plan(Program.parse("or_ail"), torch.float32, torch.Size((1024, channels)), 1).constants["WIDE"] is wide


@pytest.mark.parametrize("spec", ["or_ail", "xnor_il", "or_and_xnor_nail_pu"])
def test_the_route_to_a_device(spec: str) -> None:
    """A plain CPU tensor stands for a device's."""
    program = Program.parse(spec)
    x = torch.randn(2, 30, requires_grad=True)
    with (
        mock.patch.object(cpu, "LIBRARY", None),
        mock.patch.object(dispatch, "_has_kernel", return_value=True),
        mock.patch.object(dispatch.cpu, "Plan", gpu.Plan),
    ):
        out = dispatch.evaluate(x, program, 1)
        (gradient,) = torch.autograd.grad(out.sum(), x)
    expected = evaluate_reference(x, program, 1)
    assert_agree(out, expected)
    assert_agree(gradient, torch.autograd.grad(expected.sum(), x)[0])


def test_the_check_before_first_use() -> None:
    gpu.check("cpu")
    with (
        mock.patch.object(gpu, "evaluate_reference", lambda x, program, dim: evaluate_reference(x, program, dim) + 1),
        pytest.raises(ArithmeticError, match="or_ail is wrong by 1"),
    ):
        gpu.check("cpu")
