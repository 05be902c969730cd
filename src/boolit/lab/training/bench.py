"""How much faster a cohort is than its runs one after the other, as a ratio measured in one go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import torch

from boolit.lab.data import Dataset, Split
from boolit.lab.data.augmentations import AUGMENTATIONS
from boolit.lab.data.mnist import normalised
from boolit.lab.models import family
from boolit.lab.randomness import generator, keys
from boolit.lab.training.job import Job
from boolit.lab.training.recipe import Recipe
from boolit.lab.training.stacked import StackedTraining
from boolit.lab.training.threads import Threads


@dataclass(frozen=True)
class StackingGain:
    """Seconds an epoch of some runs takes stacked, and in a plain loop of the same trainer."""

    runs: int
    stacked: float
    loop: float

    @property
    def ratio(self) -> float:
        """How many times faster stacking is."""
        return self.loop / self.stacked


def compare_with_loop(job: Job, rounds: int = 5) -> StackingGain:
    """Trains epochs of all runs stacked and epochs of single runs in turn, so that both see the same machine.

    The medians are compared, the single run's times the number of runs; what a run costs before its first epoch is left out.
    """
    together, alone = _Timed(job), [_Timed(_single(job, run)) for run in range(min(rounds, job.runs))]
    stacked, single = [], []
    for round_ in range(rounds + 1):
        stacked.append(together.epoch())
        single.append(alone[round_ % len(alone)].epoch())
    return StackingGain(job.runs, median(stacked[1:]), job.runs * median(single[1:]))


def total(gains: Mapping[str, StackingGain]) -> StackingGain:
    """The gain of several cohorts together: a study's."""
    values = gains.values()
    return StackingGain(sum(g.runs for g in values), sum(g.stacked for g in values), sum(g.loop for g in values))


def batch_norm_job(runs: int = 40, batch: int = 256, activation: str = "relu") -> Job:
    """Batch-normalised MLPs 54-32-32-7 on random numbers of Covertype's shape."""
    drawn = generator(0, "bench")
    split = Split(torch.randn(8192, 54, generator=drawn), torch.randint(7, (8192,), generator=drawn))
    recipe = Recipe.model_validate({"epochs": 10**6, "batch": batch})
    return Job(
        dataset=Dataset({"train": split, "test": Split(split.x[:1024], split.y[:1024])}, "classes", 7),
        family=family({"name": "mlp", "normalisation": "batch"}),
        activation=activation,
        widths=(32, 32),
        recipes=(recipe,) * runs,
        seeds=tuple(range(runs)),
    )


def mnist_job(runs: int = 10, batch: int = 100, augmentation: str | None = None) -> Job:
    """The study mnist-mlp's 65k ReLU networks on random pictures of MNIST's shape."""
    drawn = generator(0, "bench")
    pictures = torch.randint(256, (5_000, 28, 28), generator=drawn, dtype=torch.uint8)
    split = Split(pictures, torch.randint(10, (len(pictures),), generator=drawn))
    recipe = Recipe.model_validate({"epochs": 10**6, "batch": batch, "augmentation": augmentation})
    return Job(
        dataset=Dataset({"train": split, "test": Split(split.x[:100], split.y[:100])}, "classes", 10, encode=normalised),
        family=family({"name": "mlp", "normalisation": "batch"}),
        activation="relu",
        widths=(75, 75),
        recipes=(recipe,) * runs,
        seeds=tuple(range(runs)),
    )


@dataclass(frozen=True)
class AugmentationCost:
    """Seconds that augmenting a batch of every run takes, and the training step without it."""

    runs: int
    augmentation: float
    step: float

    @property
    def ratio(self) -> float:
        """Augmentation in steps."""
        return self.augmentation / self.step


def augmentation_cost(name: str, batch: int = 256, runs: int = 10, rounds: int = 60) -> AugmentationCost:
    """Times an augmentation of MNIST's pictures and the step it feeds in turn; the medians count."""
    training = _Timed(mnist_job(runs, batch))
    pictures = training.training.job.dataset.splits["train"].x[: runs * batch // 2].repeat(2, 1, 1).view(runs, batch, 28, 28)
    own, augment = keys(range(runs), "augmentation"), AUGMENTATIONS[name]
    augmented, stepped = [], []
    for round_ in range(rounds):
        started = time.perf_counter()
        augment(pictures, own, round_)
        between = time.perf_counter()
        training.step()
        augmented.append(between - started)
        stepped.append(time.perf_counter() - between)
    return AugmentationCost(runs, median(augmented), median(stepped))


def _single(job: Job, run: int) -> Job:
    return replace(job, recipes=(job.recipes[run],), seeds=(job.seeds[run],))


class _Timed:
    """A training, an epoch at a time."""

    def __init__(self, job: Job) -> None:
        self.training, self.threads = StackedTraining(job), Threads(job)

    def epoch(self) -> float:
        with self.threads as threads:
            started = time.perf_counter()
            for _ in range(self.training.job.steps_per_epoch):
                threads.make(self.training.step)
            return time.perf_counter() - started

    def step(self) -> None:
        with self.threads as threads:
            threads.make(self.training.step)
