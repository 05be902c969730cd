"""Multi-layer perceptrons: Linear, normalisation, activation, dropout, again, and a last Linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.lab.models import register
from boolit.lab.models._family import Family, Stacked, flat_size
from boolit.lab.models.layers import StackedBatchNorm, StackedDropout, StackedLayerNorm, StackedLinear, stacked_activation
from boolit.nn import Activation
from boolit.nn.width import mlp_parameters

SMALL = 0.005
NORMALISATIONS: dict[str, type[StackedBatchNorm | StackedLayerNorm]] = {"batch": StackedBatchNorm, "layer": StackedLayerNorm}


@register
class Mlp(Family):
    """``initialisation`` is ``torch`` (as nn.Linear) or ``small`` (uniform in ±0.005 without bias, as the authors' code)."""

    name: Literal["mlp"] = "mlp"
    normalisation: Literal["none", "batch", "layer"] = "none"
    dropout: float = Field(0.0, ge=0, lt=1)
    initialisation: Literal["torch", "small"] = "torch"

    def hidden(self, size: int, depth: int) -> list[int]:
        return [size] * depth

    def parameters(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        return mlp_parameters(flat_size(inputs), widths, outputs, activation, batch_norm=self.normalisation != "none")

    def kept(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        per_width = 2 if self.normalisation == "none" else 3
        hidden = sum(per_width * width + 2 * activation.out_features(width) for width in widths)
        return 2 * flat_size(inputs) + hidden + 4 * outputs

    def build(self, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return StackedMlp(self, runs, flat_size(inputs), outputs, widths, spec)


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
