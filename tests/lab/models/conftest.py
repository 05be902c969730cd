"""What tests of several model families measure."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def numbers_kept() -> Callable[[nn.Module, Tensor], float]:
    """How many 32-bit numbers a network's call leaves for its backward pass, its parameters and buffers not counted."""

    def measured(network: nn.Module, x: Tensor) -> float:
        own = {values.untyped_storage().data_ptr() for values in (*network.parameters(), *network.buffers())}
        kept: dict[int, int] = {}

        def note(saved: Tensor) -> Tensor:
            storage = saved.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return saved

        with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            outputs = network(x)
        assert outputs.requires_grad
        return sum(size for place, size in kept.items() if place not in own) / 4

    return measured
