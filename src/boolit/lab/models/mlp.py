"""Multi-layer perceptrons and the heads of the transfer experiments. Their runs train stacked.

Stacked activations have the shape ``(runs, features, batch)``. With the batch last, one feature of one run is a contiguous
row: batch normalization works on ``runs × features`` rows without a copy, and a gate combines whole rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from fractions import Fraction
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, vmap

import boolit
from boolit.errors import UserError
from boolit.lab.kernels import batch_norm
from boolit.lab.models.base import SMALL, Family, SeededDropout, Shape, Stacked, draw_weights, round_down
from boolit.lab.models.controls import Control
from boolit.nn import Activation

# The authors' sweeps on MNIST made the first hidden layer 1.25 times as wide as the second.
SWEEP_RATIO = 1.25


class Mlp(Family):
    """Multi-layer perceptron: Linear, normalization, activation and dropout for every width, then a last Linear.

    Args:
        normalization: ``none``, ``batch`` or ``layer``, before every activation.
        dropout: probability of a zero after every activation.
        initialization: ``torch`` (as ``nn.Linear``) or ``small`` (uniform in ±0.005 with zero bias, as the authors' code).
        budget_widths: how a parameter budget becomes widths. ``equal``: layers of equal width, with the parameter count
            nearest to the budget, as the paper says. ``sweeps``: the rule of the authors' sweeps behind tab:mlp-mnist for two
            hidden layers, the first 1.25 times as wide as the second; normalization is not counted, and both widths are
            truncated to a multiple of the activation's width multiple.
    """

    name: str = "mlp"
    normalization: Literal["none", "batch", "layer"] = "none"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    initialization: Literal["torch", "small"] = "torch"
    budget_widths: Literal["equal", "sweeps"] = "equal"

    stackable: ClassVar[bool] = True

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        if self.budget_widths == "equal":
            return super().widths_for_budget(budget, depth, inputs, outputs, activation)
        if depth != 2:
            raise UserError(f"depth {depth}: budget_widths = 'sweeps' is defined for two hidden layers; use sweep.depth = 2")
        return sweep_widths(budget, math.prod(inputs), outputs, activation)

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        return MlpNetwork(self, math.prod(inputs), outputs, widths, spec)

    def stacked(self, runs: int, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return StackedMlp(self, runs, math.prod(inputs), outputs, widths, spec)

    def weight_bound(self, layer: nn.Module) -> float | None:  # noqa: ARG002
        return SMALL if self.initialization == "small" else None


def sweep_widths(budget: int, inputs: int, outputs: int, activation: Activation) -> list[int]:
    """Return the two widths of the authors' sweeps for a budget.

    The second width solves the parameter count with the first at 1.25 times the second; the first then follows from the count.
    NOTE[paper]: that the biases of the outputs are added instead of subtracted there is the authors' code.

    Example:
        >>> sweep_widths(2**16, 784, 10, boolit.activation("relu")), sweep_widths(2**16, 784, 10, boolit.activation("or_ail"))
        ([76, 61], [78, 62])
    """
    factor = float(activation.feature_factor)
    square, linear = SWEEP_RATIO * factor, SWEEP_RATIO * (inputs + 1) + 1 + factor * outputs
    second = (math.sqrt(linear**2 + 4 * square * (budget - outputs)) - linear) / (2 * square)
    first = (budget - second * (outputs * factor + 1) + outputs) / (inputs + 1 + factor * second)
    return [round_down(width, activation.width_multiple) for width in (first, second)]


class Perceptron(nn.Module):
    """The layers of one perceptron, or of those of several ``runs``, whose tensors have a leading axis of runs."""

    def __init__(
        self, family: Mlp, inputs: int, outputs: int, widths: Sequence[int], spec: str, runs: int | None = None
    ) -> None:
        super().__init__()
        stacked, norm = () if runs is None else (runs,), family.normalization
        norms: dict[str, Callable[..., nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        if runs is not None:
            norms = {"batch": StackedBatchNorm, "layer": StackedLayerNorm}
        linear: Callable[..., nn.Module] = nn.Linear if runs is None else StackedLinear
        features = [inputs, *map(boolit.activation(spec).out_features, widths)]
        self.linear = nn.ModuleList(linear(*stacked, *sizes) for sizes in zip(features, (*widths, outputs), strict=True))
        self.norm = nn.ModuleList(norms[norm](*stacked, width) for width in widths if norm != "none")
        function = boolit.activation if runs is None else partial(stacked_activation, runs)
        self.activation = nn.ModuleList(_sized(function(spec), width, runs) for width in widths)
        self.dropout = nn.ModuleList(SeededDropout(family.dropout, runs) for _ in widths if family.dropout)

    def _outputs(self, x: Tensor) -> Tensor:
        *hidden, last = self.linear
        for i, linear in enumerate(hidden):
            x = linear(x)
            for layers in (self.norm, self.activation, self.dropout):
                x = layers[i](x) if len(layers) else x
        outputs: Tensor = last(x)
        return outputs


class MlpNetwork(Perceptron):
    """One perceptron, from ``(batch, …)`` to ``(batch, outputs)``."""

    def forward(self, x: Tensor) -> Tensor:
        return self._outputs(x.flatten(1))


class StackedMlp(Perceptron, Stacked):
    """The perceptrons of several runs, with the names of `MlpNetwork`."""

    def __init__(self, family: Mlp, runs: int, inputs: int, outputs: int, widths: Sequence[int], spec: str) -> None:
        super().__init__(family, inputs, outputs, widths, spec, runs)
        self._bound = family.weight_bound(self)

    def initialize(self, seeds: Sequence[int]) -> None:
        for name, layer in self.named_modules():
            if isinstance(layer, StackedLinear):
                for run, seed in enumerate(seeds):
                    draw_weights(layer.weight[run], layer.bias[run], seed, name, self._bound)
            elif isinstance(layer, (SeededDropout, Control)):
                layer.seed(seeds, name)

    def forward(self, x: Tensor) -> Tensor:
        return self._outputs(x.flatten(2).mT).mT

    def weights(self, run: int) -> dict[str, Tensor]:
        return {name.replace(".single.", "."): values[run] for name, values in self.state_dict().items()}


class StackedLinear(nn.Module):
    """One ``nn.Linear`` per run, from ``(runs, inputs, batch)`` to ``(runs, outputs, batch)``."""

    def __init__(self, runs: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(runs, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(runs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias.unsqueeze(2), self.weight, x)


class StackedBatchNorm(nn.Module):
    """One ``nn.BatchNorm1d`` per run, on ``(runs, features, batch)``."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, runs: int, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(runs, features))
        self.bias = nn.Parameter(torch.zeros(runs, features))
        self.register_buffer("running_mean", torch.zeros(runs, features))
        self.register_buffer("running_var", torch.ones(runs, features))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.momentum, self.eps)
        mean, var, weight, bias = (v.reshape(-1) for v in (self.running_mean, self.running_var, self.weight, self.bias))
        return F.batch_norm(x.reshape(1, -1, x.shape[2]), mean, var, weight, bias, eps=self.eps).view_as(x)


class StackedLayerNorm(nn.Module):
    """One ``nn.LayerNorm`` per run, on ``(runs, features, batch)``."""

    def __init__(self, runs: int, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(runs, features))
        self.bias = nn.Parameter(torch.zeros(runs, features))

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.mT, x.shape[1:2], eps=self.eps).mT
        return torch.addcmul(self.bias.unsqueeze(2), self.weight.unsqueeze(2), normal)


class LearnedActivation(nn.Module):
    """Copies of ``single``, an activation with parameters such as PReLU, one per run (or module), applied with vmap."""

    def __init__(self, runs: int, single: Activation) -> None:
        super().__init__()
        self.single = deepcopy(single)
        for module in self.single.modules():
            for name, value in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(value.detach().expand(runs, *value.shape).clone()))

    def forward(self, x: Tensor) -> Tensor:
        return self.part(slice(None))(x)

    def part(self, runs: slice) -> Callable[[Tensor], Tensor]:
        """Return the activations of a range of runs as a function."""
        values = {name: value[runs] for name, value in self.single.named_parameters()}
        return lambda x: vmap(lambda parameters, rows: functional_call(self.single, parameters, (rows,)))(values, x)


def stacked_activation(runs: int, spec: str, dim: int = 1) -> Activation | LearnedActivation:
    """Return the activation of every run along an axis of ``(runs, …)``.

    Example:
        >>> stacked_activation(3, "or_ail")(torch.zeros(3, 4, 7)).shape
        torch.Size([3, 2, 7])
    """
    function = boolit.activation(spec, dim=dim)
    learns = next(function.parameters(), None) is not None
    return LearnedActivation(runs, boolit.activation(spec, dim=dim - 1)) if learns else function


def _sized(function: nn.Module, width: int, runs: int | None = None) -> nn.Module:
    return function.sized(width, runs) if isinstance(function, Control) else function


# Heads on the features of a frozen encoder: two hidden layers, or a single linear layer (a:transfer).
MATCHED = {Fraction(1): 512, Fraction(1, 2): 650, Fraction(3, 2): 438}  # tab:transfer-nparam-big: widths by feature factor
LINEAR = "identity"


class Head(Mlp):
    """Multi-layer perceptron in which the activation ``identity`` stands for one linear layer.

    Args:
        sizes: ``equal``: every activation has the widths of the study. ``matched``: these are the widths of 1→1 activations,
            and others have the paper's widths, which make heads for 100 classes about equally large; where the paper has
            none, the widths that match the parameter count.
    """

    name: str = "head"
    sizes: Literal["equal", "matched"] = "equal"

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        if activation.spec == LINEAR:
            return []
        return widths if self.sizes == "equal" else self.matched_widths(widths, inputs, outputs, activation, MATCHED)

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        if activation.spec == LINEAR:
            raise UserError(f"budget {budget}: {LINEAR} stands for one linear layer, which has one size; use sweep.width")
        return super().widths_for_budget(budget, depth, inputs, outputs, activation)
