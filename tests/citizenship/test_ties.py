"""Which operand of an approximate gate gets the gradient at ties and zeros: the same in every mode.

OR gives every positive operand its gradient; with none positive, the first of the largest gets it. AND mirrors OR. XNOR
gives it to the first of the smallest magnitude, times the signs of the others, where zero counts as positive. More than two
operands are joined in pairs, so that of XNOR with several zeros only those joined with the taken one change the sign.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from gate_cases import BASIC
from torch import Tensor

from boolit.functional import gate
from boolit.logic import Program, evaluate
from boolit.logic.reference import evaluate_reference

# torch loads its own rules of forward mode by a function it has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

SIZES = (2, 3, 4, 5)


def corners(k: int) -> Tensor:
    """All combinations of values with ties, and both zeros."""
    values = (-2.0, -1.0, -0.0, 0.0, 1.0, 2.0) if k < 4 else (-1.0, -0.0, 0.0, 1.0)
    return torch.tensor(list(itertools.product(values, repeat=k)))


def xnor_rule(group: list[float]) -> tuple[float, list[float]]:
    """Return value and gradient by joining neighbours level by level."""
    level = [(value, [float(i == j) for j in range(len(group))]) for i, value in enumerate(group)]
    while len(level) > 1:
        joined = []
        for (x, along_x), (y, along_y) in zip(level[::2], level[1::2], strict=False):
            taken, slopes, other = (x, along_x, y) if abs(x) <= abs(y) else (y, along_y, x)
            sign = -1.0 if other < 0 else 1.0
            joined.append((sign * taken, [sign * slope for slope in slopes]))
        level = joined + ([level[-1]] if len(level) % 2 else [])
    return level[0]


def rule(op: str, group: list[float]) -> list[float]:
    """Return the gradient by the words above."""
    if op == "xnor":
        return xnor_rule(group)[1]
    flipped = [-value for value in group] if op == "and" else group
    positive = [value > 0 for value in flipped]
    first = flipped.index(max(flipped))
    return [float(positive[i] if any(positive) else i == first) for i in range(len(group))]


def by_autograd(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf).sum(), leaf)[0]


def by_forward_mode(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    tangents = torch.eye(x.shape[1]).unsqueeze(1).expand(-1, len(x), -1)
    return torch.stack([torch.func.jvp(function, (x,), (tangent,))[1].squeeze(1) for tangent in tangents], 1)


def by_vmapped_backward(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return by_autograd(torch.vmap(function), x)


def by_vmapped_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.vmap(torch.func.grad(lambda row: function(row).sum()))(x)


def by_second_backward(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The backward's own backward is the forward map: one unit operand at a time."""
    leaf, columns = x.clone().requires_grad_(), []
    weights = torch.ones(len(x), 1, requires_grad=True)
    (first,) = torch.autograd.grad(function(leaf), leaf, weights, create_graph=True)
    for unit in torch.eye(x.shape[1]):
        columns.append(torch.autograd.grad(first, weights, unit.expand_as(x), retain_graph=True)[0].squeeze(1))
    return torch.stack(columns, 1)


MODES = [by_autograd, by_forward_mode, by_vmapped_backward, by_vmapped_gradient, by_second_backward]


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("op", BASIC)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_follows_the_rule(mode: Callable[..., Tensor], op: str, k: int) -> None:
    x = corners(k)
    x = x if mode in (by_autograd, by_forward_mode) else x[:: len(x) // 40 + 1]
    expected = torch.tensor([rule(op, group) for group in x.tolist()])
    torch.testing.assert_close(mode(lambda x: gate(x, f"{op}_ail_k{k}"), x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("op", BASIC)
@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_the_reference_follows_the_rule(op: str, k: int, pairing: str) -> None:
    x = corners(k)
    program = Program(((op, "ail"),), "d", k, pairing)
    expected = torch.tensor([rule(op, group) for group in x.tolist()])
    torch.testing.assert_close(by_autograd(lambda x: evaluate_reference(x, program, 1), x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("op", BASIC)
def test_the_rule_holds_across_the_channels_of_images(op: str, k: int) -> None:
    x = corners(k)
    program = Program(((op, "ail"), ("or", "ail")), "p", k)
    image = torch.cat([x, x], 1).T.reshape(1, 2 * k, -1).contiguous()
    gradient = by_autograd(lambda x: evaluate(x, program, 1), image)[0, :k].T
    assert gradient.tolist() == [rule(op, group) for group in x.tolist()]


def test_compiled_gates_follow_the_rule() -> None:
    calls = list(itertools.product(BASIC, SIZES))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def all_gates(*inputs: Tensor) -> list[Tensor]:
        return [gate(x, f"{op}_ail_k{k}") for x, (op, k) in zip(inputs, calls, strict=True)]

    inputs = [corners(k).requires_grad_() for _, k in calls]
    gradients = torch.autograd.grad([out.sum() for out in all_gates(*inputs)], inputs)
    for (op, _), x, gradient in zip(calls, inputs, gradients, strict=True):
        assert gradient.tolist() == [rule(op, group) for group in x.tolist()]
