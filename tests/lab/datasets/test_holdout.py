"""Rows held out of the training rows: which they are, and of what data they can be."""

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.datasets import Source, load, source
from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.datasets.holdout import Holdout, for_choosing


class Numbered(Source):
    """Rows that are their own numbers, of some classes."""

    name: Literal["numbered"] = "numbered"
    rows: int = 100
    classes: int = 4

    def load(self) -> Dataset:
        y = torch.arange(self.rows) % self.classes
        split = Split(torch.arange(self.rows).unsqueeze(1), y)
        return Dataset({"train": split, "test": split}, "classes", self.classes, encode=lambda x: x.float())


class Drawn(Numbered):
    """The same, each row with a number that is drawn."""

    def load(self) -> Dataset:
        return replace(super().load(), draw=drawn)


class Judged(Numbered):
    """The same, with a metric of its own."""

    def load(self) -> Dataset:
        return replace(super().load(), extra_metrics=lambda _, outputs: {"own": outputs.sum((1, 2))})


def drawn(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    return x + 1000 * (run_keys % 7 + 1).view(-1, 1, 1), y + 10 + step


@settings(max_examples=30, deadline=None)
@given(st.integers(10, 300), st.integers(2, 5), st.floats(0.1, 0.9), st.integers(0, 99))
def test_held_out_rows_are_a_share_of_every_class_and_are_not_trained_on(
    rows: int, classes: int, share: float, seed: int
) -> None:
    splits = Holdout(of=Numbered(rows=rows, classes=classes), share=share, seed=seed).load().splits
    numbers = {name: set(split.x.flatten().tolist()) for name, split in splits.items()}
    assert set(numbers) == {"train", "valid"}
    assert not numbers["train"] & numbers["valid"]
    assert numbers["train"] | numbers["valid"] == set(range(rows))
    assert len(numbers["valid"]) == round(share * rows)
    for own in range(classes):
        of_class = int((torch.arange(rows) % classes == own).sum())
        assert abs(int((splits["valid"].y == own).sum()) - share * of_class) <= 2


@pytest.mark.parametrize(
    "table",
    [{"name": "parity"}, {"name": "parity8"}, {"name": "xor"}, {"name": "digits"}],
    ids=lambda table: table["name"],
)
def test_they_are_the_same_at_every_time_and_others_with_another_seed(table: dict[str, Any]) -> None:
    one, other = (source({"name": "holdout", "of": table}).load() for _ in range(2))
    seeded = source({"name": "holdout", "of": table, "seed": 1}).load()
    for name in ("train", "valid"):
        assert torch.equal(one.splits[name].x, other.splits[name].x)
        assert torch.equal(one.splits[name].y, other.splits[name].y)
    assert not torch.equal(one.splits["valid"].x, seeded.splits["valid"].x)
    whole = load(source(table))
    assert len(one.splits["valid"]) == round(0.2 * len(whole.splits["train"]))
    assert one.inputs == whole.inputs


def test_classes_of_two_are_held_out_alike() -> None:
    data = source({"name": "holdout", "of": {"name": "xor", "train": 1000}}).load()
    means = [float(data.splits[name].y.mean()) for name in ("train", "valid")]
    assert means[0] == pytest.approx(means[1], abs=0.01)


def test_what_is_drawn_in_training_is_drawn_once_to_choose_by() -> None:
    data = Holdout(of=Drawn()).load()
    plain = Holdout(of=Numbered()).load()
    assert torch.equal(data.splits["train"].x, plain.splits["train"].x)
    added = data.splits["valid"].x - plain.splits["valid"].x
    assert int(added.min()) == int(added.max()) >= 1000
    assert torch.equal(data.splits["valid"].y, plain.splits["valid"].y + 10)


def test_validation_rows_of_its_own_are_taken_before_any_are_held_out() -> None:
    own = source({"name": "digits", "validation": 200})
    assert for_choosing(own).share is None
    splits = for_choosing(own).load().splits
    assert set(splits) == {"train", "valid"}
    assert all(torch.equal(split.x, load(own).splits[name].x) for name, split in splits.items())
    assert for_choosing(source({"name": "digits"})).share == 0.2


def test_what_cannot_be_held_out_is_refused() -> None:
    with pytest.raises(UserError, match=r"0\.2 of 2 training rows of numbered cannot be held out"):
        Holdout(of=Numbered(rows=2)).load()
    with pytest.raises(UserError, match="numbered has metrics of its own for the splits train, test"):
        Holdout(of=Judged()).load()
    with pytest.raises(UserError, match="xor has no split valid; give the share"):
        source({"name": "holdout", "of": {"name": "xor"}, "share": None}).load()
    with pytest.raises(ValueError, match="a table that names a dataset"):
        source({"name": "holdout", "of": "xor"})
