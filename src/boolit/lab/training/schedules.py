"""Learning rates by step, one column a run."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boolit.lab.training.recipe import Recipe, Schedule

START_DIVISOR, FINAL_DIVISOR = 25.0, 1e4


def epoch_rates(recipe: Recipe, epoch: int, steps: int, highest: Tensor, peak: Tensor) -> Tensor:
    """The learning rate of every run at the steps of an epoch.

    Shape: ``(runs,)`` twice, to ``(steps, runs)``, float64.
    """
    if epoch < recipe.prelude:
        return torch.full((steps, len(highest)), recipe.prelude_rate, dtype=torch.float64)
    first, total = ((number - recipe.prelude) * steps for number in (epoch, recipe.epochs))
    warmup = round(recipe.warmup * steps)
    return learning_rates(recipe.schedule, torch.arange(first, first + steps), total, highest, peak, warmup)


def learning_rates(schedule: Schedule, steps: Tensor, total: int, highest: Tensor, peak: Tensor, warmup: int = 0) -> Tensor:
    """The learning rate of every run at some steps of ``total``, after ``warmup`` steps of a linear rise.

    Shape: ``(steps,)`` and ``(runs,)`` twice, to ``(steps, runs)``, float64.

    Example:
        >>> one = torch.ones(1)
        >>> learning_rates("cosine", torch.arange(3), 4, one, one).squeeze(1)
        tensor([1.0000, 0.8536, 0.5000], dtype=torch.float64)
    """
    steps, highest, peak = steps.double().unsqueeze(1), highest.double(), peak.double()
    after = (steps - warmup).clamp(min=0)
    if schedule == "constant":
        rates = highest.expand(len(steps), -1)
    elif schedule == "cosine":
        rates = _cosine(highest, torch.zeros_like(highest), after / (total - warmup))
    else:
        rates = _one_cycle(after, total - warmup, highest, peak)
    return rates * ((steps + 1) / warmup).clamp(max=1) if warmup else rates


def _one_cycle(steps: Tensor, total: int, highest: Tensor, peak: Tensor) -> Tensor:
    """As torch's OneCycleLR without cycled momentum: from highest/25 up to the peak, then down to highest/250,000."""
    start = highest / START_DIVISOR
    turn = peak * total - 1
    up = _cosine(start, highest, steps / turn)
    down = _cosine(highest, start / FINAL_DIVISOR, (steps - turn) / (total - 1 - turn))
    return torch.where((steps <= turn) & (turn > 0), up, down)


def _cosine(first: Tensor, last: Tensor, share: Tensor) -> Tensor:
    return last + (first - last) / 2 * (1 + (math.pi * share).cos())
