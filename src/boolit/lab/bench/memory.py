"""What a call keeps in memory for its backward."""

from __future__ import annotations

import torch
from torch import Tensor

from boolit.lab.bench.candidates import Function


def bytes_kept(function: Function, x: Tensor) -> int:
    """The bytes autograd saves in one call; memory saved twice, or by several views, counts once.

    Example:
        >>> bytes_kept(torch.sin, torch.zeros(10, requires_grad=True))  # its input
        40
    """
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # of a view too: the whole of it stays
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        result = function(x)
    del result  # only now: while the graph lives, no two saved tensors can have the same address
    return sum(kept.values())
