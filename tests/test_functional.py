"""The public functions: truth tables, folds, grouped and separate operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import reduce
from unittest import mock

import pytest
import torch
from gate_cases import BASIC, FORMS, assert_agree
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import boolit
from boolit import functional
from boolit.functional import combine, gate, operands, signed_geomean
from boolit.logic import cpu
from boolit.logic.operations import _cached_program

INFINITY = float("inf")
TRUTH: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xnor": lambda a, b: a == b,
    "nand": lambda a, b: not (a and b),
    "nor": lambda a, b: not (a or b),
    "xor": lambda a, b: a != b,
    "implies": lambda a, b: not a or b,
    "nimplies": lambda a, b: a and not b,
    "implied_by": lambda a, b: a or not b,
    "nimplied_by": lambda a, b: not a and b,
}
ASSIGNMENTS = list(itertools.product((False, True), repeat=2))
FOLDING = ["and", "or", "xnor", "xor"]  # x xor y xor z is the fold of xor; nand and nor do not fold


@pytest.fixture(scope="module", params=["kernels", "reference"], autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything holds without the kernels, too: as with BOOLIT_KERNELS=0."""
    _cached_program.cache_clear()  # programs keep their plans
    with mock.patch.object(cpu, "LIBRARY", cpu.LIBRARY if request.param == "kernels" else None):
        yield
    _cached_program.cache_clear()


def probability(op: str, x: Tensor, y: Tensor) -> Tensor:
    """P(op) of independent events with these logits, summed over the truth table."""
    return torch.stack(
        [(x if a else -x).sigmoid() * (y if b else -y).sigmoid() for a, b in ASSIGNMENTS if TRUTH[op](a, b)]
    ).sum(0)


# ------------------------------------------------------------------------------------------------ meaning


@pytest.mark.parametrize("op", TRUTH)
@pytest.mark.parametrize("form", ["il", "ail"])
def test_truth_table_by_signs(op: str, form: str) -> None:
    for (a, b), size in itertools.product(ASSIGNMENTS, (20.0, INFINITY)):
        value = float(gate(torch.tensor([size if a else -size, size if b else -size]), f"{op}_{form}"))
        assert (value > 0) == TRUTH[op](a, b)
        assert abs(value) == INFINITY if size == INFINITY else abs(value) > 19


def test_all_sixteen_operations_can_be_written() -> None:
    def certain(a: Tensor) -> Tensor:
        return torch.full_like(a, INFINITY)

    expressions: list[Callable[[Tensor, Tensor], Tensor]] = [
        *(lambda a, b, op=op: combine(op, a, b) for op in TRUTH),
        lambda a, b: combine("and", a, certain(b)),
        lambda a, b: combine("and", certain(a), b),
        lambda a, b: combine("xor", a, certain(b)),
        lambda a, b: combine("xor", certain(a), b),
        lambda a, b: combine("or", a, certain(b)),
        lambda a, b: combine("and", a, -certain(b)),
    ]
    a, b = (torch.tensor(side) * 40.0 - 20.0 for side in zip(*ASSIGNMENTS, strict=True))
    tables = {tuple((expression(a, b) > 0).tolist()) for expression in expressions}
    assert tables == set(itertools.product((False, True), repeat=4))


@pytest.mark.parametrize("op", TRUTH)
def test_exact_gates_are_logits_of_probabilities(op: str) -> None:
    x, y = 3 * torch.randn(2, 500, dtype=torch.float64)
    torch.testing.assert_close(combine(op, x, y).sigmoid(), probability(op, x, y), rtol=1e-13, atol=0)


@pytest.mark.parametrize("op", BASIC)
@pytest.mark.parametrize("form", ["il", "ail"])
def test_normalised_forms_shift_and_scale(op: str, form: str) -> None:
    x = torch.randn(7, 12, dtype=torch.float64)
    for k in (2, 3, 4):
        mean, sd = boolit.logic.moments(op, form, k)
        normal, plain = gate(x, f"{op}_n{form}_k{k}"), gate(x, f"{op}_{form}_k{k}")
        torch.testing.assert_close(normal, (plain - mean) / sd, rtol=1e-13, atol=1e-13)


# ------------------------------------------------------------------------------------------------ more than two operands


@pytest.mark.parametrize("op", FOLDING)
@pytest.mark.parametrize("form", ["il", "ail"])
@pytest.mark.parametrize("k", [3, 4, 5, 9])
def test_a_gate_of_k_folds_the_gate_of_two(op: str, form: str, k: int) -> None:
    logits = 3 * torch.randn(k, 200, dtype=torch.float64)
    left = reduce(lambda x, y: combine(op, x, y, form=form), logits)
    right = reduce(lambda x, y: combine(op, y, x, form=form), logits.flip(0))
    result = combine(op, *logits, form=form)
    torch.testing.assert_close(result, left, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(result, right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("form", ["il", "ail"])
@pytest.mark.parametrize(("op", "negated"), [("nand", "and"), ("nor", "or")])
def test_negated_gates_of_k(op: str, negated: str, form: str) -> None:
    logits = 3 * torch.randn(5, 200)
    assert torch.equal(combine(op, *logits, form=form), -combine(negated, *logits, form=form))


_GROUPS = st.integers(2, 9).flatmap(
    lambda k: st.lists(st.lists(st.integers(-4, 4), min_size=k, max_size=k), min_size=1, max_size=5)
)


AIL_RULES: dict[str, Callable[[list[int]], int]] = {
    "or": lambda group: sum(v for v in group if v > 0) or max(group),
    "and": lambda group: sum(v for v in group if v < 0) or min(group),
    "xnor": lambda group: (-1) ** sum(v < 0 for v in group) * min(map(abs, group)),
}


@pytest.mark.parametrize("op", AIL_RULES)
@given(groups=_GROUPS)
def test_ail_follows_the_papers_rule_for_any_group_size(op: str, groups: list[list[int]]) -> None:
    result = gate(torch.tensor(groups, dtype=torch.float32).flatten(), f"{op}_ail_k{len(groups[0])}")
    assert result.tolist() == [AIL_RULES[op](group) for group in groups]


# ------------------------------------------------------------------------------------------------ ways to call


@pytest.mark.parametrize("op", BASIC)
@pytest.mark.parametrize("form", FORMS)
def test_named_functions_are_gate(op: str, form: str) -> None:
    x = torch.randn(2, 12, 5)
    function = getattr(functional, f"{op}_{form}")
    assert torch.equal(function(x, k=3, dim=1, pairing="halves"), gate(x, f"{op}_{form}_k3_halves", 1))
    assert torch.equal(function(x.mT), gate(x.mT, f"{op}_{form}"))
    assert torch.equal(gate(x, f"{op}_{form}", 1), boolit.activation(f"{op}_{form}", 1)(x))


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("k", [2, 3])
def test_grouping(k: int, dim: int, pairing: str) -> None:
    x = torch.randn(6, 12, 18)
    channels = x.shape[dim]
    picked = [
        x.index_select(
            dim, torch.arange(j, channels, k) if pairing == "adjacent" else torch.arange(channels // k) + j * channels // k
        )
        for j in range(k)
    ]
    for mine, wanted in zip(operands(x, k, dim, pairing), picked, strict=True):
        assert torch.equal(mine, wanted)
    assert_agree(functional.xnor_il(x, k, dim, pairing), combine("xnor", *picked))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", ["", "_halves"])
def test_duplicate_concatenates_every_gate(form: str, ending: str) -> None:
    x, ops = torch.randn(3, 12, 4), ["or", "and", "xnor", "implies"]
    blocks = [gate(x, f"{op}_{form}{ending}", 1) for op in ops]
    assert torch.equal(gate(x, f"{'_'.join(ops)}_{form}_d{ending}", 1), torch.cat(blocks, 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("strategy", "shares"), [("p", (2, 2, 2)), ("pu", (3, 2, 2)), ("pu", (1, 1, 0)), ("pl", (2, 2, 3)), ("pl", (0, 0, 2))]
)
def test_partition_gives_each_gate_its_own_share(form: str, strategy: str, shares: tuple[int, ...]) -> None:
    x, ops = torch.randn(3, 2 * sum(shares), 4), ["and", "or", "xnor"]
    pieces = x.split([2 * share for share in shares], 1)
    blocks = [gate(piece, f"{op}_{form}", 1) for op, piece in zip(ops, pieces, strict=True)]
    assert torch.equal(gate(x, f"and_or_xnor_{form}_{strategy}", 1), torch.cat(blocks, 1))


@pytest.mark.parametrize("op", BASIC)
@pytest.mark.parametrize("form", FORMS)
def test_combine_broadcasts(op: str, form: str) -> None:
    a, b, c = torch.randn(5, 1, 3), torch.randn(4, 1), torch.randn(())
    result = combine(op, a, b, c, form=form)
    assert result.shape == (5, 4, 3)
    spread = torch.stack(torch.broadcast_tensors(a, b, c), -1)
    assert_agree(result, gate(spread, f"{op}_{form}_k3", -1).squeeze(-1))


def test_combine_gives_each_operand_its_gradient() -> None:
    a, b = torch.randn(5, 1, dtype=torch.float64, requires_grad=True), torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: combine("xnor", a, b), (a, b))


def test_combine_promotes_types() -> None:
    a, b = torch.randn(4), torch.randn(4, dtype=torch.float64)
    assert torch.equal(combine("or", a, b), combine("or", a.double(), b))


# ------------------------------------------------------------------------------------------------ signed geometric mean


def test_signed_geomean_value_and_gradient() -> None:
    x, y = torch.randn(2, 300, dtype=torch.float64, requires_grad=True)
    pairs = torch.stack([x, y], -1).flatten().detach().requires_grad_()
    result = signed_geomean(pairs)
    torch.testing.assert_close(result, (x * y).sign() * (x * y).abs().sqrt())
    (gradient,) = torch.autograd.grad(result.sum(), pairs)
    torch.testing.assert_close(gradient, 0.5 * result.repeat_interleave(2) / pairs)


def test_signed_geomean_has_a_finite_gradient_at_zero() -> None:
    x = torch.tensor([0.0, 3.0, -2.0, 0.0, 0.0, 0.0], requires_grad=True)
    out = signed_geomean(x)
    out.sum().backward()
    assert out.tolist() == [0.0, 0.0, 0.0]
    assert x.grad is not None
    assert x.grad.tolist() == [0.0] * 6


def test_signed_geomean_does_not_overflow() -> None:
    assert signed_geomean(torch.tensor([1e30, -1e30, 1e-30, 1e-30])).tolist() == pytest.approx([-1e30, 1e-30])
