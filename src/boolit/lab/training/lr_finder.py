"""Finding a learning rate: Smith's range test (arXiv:1506.01186) as one stacked training.

Smith lets the learning rate of one network rise linearly and watches its loss, so every rate is measured on a network that
lower rates have formed, and where to read the curve is a matter of taste. Stacked, each rate has networks of its own: all
rise linearly from zero, each to its own highest rate. The rates whose loss has fallen nearly as far as the best one's form a
plateau; its middle (on a logarithmic scale) is returned, as far from too slow as from unstable.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from boolit.lab.common.random import derive
from boolit.lab.training.job import Job
from boolit.lab.training.stacked import StackedTraining
from boolit.lab.training.threads import Threads

PER_DECADE = 4
EXPONENTS = (-5.0, 0.0)
SEEDS = 3
STEPS = 100
AVERAGED_STEPS = 25
NEARLY = 0.9  # of the best one's fall


def find_learning_rate(job: Job, memory: int | None = None) -> float:
    """A learning rate for a job, with its own optimiser, data and network; the same job always gives the same.

    ``memory`` bounds the bytes used: the rates are then tried in several trainings, with the same result.
    """
    rates = candidate_rates()
    at_once = len(rates) if memory is None else max(1, memory // (SEEDS * job.bytes_per_run()))
    low, high = plateau(torch.cat([_final_losses(job, part) for part in torch.split(rates, at_once)]))
    return float(f"{float((rates[low] * rates[high]).sqrt()):.3g}")


def plateau(final: Tensor) -> tuple[int, int]:
    """The first and last of the neighbours of the lowest loss that fell nearly as far from the first loss as it did.

    Example:
        >>> plateau(torch.tensor([1.0, 0.8, 0.05, 0.0, 0.04, torch.inf, 0.01]))
        (2, 4)
    """
    best = int(final.argmin())
    near = final <= final[best] + (1 - NEARLY) * (final[0] - final[best])
    low = best
    while low > 0 and near[low - 1]:
        low -= 1
    high = best
    while high + 1 < len(final) and near[high + 1]:
        high += 1
    return low, high


def candidate_rates() -> Tensor:
    """The rates that are tried.

    Shape: ``(rates,)``.
    """
    low, high = EXPONENTS
    return 10 ** torch.linspace(low, high, round((high - low) * PER_DECADE) + 1, dtype=torch.float64)


def _final_losses(job: Job, rates: Tensor) -> Tensor:
    """The mean loss of each rate's networks over the last steps; infinite if one of them diverged.

    Shape: ``(rates,)``, unchanged.
    """
    training, losses = StackedTraining(_ramp(job, rates)), []
    with Threads(training.job) as threads:
        for _ in range(STEPS):
            if not training.done:
                threads.run(training.step)
            losses.append(training.loss)
    mean = torch.stack(losses[-AVERAGED_STEPS:]).mean(0).cpu().double()
    final = mean.where(mean.isfinite() & training.alive, torch.inf)
    return final.view(len(rates), SEEDS).mean(1)


def _ramp(job: Job, rates: Tensor) -> Job:
    """The same networks and training samples, with a rate that rises linearly to each of ``rates``, some seeds each.

    What would keep the rate from rising is left out: a prelude has a rate of its own, and early stopping ends runs, by rows
    that are no part of this. All else that decides how far a step goes stays: optimiser, batch, augmentation, clipping. Half
    precision and micro-batches, which change rounding and the groups of a batch norm, are left out; averaged weights are not
    those that are stepped.
    """
    warmup = STEPS / job.steps_per_epoch
    update = {"schedule": "constant", "warmup": warmup, "epochs": int(warmup) + 2, "prelude": 0, "patience": None}
    recipes = [job.recipe.model_copy(update=update | {"learning_rate": float(rate)}) for rate in rates for _ in range(SEEDS)]
    seeds = [derive(i, "learning-rate finder") for _ in rates for i in range(SEEDS)]
    only_train = replace(job.dataset, splits={"train": job.dataset.splits["train"]})
    return replace(job, dataset=only_train, recipes=tuple(recipes), seeds=tuple(seeds))
