"""Adam, AdamW and SGD on many runs at once, and their schedules: every hyper-parameter is a tensor with one value per run.

The parameters of all layers lie in one matrix, one row per run, so a step is a dozen operations however many layers there are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from boolit.lab.training.recipe import Optimiser, Recipe, Schedule

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

    def gradients_of(self, results: Tensor, weights: Tensor) -> Tensor:
        """The gradients of the weighted sum of some results; each run's of its own, as no result depends on two runs."""
        gradients = torch.autograd.grad(results, self.parameters, weights)
        return torch.cat([gradient.flatten(1) for gradient in gradients], 1, out=self.gradients)


class StackedOptimiser(ABC):
    """Updates the rows of a matrix in place, each with its own hyper-parameters.

    ``factors`` multiply the learning rate of each column.

    Shape: ``values`` is ``(runs, parameters)``, every hyper-parameter ``(runs,)``, ``factors`` ``(parameters,)``.
    """

    moments: tuple[str, ...]

    def __init__(self, values: Tensor, hyper: Mapping[str, Tensor], factors: Tensor | None = None) -> None:
        self.values, self.factors = values, factors
        self.hyper = {name: value.double().unsqueeze(1) for name, value in hyper.items()}
        self.state = {name: torch.zeros_like(values) for name in self.moments}
        self.decays = bool((self.hyper["weight_decay"] != 0).any())
        self.decay = self._own(self.hyper["weight_decay"])

    @abstractmethod
    def prepare(self, first: int, rates: Tensor) -> None:
        """Computes what depends on the step alone for some steps in advance, from the ``first``, counted from 0.

        Shape: learning rates ``(steps, runs)``.
        """

    @abstractmethod
    def step(self, gradients: Tensor, index: int) -> None:
        """One update, the ``index``-th of those prepared; ``gradients`` may be overwritten.

        Shape: ``(runs, parameters)``.
        """

    def _own(self, value: Tensor) -> Tensor:
        """Small numbers are computed in double precision, as torch's Python floats are, then used as the values are."""
        return value.to(self.values)

    def _scaled(self, update: Tensor) -> Tensor:
        """An update as long as each column's own learning rate makes it."""
        return update if self.factors is None else update * self.factors


class StackedSgd(StackedOptimiser):
    """torch.optim.SGD with momentum and L2 weight decay."""

    moments = ("velocity",)

    def prepare(self, first: int, rates: Tensor) -> None:  # noqa: ARG002 (SGD does the same in every step)
        self._momentum, self._minus = self._own(self.hyper["momentum"]), self._own(-rates.unsqueeze(2))

    def step(self, gradients: Tensor, index: int) -> None:
        if self.decays:
            gradients.addcmul_(self.values, self.decay)
        velocity = self.state["velocity"].mul_(self._momentum).add_(gradients)
        self.values.addcmul_(self._scaled(velocity), self._minus[index])


class StackedAdam(StackedOptimiser):
    """torch.optim.Adam: weight decay is added to the gradient."""

    moments = ("mean", "square")
    decoupled = False

    def __init__(self, values: Tensor, hyper: Mapping[str, Tensor], factors: Tensor | None = None) -> None:
        super().__init__(values, hyper, factors)
        self._fresh1, self._fresh2 = (self._own(1 - self.hyper[name]) for name in ("beta1", "beta2"))
        self._beta2, self._eps = (self._own(self.hyper[name]) for name in ("beta2", "eps"))
        self._scratch = torch.empty_like(values)

    def prepare(self, first: int, rates: Tensor) -> None:
        rates = rates.unsqueeze(2)
        steps = torch.arange(first + 1, first + 1 + len(rates), dtype=torch.float64).view(-1, 1, 1)
        beta1, beta2 = self.hyper["beta1"], self.hyper["beta2"]
        self._minus = self._own(-rates / (1 - beta1**steps))
        self._root = self._own((1 - beta2**steps).rsqrt())
        shrinkage = rates * self.hyper["weight_decay"]
        self._shrinkage, self._remaining = self._own(shrinkage), self._own(1 - shrinkage)

    def step(self, gradients: Tensor, index: int) -> None:
        if self.decays and self.decoupled:
            self.values.mul_(1 - self._scaled(self._shrinkage[index]) if self.factors is not None else self._remaining[index])
        elif self.decays:
            gradients.addcmul_(self.values, self.decay)
        mean, square = self.state["mean"], self.state["square"]
        mean.lerp_(gradients, self._fresh1)
        torch.mul(gradients, self._fresh2, out=self._scratch)
        square.mul_(self._beta2).addcmul_(self._scratch, gradients)
        torch.sqrt(square, out=self._scratch)
        self._scratch.mul_(self._root[index]).add_(self._eps)
        torch.div(mean, self._scratch, out=self._scratch)
        self.values.addcmul_(self._scaled(self._scratch), self._minus[index])


class StackedAdamW(StackedAdam):
    """torch.optim.AdamW: weight decay shrinks the parameters themselves."""

    decoupled = True


OPTIMISERS: dict[Optimiser, type[StackedOptimiser]] = {"adam": StackedAdam, "adamw": StackedAdamW, "sgd": StackedSgd}
