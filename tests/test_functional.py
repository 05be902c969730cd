"""The public functions: truth tables, folds, grouped and separate operands."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import reduce
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from gate_cases import BASIC, FORMS, assert_agree
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import boolit
from boolit import functional
from boolit.functional import combine, ensemble, gate, operands, signed_geomean
from boolit.logic import OPERATIONS
from boolit.logic.kernels import library, operators

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


@pytest.fixture(scope="module", params=["kernels", "formulas"], autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything holds without the kernels, too: as with BOOLIT_KERNELS=0."""
    call = operators.call_kernel if request.param == "kernels" else operators.call_none
    with (
        mock.patch.object(library, "LIBRARY", library.LIBRARY if request.param == "kernels" else None),
        mock.patch.object(operators, "call_kernel", call),
        mock.patch.object(functional, "call_kernel", call),
    ):
        yield


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
        value = float(gate(torch.tensor([size if a else -size, size if b else -size]), op, form))
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


@pytest.mark.parametrize("op", ["and", "or", "xnor"])
@pytest.mark.parametrize("form", ["il", "ail"])
def test_certain_events(op: str, form: str) -> None:
    y = torch.tensor([-7.0, -0.5, 0.0, 0.5, 7.0])
    sure = torch.full_like(y, INFINITY)
    expected = {"and": (y, -sure), "or": (sure, y), "xnor": (y, -y)}[op]
    for certainty, wanted in zip((sure, -sure), expected, strict=True):
        assert torch.equal(combine(op, certainty, y, form=form), wanted)
        assert torch.equal(combine(op, y, certainty, form=form), wanted)


@pytest.mark.parametrize("op", BASIC)
@pytest.mark.parametrize("form", ["il", "ail"])
def test_normalised_forms_shift_and_scale(op: str, form: str) -> None:
    x = torch.randn(7, 12, dtype=torch.float64)
    for k in (2, 3, 4):
        mean, sd = boolit.logic.moments(op, form, k)
        torch.testing.assert_close(gate(x, op, f"n{form}", k), (gate(x, op, form, k) - mean) / sd, rtol=1e-13, atol=1e-13)


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


@given(_GROUPS)
def test_or_ail_is_the_sum_of_the_positives_or_the_maximum(groups: list[list[int]]) -> None:
    expected = [sum(v for v in group if v > 0) or max(group) for group in groups]
    result = gate(torch.tensor(groups, dtype=torch.float32).flatten(), "or", "ail", k=len(groups[0]))
    assert result.tolist() == expected


@given(_GROUPS)
def test_and_ail_is_the_sum_of_the_negatives_or_the_minimum(groups: list[list[int]]) -> None:
    expected = [sum(v for v in group if v < 0) or min(group) for group in groups]
    result = gate(torch.tensor(groups, dtype=torch.float32).flatten(), "and", "ail", k=len(groups[0]))
    assert result.tolist() == expected


@given(_GROUPS)
def test_xnor_ail_is_the_product_of_signs_times_the_smallest_magnitude(groups: list[list[int]]) -> None:
    expected = [(-1) ** sum(v < 0 for v in group) * min(map(abs, group)) for group in groups]
    result = gate(torch.tensor(groups, dtype=torch.float32).flatten(), "xnor", "ail", k=len(groups[0]))
    assert result.tolist() == expected


# ------------------------------------------------------------------------------------------------ ways to call


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("form", FORMS)
def test_named_functions_are_gate(op: str, form: str) -> None:
    x = torch.randn(2, 12, 5)
    function, k = getattr(functional, f"{op}_{form}"), 3 if OPERATIONS[op].any_k else 2
    assert function.__name__ == f"{op}_{form}"
    assert torch.equal(function(x, k=k, dim=1, pairing="halves"), gate(x, op, form, k, 1, "halves"))
    assert torch.equal(function(x.mT), gate(x.mT, op, form))


@pytest.mark.parametrize("name", functional.__all__)
def test_every_public_function_has_its_own_documentation(name: str) -> None:
    function = getattr(functional, name)
    text = inspect.getdoc(function)
    assert text is not None
    assert "Shape:" in text
    assert f"{name}(" in text.partition("Example:")[2]
    assert [other for other in functional.__all__ if inspect.getdoc(getattr(functional, other)) == text] == [name]
    assert str(inspect.signature(function)).startswith("(op: " if name == "combine" else "(x: ")


def test_the_module_shows_its_public_names_only() -> None:
    assert dir(functional) == sorted(functional.__all__)
    assert {f"{op}_{form}" for op in OPERATIONS for form in FORMS} < set(dir(functional))


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
    assert_agree(gate(x, "xnor", "il", k, dim, pairing), combine("xnor", *picked))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_duplicate_concatenates_every_gate(form: str, pairing: str) -> None:
    x, ops = torch.randn(3, 12, 4), ["or", "and", "xnor", "implies"]
    blocks = [gate(x, op, form, 2, 1, pairing) for op in ops]
    assert torch.equal(ensemble(x, ops, form, "d", dim=1, pairing=pairing), torch.cat(blocks, 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("groups", "shares"), [(6, (2, 2, 2)), (7, (3, 2, 2)), (8, (3, 3, 2)), (2, (1, 1, 0))])
def test_partition_gives_each_gate_its_own_share(form: str, groups: int, shares: tuple[int, ...]) -> None:
    x, ops = torch.randn(3, groups * 2, 4), ["and", "or", "xnor"]
    pieces = x.split([2 * share for share in shares], 1)
    blocks = [gate(piece, op, form, dim=1) for op, piece in zip(ops, pieces, strict=True)]
    assert torch.equal(ensemble(x, ops, form, "p", dim=1, uneven=True), torch.cat(blocks, 1))
    if len(set(shares)) == 1:
        assert torch.equal(ensemble(x, ops, form, "p", dim=1), torch.cat(blocks, 1))


@pytest.mark.parametrize("op", BASIC)
@pytest.mark.parametrize("form", FORMS)
def test_combine_broadcasts(op: str, form: str) -> None:
    a, b, c = torch.randn(5, 1, 3), torch.randn(4, 1), torch.randn(())
    result = combine(op, a, b, c, form=form)
    assert result.shape == (5, 4, 3)
    spread = torch.stack(torch.broadcast_tensors(a, b, c), -1)
    assert_agree(result, gate(spread, op, form, k=3).squeeze(-1))


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


def test_glu_pairing_is_that_of_torch() -> None:
    x = torch.randn(4, 10)
    value, control = operands(x, 2, -1, "halves")
    assert torch.equal(F.glu(x), value * control.sigmoid())
