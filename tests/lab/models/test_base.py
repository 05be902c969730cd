"""Parameters are counted on one run's network without memory or random draws, unless a family counts them itself."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import pytest
import torch
from torch import Tensor

import boolit
from boolit.lab.models import Family, Stacked, family
from boolit.lab.models.base import parameter_count
from boolit.lab.models.layers import StackedLinear
from boolit.nn import Activation

RELU = boolit.activation("relu")
TABLES = {
    "mlp": ({}, (28, 28), 10, [64, 64]),
    "head": ({}, (512,), 10, [512, 512]),
    "cnn": ({}, (28, 28), 10, [8] * 8),
    "preact-resnet": ({"depth": 18}, (3, 32, 32), 10, [64, 128, 256, 512]),
    "sran": ({"size": "small"}, (16, 32, 32), 8, [24, 8, 32, 16, 16, 8, 8]),
    "tmn": ({}, (512,), 1962, [64]),
}


class Chain(Family):
    """A family with a list as an option, that does not say how many parameters it has."""

    name: Literal["chain"] = "chain"
    factors: list[int] = [1]  # noqa: RUF012 (a field of pydantic)

    def widths(self, size: int, depth: int) -> list[int]:  # noqa: ARG002
        return [size * factor for factor in self.factors]

    def saved_numel(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:  # noqa: ARG002
        return sum(widths)

    def build(self, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Stacked:  # noqa: ARG002
        return StackedChain(runs, [inputs[0], *widths, outputs])


class StackedChain(Stacked):
    def __init__(self, runs: int, sizes: Sequence[int]) -> None:
        super().__init__()
        pairs = pairwise(sizes)
        self.layers = torch.nn.Sequential(*(StackedLinear(runs, before, after) for before, after in pairs))

    def initialise(self, seeds: Sequence[int]) -> None:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Counted(Chain):
    """A family that counts for itself."""

    def parameters(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:  # noqa: ARG002
        return 100 * widths[0]


@pytest.mark.parametrize("name", TABLES)
def test_counting_allocates_nothing_and_draws_nothing(name: str) -> None:
    options, inputs, outputs, widths = TABLES[name]
    parameter_count.cache_clear()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    count = family({"name": name, **options}).parameters(inputs, outputs, widths, RELU)
    assert torch.equal(torch.get_rng_state(), state)
    built = family({"name": name, **options}).build(2, inputs, outputs, widths, "relu")
    assert 2 * count == sum(values.numel() for values in built.parameters())


def test_a_network_too_large_for_any_memory_is_counted() -> None:
    assert family({"name": "mlp"}).parameters((10**6,), 1, [10**7], RELU) == (10**6 + 1) * 10**7 + 10**7 + 1


def test_options_may_be_lists_and_tell_counts_apart() -> None:
    assert Chain().parameters((4,), 2, [3], RELU) == 5 * 3 + 4 * 2
    narrow, wide = (Chain(factors=factors).widths_for_budget(1000, 1, (4,), 2, RELU) for factors in ([1, 1], [1, 2]))
    assert wide[1] == 2 * wide[0]
    assert narrow[1] == narrow[0] > wide[0]


def test_a_family_that_counts_for_itself_is_believed() -> None:
    assert Counted().widths_for_budget(5000, 1, (4,), 2, RELU) == [50]
