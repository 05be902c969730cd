"""Means and covariances of many small groups of features, from which batch norms before and after a linear layer follow.

A batch norm, a linear layer and a batch norm in a row are one linear map whose weights follow from the mean and covariance of
what enters: no normalised tensor has to be written. `boolit.lab.training.batch_norm` puts a function of its own in the place of
`moments` where several processes share their statistics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary


class Moments(NamedTuple):
    """Shape: ``mean`` is ``(groups, features)``, ``covariance`` ``(groups, features, features)``, of so many ``samples``."""

    mean: Tensor
    covariance: Tensor
    samples: int


def moments(x: Tensor) -> Moments:
    """Mean and covariance (with the divisor n) of every group's features.

    Shape: ``(groups, samples, features)``.

    Example:
        >>> found = moments(torch.tensor([[[0.0, 1.0], [2.0, 1.0]]]))
        >>> found.mean.tolist(), found.covariance.tolist()
        ([[1.0, 1.0]], [[[1.0, 0.0], [0.0, 0.0]]])
    """
    if has_torch_function_unary(x):
        return handle_torch_function(moments, (x,), x)
    mean, covariance = _MeanAndCovariance.apply(x)  # type: ignore[no-untyped-call]
    return Moments(mean, covariance, x.shape[1])


class _MeanAndCovariance(torch.autograd.Function):
    """A group at a time, so that its centred features stay in the cache; its backward is one product a group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            mean = x.mean(1)
            covariance = torch.stack([_squares(group - centre) for group, centre in zip(x, mean, strict=True)])
        ctx.save_for_backward(x, mean)
        return mean, covariance

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_covariance: Tensor) -> Tensor:
        x, mean = ctx.saved_tensors
        product = (of_covariance + of_covariance.mT) / x.shape[1]
        constant = of_mean / x.shape[1] - (mean.unsqueeze(1) @ product).squeeze(1)
        return torch.baddbmm(constant.unsqueeze(1), x, product)


def _squares(centred: Tensor) -> Tensor:
    return centred.mT @ centred / len(centred)
