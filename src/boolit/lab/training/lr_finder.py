"""Finding a learning rate: Smith's range test (arXiv:1506.01186) as one training of many runs.

Smith lets the learning rate of one network rise linearly and watches its loss, so that every rate is measured on a network that
lower rates have formed. Here each rate has its own networks, whose rate rises linearly from zero. The rates whose loss falls
nearly as far as the best one's form a plateau; its middle on a logarithmic scale is returned.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.devices import torch_threads
from boolit.lab.common.random import derive
from boolit.lab.training.job import Job
from boolit.lab.training.optimizers import RAMP_STEPS
from boolit.lab.training.train import new_training, useful_threads

PER_DECADE = 4
EXPONENTS = (-5.0, 0.0)
SEEDS = 3
AVERAGED_STEPS = 25
NEARLY = 0.9  # of the best rate's fall


def find_learning_rate(job: Job) -> float:
    """Return a learning rate for a job, with its own optimizer, data and network. The same job always gives the same rate.

    Args:
        job: the job; its learning rates are ignored.

    Raises:
        UserError: every rate diverged.
    """
    # NOTE[paper]: the paper does not give the rule of its finder.
    low, high = EXPONENTS
    rates = 10 ** torch.linspace(low, high, round((high - low) * PER_DECADE) + 1, dtype=torch.float64)
    final = _final_losses(job, rates)
    if not bool(final.isfinite().any()):
        rule = f"every learning rate from {float(rates[0]):g} to {float(rates[-1]):g} diverged with {job.activation}"
        raise UserError(f'training.learning_rate = "find": {rule}; check the data or give a rate')
    first, last = plateau(final)
    return float(f"{float((rates[first] * rates[last]).sqrt()):.3g}")


def plateau(final: Tensor) -> tuple[int, int]:
    """Return the first and last neighbor of the lowest loss that fell nearly as far from the first finite loss.

    Example:
        >>> plateau(torch.tensor([1.0, 0.8, 0.05, 0.0, 0.04, torch.inf, 0.01]))
        (2, 4)
    """
    best, start = int(final.argmin()), final[final.isfinite()][0]
    near = final <= final[best] + (1 - NEARLY) * (start - final[best])
    below, above = (int(side.int().cumprod(0).sum()) - 1 for side in (near[: best + 1].flip(0), near[best:]))
    return best - below, best + above


def _final_losses(job: Job, rates: Tensor) -> Tensor:
    """Return the mean loss of each rate's networks over the last steps, infinite if one of them diverged."""
    trial, losses = _trial_job(job, rates), []
    with torch_threads(useful_threads(trial)):
        training = new_training(trial)
        training.begin_epoch()
        for _ in range(RAMP_STEPS):
            if not training.done:
                training.step()
            losses.append(training.of_all_runs(training.loss.cpu()))
    final = torch.stack(losses[-AVERAGED_STEPS:]).mean(0)
    return final.where(final.isfinite() & training.alive, torch.inf).view(len(rates), SEEDS).mean(1)


def _trial_job(job: Job, rates: Tensor) -> Job:
    """Return the job of all rates in float32, without a prelude and early stopping, which would keep rates from rising."""
    update = {"schedule": "ramp", "epochs": RAMP_STEPS // job.steps_per_epoch + 2, "prelude": 0, "patience": None}
    recipe = job.recipe.model_copy(update=update | {"precision": "float32"})
    return replace(
        job,
        dataset=replace(job.dataset, splits={"train": job.dataset.splits["train"]}, probes=()),
        recipes=tuple(recipe.model_copy(update={"learning_rate": rate}) for rate in rates.tolist() for _ in range(SEEDS)),
        seeds=tuple(derive(i, "learning-rate finder") for _ in rates for i in range(SEEDS)),
        resamples=job.resamples[:1] * len(rates) * SEEDS,
    )
