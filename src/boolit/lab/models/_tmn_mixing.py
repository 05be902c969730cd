"""What enters the modules of a layer: for every pair, the outputs of the layer below mixed by the pair's gates.

With the rows sorted by pair, a pair's rows are one product of a 24 × 24 matrix: on one AVX-512 core 20,000 rows of 1,262 pairs
take 26 ms forward and 52 backward, and less a row the more rows a pair has. One product a row takes as long forward, but
writes the gates of every row, and their gradients: 36 times what they are for each pair once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor


def mixed(gates: Tensor, outputs: Tensor, counts: Sequence[int]) -> Tensor:
    """Sums of the senders' outputs, weighed by the gates of each row's pair; the first ``counts[0]`` rows are the first pair's.

    Shape: ``(pairs, receivers, senders)`` and ``(senders, rows, features)`` to ``(receivers, rows, features)``.

    Example:
        >>> halves = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]]])
        >>> mixed(halves, torch.tensor([[[2.0], [2.0], [2.0]], [[4.0], [4.0], [4.0]]]), [1, 2]).flatten().tolist()
        [3.0, 2.0, 2.0]
    """
    kind = torch.promote_types(outputs.dtype, torch.float32)  # of half precision, batch norms would learn too little
    return cast(Tensor, _Mixed.apply(gates.to(kind), outputs.to(kind).contiguous(), counts))  # type: ignore[no-untyped-call]


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, outputs: Tensor, counts: Sequence[int]) -> Tensor:
        ctx.save_for_backward(gates, outputs)
        ctx.counts = counts
        result = outputs.new_empty(gates.shape[1], *outputs.shape[1:])
        for gate, below, above in zip(gates, _by_pair(outputs, counts), _by_pair(result, counts), strict=True):
            torch.mm(gate, below, out=above)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        gates, outputs = ctx.saved_tensors
        of_gates, of_outputs = torch.empty_like(gates), torch.empty_like(outputs)
        above, below, result = (_by_pair(values, ctx.counts) for values in (gradient.contiguous(), outputs, of_outputs))
        for pair, gate in enumerate(gates):
            torch.mm(gate.T, above[pair], out=result[pair])
            torch.mm(above[pair], below[pair].T, out=of_gates[pair])
        return of_gates, of_outputs, None


def _by_pair(values: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
    """Every pair's rows as one matrix.

    Shape: ``(modules, rows, features)`` to ``(modules, rows of the pair · features)`` each.
    """
    matrices: Sequence[Tensor] = values.flatten(1).split([count * values.shape[2] for count in counts], 1)
    return matrices
