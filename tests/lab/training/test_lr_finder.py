"""The learning-rate finder."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from boolit.lab.datasets import Split
from boolit.lab.training import Job, find_learning_rate, train
from boolit.lab.training.lr_finder import candidate_rates, plateau

Make = Callable[..., Job]
Config = Callable[..., dict[str, Any]]


@pytest.fixture
def job(config: Callable[..., dict[str, Any]]) -> Make:
    data = {"name": "xor", "train": 256, "test": 16}
    return lambda seed=0, **training: Job.of([config(seed, "relu", data=data, width=[4], training=training)])


def test_it_finds_the_same_rate_again_and_for_every_seed(job: Make) -> None:
    assert find_learning_rate(job()) == find_learning_rate(job()) == find_learning_rate(job(seed=9))


def test_less_memory_changes_nothing(job: Make) -> None:
    assert find_learning_rate(job(), memory=5 * 3 * job().bytes_per_run()) == find_learning_rate(job())


def test_it_follows_the_optimisers_scale(job: Make) -> None:
    # SGD's step is the gradient times the rate: it needs a larger rate than Adam, whose step is about the rate itself.
    assert find_learning_rate(job(optimiser="sgd")) > 2 * find_learning_rate(job(optimiser="adam"))


def test_the_plateau_ends_where_the_loss_rises_or_falls() -> None:
    assert plateau(torch.tensor([1.0, 0.99, 0.2, 0.11, 0.1, 0.15, 3.0])) == (3, 5)
    assert plateau(torch.tensor([0.5, torch.inf, torch.inf])) == (0, 0)


def test_rates_cover_five_decades() -> None:
    rates = candidate_rates()
    assert float(rates[0]) == pytest.approx(1e-5)
    assert float(rates[-1]) == pytest.approx(1)
    assert bool((rates.diff() > 0).all())


def test_training_finds_its_rate(job: Make) -> None:
    finished = train(job(learning_rate="find"))
    assert finished is not None
    assert finished.outcomes[0].metrics["learning_rate"] == find_learning_rate(job())


@pytest.mark.parametrize("recipe", [{"prelude": 60}, {"patience": 1}, {"warmup": 2.0, "schedule": "cosine"}])
@pytest.mark.parametrize("steps", [2, 8])
def test_what_comes_before_or_ends_a_training_does_not_change_the_rate(
    recipe: dict[str, Any], steps: int, config: Config
) -> None:
    # Of so few steps an epoch, 60 epochs of prelude are longer than the range test, and patience could end it many times.
    data = {"name": "digits", "validation": 1 - 32 * steps / 1437}
    plain, other = (
        Job.of([config(0, "relu", data=data, width=[8], training={"epochs": 99, **changes})]) for changes in ({}, recipe)
    )
    assert find_learning_rate(other) == find_learning_rate(plain)


def test_clipped_gradients_stand_a_higher_rate(config: Config) -> None:
    data, recipe = {"name": "digits", "validation": 1181 / 1437}, {"optimiser": "sgd", "momentum": 0.9}
    free, clipped = (
        Job.of([config(0, "relu", data=data, width=[8], training=recipe | changes)]) for changes in ({}, {"clip": 0.1})
    )
    assert find_learning_rate(clipped) > 1.5 * find_learning_rate(free)


def test_only_training_samples_are_looked_at(job: Make) -> None:
    own = job()
    test = own.dataset.splits["test"]
    broken = replace(own.dataset, splits=own.dataset.splits | {"test": Split(test.x * torch.nan, test.y)})
    assert find_learning_rate(replace(own, dataset=broken)) == find_learning_rate(own)
