"""Learning-rate schedules, and optimizers of stacked runs with hyper-parameters per run: Adam, AdamW, SGD and registered ones.

torch.optim has no learning rate per row of a tensor. Here the parameters of all layers lie in one matrix with a row per run, so
that a step is one pass over it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from boolit.lab import kernels
from boolit.lab.models import Family, Stacked
from boolit.lab.training.recipe import HYPER, SCHEDULES, Hyper, Optimizer, Recipe

START_DIVISOR, FINAL_DIVISOR = 25.0, 1e4  # of OneCycleLR
RULES = ("sgd", "adam", "adamw")  # as in training.cpp
LOWEST = 1e-8  # rate at both ends of the triangular schedule


def epoch_rates(recipe: Recipe, epoch: int, steps: int, highest: Tensor, peak: Tensor) -> Tensor:
    """Return the rates of an epoch's steps, ``(steps, runs)`` in float64, from ``highest`` and ``peak`` of each run."""
    if epoch < recipe.prelude:
        return torch.full((steps, len(highest)), recipe.prelude_rate, dtype=torch.float64)
    first, total = ((number - recipe.prelude) * steps for number in (epoch, recipe.epochs))
    return learning_rates(recipe.schedule, torch.arange(first, first + steps), total, highest, peak)


def learning_rates(schedule: str, steps: Tensor, total: int, highest: Tensor, peak: Tensor) -> Tensor:
    """Return the learning rates at some of ``total`` steps, ``(steps, runs)`` in float64.

    Example:
        >>> learning_rates("cosine", torch.arange(3), 4, torch.ones(1), torch.ones(1)).squeeze(1)
        tensor([1.0000, 0.8536, 0.5000], dtype=torch.float64)
    """
    rates = SCHEDULES.get(schedule)(steps.double().unsqueeze(1), total, highest.double(), peak.double())
    return torch.as_tensor(rates, dtype=torch.float64).expand(len(steps), len(highest))


def constant(_steps: Tensor, _total: int, highest: Tensor, _peak: Tensor) -> Tensor:
    """Keep the highest rate."""
    return highest


def cosine(steps: Tensor, total: int, highest: Tensor, _peak: Tensor) -> Tensor:
    """Fall from the highest rate to 0 along a cosine."""
    return _cosine(highest, torch.zeros_like(highest), steps / total)


def one_cycle(steps: Tensor, total: int, highest: Tensor, peak: Tensor) -> Tensor:
    """Rise to the highest rate until ``peak`` and fall to nearly 0, as torch's OneCycleLR."""
    start, turn = highest / START_DIVISOR, peak * total - 1
    up = _cosine(start, highest, steps / turn)
    down = _cosine(highest, start / FINAL_DIVISOR, (steps - turn) / (total - 1 - turn))
    return torch.where((steps <= turn) & (turn > 0), up, down)


def triangular(steps: Tensor, total: int, highest: Tensor, peak: Tensor) -> Tensor:
    """Rise and fall linearly, as torch's CyclicLR with step_size_up = int(peak * total) and the remaining steps down."""
    turn = (peak * total).floor().clamp(1, max(total - 1, 1))
    share = torch.where(steps <= turn, steps / turn, (total - steps) / (total - turn))
    return LOWEST + (highest - LOWEST) * share


def _cosine(first: Tensor, last: Tensor, share: Tensor) -> Tensor:
    return last + (first - last) / 2 * (1 + (math.pi * share).cos())


class StackedOptimizer:
    """An optimizer on all runs of a stacked model.

    The model's parameters become views of ``values``, one matrix ``(runs, parameters)``.

    Args:
        model: the stacked model.
        family: gives factors on the learning rate by parameter.
        kind: the optimizer.
        hyper: its options, ``(runs,)`` each.
        decay_norm: whether weight decay applies to normalization layers.
    """

    def __init__(self, model: Stacked, family: Family, kind: Optimizer, hyper: Hyper, decay_norm: bool = True) -> None:
        named = dict(model.named_parameters())
        self.parameters = list(named.values())
        # reshape, because a scalar parameter has no dimension but that of the runs
        self.values = torch.cat([parameter.detach().reshape(len(parameter), -1) for parameter in self.parameters], 1)
        sizes = [parameter[0].numel() for parameter in self.parameters]
        for parameter, columns in zip(self.parameters, torch.split(self.values, sizes, 1), strict=True):
            parameter.data = columns.view(parameter.shape)
        self._kind, self._hyper = kind, {name: value.double() for name, value in hyper.items()}
        self.state = {name: torch.zeros_like(self.values) for name in kind.state}
        self._step = kind.stacked(
            self.values,
            list(self.state.values()),
            sizes,
            rate_factors=[family.rate_factor(name) for name in named],
            decay_factors=[float(decay_norm or not name.startswith("norm.")) for name in named],
        )

    def prepare(self, first: int, rates: Tensor) -> None:
        """Compute what depends on the step alone, for steps from ``first`` on, with rates ``(steps, runs)``."""
        # In float64, as torch's Python floats are.
        steps = torch.arange(first + 1, first + 1 + len(rates), dtype=torch.float64).unsqueeze(1)
        columns = self._kind.numbers(rates, steps, self._hyper)
        self._numbers = torch.stack([column.expand_as(rates) for column in columns], 2).to(self.values)

    def step(self, losses: Tensor, weights: Tensor, index: int) -> None:
        """Minimize the weighted sum of losses with the ``index``-th of the prepared steps."""
        # No loss depends on two runs, so every run has its own gradient.
        self._step(torch.autograd.grad(losses, self.parameters, weights), self._numbers[index])


class OptimizerStep:
    """Steps of SGD, Adam or AdamW on the rows of a matrix, in place, each row with its own hyper-parameters.

    Args:
        rule: ``sgd``, ``adam`` or ``adamw``.
        values: the parameters, ``(runs, columns)``.
        moments: velocity of SGD, or mean and square of Adam, each like ``values``.
        sizes: columns of each parameter of the network.
        rate_factors, decay_factors: factors on learning rate and weight decay, one per parameter of the network.
    """

    def __init__(
        self,
        rule: str,
        values: Tensor,
        moments: Sequence[Tensor],
        sizes: Sequence[int],
        rate_factors: Sequence[float],
        decay_factors: Sequence[float],
    ) -> None:
        self.rule, self.values, self.moments = rule, values, moments
        self._sizes = torch.tensor(sizes, dtype=torch.int64)
        self._factors = torch.tensor([rate_factors, decay_factors], dtype=torch.float32)
        columns = self._factors.to(values).repeat_interleave(self._sizes.to(values.device), 1)
        self._rate_columns, self._decay_columns = (1.0 if bool((row == 1).all()) else row for row in columns)
        self._kernel: Callable[..., None] | None = None
        if kernels.LIBRARY is not None and values.is_cpu and values.dtype == torch.float32:
            pointers = (each.data_ptr() for each in (values, moments[0], moments[-1], self._sizes, *self._factors))
            self._kernel = partial(kernels.LIBRARY.boolit_step, RULES.index(rule), len(sizes), *values.shape, *pointers)

    def __call__(self, gradients: Sequence[Tensor], numbers: Tensor) -> None:
        """Make one step.

        Args:
            gradients: ``(runs, …)``, one per parameter of the network.
            numbers: ``(runs, 8)``: weight decay; momentum, or 1 - beta1; 1 - beta2; beta2; eps; the negative learning rate, for
                Adam divided by 1 - beta1^t; 1 / sqrt(1 - beta2^t); learning rate times decay of AdamW.
        """
        if self._kernel is None:
            self._reference(torch.cat([gradient.reshape(len(gradient), -1) for gradient in gradients], 1), numbers)
            return
        gradients = [gradient.contiguous() for gradient in gradients]
        pointers = (ctypes.c_void_p * len(gradients))(*(gradient.data_ptr() for gradient in gradients))
        self._kernel(numbers.data_ptr(), ctypes.addressof(pointers))

    def _reference(self, gradients: Tensor, numbers: Tensor) -> None:
        values = self.values
        decay, first, second, beta2, eps, minus, root, shrinkage = numbers.unsqueeze(2).unbind(1)
        if self.rule == "adamw":
            values.mul_(1 - shrinkage * self._rate_columns * self._decay_columns)
        else:
            gradients.addcmul_(values, decay * self._decay_columns)
        if self.rule == "sgd":
            change = self.moments[0].mul_(first).add_(gradients)
        else:
            mean, square = self.moments
            mean.lerp_(gradients, first)
            square.mul_(beta2).addcmul_(gradients * second, gradients)
            change = mean / (square.sqrt() * root + eps)
        values.addcmul_(change * self._rate_columns, minus)


def _sgd_numbers(rates: Tensor, _steps: Tensor, hyper: Hyper) -> list[Tensor]:
    zeros = torch.zeros_like(rates)
    return [hyper["weight_decay"], hyper["momentum"], zeros, zeros, zeros, -rates, zeros, zeros]


def _adam_numbers(rates: Tensor, steps: Tensor, hyper: Hyper) -> list[Tensor]:
    beta1, beta2, decay = hyper["beta1"], hyper["beta2"], hyper["weight_decay"]
    minus, root = -rates / (1 - beta1**steps), (1 - beta2**steps).rsqrt()
    return [decay, 1 - beta1, 1 - beta2, beta2, hyper["eps"], minus, root, rates * decay]


def _torch_sgd(groups: list[dict[str, Any]], hyper: Mapping[str, float], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=0.0, momentum=hyper["momentum"], fused=fused)


def _torch_adam(
    groups: list[dict[str, Any]], hyper: Mapping[str, float], fused: bool, kind: type[torch.optim.Adam] = torch.optim.Adam
) -> torch.optim.Optimizer:
    return kind(groups, lr=0.0, betas=(hyper["beta1"], hyper["beta2"]), eps=hyper["eps"], fused=fused)


_ADAM_STATE, _ADAM_SEARCHED = ("mean", "square"), ("beta1", "beta2", "eps")
_torch_adamw = partial(_torch_adam, kind=torch.optim.AdamW)
SGD = Optimizer(("velocity",), _sgd_numbers, partial(OptimizerStep, "sgd"), _torch_sgd)
ADAM = Optimizer(_ADAM_STATE, _adam_numbers, partial(OptimizerStep, "adam"), _torch_adam, _ADAM_SEARCHED)
ADAMW = Optimizer(_ADAM_STATE, _adam_numbers, partial(OptimizerStep, "adamw"), _torch_adamw, _ADAM_SEARCHED)


def elementwise(step: Callable[..., None], state: tuple[str, ...], options: Mapping[str, float]) -> Optimizer:
    """Return the optimizer of a function that `boolit.lab.register_optimizer` takes."""
    names = (*HYPER, *options)

    def numbers(rates: Tensor, steps: Tensor, hyper: Hyper) -> list[Tensor]:
        return [rates, steps, *(hyper[name] for name in names)]

    def stacked(
        values: Tensor, moments: Sequence[Tensor], sizes: Sequence[int], **factors: Sequence[float]
    ) -> Callable[..., None]:
        spread = torch.tensor(sizes, device=values.device)
        rate_columns, decay_columns = (
            torch.tensor(factors[name]).to(values).repeat_interleave(spread) for name in ("rate_factors", "decay_factors")
        )
        tensors = dict(zip(state, moments, strict=True))

        @torch.no_grad()
        def update(gradients: Sequence[Tensor], numbers: Tensor) -> None:
            rate, number, *rest = numbers.unsqueeze(2).unbind(1)
            hyper = dict(zip(names, rest, strict=True))
            hyper["weight_decay"] = hyper["weight_decay"] * decay_columns
            gradient = torch.cat([each.reshape(len(each), -1) for each in gradients], 1)
            step(values, gradient, tensors, rate * rate_columns, hyper, number)

        return update

    def plain(groups: list[dict[str, Any]], hyper: Mapping[str, float], _fused: bool) -> torch.optim.Optimizer:
        return _Elementwise(groups, step, state, {name: torch.tensor(value) for name, value in hyper.items()})

    return Optimizer(state, numbers, stacked, plain, options=options)


class _Elementwise(torch.optim.Optimizer):
    """A registered optimizer of one network."""

    def __init__(self, groups: list[dict[str, Any]], step: Callable[..., None], state: tuple[str, ...], hyper: Hyper) -> None:
        super().__init__(groups, {"lr": 0.0})
        self._function, self._names, self._hyper = step, state, hyper

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            hyper = {**self._hyper, "weight_decay": torch.tensor(group["weight_decay"])}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state |= {"step": torch.tensor(0.0), **{name: torch.zeros_like(parameter) for name in self._names}}
                state["step"] += 1
                self._function(parameter, parameter.grad, state, torch.tensor(group["lr"]), hyper, state["step"])
