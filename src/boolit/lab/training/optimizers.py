"""Learning-rate schedules, and optimizers of stacked runs with hyper-parameters per run: Adam, AdamW, SGD and registered ones.

torch.optim has no learning rate per row of a tensor. Here the parameters of all layers lie in one matrix with a row per run, so
that a step is one pass over it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from boolit.lab import kernels
from boolit.lab.models import Family, Stacked
from boolit.lab.training.recipe import HYPER, Hyper, Optimizer

START_DIVISOR, FINAL_DIVISOR = 25.0, 1e4  # of OneCycleLR
LOWEST = 1e-8  # rate at both ends of the triangular schedule
RAMP_STEPS = 100


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


def ramp(steps: Tensor, _total: int, highest: Tensor, _peak: Tensor) -> Tensor:
    """Rise linearly to the highest rate in `RAMP_STEPS` steps, and stay there."""
    return ((steps + 1) / RAMP_STEPS).clamp(max=1) * highest


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
        self.values = values = torch.cat([parameter.detach().reshape(len(parameter), -1) for parameter in self.parameters], 1)
        sizes = [parameter[0].numel() for parameter in self.parameters]
        for parameter, columns in zip(self.parameters, torch.split(values, sizes, 1), strict=True):
            parameter.data = columns.view(parameter.shape)
        self._kind, self._hyper = kind, {name: value.double() for name, value in hyper.items()}
        self.state = {name: torch.zeros_like(values) for name in kind.state}
        decays = [float(decay_norm or not name.startswith("norm.")) for name in named]
        self._factors = torch.tensor([[family.rate_factor(name) for name in named], decays], dtype=torch.float32)
        self._sizes = torch.tensor(sizes, dtype=torch.int64)
        by_column = self._factors.to(values).repeat_interleave(self._sizes.to(values.device), 1)
        self._by_column = [1.0 if bool((row == 1).all()) else row for row in by_column]
        self._kernel: Callable[..., None] | None = None
        if kind.rule is not None and kernels.LIBRARY is not None and values.is_cpu and values.dtype == torch.float32:
            moments = [*self.state.values()]
            pointers = [each.data_ptr() for each in (values, moments[0], moments[-1], self._sizes, *self._factors)]
            self._kernel = partial(kernels.LIBRARY.boolit_step, kind.rule, len(sizes), *values.shape, *pointers)

    def prepare(self, first: int, rates: Tensor) -> None:
        """Compute what depends on the step alone, for steps from ``first`` on, with rates ``(steps, runs)``."""
        # In float64, as torch's Python floats are.
        steps = torch.arange(first + 1, first + 1 + len(rates), dtype=torch.float64).unsqueeze(1)
        numbers = self._kind.numbers(rates, steps, self._hyper)
        self._names = list(numbers)
        self._numbers = torch.stack([column.expand_as(rates) for column in numbers.values()], 2).to(self.values)

    def step(self, losses: Tensor, weights: Tensor, index: int) -> None:
        """Minimize the weighted sum of losses with the ``index``-th of the prepared steps."""
        # No loss depends on two runs, so every run has its own gradient.
        gradients, numbers = torch.autograd.grad(losses, self.parameters, weights), self._numbers[index]
        if self._kernel is None:
            gradient = torch.cat([each.reshape(len(each), -1) for each in gradients], 1)
            by_name = dict(zip(self._names, numbers.unsqueeze(2).unbind(1), strict=True))
            with torch.no_grad():
                self._kind.update(self.values, gradient, self.state, by_name, *self._by_column)
            return
        gradients = tuple(gradient.contiguous() for gradient in gradients)
        pointers = (ctypes.c_void_p * len(gradients))(*(gradient.data_ptr() for gradient in gradients))
        self._kernel(numbers.data_ptr(), ctypes.addressof(pointers))


# Numbers by name, in the order of the struct `Numbers` in training.cpp, which explains them.


def _sgd_numbers(rates: Tensor, _steps: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    zeros = torch.zeros_like(rates)
    numbers = {"decay": hyper["weight_decay"], "first": hyper["momentum"], "second": zeros, "beta2": zeros, "eps": zeros}
    return numbers | {"minus": -rates, "root": zeros, "shrinkage": zeros}


def _adam_numbers(rates: Tensor, steps: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    beta1, beta2, decay = hyper["beta1"], hyper["beta2"], hyper["weight_decay"]
    numbers = {"decay": decay, "first": 1 - beta1, "second": 1 - beta2, "beta2": beta2, "eps": hyper["eps"]}
    root = (1 - beta2**steps).rsqrt()
    return numbers | {"minus": -rates / (1 - beta1**steps), "root": root, "shrinkage": rates * decay}


def _sgd(values: Tensor, gradient: Tensor, state: Hyper, by: Hyper, rate_factor: Any, decay_factor: Any) -> None:
    velocity = state["velocity"].mul_(by["first"]).add_(gradient.addcmul_(values, by["decay"] * decay_factor))
    values.addcmul_(velocity * rate_factor, by["minus"])


def _adam(
    values: Tensor, gradient: Tensor, state: Hyper, by: Hyper, rate_factor: Any, decay_factor: Any, decoupled: bool = False
) -> None:
    if decoupled:
        values.mul_(1 - by["shrinkage"] * rate_factor * decay_factor)
    else:
        gradient.addcmul_(values, by["decay"] * decay_factor)
    mean, square = state["mean"].lerp_(gradient, by["first"]), state["square"]
    square.mul_(by["beta2"]).addcmul_(gradient * by["second"], gradient)
    values.addcmul_(mean / (square.sqrt() * by["root"] + by["eps"]) * rate_factor, by["minus"])


def _torch_adam(
    groups: list[dict[str, Any]], hyper: Mapping[str, float], fused: bool, kind: type[torch.optim.Adam] = torch.optim.Adam
) -> torch.optim.Optimizer:
    return kind(groups, lr=0.0, betas=(hyper["beta1"], hyper["beta2"]), eps=hyper["eps"], fused=fused)


def _torch_sgd(groups: list[dict[str, Any]], hyper: Mapping[str, float], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=0.0, momentum=hyper["momentum"], fused=fused)


SGD = Optimizer(("velocity",), _sgd_numbers, _sgd, _torch_sgd, rule=0)
ADAM = Optimizer(("mean", "square"), _adam_numbers, _adam, _torch_adam, ("beta1", "beta2", "eps"), rule=1)
ADAMW = ADAM._replace(update=partial(_adam, decoupled=True), plain=partial(_torch_adam, kind=torch.optim.AdamW), rule=2)


def elementwise(step: Callable[..., None], state: tuple[str, ...], options: Mapping[str, float]) -> Optimizer:
    """Return the optimizer of a function that `boolit.lab.register_optimizer` takes."""

    def numbers(rates: Tensor, steps: Tensor, hyper: Hyper) -> dict[str, Tensor]:
        return {"rate": rates, "number": steps} | {name: hyper[name] for name in (*HYPER, *options)}

    def update(values: Tensor, gradient: Tensor, tensors: Hyper, by: Hyper, rate_factor: Any, decay_factor: Any) -> None:
        hyper = {**by, "weight_decay": by["weight_decay"] * decay_factor}
        step(values, gradient, tensors, by["rate"] * rate_factor, hyper, by["number"])

    def plain(groups: list[dict[str, Any]], hyper: Mapping[str, float], _fused: bool) -> torch.optim.Optimizer:
        return _Elementwise(groups, step, state, {name: torch.tensor(value) for name, value in hyper.items()})

    return Optimizer(state, numbers, update, plain, options=options)


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
