"""How much faster a cohort is than its runs one after the other, as a ratio measured in one go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import torch

from boolit.lab.data import Dataset, Split
from boolit.lab.models import family
from boolit.lab.randomness import generator
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
