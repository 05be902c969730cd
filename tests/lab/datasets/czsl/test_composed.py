"""The generated compositional set: deterministic, in the right proportions, neither trivial nor hopeless."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boolit.lab.common.random import keys
from boolit.lab.datasets import source
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.czsl import Pairs, compute_metrics
from boolit.lab.datasets.czsl.composed import Composed


def made(**options: Any) -> Dataset:
    return source({"name": "composed"} | options).load()


def listed(**options: Any) -> Pairs:
    return Composed(**options).pairs()


def features(dataset: Dataset, split: str) -> Tensor:
    return dataset.encode(dataset.splits[split].x)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return made()


def test_the_same_options_give_the_same_data_and_another_seed_other_data(dataset: Dataset) -> None:
    again, other = made(), made(seed=1)
    for split in dataset.splits:
        assert torch.equal(features(again, split), features(dataset, split))
        assert torch.equal(again.splits[split].y, dataset.splits[split].y)
    assert all(torch.equal(again.initial_values[name], value) for name, value in dataset.initial_values.items())
    assert not torch.equal(listed(seed=1).masks["train"], listed().masks["train"])
    assert not torch.equal(other.initial_values["objects.weight"], dataset.initial_values["objects.weight"])


def test_proportions_are_those_of_mit_states(dataset: Dataset) -> None:
    pairs = listed()
    assert dataset.outputs == len(pairs.numbers) == 115
    assert {split: int(mask.sum()) for split, mask in pairs.masks.items()} == {"train": 74, "valid": 36, "test": 46}
    assert {split: len(pairs.unseen(split)) for split in ("valid", "test")} == {"valid": 18, "test": 23}
    assert not set(pairs.unseen("valid").tolist()) & set(pairs.unseen("test").tolist())
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 3000, "valid": 1030, "test": 1285}
    assert pairs.numbers[pairs.seen].amax(0).tolist() == [11, 15]
    for part, count in ((0, 12), (1, 16)):
        assert len(pairs.numbers[pairs.seen][:, part].unique()) == count  # every word is trained
    for split, found in dataset.splits.items():
        counts = found.y.bincount(minlength=115)
        assert torch.equal(counts > 0, pairs.masks[split])
        assert int(counts.max() - counts[counts > 0].min()) <= 1


def test_what_networks_begin_with(dataset: Dataset) -> None:
    assert {name: tuple(value.shape) for name, value in dataset.initial_values.items()} == {
        "pairs": (115, 2),
        "attributes.weight": (13, 16),
        "objects.weight": (17, 16),
    }
    assert dataset.initial_values["pairs"].dtype == torch.int64
    assert not bool(dataset.initial_values["attributes.weight"][-1].any())
    assert dataset.inputs == (64,)


def test_a_step_draws_the_true_pair_and_wrong_ones(dataset: Dataset) -> None:
    assert dataset.draw is not None
    train = dataset.splits["train"]
    x, y = train.x[:20].expand(2, -1, -1), train.y[:20].expand(2, -1)
    drawn, zeros = dataset.draw(x, y, keys([0, 1], "draw"), 3)
    read = dataset.encode(drawn)
    assert read.shape == (2, 20, 64 + 33)
    assert torch.equal(read[..., 64].long(), y)
    assert torch.equal(read[0, :, :64], features(dataset, "train")[:20])
    assert not bool(zeros.any())


def logistic(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Weights of a logistic regression, by some steps of L-BFGS."""
    weights = torch.zeros(x.shape[1] + 1, classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(_with_one(x) @ weights, y) + 1e-4 * weights.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], 1)


def test_attributes_and_objects_alone_tell_unseen_pairs_well_above_chance_and_far_from_all(
    dataset: Dataset,
) -> None:
    numbers, train, test = listed().numbers, dataset.splits["train"], dataset.splits["test"]
    x, scores = features(dataset, "train"), torch.zeros(len(test), len(numbers))
    for part, count in ((0, 12), (1, 16)):
        weights = logistic(x, numbers[train.y][:, part], count)
        scores += (_with_one(features(dataset, "test")) @ weights).log_softmax(1)[:, numbers[:, part]]
    assert dataset.extra_metrics is not None
    found = {name: float(value) for name, value in dataset.extra_metrics("test", scores.unsqueeze(0)).items()}
    assert found == {
        name: float(value) for name, value in compute_metrics(scores.unsqueeze(0), test.y, listed(), "test").items()
    }
    chance = dataset.extra_metrics("test", torch.rand(1, len(test), len(numbers)))
    assert 0.3 < found["auc"] < 0.7
    assert float(chance["auc"]) < 0.002


def test_what_is_shown_is_no_sum_of_what_attribute_and_object_show(dataset: Dataset) -> None:
    quiet = made(noise=0.0, listed=1.0)
    y = torch.cat([split.y for split in quiet.splits.values()])
    x = torch.cat([features(quiet, split) for split in quiet.splits])
    shown = torch.zeros(192, 64)
    shown[y] = x
    grid = shown.view(12, 16, 64)
    additive = grid.mean(0, keepdim=True) + grid.mean(1, keepdim=True) - grid.mean((0, 1), keepdim=True)
    left = (grid - additive).square().sum() / (grid - grid.mean((0, 1))).square().sum()
    assert 0.1 < float(left) < 0.5
    assert dataset.outputs < quiet.outputs == 192


def test_words_say_something_of_the_codes_but_not_all() -> None:
    exact, vague = made(vagueness=0.0), made()
    similar = torch.nn.functional.cosine_similarity(
        exact.initial_values["objects.weight"][:-1], vague.initial_values["objects.weight"][:-1]
    )
    assert 0.8 < float(similar.mean()) < 0.99


def test_too_few_pairs_are_told() -> None:
    with pytest.raises(ValueError, match=r"listed = 0\.1 of 12 × 16 pairs are 19; raise it, as 32 are the fewest"):
        source({"name": "composed", "listed": 0.1})


@pytest.mark.parametrize(
    "options", [{"attributes": 3, "objects": 3, "listed": 0.7}, {"attributes": 30, "objects": 40, "listed": 0.1}]
)
def test_other_sizes(options: dict[str, Any]) -> None:
    other = made(samples=200, negatives=3, **options)
    pairs = listed(**options)
    assert len(pairs.numbers[pairs.seen][:, 1].unique()) == options["objects"]
    assert other.extra_metrics is not None
    assert set(other.extra_metrics("valid", torch.rand(2, len(other.splits["valid"]), other.outputs))) == {
        "auc",
        "auc2",
        "auc3",
    }
