"""The digits of scikit-learn."""

from __future__ import annotations

import sys

import pytest
import torch
from sklearn.datasets import load_digits

from boolit.errors import UserError
from boolit.lab.datasets import source
from boolit.lab.datasets.digits import Digits


def test_every_digit_is_in_one_split_with_its_class() -> None:
    data = source({"name": "digits", "validation": 100}).load()
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 1337, "valid": 100, "test": 360}
    theirs = load_digits()
    x, y = (torch.cat([getattr(split, part) for split in data.splits.values()]) for part in "xy")
    ours = sorted((image.flatten().tolist(), label) for image, label in zip(x, y.tolist(), strict=True))
    assert ours == sorted((row.tolist(), label) for row, label in zip(theirs.data, theirs.target.tolist(), strict=True))


def test_the_split_is_fixed_and_as_announced() -> None:
    data, held = source({"name": "digits"}).load(), source({"name": "digits", "validation": 9}).load()
    assert {name: len(split) for name, split in data.splits.items()} == Digits.samples
    assert torch.equal(data.splits["test"].x, held.splits["test"].x)


def test_pixels_are_scaled_to_one() -> None:
    data = source({"name": "digits"}).load()
    encoded = data.encode(data.splits["train"].x)
    assert (float(encoded.min()), float(encoded.max()), data.inputs) == (-1.0, 1.0, (8, 8))


def test_without_scikit_learn_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UserError, match="not installed; pip install scikit-learn"):
        source({"name": "digits"}).load()
