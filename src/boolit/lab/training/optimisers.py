"""Adam, AdamW and SGD on many runs at once, and their schedules: every hyper-parameter is a tensor with one value per run.

The parameters of all layers lie in one matrix, one row per run, so a step is one pass over it however many layers there are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from boolit.lab.training.recipe import Optimiser, Recipe, Schedule
from boolit.logic.kernels.training import Update

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


class FlatParameters:
    """A model's parameters as one matrix ``(runs, parameters)`` that the model's own tensors are views of.

    ``factors`` are what the learning rate of each column is multiplied by, ``(parameters,)``; None if that is 1 of all. They
    are given by parameter.
    """

    def __init__(self, model: nn.Module, factors: Mapping[str, float] | None = None) -> None:
        named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = list(named.values())
        self.values = torch.cat([parameter.detach().flatten(1) for parameter in self.parameters], 1)
        self.gradients = torch.zeros_like(self.values)
        sizes = [parameter[0].numel() for parameter in self.parameters]
        for parameter, columns in zip(self.parameters, torch.split(self.values, sizes, 1), strict=True):
            parameter.data = columns.view(parameter.shape)
        own = [(factors or {}).get(name, 1.0) for name in named]
        columns = torch.tensor(own).repeat_interleave(torch.tensor(sizes)).to(self.values)
        self.factors = None if set(own) <= {1.0} else columns

    def gradients_of(self, results: Tensor, weights: Tensor) -> Sequence[Tensor]:
        """The gradients of the weighted sum of some results; each run's of its own, as no result depends on two runs.

        Shape: one per parameter, as it is.
        """
        return torch.autograd.grad(results, self.parameters, weights)


class StackedOptimiser(ABC):
    """Updates the rows of a matrix in place, each with its own hyper-parameters.

    ``factors`` multiply the learning rate of each column.

    Shape: ``values`` is ``(runs, parameters)``, every hyper-parameter ``(runs,)``, ``factors`` ``(parameters,)``.
    """

    rule: str
    moments: tuple[str, ...]

    def __init__(self, values: Tensor, hyper: Mapping[str, Tensor], factors: Tensor | None = None) -> None:
        self.hyper = {name: value.double() for name, value in hyper.items()}
        self.state = {name: torch.zeros_like(values) for name in self.moments}
        # Small numbers are computed in double precision, as torch's Python floats are, then used as the values are.
        numbers = torch.stack(torch.broadcast_tensors(self.hyper["weight_decay"], *self._numbers()), 1).to(values)
        self._update = Update(self.rule, values, list(self.state.values()), numbers, factors)

    def prepare(self, first: int, rates: Tensor) -> None:
        """Computes what depends on the step alone for some steps in advance, from the ``first``, counted from 0.

        Shape: learning rates ``(steps, runs)``.
        """
        steps = torch.arange(first + 1, first + 1 + len(rates), dtype=torch.float64).unsqueeze(1)
        self._now = torch.stack(self._numbers_of_steps(steps, rates), 2).to(self._update.values)

    def step(self, gradients: Sequence[Tensor], index: int) -> None:
        """One update, the ``index``-th of those prepared; ``gradients``, those of neighbouring columns, may be overwritten.

        Shape: ``(runs, …)`` each.
        """
        self._update.step(gradients, self._now[index])

    @abstractmethod
    def _numbers(self) -> list[Tensor]:
        """A run's numbers that stay the same, as `Update` takes them after the weight decay.

        Shape: ``(runs,)`` each.
        """

    @abstractmethod
    def _numbers_of_steps(self, steps: Tensor, rates: Tensor) -> list[Tensor]:
        """A run's numbers in steps, as `Update` takes them; steps are counted from 1.

        Shape: ``(steps, 1)`` and ``(steps, runs)``, to ``(steps, runs)`` each.
        """


class StackedSgd(StackedOptimiser):
    """torch.optim.SGD with momentum and L2 weight decay."""

    rule, moments = "sgd", ("velocity",)

    def _numbers(self) -> list[Tensor]:
        return [self.hyper["momentum"], *torch.zeros(3, 1)]

    def _numbers_of_steps(self, steps: Tensor, rates: Tensor) -> list[Tensor]:  # noqa: ARG002 (SGD does the same in every step)
        return [-rates, torch.zeros_like(rates), torch.zeros_like(rates)]


class StackedAdam(StackedOptimiser):
    """torch.optim.Adam: weight decay is added to the gradient."""

    rule, moments = "adam", ("mean", "square")

    def _numbers(self) -> list[Tensor]:
        beta1, beta2, eps = (self.hyper[name] for name in ("beta1", "beta2", "eps"))
        return [1 - beta1, 1 - beta2, beta2, eps]

    def _numbers_of_steps(self, steps: Tensor, rates: Tensor) -> list[Tensor]:
        minus = -rates / (1 - self.hyper["beta1"] ** steps)
        return [minus, (1 - self.hyper["beta2"] ** steps).rsqrt(), rates * self.hyper["weight_decay"]]


class StackedAdamW(StackedAdam):
    """torch.optim.AdamW: weight decay shrinks the parameters themselves."""

    rule = "adamw"


OPTIMISERS: dict[Optimiser, type[StackedOptimiser]] = {"adam": StackedAdam, "adamw": StackedAdamW, "sgd": StackedSgd}
