"""The comparison of stacked training with a plain loop."""

import pytest
import torch

import boolit
from boolit.lab.bench.training import (
    StackingGain,
    _PlainLoop,
    augmentation_cost,
    batch_norm_job,
    compare_with_loop,
    mnist_job,
    total_gain,
)
from boolit.lab.datasets import Dataset, Split
from boolit.lab.models import family
from boolit.lab.training.job import Job
from boolit.lab.training.recipe import Recipe


def test_the_comparison_measures_both_ways() -> None:
    """The times themselves are `boolit bench training`'s: a timing decides no test."""
    gain = compare_with_loop(batch_norm_job(runs=4, batch=4096), rounds=2)
    assert gain.runs == 4
    assert min(gain.stacked, gain.loop, gain.plain) > 0


def test_gains_of_cohorts_add_up_by_their_time() -> None:
    together = total_gain({"a": StackingGain(2, 1.0, 10.0, 14.0), "b": StackingGain(3, 3.0, 6.0, 6.0)})
    assert together == StackingGain(5, 4.0, 16.0, 20.0)
    assert (together.ratio, together.plain_ratio) == (4, 5)


@pytest.mark.parametrize("schedule", ["constant", "one-cycle"])
def test_the_plain_loop_trains_the_same_network(schedule: str) -> None:
    """On data that the sign of a feature decides, it learns; what it is compared with has as many parameters."""
    x = torch.randn(512, 4, generator=torch.Generator().manual_seed(0))
    splits = {name: Split(x, (x[:, :1] > 0).float()) for name in ("train", "test")}
    recipe = Recipe(epochs=40, batch=64, learning_rate=0.01, schedule=schedule)
    job = Job(Dataset(splits, "binary", 1), family({"name": "mlp"}), "relu", (8,), (recipe,), seeds=(0,))
    loop = _PlainLoop(job)
    assert sum(p.numel() for p in loop.network.parameters()) == sum(p.numel() for p in job.build().parameters())
    before = loop.loss(loop.network(x), splits["train"].y).item()
    assert all(loop.time_epoch() > 0 for _ in range(20))
    assert loop.loss(loop.network(x), splits["train"].y).item() < before / 2


def test_the_batch_normalised_network_is_that_of_covertype() -> None:
    job = batch_norm_job(runs=2)
    model = job.build()
    assert [tuple(layer.shape) for name, layer in model.named_parameters() if name.endswith("weight") and "linear" in name] == [
        (2, 32, 54),
        (2, 32, 32),
        (2, 7, 32),
    ]
    assert pytest.approx(job.family.parameters((54,), 7, (32, 32), model.activation[0])) == 55 * 32 + 33 * 32 + 4 * 32 + 33 * 7  # type: ignore[operator,index]


def test_mnist_s_networks_and_the_augmentation_that_feeds_them_are_timed() -> None:
    job = mnist_job(runs=2)
    assert job.family.parameters(job.dataset.inputs, 10, job.widths, boolit.activation("relu")) == 65_635
    cost = augmentation_cost("affine", batch=8, runs=2, rounds=2)
    assert cost.runs == 2
    assert cost.ratio == cost.augmentation / cost.step > 0
