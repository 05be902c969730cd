"""The Triton kernels on the CPU, by Triton's interpreter, against formulas, 60-digit arithmetic and rules.

test_triton.py runs this file in a process of its own, since the interpreter must be chosen before Triton is imported.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
import test_accuracy
import test_special_values
import torch
import triton.language as tl
from gate_cases import DTYPES, assert_agree, ensembles, singles
from torch import Tensor
from torch.library import opcheck
from triton.runtime import interpreter

import boolit
from boolit import functional
from boolit.logic import Program
from boolit.logic.kernels import gpu, library, operators
from boolit.logic.kernels.gpu import kernels
from boolit.logic.kernels.gpu.launch import check, plan
from boolit.logic.reference import formula

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of infinities and NaN
convert_float = interpreter._convert_float
BLOCK = 64
Results = tuple[Tensor, Tensor]


def convert_like_a_device(numbers: np.ndarray, source: tl.dtype, target: tl.dtype, rounding: object) -> np.ndarray:
    """To bfloat16 the interpreter cuts, where every device rounds to nearest (test_triton.py sees the instruction)."""
    if (source, target) == (tl.float32, tl.bfloat16):
        rounded = torch.from_numpy(np.array(numbers, dtype=np.float32)).to(torch.bfloat16)
        return rounded.view(torch.uint16).numpy()
    return convert_float(numbers, source, target, rounding)


class _Lasting:
    """The interpreter changes Triton's language at every call of a function, which takes half of the time; once is enough."""

    def __init__(self) -> None:
        self.change = interpreter._patch_lang
        self.changed = False

    def __call__(self, function: Callable[..., object]) -> _Lasting:
        if not self.changed:
            self.change(function)
            self.changed = True
        return self

    def restore(self) -> None:
        """Later: this process interprets until it ends."""


@pytest.fixture(autouse=True, scope="module")
def _interpreter() -> Iterator[None]:
    with (
        mock.patch.object(interpreter, "_convert_float", convert_like_a_device),
        mock.patch.object(interpreter, "_patch_lang", _Lasting()),
    ):
        yield


def by_triton(
    x: Tensor, program: Program, dim: int = 1, g: Tensor | None = None, wide: bool = False, block: int = 512
) -> Results:
    """Values, and derivatives times g: from the bits where all gates are approximate."""
    laid_out = plan(program, x.dtype, x.shape, dim, block, wide)
    results = laid_out.forward(x.contiguous(), True)
    assert results is not None
    value, kept = results
    assert (kept is None) is not program.approximate
    gradient = laid_out.backward(torch.ones_like(value) if g is None else g, x.contiguous() if kept is None else kept)
    assert gradient is not None
    return value, gradient


def both_ways(x: Tensor, program: Program, dim: int, wide: bool, block: int = BLOCK) -> tuple[Results, Results]:
    """Values and derivatives by Triton, in several blocks, and by formula."""
    leaf = x.clone().requires_grad_()
    value = formula(leaf, program, dim)
    g = torch.randn(value.shape).to(x.dtype)
    (gradient,) = torch.autograd.grad(value, leaf, g)
    return by_triton(x, program, dim, g, wide, block), (value.detach(), gradient)


# ------------------------------------------------------------------------------------------------ the kernels

PROGRAMS = [
    program
    for k in (2, 3, 5)
    for pairing in ("adjacent", "halves")
    for program in (*singles(k, pairing), *ensembles(k, pairing))
    if k < 5 or len(program.members) == 1
]
LAYOUTS = ((7,), (3, 5), (2, 8))  # rows and inner extents: of tails, and of whole bytes


def axes(index: int, program: Program) -> tuple[torch.dtype, torch.Size, bool]:
    """Types, layouts and both widths of the offsets, in turn: each with each gate, form, pairing and ensemble at least once."""
    rows, *inner = LAYOUTS[index % 3]
    groups = 7 if program.uneven or len(program.members) == 1 else 6
    return DTYPES[(index + index // 4) % 4], torch.Size((rows, groups * program.k, *inner)), index % 5 == 0


@pytest.mark.parametrize("index", range(len(PROGRAMS)))
def test_every_gate_and_ensemble_agrees_with_its_formula(index: int) -> None:
    program = PROGRAMS[index]
    dtype, shape, wide = axes(index, program)
    got, expected = both_ways((2 * torch.randn(shape)).to(dtype), program, 1, wide)
    if program.k == 2 and len(program.members) == 1 and program.approximate:
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    for actual, wanted in zip(got, expected, strict=True):
        assert_agree(actual, wanted)


@pytest.fixture
def _by_triton_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of accuracy and of special values go this one way."""
    for module in (test_accuracy, test_special_values):
        monkeypatch.setattr(module, "ways", lambda: {"triton": by_triton})


@pytest.mark.usefixtures("_by_triton_alone")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [2, 3, 17])
@pytest.mark.parametrize("base", ["or", "xnor"])
def test_exact_gates_stay_within_the_bounds(base: str, k: int, dtype: torch.dtype) -> None:
    test_accuracy.check(base, "il", "triton", *test_accuracy.solved(base, k, dtype))


@pytest.mark.usefixtures("_by_triton_alone")
@pytest.mark.parametrize(("base", "dtype", "row"), test_accuracy.ONCE_WRONG, ids=str)
def test_points_that_once_were_wrong(base: str, dtype: torch.dtype, row: list[float]) -> None:
    test_accuracy.test_points_that_once_were_wrong(base, dtype, row, "triton")


@pytest.mark.usefixtures("_by_triton_alone")
@pytest.mark.parametrize(("k", "dtype"), [(2, torch.bfloat16), (3, torch.float16)])
@pytest.mark.parametrize("base", ["or", "xnor"])
def test_16_bit_types_are_rounded_once(base: str, k: int, dtype: torch.dtype) -> None:
    test_accuracy.test_16_bit_types_are_rounded_once(base, k, dtype, "triton")


@pytest.mark.usefixtures("_by_triton_alone")
@pytest.mark.parametrize("form", ["il", "ail"])
@pytest.mark.parametrize("base", ["or", "xnor"])
@pytest.mark.parametrize("k", [2, 3])
def test_infinities_are_certain_events(k: int, base: str, form: str) -> None:
    for dtype in (torch.float32, torch.bfloat16) if form == "il" else (torch.float64, torch.float16):
        test_special_values.test_infinities_are_certain_events(k, base, form, dtype, "triton")


@pytest.mark.usefixtures("_by_triton_alone")
@pytest.mark.parametrize(
    ("op", "k", "dtype"), [("and", 2, torch.float16), ("xor", 2, torch.float64), ("nor", 3, torch.float32)]
)
def test_finite_in_finite_out(op: str, k: int, dtype: torch.dtype) -> None:
    test_special_values.test_finite_in_finite_out(op, k, dtype, "triton")


@pytest.mark.usefixtures("_by_triton_alone")
@pytest.mark.parametrize(("k", "dtype"), [(2, torch.bfloat16), (2, torch.float32), (3, torch.float16)])
def test_what_is_too_large_becomes_the_largest_number_and_still_learns(k: int, dtype: torch.dtype) -> None:
    test_special_values.test_what_is_too_large_becomes_the_largest_number_and_still_learns(k, dtype, "triton")


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("gate", ["or_il", "xnor_nil", "and_nail", "xnor_ail"])
def test_nan_ties_and_zeros_as_by_formula(gate: str, k: int) -> None:
    values = [math.nan, 0.0, -0.0, 1.5, -1.5, math.inf, -math.inf]
    x = torch.tensor(list(itertools.product(values, repeat=k)))
    op, _, form = gate.partition("_")
    got, expected = both_ways(x, Program(((op, form),), k=k), 1, wide=False, block=512)
    for actual, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=2e-6, atol=1e-6, equal_nan=True)


def test_offsets_beyond_32_bits() -> None:
    """No tensor that long is needed: the plan says which offsets it takes, and those are tried on short ones above."""
    for channels, index in ((2**21 - 2, tl.int32), (2**21, tl.int64)):
        laid_out = plan(Program.parse("or_ail:d:k2:adjacent"), torch.float32, torch.Size((1024, channels)), 1)
        assert laid_out.constants["INDEX"] == index
    three = Program.parse("or_ail+and_ail+xnor_ail:d:k2:adjacent")  # its output is half as long again
    assert plan(three, torch.float32, torch.Size((1024, 2**21 - 2**19)), 1).constants["INDEX"] == tl.int64


# ------------------------------------------------------------------------------------------------ the operators


@pytest.fixture
def launches() -> Iterator[list[str]]:
    """CPU tensors are taken for a device's; what is launched is noted."""
    noted: list[str] = []

    ready = library.KernelStatus(True, "interpreted")
    with (
        mock.patch.object(gpu, "is_on_gpu", lambda x: x.device.type == "cpu"),
        mock.patch.object(gpu, "_tried", ready),
        mock.patch.object(operators, "call_kernel", operators.call_none),
        mock.patch.object(functional, "call_kernel", operators.call_none),
        mock.patch.object(library, "LIBRARY", None),
        mock.patch.object(type(kernels.forward), "run", _noting(type(kernels.forward).run, noted)),
    ):
        yield noted


def _noting(run: Callable[..., object], noted: list[str]) -> Callable[..., object]:
    def call(kernel: interpreter.InterpretedFunction, *args: object, **options: object) -> object:
        noted.append(kernel.__name__)
        return run(kernel, *args, **options)

    return call


ONE_LAUNCH_EACH = ["or_ail", "xnor_nil", "or_and_xnor_ail_d", "or_and_xnor_nail_pu", "and_il_k3"]


@pytest.mark.parametrize("spec", ONE_LAUNCH_EACH)
def test_a_forward_and_a_backward_are_one_launch_each(spec: str, launches: list[str]) -> None:
    module, x = boolit.activation(spec, 1), torch.randn(2, 12, 4, 4)
    leaf = x.clone(memory_format=torch.channels_last).requires_grad_()
    out = module(leaf)
    assert launches == ["forward"]
    g = torch.randn_like(out)
    out.backward(g)
    assert launches == ["forward", "backward"]
    plain = x.clone().requires_grad_()
    expected = formula(plain, module.program, 1)
    expected.backward(g)
    assert_agree(out, expected)
    assert leaf.grad is not None
    assert_agree(leaf.grad, plain.grad)


def test_an_approximate_gate_keeps_a_bit_per_element(launches: list[str]) -> None:
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        functional.or_ail(torch.randn(16, 16, requires_grad=True))
    assert kept == [16 * 16 // 8]
    assert launches == ["forward"]


@pytest.mark.usefixtures("launches")
def test_tensors_in_pieces_and_empty_ones() -> None:
    x = torch.randn(6, 8).T.requires_grad_()
    assert_agree(functional.xnor_il(x), functional.xnor_il(x.contiguous()))
    empty = torch.randn(0, 8, requires_grad=True)
    functional.or_ail(empty).sum().backward()
    assert empty.grad is not None
    assert empty.grad.shape == (0, 8)


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("spec", ["or_and_xnor_ail_d", "xnor_il"])
def test_the_operators_are_what_they_claim(spec: str) -> None:
    program = boolit.activation(spec, 1).program
    x = torch.randn(2, 6, requires_grad=True)
    keep = program.approximate
    opcheck(torch.ops.boolit.gates.default, (x, str(program), 1, keep))
    out, kept = torch.ops.boolit.gates(x, str(program), 1, keep)
    saved = kept if keep else x.detach()
    opcheck(torch.ops.boolit.gates_backward.default, (torch.randn_like(out), saved, str(program), 1, 6))


@pytest.mark.parametrize("spec", ["or_ail", "xnor_il"])
def test_compiled_vectorised_and_twice_differentiated(spec: str, launches: list[str]) -> None:
    function = getattr(functional, spec)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    expected = function(x).detach()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    assert_agree(compiled(x), expected)
    assert_agree(torch.vmap(function)(x), expected)
    del launches[:]
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)
    assert {"forward", "backward"} <= set(launches)


def test_the_check_before_first_use(launches: list[str]) -> None:
    check("cpu")
    assert sorted(launches) == ["backward"] * 2 + ["forward"] * 2
    wrong = mock.patch.object(gpu.launch, "formula", lambda x, program, dim: formula(x, program, dim) + 1)
    with wrong, pytest.raises(ArithmeticError, match="or_ail is wrong by 1"):
        check("cpu")
