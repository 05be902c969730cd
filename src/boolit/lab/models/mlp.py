"""Multi-layer perceptrons, and the heads of the transfer experiments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.models.base import Family, Shape, Stacked
from boolit.lab.models.layers import (
    SMALL,
    StackedBatchNorm,
    StackedDropout,
    StackedLayerNorm,
    StackedLinear,
    stacked_activation,
)
from boolit.nn import Activation

# Multi-layer perceptrons: Linear, normalisation, activation, dropout, again, and a last Linear.

NORMALISATIONS: dict[str, type[StackedBatchNorm | StackedLayerNorm]] = {"batch": StackedBatchNorm, "layer": StackedLayerNorm}


class Mlp(Family):
    """``initialisation`` is ``torch`` (as nn.Linear) or ``small`` (uniform in ±0.005 without bias, as the authors' code)."""

    name: Literal["mlp"] = "mlp"
    normalisation: Literal["none", "batch", "layer"] = "none"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    initialisation: Literal["torch", "small"] = "torch"

    def saved_numel(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        per_width = 2 if self.normalisation == "none" else 3
        hidden = sum(per_width * width + 2 * activation.out_features(width) for width in widths)
        return 2 * math.prod(inputs) + hidden + 4 * outputs

    def build(self, runs: int, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return StackedMlp(self, runs, math.prod(inputs), outputs, widths, spec)


class StackedMlp(Stacked):
    """The networks of some runs.

    Shape: ``(runs, batch, …)`` to ``(runs, batch, outputs)``.
    """

    def __init__(self, family: Mlp, runs: int, inputs: int, outputs: int, widths: Sequence[int], spec: str) -> None:
        super().__init__()
        self.bound = None if family.initialisation == "torch" else SMALL
        self.linear, self.norm = nn.ModuleList(), nn.ModuleList()
        self.activation, self.dropout = nn.ModuleList(), nn.ModuleList()
        self._path: list[nn.Module] = []
        single = boolit.activation(spec)
        for width in widths:
            self._add(self.linear, StackedLinear(runs, inputs, width))
            if family.normalisation != "none":
                self._add(self.norm, NORMALISATIONS[family.normalisation](runs, width))
            self._add(self.activation, stacked_activation(runs, spec))
            if isinstance(self._path[-2], StackedBatchNorm) and spec == "relu":  # one pass instead of a layer of its own
                self._path[-2].relu = True
                self._path.pop()
            if family.dropout:
                self._add(self.dropout, StackedDropout(runs, family.dropout))
            inputs = single.out_features(width)
        self._add(self.linear, StackedLinear(runs, inputs, outputs))

    def _add(self, kind: nn.ModuleList, layer: nn.Module) -> None:
        kind.append(layer)
        self._path.append(layer)

    def initialise(self, seeds: Sequence[int]) -> None:
        for name, layer in self.named_modules():
            if isinstance(layer, StackedLinear):
                layer.initialise(seeds, name, self.bound)
            if isinstance(layer, StackedDropout):
                layer.initialise(seeds, name)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).mT
        for layer in self._path:
            x = layer(x)
        return x.mT


# Heads on the features of a frozen encoder: two hidden layers, or a single linear layer (a:transfer).

# tab:transfer-nparam-big: pre-activation widths by outputs per input of an activation, beside the 512 of 1→1.
NOMINAL, MATCHED = 512, {Fraction(1, 2): 650, Fraction(3, 2): 438}
LINEAR = "identity"
PLAIN = Mlp()


class Head(Family):
    """Multi-layer perceptrons without normalisation; ``identity`` stands for one linear layer, without hidden ones.

    With ``sizes = "matched"`` the widths of a study are those of 1→1 activations, and others have the paper's, which make heads
    for 100 classes about equally large; where the paper has none, those that make them so for the classes there are.
    """

    name: Literal["head"] = "head"
    sizes: Literal["equal", "matched"] = "equal"

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        factor = activation.feature_factor
        if activation.spec == LINEAR:
            return []
        if self.sizes == "equal" or factor == 1:
            return widths
        if set(widths) == {NOMINAL} and factor in MATCHED:
            return [MATCHED[factor]] * len(widths)
        pointwise = self.parameters(inputs, outputs, widths, boolit.activation("relu"))
        return super().widths_for_budget(pointwise, len(widths), inputs, outputs, activation)

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        if activation.spec == LINEAR:
            raise UserError(f"a budget of {budget}: {LINEAR} stands for one linear layer, of one size; use sweep.width")
        return super().widths_for_budget(budget, depth, inputs, outputs, activation)

    def saved_numel(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        return PLAIN.saved_numel(inputs, outputs, widths, activation)

    def build(self, runs: int, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return PLAIN.build(runs, inputs, outputs, widths, spec)
