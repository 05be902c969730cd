"""Task-driven modular networks for compositional zero-shot learning, as published and as changed by the paper (a:czsl).

A step of a TMNx on 16 images with 600 negatives each of 1,262 pairs, 9,616 rows, takes 0.67 s of an AVX-512 core with ReLU or
OR_AIL and 0.75 with OR_IL, a third of it for the mixing; a batch of 128 peaks at 1.6 GB with ReLU and 2.8 with OR_AIL. With
many rows, modules are computed one by one, and their inner values are recomputed in the backward pass. Runs share nothing, so
they are run one by one, one thread each (see `UnstackedRuns`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.lab.models.base import Shape, Stacked
from boolit.lab.models.layers import draw_first_weights
from boolit.lab.models.tmn.layers import ModuleLinear
from boolit.lab.models.tmn.network import TmnNetwork, TmnShape
from boolit.lab.models.unstacked import UnstackedFamily, UnstackedRuns
from boolit.nn import Activation

# tab:tmnx: pre-activation widths by outputs per input of an activation, beside the 64 of 1→1.
NOMINAL, MATCHED = 64, {Fraction(1, 2): 70, Fraction(3, 2): 60}
GATER_SD = 0.1


class Tmn(UnstackedFamily):
    """``variant`` is ``tmn``, whose modules end with their activation, or ``tmnx``, with a linear layer after it.

    ``attributes``, ``objects`` and ``vectors`` are the number of words of each kind and the length of their vectors: the
    data's. In a TMN, a width is the output of the modules' activations, ``embedding``, and the gater always has ReLU and
    ``gater`` units: otherwise the counts of tab:tmn-og are not reached (NOTE[paper]: the text says that all ReLUs are
    replaced). In a TMNx it is the input of every activation, the gater's too; with ``sizes = "matched"`` it is that of 1→1
    activations, and others have the paper's, or where it has none, those that make the networks about equally large.
    ``gater_rate`` is the gater's learning rate as a factor on the recipe's.
    """

    name: Literal["tmn"] = "tmn"
    variant: Literal["tmn", "tmnx"] = "tmnx"
    attributes: int = Field(default=115, ge=1)
    objects: int = Field(default=245, ge=1)
    vectors: int = Field(default=300, ge=1)
    modules: int = Field(default=24, ge=1, le=10_000)
    layers: int = Field(default=3, ge=1, le=100)
    embedding: int = Field(default=16, ge=1)
    gater: int = Field(default=64, ge=1)
    gater_rate: float = Field(default=1.0, gt=0)
    sizes: Literal["equal", "matched"] = "matched"

    def widths(self, size: int, depth: int) -> list[int]:
        if depth != 1:
            raise UserError(f"a sweep.depth of {depth}: layers of a TMN are counted by model.layers; leave sweep.depth out")
        return [size]

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        width, factor = _single_width(widths), activation.feature_factor
        if self.variant == "tmn":
            return [_pre_activation_width(width, activation)]
        if self.sizes == "equal" or factor == 1:
            return widths
        if width == NOMINAL and factor in MATCHED:
            return [MATCHED[factor]]
        pointwise = self.parameters(inputs, outputs, widths, boolit.activation("relu"))
        return super().widths_for_budget(pointwise, 1, inputs, outputs, activation)

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        if self.variant == "tmn":
            raise UserError(f"a budget of {budget}: a TMN has one size; use sweep.width = {self.embedding} or variant = 'tmnx'")
        return super().widths_for_budget(budget, depth, inputs, outputs, activation)

    def saved_numel(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        shape = self._shape(inputs, outputs, widths, activation.spec)
        per_pair = shape.modules * (2 * shape.embedding * shape.layers + shape.width)
        return shape.features + shape.modules * 3 * shape.width + outputs * per_pair

    def build(self, runs: int, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return StackedTmn(self, runs, self._shape(inputs, outputs, widths, spec))

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> TmnNetwork:
        return TmnNetwork(self._shape(inputs, outputs, widths, spec))

    def _shape(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> TmnShape:
        width, extended = _single_width(widths), self.variant == "tmnx"
        if len(inputs) != 1:
            raise UserError(f"samples of shape {tuple(inputs)}: a TMN takes features of an image, (features,); use such data")
        if not extended and (left := boolit.activation(spec).out_features(width)) != self.embedding:
            rule = f"{spec} makes {left} of a width of {width}, but modules of a TMN output {self.embedding}"
            raise UserError(f"{rule}; use sweep.width = {self.embedding}, or variant = 'tmnx'")
        return TmnShape(
            features=inputs[0],
            pairs=outputs,
            **self.model_dump(include={"attributes", "objects", "vectors", "modules", "layers", "embedding"}),
            width=width,
            gater_width=width if extended else self.gater,
            spec=spec,
            gater_spec=spec if extended else "relu",
            projected=extended,
        )


class StackedTmn(UnstackedRuns):
    """The networks of some runs.

    Shape: ``(runs, batch, features)`` to ``(runs, batch, pairs)``; ``(runs, batch, features + candidates)`` to
    ``(runs, batch, candidates)``.
    """

    def __init__(self, family: Tmn, runs: int, shape: TmnShape) -> None:
        with torch.random.fork_rng(devices=[]):  # torch's layers draw weights that `initialise` replaces
            super().__init__(runs, TmnNetwork(shape))
        self.register_buffer("pairs", torch.zeros(runs, shape.pairs, 2, dtype=torch.int64))
        self._gater_rate = family.gater_rate

    def initialise(self, seeds: Sequence[int]) -> None:
        super().initialise(seeds)
        for name, layer in self.named_modules():
            if isinstance(layer, ModuleLinear):
                bias = layer.bias if layer.bias is None else layer.bias.flatten(1)
                draw_first_weights(layer.weight.flatten(1, 2), bias, seeds, name)
            elif isinstance(layer, nn.Embedding):
                _draw_normal(layer.weight, seeds, name, 1.0)
        _draw_normal(self.get_parameter("gater.first.weight"), seeds, "gater.first", GATER_SD)
        with torch.no_grad():
            self.get_parameter("gater.last.weight").zero_()  # all gates are equal at first

    def rate_factors(self) -> Mapping[str, float]:
        return {name: self._gater_rate for name, _ in self.named_parameters() if name.startswith("gater.")}


def _draw_normal(weight: Tensor, seeds: Sequence[int], name: str, sd: float) -> None:
    with torch.no_grad():
        for run, seed in enumerate(seeds):
            weight[run].normal_(0, sd, generator=generator(seed, "initialisation", name))


def _single_width(widths: Sequence[int]) -> int:
    if len(widths) != 1:
        raise UserError(f"{len(widths)} widths ({list(widths)}) for a TMN, whose layers all have one; give a single width")
    return widths[0]


def _pre_activation_width(width: int, activation: Activation) -> int:
    """The pre-activation width for a width after the activation."""
    before = width / activation.feature_factor
    if before.denominator != 1 or before % activation.divisor:
        rule = f"no width before {activation.spec} gives {width} after it"
        raise UserError(f"{rule}, as the modules of a TMN must; choose another activation or variant = 'tmnx'")
    return int(before)
