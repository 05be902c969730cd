"""What a search may see of a dataset: no test rows, and the same share of every class."""

from __future__ import annotations

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.datasets import describe, for_choosing, load, register, source
from boolit.lab.datasets.base import Dataset, Source, Split


def test_rows_are_held_out_of_the_training_rows_and_stratified() -> None:
    of = {"name": "digits", "validation": 0.2}
    data, whole = load(source({"name": "holdout", "of": of, "share": 0.25})), load(source(of))
    assert sorted(data.splits) == ["train", "valid"]
    rows = torch.cat([data.splits[name].x.flatten(1) for name in ("train", "valid")])
    assert torch.equal(rows.unique(dim=0), whole.splits["train"].x.flatten(1).unique(dim=0))
    shares = data.splits["valid"].y.bincount() / whole.splits["train"].y.bincount()
    assert (shares - 0.25).abs().max() < 0.02


def test_a_split_valid_is_taken_where_there_is_one() -> None:
    with_valid, without = source({"name": "digits", "validation": 0.2}), source({"name": "digits"})
    assert for_choosing(with_valid).share is None
    assert describe(for_choosing(with_valid)).samples == {"train": 1150, "valid": 287}
    assert describe(for_choosing(without)).samples == {"train": 1150, "valid": 287}
    with pytest.raises(UserError, match="digits has no split valid"):
        source({"name": "holdout", "of": {"name": "digits"}, "share": None}).load()


def test_too_few_rows_and_extra_metrics_are_refused() -> None:
    with pytest.raises(UserError, match=r"0\.2 of 1 training rows of parity cannot be held out"):
        source({"name": "holdout", "of": {"name": "parity", "train": 1}}).load()
    with pytest.raises(UserError, match="composed has extra metrics but no split valid to choose by"):
        source({"name": "holdout", "of": {"name": "composed"}}).load()


def test_extra_metrics_are_computed_once_for_a_description() -> None:
    calls = []

    @register
    class Counted(Source):
        name: str = "counted"

        def load(self) -> Dataset:
            split = Split(torch.ones(4, 2), torch.ones(4, 1))
            metric = lambda name, outputs: calls.append(name) or {"own": outputs[:, 0, 0]}  # noqa: E731
            return Dataset({"train": split, "test": split}, "regression", 1, extra_metrics=metric)

    data = source({"name": "counted"}).load()
    assert [data.description.extra_metrics for _ in range(3)] == [("own",)] * 3
    assert calls == ["test"]


@pytest.mark.parametrize("name", ["digits", "mnist", "covertype", "cifar10", "svhn"])
def test_validation_is_the_share_of_the_training_rows_everywhere(name: str) -> None:
    none, some = (describe(source({"name": name, "validation": share})).samples for share in (0.0, 0.25))
    assert "valid" not in none
    assert some["valid"] == round(0.25 * none["train"])
    assert some["train"] + some["valid"] == none["train"]
    with pytest.raises(ValueError, match="less than 1"):
        source({"name": name, "validation": 1000})
