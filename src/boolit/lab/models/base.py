"""Base classes of model families and of stacked networks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.common.random import generator, keys, uniform
from boolit.lab.models.controls import Control
from boolit.nn import Activation
from boolit.nn.width import count_parameters, width_for_budget

Shape: TypeAlias = Sequence[int]  # of one sample
SMALL = 0.005  # bound of the initial weights of linear layers in the authors' code


class Stacked(nn.Module, ABC):
    """Networks of one shape, one per run. Every parameter and buffer has a leading axis of runs.

    Example:
        >>> from boolit.lab.models import family
        >>> networks = family({"name": "mlp"}).stacked(3, inputs=[2], outputs=1, widths=[4], spec="or_ail")
        >>> networks.initialize(seeds=[0, 1, 2])
        >>> networks(torch.zeros(3, 5, 2)).shape
        torch.Size([3, 5, 1])
    """

    @abstractmethod
    def initialize(self, seeds: Sequence[int]) -> None:
        """Draw the initial weights of every run from its seed."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Map every run's batch ``(runs, batch, …)`` to its outputs ``(runs, batch, outputs)``."""

    @abstractmethod
    def weights(self, run: int) -> dict[str, Tensor]:
        """Return views of one run's parameters and buffers, named as in the network that `Family.network` builds."""


class Family(BaseModel, ABC):
    """Networks described by a name and options: the ``[model]`` table of a study.

    A subclass has a field ``name``, one field per option, and a method ``network``. Register it with
    `boolit.lab.register_model`.

    Example:
        >>> from boolit import activation
        >>> from boolit.lab.models import family
        >>> mlp, gate = family({"name": "mlp"}), activation("or_ail")
        >>> mlp.widths(32, depth=2), mlp.widths_for_activation([32, 32], [8], 1, gate), mlp.trains_alone
        ([32, 32], [32, 32], False)
        >>> mlp.widths_for_budget(1000, depth=2, inputs=[8], outputs=1, activation=gate)
        [36, 36]
        >>> mlp.parameters([8], 1, [36, 36], gate), count_parameters(mlp.network([8], 1, [36, 36], "or_ail"))
        (1027, 1027)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str

    stackable: ClassVar[bool] = False  # whether `stacked` trains several runs as one model

    def __hash__(self) -> int:
        return hash((type(self), self.model_dump_json()))  # options may be lists, which are not hashable

    @property
    def trains_alone(self) -> bool:
        """Whether the networks are so large that each run trains alone."""
        return False

    def widths(self, size: int, depth: int) -> list[int]:
        """Return the pre-activation widths of the network of a size. By default all layers are equally wide."""
        return [size] * depth

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:  # noqa: ARG002
        """Return the widths that an activation has where a study says ``widths``. By default they are the same."""
        return widths

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        """Return the widths whose parameter count is nearest to a budget."""

        def count(size: int) -> int:
            return self.parameters(inputs, outputs, self.scaled_widths(size, depth, activation), activation)

        return self.scaled_widths(width_for_budget(count, budget, activation.width_multiple), depth, activation)

    def matched_widths(
        self, widths: list[int], inputs: Shape, outputs: int, activation: Activation, table: Mapping[Fraction, int]
    ) -> list[int]:
        """Return widths for as many parameters as 1→1 activations have with ``widths``; ``table`` has the paper's by factor."""
        factor = activation.feature_factor
        if set(widths) == {table.get(Fraction(1))} and factor in table:
            return [table[factor]] * len(widths)
        pointwise = self.parameters(inputs, outputs, widths, boolit.activation("relu"))
        return widths if factor == 1 else self.widths_for_budget(pointwise, len(widths), inputs, outputs, activation)

    def scaled_widths(self, size: int, depth: int, activation: Activation) -> list[int]:  # noqa: ARG002
        """Return the widths among which `widths_for_budget` chooses. By default they are the same for all activations."""
        return self.widths(size, depth)

    def parameters(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        """Return the number of parameters of one network."""
        return parameter_count(self, tuple(inputs), outputs, tuple(widths), activation.spec)

    @abstractmethod
    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        """Return a network from ``(batch, *inputs)`` to ``(batch, outputs)``, not yet initialized."""

    def stacked(self, runs: int, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        """Return the networks of several runs as one model, not yet initialized. Only if ``stackable``."""
        raise NotImplementedError(f"networks of {self.name} cannot be stacked")

    def initialize(self, network: nn.Module, seed: int) -> None:
        """Draw the initial weights of a network, and seed its dropout layers."""
        for name, layer in network.named_modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                draw_weights(layer.weight, layer.bias, seed, name, self.weight_bound(layer))
            elif isinstance(layer, (SeededDropout, Control)):
                layer.seed([seed], name)

    def weight_bound(self, layer: nn.Module) -> float | None:  # noqa: ARG002
        """Return the bound of a layer's uniform initial weights (its bias is then 0), or None for torch's default."""
        return None

    def rate_factor(self, parameter: str) -> float:  # noqa: ARG002
        """Return a factor on the learning rate of a parameter of the network."""
        return 1.0


def check_depth(depth: int, rule: str) -> None:
    """Raise `UserError` for a study that sets the depth of a family whose layers are fixed."""
    if depth != 1:
        raise UserError(f"depth {depth}: {rule}; leave sweep.depth out")


def round_down(width: float, width_multiple: int) -> int:
    """Return the largest multiple of width_multiple that is not above a width, but at least one multiple.

    Example:
        >>> round_down(39.9, 2), round_down(0.7, 2)
        (38, 2)
    """
    return width_multiple * max(1, int(width // width_multiple))


def draw_weights(weight: Tensor, bias: Tensor | None, seed: int, name: str, bound: float | None = None) -> None:
    """Initialize a layer in place from the run's seed and the layer's name, by default as ``nn.Linear``.

    With a ``bound``, weights are uniform within ±bound and the bias is 0.

    Shape: ``(outputs, …)`` and ``(outputs,)``.
    """
    limit = 1 / math.sqrt(weight[0].numel()) if bound is None else bound
    # "initialisation" is hashed into the seed; another word would give other weights.
    drawn = generator(seed, "initialisation", name)
    with torch.no_grad():
        weight.uniform_(-limit, limit, generator=drawn)
        if bias is not None:
            bias.uniform_(-limit, limit, generator=drawn) if bound is None else bias.zero_()


class SeededDropout(nn.Module):
    """Dropout of one or several runs whose mask is a function of the run's seed and ``step``, set by the trainer.

    With several runs the input has a leading axis of runs.
    """

    keys: Tensor

    def __init__(self, p: float, runs: int | None = None) -> None:
        super().__init__()
        self.p, self.runs, self.step = p, runs, 0
        self.register_buffer("keys", torch.zeros(runs or 1, dtype=torch.int64), persistent=False)

    def seed(self, seeds: Sequence[int], name: str) -> None:
        """Set the random stream of every run."""
        self.keys.copy_(keys(seeds, "dropout", name))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = x.shape if self.runs is None else x.shape[1:]
        mask = uniform(self.keys, self.step, shape).view_as(x) >= self.p
        return x * mask / (1 - self.p)


@lru_cache(maxsize=4096)
def parameter_count(family: Family, inputs: tuple[int, ...], outputs: int, widths: tuple[int, ...], spec: str) -> int:
    """Return the parameter count of one network, built on the meta device so that nothing is allocated or drawn."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return count_parameters(family.network(inputs, outputs, widths, spec))
