"""Covertype's rows, split and scale."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from boolit.lab.datasets import source
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.covertype import CONTINUOUS, Covertype
from boolit.lab.datasets.download.published import PublishedFile

ROWS = 503


@pytest.fixture
def table(publish: Callable[..., PublishedFile], monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Rows in the real format: the first column numbers them, so each can be found again."""
    drawn = np.random.default_rng(0)
    columns = [np.arange(ROWS), *drawn.integers(-170, 7200, (9, ROWS)), *drawn.integers(0, 2, (44, ROWS))]
    table = np.stack([*columns, drawn.integers(1, 8, ROWS)], 1)
    lines = "".join(",".join(map(str, row)) + "\n" for row in table)
    monkeypatch.setattr(Covertype, "files", (publish("covertype", "covtype.data.gz", lines.encode()),))
    return table


def load(**options: float) -> Dataset:
    return source({"name": "covertype", **options}).load()


def test_every_row_is_in_one_split_with_its_class(table: np.ndarray) -> None:
    splits = load().splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 403, "test": 100}
    x, y = (torch.cat([getattr(splits[name], part) for name in ("train", "test")]) for part in "xy")
    assert x.dtype == torch.int16
    assert sorted(x[:, 0].tolist()) == list(range(ROWS))
    assert np.array_equal(x.numpy(), table[x[:, 0], :54])
    assert np.array_equal(y.numpy(), table[x[:, 0], 54] - 1)
    assert x[:100, 0].tolist() != sorted(x[:100, 0].tolist())


@pytest.mark.usefixtures("table")
def test_the_split_is_always_the_same() -> None:
    assert torch.equal(load().splits["test"].x, load(subset=0.5, validation=0.25).splits["test"].x)


def test_the_papers_sizes_follow_from_the_published_rows() -> None:
    rows = sum((211840, 283301, 35754, 2747, 9493, 17367, 20510))
    assert (
        Covertype.samples == {"train": rows - int(0.2 * rows), "test": int(0.2 * rows)} == {"train": 464_810, "test": 116_202}
    )


@pytest.mark.usefixtures("table")
def test_validation_and_subset_are_parts_of_the_training_rows() -> None:
    whole = set(load().splits["train"].x[:, 0].tolist())
    held = load(validation=0.25).splits
    assert (len(held["train"]), len(held["valid"])) == (302, 101)
    small = load(validation=0.25, subset=0.1).splits
    assert torch.equal(small["valid"].x, held["valid"].x)
    assert torch.equal(small["train"].x, held["train"].x[:30])
    assert {*held["train"].x[:, 0].tolist(), *held["valid"].x[:, 0].tolist()} == whole


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("options", [{}, {"subset": 0.3, "validation": 0.2}])
def test_continuous_columns_are_standardised_by_the_rows_trained_on(options: dict[str, float]) -> None:
    data = load(**options)
    train = data.encode(data.splits["train"].x)
    assert (data.inputs, train.dtype, data.outputs) == ((54,), torch.float32, 7)
    assert torch.allclose(train[:, :CONTINUOUS].mean(0), torch.zeros(10), atol=1e-5)
    assert torch.allclose(train[:, :CONTINUOUS].std(0, correction=0), torch.ones(10), atol=1e-5)
    assert torch.equal(train[:, CONTINUOUS:], data.splits["train"].x[:, CONTINUOUS:].float())
    batch = data.splits["test"].x[:6].view(2, 3, 54)
    assert torch.equal(data.encode(batch).view(6, 54), data.encode(batch.view(6, 54)))


@pytest.mark.usefixtures("table")
def test_a_column_of_one_value_is_not_divided_by_zero() -> None:
    data = load(subset=0.002)
    assert len(data.splits["train"]) == 1
    assert bool(data.encode(data.splits["test"].x).isfinite().all())
