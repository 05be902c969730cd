"""How far trainings may part that are the same but for the order of their sums.

Same shapes, same calls and the same number of threads are bitwise the same; a run alone and in a cohort, with one thread and
with two, in one process and in two, are not: libraries order a product's sums by its shape, threads, alignment and processor.
Such trainings are compared in float64, where a bound for what reordering can do is far below what any mistake would do.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boolit.lab.datasets import Dataset, Source, load
from boolit.lab.training import Job, Outcome

UNIT = 2.0**-53
GRADIENT = 10.0  # a sample's gradient by one parameter is smaller in all these trainings
GROWTH = 10.0  # of a difference, while steps · rate ≤ 1 moves the weights by less than they measure


def _double(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For what is compared to the last bit, and for small work beside other tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def in_double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Job], Job]]:
    """Has networks made in float64, and their job's samples turned into it; these are drawn as ever, and kept for others."""

    def loaded(source: Source) -> Dataset:
        torch.set_default_dtype(before)
        try:
            return load(source)
        finally:
            torch.set_default_dtype(torch.float64)

    def doubled(job: Job) -> Job:
        data = job.dataset
        splits = {name: replace(split, x=_double(split.x), y=_double(split.y)) for name, split in data.splits.items()}
        probes = tuple(replace(probe, x=_double(probe.x)) for probe in data.probes)
        encode = data.encode and (lambda x: _double(data.encode(x)))
        return replace(job, dataset=replace(data, splits=splits, probes=probes, encode=encode))

    before = torch.get_default_dtype()
    monkeypatch.setattr("boolit.lab.training.job.load", loaded)
    torch.set_default_dtype(torch.float64)
    yield doubled
    torch.set_default_dtype(before)


@pytest.fixture
def agree() -> Callable[[Job, Outcome, Outcome], None]:
    """Asserts that two outcomes of a job's run part by rounding only."""

    def check(job: Job, one: Outcome, other: Outcome) -> None:
        bound = rounding(job)
        assert bound < 1e-3
        assert one.state == other.state
        assert one.weights.keys() == other.weights.keys()
        for name, values in one.weights.items():
            torch.testing.assert_close(values, other.weights[name], rtol=bound, atol=bound)
        _close(one.history, other.history, bound)
        _close(one.metrics, other.metrics, bound)

    return check


def _close(one: dict[str, Any], other: dict[str, Any], bound: float) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values == pytest.approx(other[name], rel=bound, abs=bound, nan_ok=True), name


def rounding(job: Job) -> float:
    """What reordered sums may change of the weights after a job's training.

    A gradient is a mean over a batch, carried through layers of at most ``widest`` inputs: reordering moves it by at most
    (batch + layers · widest) u of the largest term. Adam moves a weight by the rate times the gradient, divided by at least
    eps; SGD does not divide, and its momentum makes of one step at most ten.
    """
    recipe = job.recipe
    terms = job.batch + (len(job.widths) + 1) * job.widest
    rate = max(float(own.learning_rate) for own in job.recipes)
    moved = 10.0 if recipe.optimiser == "sgd" else 1 / min(own.eps for own in job.recipes)
    return job.steps_per_epoch * recipe.epochs * rate * moved * terms * UNIT * GRADIENT * GROWTH
