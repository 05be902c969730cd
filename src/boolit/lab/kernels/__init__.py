"""Operations of stacked training: optimizer steps, batch normalization and image look-up.

Each is written in torch for every device and data type; the kernels of ``training.cpp`` replace it for float32 on a CPU. They
are worth their lines in end-to-end runs: without the optimizer kernel (`boolit.lab.training.optimizers`) an ``mnist-mlp`` run
takes 12 to 24 % longer, and without batch normalization a stack of networks on a table 11 to 22 %.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ABI = 5
ONE_PIXEL = 2**32  # places in an image are whole numbers of this unit, which every processor adds alike
_INTEGER, _DOUBLE, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
_ARGUMENTS = {
    "step": [*4 * [_INTEGER], *8 * [_POINTER]],
    "normalize": [*5 * [_INTEGER], *2 * [_DOUBLE], *8 * [_POINTER]],
    "normalize_backward": [*4 * [_INTEGER], *8 * [_POINTER]],
    "look_up": [*4 * [_INTEGER], *3 * [_POINTER]],
}


def _load() -> ctypes.CDLL | None:
    path = Path(__file__).with_name(f"_training{sysconfig.get_config_var('EXT_SUFFIX')}")
    if os.environ.get("BOOLIT_KERNELS", "1") == "0" or not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    if library.boolit_training_abi() != ABI:  # left over from another version of boolit
        return None
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, f"boolit_{name}")
        function.argtypes, function.restype = arguments, None
    return library


LIBRARY = _load()


def _addresses(*tensors: Tensor) -> list[int]:
    return [values.data_ptr() for values in tensors]


def batch_norm(
    x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor, bias: Tensor, momentum: float, eps: float
) -> Tensor:
    """Apply batch normalization in training mode to every run's features and update the running statistics.

    The arguments are those of ``F.batch_norm``: ``x`` is ``(runs, features, batch)``, the others are ``(runs, features)``.
    """
    usable = LIBRARY is not None and all(values.is_cpu and values.dtype == torch.float32 for values in (x, weight, bias))
    if usable and x.shape[2] > 1 and weight.stride(1) == bias.stride(1) == 1:
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
        sizes = (weight.numel(), x.shape[2], x.shape[1], weight.stride(0), bias.stride(0))
        LIBRARY.boolit_normalize(*sizes, eps, momentum, *_addresses(x, weight, bias, out, *statistics, mean, var))
        ctx.save_for_backward(x, weight, statistics)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        assert LIBRARY is not None
        x, weight, statistics = ctx.saved_tensors
        above = above.contiguous()
        out, gradients = torch.empty_like(x), torch.empty_like(statistics)
        sizes = (weight.numel(), x.shape[2], x.shape[1], weight.stride(0))
        LIBRARY.boolit_normalize_backward(*sizes, *_addresses(x, above, weight, *statistics, out, *gradients))
        return out, *gradients.unbind(), None, None, None, None


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
        LIBRARY.boolit_look_up(images.itemsize, count, height, width, *_addresses(images, origins, out))
        return out
    x, y = (torch.arange(size, device=images.device) for size in (width, height))
    by_x, by_y, start = origins.view(count, 2, 3, 1, 1).unbind(2)
    left, top = ((by_x * x + by_y * y.unsqueeze(1) + start) >> 32).unbind(1)
    inside = (left >= 0) & (left < width) & (top >= 0) & (top < height)
    places = torch.where(inside, top * width + left, 0).flatten(1)
    return images.flatten(1).gather(1, places).view_as(images).where(inside, 0)
