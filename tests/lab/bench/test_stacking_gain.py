"""The comparison of stacked training with a plain loop."""

import pytest

import boolit
from boolit.lab.bench.training import StackingGain, augmentation_cost, batch_norm_job, compare_with_loop, mnist_job, total_gain


def test_the_comparison_measures_both_ways() -> None:
    """The times themselves are `boolit bench training`'s: a timing decides no test."""
    gain = compare_with_loop(batch_norm_job(runs=4, batch=4096), rounds=2)
    assert gain.runs == 4
    assert gain.stacked > 0
    assert gain.loop > 0


def test_gains_of_cohorts_add_up_by_their_time() -> None:
    together = total_gain({"a": StackingGain(2, 1.0, 10.0), "b": StackingGain(3, 3.0, 6.0)})
    assert together == StackingGain(5, 4.0, 16.0)
    assert together.ratio == 4


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
