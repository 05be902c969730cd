"""Layers of a task-driven modular network: what enters the modules of a layer, and all modules at once.

With the rows sorted by pair, a pair's rows are one product of a 24 × 24 matrix: on one AVX-512 core 20,000 rows of 1,262 pairs
take 26 ms forward and 52 backward, and less per row the more rows a pair has. One product per row takes as long forward, but
writes the gates of every row, and their gradients: 36 times as much as one set per pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import boolit
from boolit.lab.models.layers import LearntActivation, moments


def mix(gates: Tensor, outputs: Tensor, counts: Sequence[int]) -> Tensor:
    """Sums of the senders' outputs, weighted by the gates of each row's pair; the first pair has the first ``counts[0]`` rows.

    Shape: ``(pairs, receivers, senders)`` and ``(senders, rows, features)`` to ``(receivers, rows, features)``.

    Example:
        >>> halves = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]]])
        >>> mix(halves, torch.tensor([[[2.0], [2.0], [2.0]], [[4.0], [4.0], [4.0]]]), [1, 2]).flatten().tolist()
        [3.0, 2.0, 2.0]
    """
    kind = torch.promote_types(outputs.dtype, torch.float32)  # half precision is too coarse for running statistics
    return cast(Tensor, _Mix.apply(gates.to(kind), outputs.to(kind).contiguous(), counts))  # type: ignore[no-untyped-call]


class _Mix(torch.autograd.Function):
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


NUMBERS_AT_ONCE = 2**23  # of pre-activations; with more, modules are computed in parts and recomputed in the backward pass


class ModuleLinear(nn.Module):
    """The weights of one ``nn.Linear`` per module, to be initialised elsewhere.

    Shape: ``weight`` is ``(modules, outputs, inputs)``, ``bias`` ``(modules, outputs)``.
    """

    bias: nn.Parameter | None

    def __init__(self, modules: int, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(modules, outputs, inputs))
        self.register_parameter("bias", nn.Parameter(torch.zeros(modules, outputs)) if bias else None)


class ModuleNorm(nn.Module):
    """The weights and running statistics of one ``nn.BatchNorm1d`` per module.

    Shape: ``(modules, features)`` each.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, modules: int, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(modules, features)), nn.Parameter(torch.zeros(modules, features))
        self.register_buffer("running_mean", torch.zeros(modules, features))
        self.register_buffer("running_var", torch.ones(modules, features))

    def update(self, mean: Tensor, variance: Tensor, samples: int) -> None:
        """Updates the running statistics from a batch's."""
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            self.running_var.lerp_((variance * (samples / max(samples - 1, 1))).to(self.running_var), self.momentum)

    def scale(self, variance: Tensor) -> Tensor:
        """The factor on centred features."""
        return self.weight * (variance.clamp(min=0) + self.eps).rsqrt()


class ModuleActivation(nn.Module):
    """One activation per module, along the last axis.

    Shape: ``(modules, rows, features)`` to ``(modules, rows, out_features)``.
    """

    def __init__(self, modules: int, spec: str) -> None:
        super().__init__()
        one = boolit.activation(spec, dim=1)
        learns = next(one.parameters(), None) is not None
        self.each = LearntActivation(modules, one) if learns else boolit.activation(spec, dim=2)

    def of(self, part: slice) -> Callable[[Tensor], Tensor]:
        """The activations of some modules as a function, with the parameters they have now."""
        return self.each.of(part) if isinstance(self.each, LearntActivation) else self.each

    def forward(self, x: Tensor) -> Tensor:
        return self.of(slice(None))(x)


class FirstLayer(nn.Module):
    """Modules that read the image: linear, batch norm, activation, and a ``projection`` without bias, if any.

    Shape: ``(batch, inputs)`` to ``(modules, batch, embedding)``.
    """

    def __init__(self, modules: int, inputs: int, width: int, spec: str, projected: int | None) -> None:
        super().__init__()
        features = boolit.activation(spec).out_features(width)
        self.linear, self.norm = ModuleLinear(modules, inputs, width), nn.BatchNorm1d(modules * width)
        self.activation = ModuleActivation(modules, spec)
        self.projection = None if projected is None else ModuleLinear(modules, features, projected, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        modules, width, _ = weight.shape
        rows = self.norm(F.linear(x, weight.flatten(0, 1), bias if bias is None else bias.flatten()))
        result: Tensor = self.activation(rows.view(-1, modules, width).transpose(0, 1).contiguous())
        return result if self.projection is None else result @ self.projection.weight.mT


class InnerLayer(nn.Module):
    """Modules that read mixed outputs of modules: batch norm, then as in the first layer.

    Both batch norms and the linear layer between them are one linear map (see `moments`).

    Shape: ``(modules, rows, embedding)``, unchanged.
    """

    def __init__(self, modules: int, embedding: int, width: int, spec: str, projected: int | None) -> None:
        super().__init__()
        features = boolit.activation(spec).out_features(width)
        self.entry, self.linear = ModuleNorm(modules, embedding), ModuleLinear(modules, embedding, width)
        self.norm, self.activation = ModuleNorm(modules, width), ModuleActivation(modules, spec)
        self.projection = None if projected is None else ModuleLinear(modules, features, projected, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            weight, shift = self._map(x)
        modules, rows, width = len(x), x.shape[1], weight.shape[1]
        size = max(1, NUMBERS_AT_ONCE // (rows * width))
        parts = [slice(first, first + size) for first in range(0, modules, size)]
        pieces = [self._part(part, x[part], weight[part], shift[part], alone=size >= modules) for part in parts]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _part(self, part: slice, x: Tensor, weight: Tensor, shift: Tensor, alone: bool) -> Tensor:
        """Some modules' outputs; unless they are all modules (``alone``), inner values are recomputed in the backward pass."""
        projection = None if self.projection is None else self.projection.weight[part]
        compute = partial(_apply_modules, self.activation.of(part))
        if alone or not torch.is_grad_enabled():
            return compute(x, weight, shift, projection)
        result: Tensor = checkpoint(compute, x, weight, shift, projection, use_reentrant=False, preserve_rng_state=False)
        return result

    def _map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights and the constant of batch norm, linear layer and batch norm.

        Shape: ``(modules, width, embedding)`` and ``(modules, width)``.
        """
        assert self.linear.bias is not None
        middle = _matvec(self.linear.weight, self.entry.bias) + self.linear.bias  # what the mean is mapped to
        if self.training:
            mean, covariance, samples = moments(x)
            variance = covariance.diagonal(dim1=1, dim2=2)
            self.entry.update(mean, variance, samples)
            weight = self.linear.weight * self.entry.scale(variance).unsqueeze(1)
            variance, centre = (weight @ covariance * weight).sum(2), middle
            self.norm.update(centre, variance, samples)
        else:
            mean, variance, centre = self.entry.running_mean, self.norm.running_var, self.norm.running_mean
            weight = self.linear.weight * self.entry.scale(self.entry.running_var).unsqueeze(1)
        scale = self.norm.scale(variance)
        return weight * scale.unsqueeze(2), self.norm.bias + scale * (middle - centre - _matvec(weight, mean))


class HeadLayer(nn.Module):
    """The score of the last layer's mixed outputs: batch norm and one linear unit.

    Shape: ``(rows, embedding)`` to ``(rows,)``.
    """

    def __init__(self, embedding: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(embedding), nn.Linear(embedding, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(self.norm(x)).squeeze(1)
        return scores


def _apply_modules(
    activation: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor, shift: Tensor, projection: Tensor | None
) -> Tensor:
    outputs = activation(torch.baddbmm(shift.unsqueeze(1), x, weight.mT))
    return outputs if projection is None else outputs @ projection.mT


def _matvec(weight: Tensor, vector: Tensor) -> Tensor:
    """Each module's matrix times its vector."""
    return (weight @ vector.unsqueeze(2)).squeeze(2)
