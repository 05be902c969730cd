"""What every model family tells the planner, and what its stacked networks are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from boolit.nn import Activation
from boolit.nn.width import count_parameters, width_for_budget

Shape: TypeAlias = Sequence[int]  # of one sample


class Stacked(nn.Module, ABC):
    """Networks of one shape, one per run: every parameter and buffer has a leading axis of runs.

    Shape: ``(runs, batch, …)`` to ``(runs, batch, outputs)``.

    Example:
        >>> from boolit.lab.models import family
        >>> networks = family({"name": "mlp"}).build(3, inputs=[2], outputs=1, widths=[4], spec="or_ail")
        >>> networks.initialise(seeds=[0, 1, 2])
        >>> networks(torch.zeros(3, 5, 2)).shape, networks.rate_factors()
        (torch.Size([3, 5, 1]), {})
    """

    @abstractmethod
    def initialise(self, seeds: Sequence[int]) -> None:
        """Draws the first weights of every run from the run's own seed."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The outputs of every run on its own batch.

        Shape: ``(runs, batch, …)`` to ``(runs, batch, outputs)``.
        """

    def rate_factors(self) -> Mapping[str, float]:
        """Factors on the recipe's learning rate, by parameter name, where a parameter has its own rate."""
        return {}


class Family(BaseModel, ABC):
    """Networks by a name and options: the ``[model]`` table of a study.

    A family is one file: a subclass with a field ``name`` and one field per option, registered with
    `boolit.lab.register_model`. It defines ``saved_numel`` and ``build``; the rest follows unless it has a rule of its own.

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
        >>> isinstance(mlp.build(3, [8], 1, [36, 36], "or_ail"), Stacked), mlp.saved_numel([8], 1, [36, 36], gate) > 72
        (True, True)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str

    def __hash__(self) -> int:
        return hash((type(self), self.model_dump_json()))  # options may be lists, which have no hash of their own

    @property
    def trains_alone(self) -> bool:
        """Whether its networks are so large that each is trained alone."""
        return False

    def widths(self, size: int, depth: int) -> list[int]:
        """The pre-activation widths of the network of a size: one per layer, all the same, unless a family has another rule."""
        return [size] * depth

    @abstractmethod
    def saved_numel(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        """About how many numbers one sample saves for the backward pass; a cohort's memory is estimated from it."""

    @abstractmethod
    def build(self, runs: int, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        """The networks of some runs, not yet initialised."""

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        """One run's network, whose parameters are counted."""
        return self.build(1, inputs, outputs, widths, spec)

    def parameters(self, inputs: Shape, outputs: int, widths: Sequence[int], activation: Activation) -> int:
        """How many parameters one run's network has."""
        return parameter_count(self, tuple(inputs), outputs, tuple(widths), activation.spec)

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:  # noqa: ARG002
        """The widths an activation has where a study says ``widths``: the same, unless a family has another rule."""
        return widths

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        """The widths whose parameter count is nearest to a budget."""

        def count(size: int) -> int:
            return self.parameters(inputs, outputs, self.widths(size, depth), activation)

        return self.widths(width_for_budget(count, budget, activation.divisor), depth)


@lru_cache(maxsize=4096)
def parameter_count(family: Family, inputs: tuple[int, ...], outputs: int, widths: tuple[int, ...], spec: str) -> int:
    """Parameters of one run's network, built on the meta device: no memory is allocated and no random number drawn."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return count_parameters(family.network(inputs, outputs, widths, spec))
