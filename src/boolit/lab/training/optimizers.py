"""Learning-rate schedules, and Adam, AdamW and SGD of stacked runs with hyper-parameters per run.

torch.optim has no learning rate per row of a tensor. Here the parameters of all layers lie in one matrix with a row per run, so
that a step is one pass over it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from boolit.lab.kernels import OptimizerStep
from boolit.lab.models import Family, Stacked
from boolit.lab.training.recipe import Optimizer, Recipe, Schedule

START_DIVISOR, FINAL_DIVISOR = 25.0, 1e4  # of OneCycleLR
LOWEST = 1e-8  # rate at both ends of the triangular schedule


def epoch_rates(recipe: Recipe, epoch: int, steps: int, highest: Tensor, peak: Tensor) -> Tensor:
    """Return the rates of an epoch's steps, ``(steps, runs)`` in float64, from ``highest`` and ``peak`` of each run."""
    if epoch < recipe.prelude:
        return torch.full((steps, len(highest)), recipe.prelude_rate, dtype=torch.float64)
    first, total = ((number - recipe.prelude) * steps for number in (epoch, recipe.epochs))
    return learning_rates(recipe.schedule, torch.arange(first, first + steps), total, highest, peak)


def learning_rates(schedule: Schedule, steps: Tensor, total: int, highest: Tensor, peak: Tensor) -> Tensor:
    """Return the learning rates at some of ``total`` steps, ``(steps, runs)`` in float64.

    Example:
        >>> learning_rates("cosine", torch.arange(3), 4, torch.ones(1), torch.ones(1)).squeeze(1)
        tensor([1.0000, 0.8536, 0.5000], dtype=torch.float64)
    """
    steps, highest, peak = steps.double().unsqueeze(1), highest.double(), peak.double()
    if schedule == "constant":
        return highest.expand(len(steps), -1)
    if schedule == "cosine":
        return _cosine(highest, torch.zeros_like(highest), steps / total)
    if schedule == "one-cycle":
        start, turn = highest / START_DIVISOR, peak * total - 1
        up = _cosine(start, highest, steps / turn)
        down = _cosine(highest, start / FINAL_DIVISOR, (steps - turn) / (total - 1 - turn))
        return torch.where((steps <= turn) & (turn > 0), up, down)
    # torch's CyclicLR with step_size_up = int(peak * total) and the remaining steps down.
    turn = (peak * total).floor().clamp(1, max(total - 1, 1))
    share = torch.where(steps <= turn, steps / turn, (total - steps) / (total - turn))
    return LOWEST + (highest - LOWEST) * share


def _cosine(first: Tensor, last: Tensor, share: Tensor) -> Tensor:
    return last + (first - last) / 2 * (1 + (math.pi * share).cos())


class StackedOptimizer:
    """Adam, AdamW or SGD on all runs of a stacked model.

    The model's parameters become views of ``values``, one matrix ``(runs, parameters)``.

    Args:
        model: the stacked model.
        family: gives factors on the learning rate by parameter.
        rule: ``adam``, ``adamw`` or ``sgd``.
        hyper: hyper-parameters, ``(runs,)`` each.
        decay_norm: whether weight decay applies to normalization layers.
    """

    def __init__(
        self, model: Stacked, family: Family, rule: Optimizer, hyper: Mapping[str, Tensor], decay_norm: bool = True
    ) -> None:
        named = dict(model.named_parameters())
        self.parameters = list(named.values())
        self.values = torch.cat([parameter.detach().flatten(1) for parameter in self.parameters], 1)
        sizes = [parameter[0].numel() for parameter in self.parameters]
        for parameter, columns in zip(self.parameters, torch.split(self.values, sizes, 1), strict=True):
            parameter.data = columns.view(parameter.shape)
        self.rule, self._hyper = rule, {name: value.double() for name, value in hyper.items()}
        self.state = {name: torch.zeros_like(self.values) for name in (("velocity",) if rule == "sgd" else ("mean", "square"))}
        self._step = OptimizerStep(
            rule,
            self.values,
            list(self.state.values()),
            sizes,
            rate_factors=[family.rate_factor(name) for name in named],
            decay_factors=[float(decay_norm or not name.startswith("norm.")) for name in named],
        )

    def prepare(self, first: int, rates: Tensor) -> None:
        """Compute what depends on the step alone, for steps from ``first`` on, with rates ``(steps, runs)``."""
        hyper, zeros = self._hyper, torch.zeros_like(rates)
        # In float64, as torch's Python floats are.
        steps = torch.arange(first + 1, first + 1 + len(rates), dtype=torch.float64).unsqueeze(1)
        if self.rule == "sgd":
            columns = [hyper["weight_decay"], hyper["momentum"], zeros, zeros, zeros, -rates, zeros, zeros]
        else:
            beta1, beta2, decay = hyper["beta1"], hyper["beta2"], hyper["weight_decay"]
            minus, root = -rates / (1 - beta1**steps), (1 - beta2**steps).rsqrt()
            columns = [decay, 1 - beta1, 1 - beta2, beta2, hyper["eps"], minus, root, rates * decay]
        self._numbers = torch.stack([column.expand_as(rates) for column in columns], 2).to(self.values)

    def step(self, losses: Tensor, weights: Tensor, index: int) -> None:
        """Minimize the weighted sum of losses with the ``index``-th of the prepared steps."""
        # No loss depends on two runs, so every run has its own gradient.
        self._step(torch.autograd.grad(losses, self.parameters, weights), self._numbers[index])
