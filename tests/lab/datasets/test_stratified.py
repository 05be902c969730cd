"""Cut anywhere, the order gives every class its share."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from boolit.lab.common.random import stratified_order
from boolit.lab.datasets.images import split_stratified


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
def test_every_stretch_has_its_share_of_every_class(counts: list[int], one: float, other: float, seed: int) -> None:
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    order = stratified_order(y, seed, "test")
    assert sorted(order.tolist()) == list(range(len(y)))
    begin, end = (round(share * len(y)) for share in sorted((one, other)))
    found = y[order[begin:end]].bincount(minlength=len(counts))
    expected = torch.tensor(counts) * (end - begin) / len(y)
    # Each class is at most one off at either end, which also moves the ends, by at most a place for every class.
    assert bool(((found - expected).abs() <= 2 + 2 * len(counts) * torch.tensor(counts) / len(y)).all())


def test_equal_classes_are_cut_exactly() -> None:
    y = torch.arange(7).repeat(50)
    order = stratified_order(y, 3)
    assert y[order[:35]].bincount().tolist() == [5] * 7
    assert y[order[35:70]].bincount().tolist() == [5] * 7


def test_the_order_is_random_and_that_of_the_seed() -> None:
    y = torch.zeros(100, dtype=torch.int64)
    assert torch.equal(stratified_order(y, 0, "a"), stratified_order(y, 0, "a"))
    assert not torch.equal(stratified_order(y, 0, "a"), stratified_order(y, 1, "a"))
    assert not torch.equal(stratified_order(y, 0, "a"), stratified_order(y, 0, "b"))
    assert not torch.equal(stratified_order(y, 0, "a"), torch.arange(100))


def test_parts_hold_every_sample_once_with_its_class() -> None:
    labelled = [(f"{number}.jpg", number % 3) for number in range(30)]
    parts = split_stratified(labelled, {"train": 21, "valid": 3, "test": 6}, 0, "x")
    assert {name: len(part) for name, part in parts.items()} == {"train": 21, "valid": 3, "test": 6}
    assert sorted(sample for part in parts.values() for sample in part) == sorted(labelled)
