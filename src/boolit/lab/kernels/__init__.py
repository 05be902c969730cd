"""Operations of stacked training: optimizer steps, batch normalization and image look-up.

Each is written in torch for every device and data type; the kernels of ``training.cpp`` replace it for float32 on a CPU. They
are worth their lines in end-to-end runs: without the optimizer kernel an ``mnist-mlp`` run takes 12 to 24 % longer, and without
batch normalization a stack of networks on a table 11 to 22 %.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ABI = 4
RULES = {"sgd": 0, "adam": 1, "adamw": 2}


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("rule", "parts")),
        *((name, ctypes.c_int64) for name in ("runs", "columns")),
        *((name, ctypes.c_void_p) for name in ("values", "first", "second", "sizes")),
        *((name, ctypes.c_void_p) for name in ("rate_factors", "decay_factors", "numbers", "gradients")),
    ]


class _Norm(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "samples", "features", "weight_stride", "bias_stride")),
        *((name, ctypes.c_double) for name in ("eps", "momentum")),
        *((name, ctypes.c_void_p) for name in ("x", "above", "weight", "bias", "out", "mean", "scale")),
        *((name, ctypes.c_void_p) for name in ("running_mean", "running_var", "weight_gradient", "bias_gradient")),
    ]


class _Warp(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("count", "height", "width")),
        *((name, ctypes.c_void_p) for name in ("images", "origins", "out")),
    ]


def _load() -> ctypes.CDLL | None:
    path = Path(__file__).with_name(f"_training{sysconfig.get_config_var('EXT_SUFFIX')}")
    if os.environ.get("BOOLIT_KERNELS", "1") == "0" or not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    if library.boolit_training_abi() != ABI:  # left over from another version of boolit
        return None
    for name in ("step", "normalize", "normalize_backward", "look_up"):
        function = getattr(library, f"boolit_{name}")
        function.argtypes, function.restype = [ctypes.c_void_p], None
    return library


LIBRARY = _load()


def usable(*tensors: Tensor) -> bool:
    """Return whether the kernels can compute with these tensors."""
    return LIBRARY is not None and all(values.is_cpu and values.dtype == torch.float32 for values in tensors)


class OptimizerStep:
    """Steps of SGD, Adam or AdamW on the rows of a matrix, in place, each row with its own hyper-parameters.

    Args:
        rule: ``sgd``, ``adam`` or ``adamw``.
        values: the parameters, ``(runs, columns)``.
        moments: velocity of SGD, or mean and square of Adam, each like ``values``.
        sizes: columns of each parameter of the network.
        rate_factors, decay_factors: factors on learning rate and weight decay, one per parameter of the network.
    """

    def __init__(
        self,
        rule: str,
        values: Tensor,
        moments: Sequence[Tensor],
        sizes: Sequence[int],
        rate_factors: Sequence[float],
        decay_factors: Sequence[float],
    ) -> None:
        self.rule, self.values, self.moments = rule, values, moments
        self._sizes = torch.tensor(sizes, dtype=torch.int64)
        self._factors = torch.tensor([rate_factors, decay_factors], dtype=torch.float32)
        columns = self._factors.to(values).repeat_interleave(self._sizes.to(values.device), 1)
        self._rate_columns, self._decay_columns = (1.0 if bool((row == 1).all()) else row for row in columns)
        self._kernel: _Step | None = None
        if usable(values, *moments):
            addresses = (tensor.data_ptr() for tensor in (values, moments[0], moments[-1], self._sizes, *self._factors))
            self._kernel = _Step(RULES[rule], len(sizes), *values.shape, *addresses)

    def __call__(self, gradients: Sequence[Tensor], numbers: Tensor) -> None:
        """Make one step.

        Args:
            gradients: ``(runs, …)``, one per parameter of the network.
            numbers: ``(runs, 8)``: weight decay; momentum, or 1 - beta1; 1 - beta2; beta2; eps; the negative learning rate, for
                Adam divided by 1 - beta1^t; 1 / sqrt(1 - beta2^t); learning rate times decay of AdamW.
        """
        if self._kernel is None or LIBRARY is None:
            self._reference(torch.cat([gradient.reshape(len(gradient), -1) for gradient in gradients], 1), numbers)
            return
        gradients = [gradient.contiguous() for gradient in gradients]
        addresses = (ctypes.c_void_p * len(gradients))(*(gradient.data_ptr() for gradient in gradients))
        self._kernel.gradients, self._kernel.numbers = ctypes.addressof(addresses), numbers.data_ptr()
        LIBRARY.boolit_step(ctypes.byref(self._kernel))

    def _reference(self, gradients: Tensor, numbers: Tensor) -> None:
        values = self.values
        decay, first, second, beta2, eps, minus, root, shrinkage = numbers.unsqueeze(2).unbind(1)
        if self.rule == "adamw":
            values.mul_(1 - shrinkage * self._rate_columns * self._decay_columns)
        else:
            gradients.addcmul_(values, decay * self._decay_columns)
        if self.rule == "sgd":
            change = self.moments[0].mul_(first).add_(gradients)
        else:
            mean, square = self.moments
            mean.lerp_(gradients, first)
            square.mul_(beta2).addcmul_(gradients * second, gradients)
            change = mean / (square.sqrt() * root + eps)
        values.addcmul_(change * self._rate_columns, minus)


def batch_norm(
    x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor, bias: Tensor, momentum: float, eps: float
) -> Tensor:
    """Apply batch normalization in training mode to every run's features and update the running statistics.

    The arguments are those of ``F.batch_norm``: ``x`` is ``(runs, features, batch)``, the others are ``(runs, features)``.
    """
    if x.shape[2] > 1 and usable(x, weight, bias) and weight.stride(1) == bias.stride(1) == 1:
        out: Tensor = _BatchNorm.apply(x, weight, bias, running_mean, running_var, momentum, eps)  # type: ignore[no-untyped-call]
        return out
    mean, var, scale, shift = (values.reshape(-1) for values in (running_mean, running_var, weight, bias))
    return F.batch_norm(x.reshape(1, -1, x.shape[2]), mean, var, scale, shift, True, momentum, eps).view_as(x)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, momentum: float, eps: float
    ) -> Tensor:
        assert LIBRARY is not None
        x = x.contiguous()
        out, statistics = torch.empty_like(x), x.new_empty(2, *weight.shape)
        struct = _Norm(
            *(weight.numel(), x.shape[2], x.shape[1], weight.stride(0), bias.stride(0), eps, momentum),
            *(x.data_ptr(), None, weight.data_ptr(), bias.data_ptr(), out.data_ptr()),
            *(statistics[0].data_ptr(), statistics[1].data_ptr(), mean.data_ptr(), var.data_ptr()),
        )
        LIBRARY.boolit_normalize(ctypes.addressof(struct))
        ctx.save_for_backward(x, weight, statistics)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        assert LIBRARY is not None
        x, weight, statistics = ctx.saved_tensors
        above = above.contiguous()
        out, gradients = torch.empty_like(x), torch.empty_like(statistics)
        struct = _Norm(
            *(weight.numel(), x.shape[2], x.shape[1], weight.stride(0), 0, 0.0, 0.0),
            *(x.data_ptr(), above.data_ptr(), weight.data_ptr(), None, out.data_ptr()),
            *(statistics[0].data_ptr(), statistics[1].data_ptr(), None, None),
            *(gradients[0].data_ptr(), gradients[1].data_ptr()),
        )
        LIBRARY.boolit_normalize_backward(ctypes.addressof(struct))
        return out, *gradients.unbind(), None, None, None, None


ONE_PIXEL = 2**32  # places in an image are whole numbers of this unit, which every processor adds alike


def look_up(images: Tensor, origins: Tensor) -> Tensor:
    """Return warped images: pixel (x, y) comes from the pixel at floor(``origins · (x, y, 1)``), or is 0 outside the image.

    Args:
        images: ``(n, height, width)``.
        origins: ``(n, 2, 3)``, int64 in units of 1 / `ONE_PIXEL`.
    """
    count, height, width = images.shape
    if LIBRARY is not None and images.is_cpu and images.itemsize in (1, 4, 8):
        images, origins = images.contiguous(), origins.contiguous()
        assert (origins.shape, origins.dtype) == ((count, 2, 3), torch.int64)
        out = torch.empty_like(images)
        struct = _Warp(images.itemsize, count, height, width, images.data_ptr(), origins.data_ptr(), out.data_ptr())
        LIBRARY.boolit_look_up(ctypes.addressof(struct))
        return out
    x, y = (torch.arange(size, device=images.device) for size in (width, height))
    by_x, by_y, start = origins.view(count, 2, 3, 1, 1).unbind(2)
    left, top = ((by_x * x + by_y * y.unsqueeze(1) + start) >> 32).unbind(1)
    inside = (left >= 0) & (left < width) & (top >= 0) & (top < height)
    places = torch.where(inside, top * width + left, 0).flatten(1)
    return images.flatten(1).gather(1, places).view_as(images).where(inside, 0)
