"""Training many runs at once: optimiser steps, batch norm, batches, warped images, hits; as formulas and as kernels.

The formulas hold on every device and in every type; the kernels, of training.cpp, stand in for them on CPUs, in float32 and
float64, where they are built. In a kernel every run is computed by itself, in an order that neither other runs nor the
number of threads changes.
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
from torch.overrides import has_torch_function_unary

from boolit.logic.cpu import KernelStatus

ABI = 2
TYPES = {torch.float32: 0, torch.float64: 1}
RULES = {"sgd": 0, "adam": 1, "adamw": 2}
pointer = ctypes.c_void_p


class UpdateStruct(ctypes.Structure):
    """BoolitUpdate of training.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("type", "rule", "decays", "parts")),
        *((name, ctypes.c_int64) for name in ("runs", "columns")),
        *((name, pointer) for name in ("values", "first", "second", "factors", "numbers", "now", "gradients", "sizes")),
    ]


class NormStruct(ctypes.Structure):
    """BoolitNorm of training.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("type", "relu")),
        *((name, ctypes.c_int64) for name in ("rows", "samples", "features", "weight_stride", "bias_stride")),
        *((name, ctypes.c_double) for name in ("eps", "momentum")),
        *((name, pointer) for name in ("x", "above", "weight", "bias")),
        *((name, pointer) for name in ("out", "mean", "scale", "running_mean", "running_var")),
        *((name, pointer) for name in ("weight_gradient", "bias_gradient")),
    ]


class GatherStruct(ctypes.Structure):
    """BoolitGather of training.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("type", "bytes")),
        *((name, ctypes.c_int64) for name in ("runs", "samples", "features", "count")),
        *((name, pointer) for name in ("stored", "table", "rows", "out")),
    ]


class WarpStruct(ctypes.Structure):
    """BoolitWarp of training.cpp."""

    _fields_ = [
        ("size", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("count", "height", "width")),
        *((name, pointer) for name in ("images", "origins", "out")),
    ]


class HitsStruct(ctypes.Structure):
    """BoolitHits of training.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("type", "signs")),
        *((name, ctypes.c_int64) for name in ("runs", "classes", "samples", "stride")),
        *((name, pointer) for name in ("outputs", "targets", "hits")),
    ]


def _load() -> tuple[ctypes.CDLL | None, KernelStatus]:
    if os.environ.get("BOOLIT_KERNELS", "1") == "0":
        return None, KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them")
    path = Path(__file__).with_name(f"_training{sysconfig.get_config_var('EXT_SUFFIX')}")
    if not path.exists():
        return None, KernelStatus(False, "not built at installation; reinstall boolit with a C++ compiler")
    try:
        library = ctypes.CDLL(str(path))
        abi = int(library.boolit_training_abi())
    except (OSError, AttributeError) as error:
        return None, KernelStatus(False, f"{path.name} does not load ({error}); reinstall boolit", str(path))
    if abi != ABI:
        return None, KernelStatus(False, f"{path.name} is of another version of boolit; reinstall it", str(path), abi=abi)
    for name in ("update", "normalise", "normalise_backward", "warp", "hits", "gather"):
        function = getattr(library, f"boolit_{name}")
        function.argtypes, function.restype = [pointer], ctypes.c_int if name == "gather" else None
    library.boolit_training_instructions.restype = ctypes.c_char_p
    instructions = library.boolit_training_instructions().decode()
    return library, KernelStatus(True, f"built and loaded ({instructions})", str(path), instructions, abi=abi)


LIBRARY, STATUS = _load()


def fits(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these: on a CPU, all in one type that they know."""
    dtype = tensors[0].dtype
    return LIBRARY is not None and dtype in TYPES and all(own.is_cpu and own.dtype == dtype for own in tensors)


# Optimiser steps. Numbers are tensors with one row per run; their columns are as in training.cpp.

DECAY, FIRST, SECOND, BETA2, EPS = range(5)
MINUS, ROOT, SHRINKAGE = range(3)


class Update:
    """Steps of SGD, Adam or AdamW on the rows of a matrix, each with its own numbers; everything is changed in place.

    Shape: ``values`` and the moments ``(runs, columns)``; ``numbers`` ``(runs, 5)``: weight decay, SGD's momentum or
    1 − beta1, 1 − beta2, beta2, eps; ``factors``, which multiply the rates of the columns, ``(columns,)``.
    """

    def __init__(self, rule: str, values: Tensor, moments: Sequence[Tensor], numbers: Tensor, factors: Tensor | None) -> None:
        self.rule, self.values, self.moments, self.numbers, self.factors = rule, values, moments, numbers, factors
        self.decays = bool((numbers[:, DECAY] != 0).any())
        self._gradients = self._scratch = torch.empty(0)
        self._sizes: list[int] = []

    def step(self, gradients: Sequence[Tensor], now: Tensor) -> None:
        """One step. ``now`` is ``(runs, 3)``: minus the rate, what the root of the squares is multiplied by, AdamW's decay.

        Shape: gradients of neighbouring columns, ``(runs, …)`` each; they may be overwritten.
        """
        own = (self.values, *self.moments, self.numbers, now, *gradients)
        if fits(*own) and all(tensor.is_contiguous() for tensor in own[: -len(gradients)]):
            self._step_by_kernel([gradient.contiguous() for gradient in gradients], now)
        else:
            self._step_by_formula(self._join(gradients), now)

    def _step_by_kernel(self, gradients: Sequence[Tensor], now: Tensor) -> None:
        assert LIBRARY is not None
        runs, columns = self.values.shape
        sizes = [gradient.numel() // runs for gradient in gradients]
        if sizes != self._sizes:
            assert (sum(sizes), now.shape, self.numbers.shape) == (columns, (runs, 3), (runs, 5))
            self._sizes, self._c_sizes = sizes, (ctypes.c_int64 * len(sizes))(*sizes)
        addresses = (ctypes.c_void_p * len(sizes))(*(gradient.data_ptr() for gradient in gradients))
        struct = UpdateStruct(
            TYPES[self.values.dtype],
            RULES[self.rule],
            self.decays,
            len(sizes),
            runs,
            columns,
            self.values.data_ptr(),
            self.moments[0].data_ptr(),
            self.moments[-1].data_ptr(),
            None if self.factors is None else self.factors.data_ptr(),
            self.numbers.data_ptr(),
            now.data_ptr(),
            ctypes.addressof(addresses),
            ctypes.addressof(self._c_sizes),
        )
        LIBRARY.boolit_update(ctypes.addressof(struct))

    def _join(self, gradients: Sequence[Tensor]) -> Tensor:
        if len(gradients) == 1:
            return gradients[0].flatten(1)
        if self._gradients.shape != self.values.shape:
            self._gradients = torch.empty_like(self.values)
        return torch.cat([gradient.flatten(1) for gradient in gradients], 1, out=self._gradients)

    def _step_by_formula(self, gradients: Tensor, now: Tensor) -> None:
        values = self.values
        decay, first, second, beta2, eps = (self.numbers[:, column : column + 1] for column in range(5))
        minus, root, shrinkage = (now[:, column : column + 1] for column in range(3))
        if self.decays and self.rule == "adamw":
            values.mul_(1 - self._scaled(shrinkage))
        elif self.decays:
            gradients.addcmul_(values, decay)
        if self.rule == "sgd":
            change = self.moments[0].mul_(first).add_(gradients)
        else:
            if self._scratch.shape != values.shape:
                self._scratch = torch.empty_like(values)
            mean, square = self.moments
            mean.lerp_(gradients, first)
            change = torch.mul(gradients, second, out=self._scratch)
            square.mul_(beta2).addcmul_(change, gradients)
            torch.sqrt(square, out=change)
            change.mul_(root).add_(eps)
            torch.div(mean, change, out=change)
        values.addcmul_(self._scaled(change), minus)

    def _scaled(self, update: Tensor) -> Tensor:
        """An update as long as each column's own learning rate makes it."""
        return update if self.factors is None else update * self.factors


# Batch normalisation of the rows of (runs, features, batch), in training.


def batch_norm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    momentum: float,
    eps: float,
    relu: bool = False,
) -> Tensor:
    """``F.batch_norm`` in training, of every run's own features, and ReLU if wished; changes the running statistics in place.

    The kernel's gradient cannot be differentiated again.

    Shape: ``(runs, features, batch)``, unchanged; the others ``(runs, features)``.
    """
    statistics = (running_mean, running_var)
    whole = x.shape[2] > 1 and all(own.is_contiguous() for own in statistics) and weight.stride(1) == bias.stride(1) == 1
    # A mode that stands for F.batch_norm, or a compiler, has to see that function.
    if not whole or not fits(x, *statistics, weight, bias) or has_torch_function_unary(x) or torch.compiler.is_compiling():
        mean, var, scale, shift = (values.reshape(-1) for values in (*statistics, weight, bias))
        flat = x.reshape(1, -1, x.shape[2])
        normal = F.batch_norm(flat, mean, var, scale, shift, True, momentum, eps).view_as(x)
        return normal.relu() if relu else normal
    out: Tensor = _BatchNorm.apply(x, weight, bias, running_mean, running_var, momentum, eps, relu)  # type: ignore[no-untyped-call]
    return out


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, momentum: float, eps: float, relu: bool
    ) -> Tensor:
        assert LIBRARY is not None
        x = x.contiguous()
        out, own = torch.empty_like(x), x.new_empty(2, *weight.shape)
        start, (features, samples) = own.data_ptr(), x.shape[1:]
        strides = weight.stride(0), bias.stride(0)  # a model's parameters may be columns of a matrix
        sizes = TYPES[x.dtype], relu, weight.numel(), samples, features, *strides, eps, momentum
        inputs = x.data_ptr(), None, weight.data_ptr(), bias.data_ptr()
        statistics = start, start + own.nbytes // 2, mean.data_ptr(), var.data_ptr()
        struct = NormStruct(*sizes, *inputs, out.data_ptr(), *statistics)
        LIBRARY.boolit_normalise(ctypes.addressof(struct))
        ctx.save_for_backward(x, weight, bias, own)
        ctx.relu = relu
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        assert LIBRARY is not None
        x, weight, bias, own = ctx.saved_tensors
        above = above.contiguous()
        out, of_parameters = torch.empty_like(x), torch.empty_like(own)
        start, of_weight, half = own.data_ptr(), of_parameters.data_ptr(), own.nbytes // 2
        sizes = TYPES[x.dtype], ctx.relu, weight.numel(), x.shape[2], x.shape[1], weight.stride(0), bias.stride(0), 0.0, 0.0
        inputs = x.data_ptr(), above.data_ptr(), weight.data_ptr(), bias.data_ptr()
        struct = NormStruct(*sizes, *inputs, out.data_ptr(), start, start + half, None, None, of_weight, of_weight + half)
        LIBRARY.boolit_normalise_backward(ctypes.addressof(struct))
        return out, *of_parameters.unbind(), None, None, None, None, None


# Batches: stored samples of every run, and whether its answers are right.


def gather_rows(stored: Tensor, rows: Tensor) -> Tensor:
    """Stored samples of every run, laid out with the samples last, as stacked layers take them.

    Shape: ``(count, features)`` and ``(runs, samples)``, to ``(runs, samples, features)``.
    """
    if not fits(stored) or not stored.is_contiguous():
        taken = stored.index_select(0, rows.flatten()).view(*rows.shape, -1)
        return taken.mT.contiguous().mT
    out = stored.new_empty(len(rows), stored.shape[1], rows.shape[1])
    _gather(stored, rows, out, stored.shape[1], None)
    return out.mT


def gather_bytes(stored: Tensor, rows: Tensor, table: Tensor) -> Tensor:
    """Stored samples of every run, where the numbers of a table stand for bytes.

    Shape: ``(count, …)``, ``(runs, samples)`` and ``(256,)``, to ``(runs, samples, …)``.
    """
    shape = (*rows.shape, *stored.shape[1:])
    if not fits(table) or not stored.is_cpu or not stored.is_contiguous() or stored.dtype != torch.uint8:
        return table[stored.index_select(0, rows.flatten()).int()].view(shape)
    out = table.new_empty(shape)
    _gather(stored, rows, out, stored[0].numel(), table.contiguous())
    return out


def _gather(stored: Tensor, rows: Tensor, out: Tensor, features: int, table: Tensor | None) -> None:
    assert LIBRARY is not None
    rows = rows.contiguous()
    sizes = TYPES[out.dtype], table is not None, *rows.shape, features, len(stored)
    addresses = stored.data_ptr(), None if table is None else table.data_ptr(), rows.data_ptr(), out.data_ptr()
    struct = GatherStruct(*sizes, *addresses)
    if rows.dtype != torch.int64 or LIBRARY.boolit_gather(ctypes.addressof(struct)):
        raise IndexError(f"rows must be int64 from 0 to {len(stored) - 1}, the stored samples; got {rows.dtype}, some outside")


ONE_PIXEL = 2**32  # the unit of a place in an image: whole numbers, which every processor adds alike


def look_up(images: Tensor, origins: Tensor) -> Tensor:
    """New images whose pixel at (x, y) is the one at the floor of ``origins · (x, y, 1)`` of the old one, or 0 outside of it.

    Shape: ``(n, height, width)`` and int64 ``(n, 2, 3)`` in units of 1 / `ONE_PIXEL`, to ``(n, height, width)``.
    """
    count, height, width = images.shape
    if LIBRARY is None or not images.is_cpu or images.itemsize not in (1, 4, 8):
        x, y = (torch.arange(size, device=images.device) for size in (width, height))
        by_x, by_y, start = origins.view(count, 2, 3, 1, 1).unbind(2)
        left, top = ((by_x * x + by_y * y.unsqueeze(1) + start) >> 32).unbind(1)
        inside = (left >= 0) & (left < width) & (top >= 0) & (top < height)
        places = torch.where(inside, top * width + left, 0).flatten(1)
        return images.flatten(1).gather(1, places).view_as(images).where(inside, 0)
    images, origins = images.contiguous(), origins.contiguous()
    assert origins.shape == (count, 2, 3)
    assert origins.dtype == torch.int64
    out = torch.empty_like(images)
    struct = WarpStruct(images.itemsize, count, height, width, images.data_ptr(), origins.data_ptr(), out.data_ptr())
    LIBRARY.boolit_warp(ctypes.addressof(struct))
    return out


def hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the largest output, the first of equal ones, is that of the target.

    Shape: ``(runs, classes, samples)`` and ``(runs, samples)``, to the targets'.
    """
    last = targets.stride(1) == 1 and targets.is_cpu and targets.dtype == torch.int64
    if not last or not fits(outputs) or not outputs.is_contiguous():
        return outputs.max(1).indices == targets  # argmax is seven times slower
    found = torch.empty(targets.shape, dtype=torch.bool)
    _find_hits(outputs, targets, found, outputs.shape, signs=False)
    return found


def binary_hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether an output is above 0 where the target is 1, and not where it is 0.

    Shape: ``(runs, samples, outputs)``, both and the result.
    """
    runs, samples, width = outputs.shape
    # Of one output the samples are neighbours in memory, before or after the outputs; the targets of all runs may be the same.
    flat = width == 1 and fits(outputs, targets) and outputs.stride(0) == samples and outputs.stride(1) == 1
    if not flat or targets.stride(1) != 1 or targets.shape != outputs.shape:
        return (outputs > 0) == (targets > 0.5)
    found = torch.empty(targets.shape, dtype=torch.bool)
    _find_hits(outputs, targets, found, (runs, 1, samples), signs=True)
    return found


def _find_hits(outputs: Tensor, targets: Tensor, found: Tensor, sizes: Sequence[int], signs: bool) -> None:
    assert LIBRARY is not None
    addresses = (tensor.data_ptr() for tensor in (outputs, targets, found))
    struct = HitsStruct(TYPES[outputs.dtype], signs, *sizes, targets.stride(0), *addresses)
    LIBRARY.boolit_hits(ctypes.addressof(struct))
