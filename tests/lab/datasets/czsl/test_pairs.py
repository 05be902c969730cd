"""Which pairs there are, and the wrong ones a step draws."""

from __future__ import annotations

import pytest
import torch

from boolit.lab.common.random import keys
from boolit.lab.datasets.czsl import Pairs, sample_candidates

TRAINED = torch.tensor([1, 3, 4, 8])


def test_pairs_are_in_the_order_of_their_names_whatever_order_they_came_in() -> None:
    train, test = [("wet", "dog"), ("old", "cat"), ("old", "dog")], [("wet", "cat"), ("old", "cat")]
    pairs = Pairs.from_names({"train": train, "test": test})
    assert pairs.names == sorted({*train, *test})
    assert [pairs.names[number] for number in pairs.seen.tolist()] == sorted(train)
    assert [pairs.names[number] for number in pairs.unseen("test").tolist()] == [("wet", "cat")]
    assert (pairs.attributes, pairs.objects) == (("old", "wet"), ("cat", "dog"))
    again = Pairs.from_names({"train": train[::-1], "test": test[::-1]})
    assert torch.equal(again.numbers, pairs.numbers)
    assert torch.equal(again.masks["test"], pairs.masks["test"])


def test_the_true_pair_comes_first_and_never_again() -> None:
    y = TRAINED[torch.tensor([[0, 1, 2, 3], [3, 3, 0, 1]])]
    drawn = sample_candidates(TRAINED, y, keys([0, 1], "draw"), 5, negatives=300)
    assert drawn.shape == (2, 4, 301)
    assert torch.equal(drawn[..., 0], y)
    assert not bool((drawn[..., 1:] == y.unsqueeze(-1)).any())


def test_wrong_pairs_are_uniform_among_the_seen_ones() -> None:
    y = torch.full((1, 1000), 3)
    drawn = sample_candidates(TRAINED, y, keys([7], "draw"), 0, negatives=30)[..., 1:]
    counts = drawn.flatten().bincount(minlength=9)
    assert counts[[0, 2, 3, 5, 6, 7]].tolist() == [0] * 6
    assert counts[[1, 4, 8]].tolist() == pytest.approx([10_000] * 3, abs=300)  # 3.7 standard deviations


def test_a_run_draws_the_same_alone_and_with_others_and_other_ones_in_every_step() -> None:
    y = TRAINED.expand(3, -1)
    together = sample_candidates(TRAINED, y, keys([1, 2, 3], "draw"), 9, 50)
    assert torch.equal(together[1:2], sample_candidates(TRAINED, y[:1], keys([2], "draw"), 9, 50))
    assert not torch.equal(together, sample_candidates(TRAINED, y, keys([1, 2, 3], "draw"), 10, 50))
