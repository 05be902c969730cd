"""What every model family tells the planner, and what its stacked networks are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from boolit.nn import Activation
from boolit.nn.width import width_for_budget


class Stacked(nn.Module, ABC):
    """Networks of one shape, one a run: every parameter and buffer has a leading axis of runs."""

    @abstractmethod
    def initialise(self, seeds: Sequence[int]) -> None:
        """Draws the first weights of every run from the run's own seed."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The outputs of every run on its own batch.

        Shape: ``(runs, batch, …)`` to ``(runs, batch, outputs)``.
        """

    def rate_factors(self) -> Mapping[str, float]:
        """What the learning rate is multiplied by, of those parameters whose rate is another than the recipe's."""
        return {}


class Family(BaseModel, ABC):
    """Networks by a name and options: the ``[model]`` table of a study.

    A family is one file: a subclass with a field ``name`` and one field an option, registered with `register`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str

    @property
    def trains_alone(self) -> bool:
        """Whether its networks are large: each is then trained alone."""
        return False

    @abstractmethod
    def widths(self, size: int, depth: int) -> list[int]:
        """The pre-activation widths of the network of a size."""

    @abstractmethod
    def parameters(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        """How many parameters a network has."""

    @abstractmethod
    def saved_numel(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        """About how many numbers a sample leaves for the backward pass; what a cohort's memory is estimated from."""

    @abstractmethod
    def build(self, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        """The networks of some runs, not yet initialised."""

    def widths_for_activation(
        self,
        widths: list[int],
        inputs: Sequence[int],  # noqa: ARG002
        outputs: int,  # noqa: ARG002
        activation: Activation,  # noqa: ARG002
    ) -> list[int]:
        """The widths an activation has where a study says ``widths``: the same, unless a family has another rule."""
        return widths

    def widths_for_budget(
        self, budget: int, depth: int, inputs: Sequence[int], outputs: int, activation: Activation
    ) -> list[int]:
        """The widths whose parameters are nearest to a budget."""

        def count(size: int) -> int:
            return self.parameters(inputs, outputs, self.widths(size, depth), activation)

        return self.widths(width_for_budget(count, budget, activation.divisor), depth)


def flat_size(inputs: Sequence[int]) -> int:
    """How many numbers one sample has."""
    return math.prod(inputs)
