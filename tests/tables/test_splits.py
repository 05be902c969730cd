"""Splits at random, by group and by time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.tables import RowSplitter
from boolit.tables.splits import balance


def sizes(splitter: RowSplitter, numbers: range = range(1, 9)) -> set[tuple[int, ...]]:
    return {tuple(len(rows) for rows in splitter.rows(number).values()) for number in numbers}


@given(st.lists(st.integers(0, 3), min_size=10, max_size=200), st.floats(0.1, 0.5), st.floats(0.1, 0.5))
@settings(max_examples=50, deadline=None)
def test_random_splits_part_the_rows_and_keep_the_mix(strata: list[int], test: float, validation: float) -> None:
    splitter = RowSplitter(np.array(strata), test=test, validation=validation)
    for number in (1, 2):
        parts = splitter.rows(number)
        assert sorted(np.concatenate(list(parts.values()))) == list(range(len(strata)))
        for stratum in set(strata):
            expected = test * strata.count(stratum)
            assert abs(np.isin(parts["test"], np.flatnonzero(np.array(strata) == stratum)).sum() - expected) <= 2
    assert len(sizes(splitter)) == 1


def test_splits_differ_and_are_reproducible() -> None:
    splitter, again = RowSplitter(np.zeros(100, int)), RowSplitter(np.zeros(100, int))
    assert np.array_equal(splitter.rows(3)["test"], again.rows(3)["test"])
    assert not np.array_equal(splitter.rows(3)["test"], splitter.rows(4)["test"])
    assert not np.array_equal(splitter.rows(3)["test"], RowSplitter(np.zeros(100, int), seed=1).rows(3)["test"])


@given(st.lists(st.integers(3, 9), min_size=5, max_size=40))
@settings(max_examples=30, deadline=None)
def test_groups_are_not_divided(counts: list[int]) -> None:
    groups = np.repeat(np.arange(len(counts)), counts)
    random = np.random.default_rng(0).permutation(len(groups))
    splitter = RowSplitter(np.zeros(len(groups), int), groups=groups[random])
    assert len(sizes(splitter)) == 1
    for number in (1, 2):
        members = [set(groups[random][rows]) for rows in splitter.rows(number).values()]
        assert all(members)
        assert sum(map(len, members)) == len(set.union(*members))


def test_many_small_groups_keep_the_shares() -> None:
    ((train, valid, test),) = sizes(RowSplitter(np.zeros(2000, int), groups=np.arange(2000) // 5))
    assert (train, valid, test) == pytest.approx((1280, 320, 400), rel=0.05)


def test_every_part_of_a_split_by_group_has_rows_of_a_rare_class() -> None:
    """If groups were drawn once, 29 of these splits would lack one; if rows were left out regardless of classes, 7."""
    groups = np.repeat(np.arange(12), np.random.default_rng(0).integers(20, 200, 12))
    strata = ((groups < 5) & (np.arange(len(groups)) % 40 == 0)).astype(np.int64)
    splitter = RowSplitter(strata, groups=groups)
    for number in range(1, 51):
        assert all(strata[rows].any() for rows in splitter.rows(number).values())


def test_later_rows_are_tested_on() -> None:
    times = np.random.default_rng(0).permutation(np.repeat(np.arange(50.0), 4))
    parts = RowSplitter(np.zeros(200, int), times=times).rows(1)
    assert times[parts["train"]].max() < times[parts["valid"]].min() <= times[parts["valid"]].max() < times[parts["test"]].min()
    assert [len(rows) for rows in parts.values()] == [128, 32, 40]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"strata": np.zeros(3, int)}, "3 rows are too few"), ({"groups": np.arange(20) % 4}, "4 groups; .* at least 5")],
)
def test_too_few(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RowSplitter(**{"strata": np.zeros(20, int), **options})


def test_balanced_rows() -> None:
    classes = np.repeat([0, 1, 2], [90, 9, 1])
    rows = balance(np.arange(100), classes, 270)
    assert np.bincount(classes[rows]).tolist() == [90, 90, 90]
    assert set(rows) == set(range(100))
    assert len(balance(np.arange(100), classes, 200)) == 200
