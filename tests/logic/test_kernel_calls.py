"""The compiled module itself: what it refuses, what it holds on to, and calls from several threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from gate_cases import DTYPES
from torch import Tensor, nn
from ways import calls_by, libraries

from boolit import functional
from boolit.logic import Program, evaluate
from boolit.logic.kernels import library, operators
from boolit.logic.kernels.library import KernelModule, KernelPlan, plan_for
from boolit.logic.reference import formula

pytestmark = pytest.mark.skipif(library.LIBRARY is None, reason=library.STATUS.reason)
OR, XNOR = Program((("or", "ail"),)), Program((("xnor", "il"),))
BOTH = Program((("or", "nail"), ("xnor", "ail")), "p", 3, "halves")
FEW = 500  # where a leak would be thousands
X = torch.linspace(-3, 4, 48).reshape(4, 12)


@pytest.fixture(params=["dlpack", "attributes"])
def kernels(request: pytest.FixtureRequest) -> Iterator[KernelModule]:
    """A module that sees tensors by DLPack, or by their attributes as with a torch that is too old for that."""
    found = next(iter(libraries().values()))
    if request.param == "attributes":
        operators.connect(found, exchange=None)
    with calls_by(found):
        yield found
    operators.connect(found)


def plan_of(program: Program, x: Tensor = X) -> KernelPlan:
    return plan_for(program, x.dtype, x.shape, x.dim() - 1)


def freed(x: Tensor, size: int = 0) -> Tensor:
    copy = x.clone()
    copy.untyped_storage().resize_(size)
    return copy


STRANGE: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "a number": lambda: 1.5,
    "an array": lambda: X.detach().numpy(),
    "a type": lambda: Tensor,
    "other type": lambda: X.double(),
    "integers": lambda: X.long(),
    "other shape": lambda: X[:3],
    "other rank": lambda: X.flatten(),
    "a scalar": lambda: torch.tensor(1.0),
    "freed": lambda: freed(X),
    "made smaller": lambda: freed(X, 4 * X.numel() - 4),
    "transposed": lambda: X.T.contiguous().T,
    "meta": lambda: X.to("meta"),
    "sparse": lambda: X.to_sparse(),
    "csr": lambda: X.to_sparse_csr(),
    "mkldnn": lambda: X.to_mkldnn(),
    "nested": lambda: torch.nested.nested_tensor([X[:1], X[1:]]),
    "quantised": lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
    "zero tensor": lambda: torch._efficientzerotensor(X.shape),
    "not initialised": nn.parameter.UninitializedParameter,
}


@pytest.mark.filterwarnings("ignore")  # of prototypes
@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_input_of_the_plan_is_answered_with_none(name: str, kernels: KernelModule) -> None:
    strange, plan = STRANGE[name](), plan_of(OR)
    kernels.remember(plan, -1, OR)
    assert plan.forward(strange, True) is None
    assert kernels.evaluate(strange, -1, OR) is None
    out, kept = plan.forward(X, True) or pytest.fail("the plan's own input is refused")
    assert plan_of(XNOR).backward(out, strange) is None
    assert plan.backward(out, strange) is None
    assert plan.backward(strange, kept) is None
    assert plan.differentiate(strange, kept) is None
    assert plan.differentiate(out, strange) is None


def test_bits_of_another_size_or_for_a_gate_that_keeps_none_are_refused(kernels: KernelModule) -> None:
    (out, kept), grad = plan_of(OR).forward(X, True) or pytest.fail("refused"), torch.ones(4, 6)
    assert kept is not None
    assert plan_of(OR).backward(grad, kept) is not None
    for bits in (kept[1:], kept.repeat(2), kept[None], freed(kept), kept.float(), kept[::2].repeat_interleave(2)[::2]):
        assert plan_of(OR).backward(grad, bits) is None
    assert plan_of(XNOR).forward(X, True)[1] is None  # type: ignore[index]
    assert plan_of(XNOR).backward(out, torch.empty(0, dtype=torch.uint8)) is None
    assert kernels.evaluate(kept, 0, OR) is None


def test_wrong_arguments_are_errors() -> None:
    kernels, plan = next(iter(libraries().values())), plan_of(OR)
    wrong: list[Callable[[], Any]] = [
        lambda: plan.forward(),  # type: ignore[call-arg]
        lambda: plan.forward(X, True, True),  # type: ignore[call-arg]
        lambda: plan.backward(X),  # type: ignore[call-arg]
        lambda: plan.differentiate(X),  # type: ignore[call-arg]
        lambda: kernels.evaluate(X),  # type: ignore[call-arg]
        lambda: kernels.evaluate(X, *range(9)),
        lambda: kernels.remember(X, -1, OR),  # type: ignore[arg-type]
        lambda: kernels.remember(plan),  # type: ignore[call-arg]
        lambda: kernels.connect(),
        lambda: kernels.connect(*range(10)),
        lambda: kernels.Plan(),
        lambda: kernels.Plan("layout", OR, 1, 0, (4, 12), (4, 6), 12, X, X, X),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    layout = bytes(library.PlanStruct())
    for arguments in ((7, 0), (-1, 0), (1, 9), (1, -1)):
        with pytest.raises(ValueError, match=r"the shape has no dimension|there is no kernel of type"):
            kernels.Plan(layout, OR, *arguments, (4, 12), (4, 6), 0, X, X, None)
    with pytest.raises(ValueError, match="the kernels keep 0 bytes where 12 were planned"):
        kernels.Plan(layout, OR, 1, 0, (4, 12), (4, 6), 12, X, X, X)


WRONG: dict[str, Callable[[Tensor], Any]] = {
    "nothing": lambda _: None,
    "larger": lambda like: torch.empty(like.numel() + 1),
    "other type": lambda like: like.long(),
    "smaller": lambda like: like[:1],
    "expanded": lambda like: like,
    "elsewhere": lambda like: like.to("meta"),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_a_wrong_allocation_is_an_error(make: Callable[[Tensor], Any]) -> None:
    found = next(iter(libraries().values()))
    with calls_by(found):
        plan = plan_of(OR)
    operators.connect(found, empty_like=make)
    try:
        with pytest.raises(RuntimeError, match=r"torch\.empty_like made another tensor than was asked for"):
            plan.forward(X, True)
    finally:
        operators.connect(found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_either_way_of_looking_at_a_tensor_gives_the_formula(dtype: torch.dtype, kernels: KernelModule) -> None:
    for program in (OR, XNOR, BOTH):
        for _ in range(2):  # the first call of a shape, and one that is known
            leaf = X.to(dtype).requires_grad_()
            weights = torch.ones(evaluate(leaf, program, -1).shape, dtype=dtype)
            for function in (evaluate, formula):
                out = function(leaf, program, 1)
                (gradient,) = torch.autograd.grad(out, leaf, weights)
                if function is evaluate:
                    value, slope = out, gradient
            torch.testing.assert_close(value, out)
            torch.testing.assert_close(slope, gradient)
    assert kernels.evaluate(X.to(dtype), -1, OR) is not None


def test_a_call_is_known_by_the_very_arguments(kernels: KernelModule) -> None:
    """Equal ones of another type are no integers, and what can change may have changed."""
    x = torch.randn(3, 8)
    expected = functional.or_ail(x, 2, 1)
    assert torch.equal(functional.or_ail(x, 2, 1), expected)
    wrong: list[Callable[[], Tensor]] = [lambda: functional.or_ail(x, 2.0, 1), lambda: functional.or_ail(x, 2, 1.0)]  # type: ignore[arg-type]
    for call in (*wrong, lambda: functional.or_ail(x, 2, True), lambda: functional.or_ail(x, True, 1)):
        with pytest.raises((TypeError, ValueError), match=r"is not an integer"):
            call()
    dim = torch.tensor(1)
    assert torch.equal(functional.or_ail(x, 2, dim), expected)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a multiple of 2 channels, got 3"):
        functional.or_ail(x, 2, dim.zero_())  # type: ignore[arg-type]
    assert kernels.evaluate(x, 0, "or", "ail", 2, "adjacent") is None


def test_more_calls_than_are_remembered(kernels: KernelModule) -> None:
    for _ in range(2):
        for rows in range(1, 1500):
            x = X[:1].expand(rows, 12).contiguous()
            assert evaluate(x, OR, 1).shape == (rows, 6)
    assert kernels.evaluate(x, 1, OR) is not None


@contextmanager
def no_new_objects(*watched: object) -> Iterator[None]:
    """About as many references to each, and as many objects, after as before: what the interpreter itself does is little."""
    gc.collect()
    counts, blocks = [sys.getrefcount(item) for item in watched], sys.getallocatedblocks()
    yield
    gc.collect()
    assert max(abs(sys.getrefcount(item) - count) for item, count in zip(watched, counts, strict=True)) < FEW
    assert sys.getallocatedblocks() - blocks < FEW


def test_many_calls_keep_nothing(kernels: KernelModule) -> None:
    x, leaf, grad = X.clone(), X.clone().requires_grad_(), torch.ones(4, 6)
    plan = plan_of(OR)

    def call(times: int) -> None:
        for _ in range(times):
            evaluate(x, OR, -1)
            functional.xnor_il(x)
            kernels.evaluate(grad, -1, OR)  # not known
            kernels.evaluate(None, -1, OR)
            out, kept = plan.forward(x, True)  # type: ignore[misc]
            assert kept is not None
            plan.backward(out, kept)
            plan.differentiate(out, x[1:])
            kernels.remember(plan, -1, OR)
        for _ in range(times // 20):
            leaf.grad = None
            evaluate(leaf, OR, -1).backward(grad)
        leaf.grad = None

    call(100)
    with no_new_objects(x, leaf, grad, plan, OR, XNOR, None, True, X.dtype):
        call(12_000)


def test_calls_from_several_threads(kernels: KernelModule) -> None:
    inputs = [torch.randn(rows, 12 * columns) for rows in (2, 3, 700) for columns in (1, 5, 9)]  # small, and without the lock
    cases = [(x, program) for x in inputs for program in (OR, XNOR, BOTH)]
    expected = [formula(x, program, 1) for x, program in cases]

    def work(start: int) -> list[float]:
        worst = []
        for turn in range(60):
            x, program = cases[index := (start + 7 * turn) % len(cases)]
            leaf = x.clone().requires_grad_()
            out = evaluate(leaf, program, 1)
            out.sum().backward()
            assert leaf.grad is not None
            worst.append(float((out.detach() - expected[index]).abs().max()))
        return worst

    with ThreadPoolExecutor(6) as pool:
        assert max(max(worst) for worst in pool.map(work, range(24))) < 1e-5
    assert kernels.evaluate(inputs[0], 1, OR) is not None


def test_calls_seldom_displace_each_other(kernels: KernelModule) -> None:
    """Of 300 calls some share a place in the table, which depends on addresses; a place of one call would lose some 40."""
    inputs = [torch.zeros(rows, 12) for rows in range(1, 301)]
    for x in inputs:
        evaluate(x, OR, 1)
    assert sum(kernels.evaluate(x, 1, OR) is None for x in inputs) <= 15
