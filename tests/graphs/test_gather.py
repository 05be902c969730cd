"""Gates over index lists: values, gradients, special values and error bounds, by kernels and by torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from adversarial import draw
from exact_reference import fold
from torch import Tensor

from boolit.functional import combine
from boolit.graphs import IndexLists, gather_gate

SPECS = [f"{op}_{form}" for op in ("or", "and", "xnor") for form in ("il", "ail")]
LENGTHS = [2, 0, 1, 3, 5, 4, 2, 9, 17]


def some_lists(lengths: list[int], rows: int) -> IndexLists:
    generator = torch.Generator().manual_seed(len(lengths))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return IndexLists(offsets, torch.cat([torch.randperm(rows, generator=generator)[:k] for k in lengths]))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("way")
def test_every_list_is_the_gate_of_its_members(spec: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, lists = 4 * torch.randn(5, 20, dtype=dtype), some_lists(LENGTHS, 20)
    op, form = spec.split("_")
    whole, without = gather_gate(x, lists, spec), gather_gate(x, lists, spec, leave_one_out=True)
    start = 0
    for group, k in enumerate(LENGTHS):
        members = lists.indices[start : start + k].tolist()
        expect(whole[:, group], x, members, op, form)
        for i in range(k):
            expect(without[:, start + i], x, members[:i] + members[i + 1 :], op, form)
        start += k


def expect(result: Tensor, x: Tensor, members: list[int], op: str, form: str) -> None:
    if len(members) < 2:
        certain = torch.full_like(x[:, 0], -math.inf if op == "or" else math.inf)
        torch.testing.assert_close(result, x[:, members[0]] if members else certain, rtol=0, atol=0)
    else:
        torch.testing.assert_close(result, combine(op, *x[:, members].unbind(1), form=form))


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.usefixtures("way")
def test_gradients(spec: str, leave_one_out: bool) -> None:
    torch.manual_seed(1)
    lists = some_lists([2, 3, 1, 5], 6)
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)

    def finite(rows: Tensor) -> Tensor:
        out = gather_gate(rows, lists, spec, leave_one_out, dim=0)
        return out[out.isfinite().all(1)]

    assert torch.autograd.gradcheck(finite, x)
    assert torch.autograd.gradgradcheck(finite, x)


@pytest.mark.parametrize("base", ["or", "xnor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [3, 6, 17])
@pytest.mark.usefixtures("way")
def test_error_bound(base: str, dtype: torch.dtype, k: int) -> None:
    """Values err by at most 4u·c for each of the 2⌈log2 k⌉ − 2 joins that follow each other at most."""
    x = torch.from_numpy(draw(np.random.default_rng(k), 60, k, dtype)).to(dtype)
    values = gather_gate(x, IndexLists(torch.tensor([0, k]), torch.arange(k)), f"{base}_il", leave_one_out=True)
    finfo, joins = torch.finfo(dtype), 2 * math.ceil(math.log2(k)) - 2
    for row, results in zip(x.tolist(), values.tolist(), strict=True):
        for i in (0, k // 2, k - 1):
            others = row[:i] + row[i + 1 :]
            f, slopes = fold(base, others)
            c = max(abs(f), sum(abs(logit * slope) for logit, slope in zip(others, slopes, strict=True)))
            subnormal = 2 * (k - 1) * finfo.smallest_normal * finfo.eps
            assert abs(results[i] - f) <= 2 * finfo.eps * joins * c + subnormal, (row, i)


@pytest.mark.usefixtures("way")
def test_infinities_are_certain_and_nan_spreads() -> None:
    inf, nan = math.inf, math.nan
    x, lists = torch.tensor([inf, -inf, 3.0, nan]), (torch.tensor([0, 2, 4, 6]), torch.tensor([0, 2, 1, 2, 2, 3]))
    assert torch.equal(gather_gate(x, lists, "or_il")[:2], torch.tensor([inf, 3.0]))
    assert torch.equal(gather_gate(x, lists, "xnor_il")[:2], torch.tensor([3.0, -3.0]))
    assert gather_gate(x, lists, "xnor_il")[2].isnan()
    largest = torch.finfo(torch.float32).max
    pair = torch.tensor([0, 2]), torch.tensor([0, 1])
    assert gather_gate(torch.full((2,), largest), pair, "or_il").item() == largest


@pytest.mark.usefixtures("way")
def test_leaving_one_out_of_weak_strong_and_certain_operands() -> None:
    inf, nan = math.inf, math.nan
    group = torch.tensor([0, 5]), torch.arange(5)
    for values, expected in (
        ([5.0, 200, -300, 400, 1e30], [-200.0, -5, 5, -5, -5]),  # e^-200 is not a number of float32
        ([3.0, inf, -inf, inf, inf], [-inf, -3.0, 3, -3, -3]),
        ([0.0, 1, 2, 3, 1e38], [None, 0.0, 0, 0, 0]),
        ([nan, 1, 2, 3, 4], [None, nan, nan, nan, nan]),
    ):
        results = gather_gate(torch.tensor(values), group, "xnor_il", leave_one_out=True).tolist()
        for result, value in zip(results, expected, strict=True):
            assert value is None or result == value or (math.isnan(value) and math.isnan(result))


def test_matrices_and_dimensions() -> None:
    matrix = torch.tensor([[1, 0, 1], [0, 1, 1]])
    x = torch.randn(4, 3, 2)
    expected = gather_gate(x, (torch.tensor([0, 2, 4]), torch.tensor([0, 2, 1, 2])), "or_il", dim=1)
    assert expected.shape == (4, 2, 2)
    scipy = pytest.importorskip("scipy.sparse")
    for groups in (matrix, matrix.to_sparse(), scipy.coo_matrix(matrix.numpy())):
        assert torch.equal(gather_gate(x, groups, "or_il", dim=1), expected)


def test_transforms() -> None:
    x, lists = torch.randn(3, 6), some_lists([2, 3, 4], 6)
    expected = gather_gate(x, lists, "xnor_il", leave_one_out=True)
    torch.testing.assert_close(torch.vmap(lambda row: gather_gate(row, lists, "xnor_il", leave_one_out=True))(x), expected)


@pytest.mark.parametrize(
    ("groups", "spec", "error"),
    [
        (([0, 2], [0, 9]), "xnor_il", IndexError),
        (([0, 3], [0, 1]), "xnor_il", ValueError),
        (([0, 2], [0, -1]), "xnor_il", ValueError),
        (([0, 2], [0.0, 1.0]), "xnor_il", TypeError),
        (([0, 2], [0, 1]), "implies_il", ValueError),
        (([0, 2], [0, 1]), "or_nil", ValueError),
        ("text", "or_il", TypeError),
    ],
)
def test_wrong_arguments(groups: object, spec: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        gather_gate(torch.zeros(3), groups, spec)
