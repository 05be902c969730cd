"""Programs laid out for the Triton kernels, and launched: one launch for a forward, one for a backward."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from boolit.logic.kernels.gpu import kept_bytes, kernels, planes_of
from boolit.logic.kernels.library import out_shape
from boolit.logic.moments import moments
from boolit.logic.program import Program
from boolit.logic.reference import formula
from boolit.logic.vocabulary import OPERATIONS, approximate, normalised

_KINDS = {("or", True): 0, ("xnor", True): 1, ("or", False): 2, ("xnor", False): 3}
WARPS = 4
VECTOR = 16  # bytes a thread reads or writes at once, at best


class Plan:
    """A program laid out for contiguous tensors of one type and shape: a `KernelPlan`."""

    address = 0  # of the other kernels' plans

    def __init__(
        self, program: Program, dtype: torch.dtype, shape: torch.Size, dim: int, block: int, wide: bool | None
    ) -> None:
        members = tuple(_member(name, form, program.k) for name, form in program.members)
        groups, outer, inner = program.groups(shape[dim]), math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
        self.program, self.dtype, self.shape, self.dim, self.channels = program, dtype, shape, dim, shape[dim]
        self.out_shape = torch.Size(out_shape(program, shape, dim))
        self.kept_bytes = kept_bytes(program, shape, dim)
        row, count, halves = groups * inner, len(members), program.pairing == "halves"
        partition = program.strategy == "p" and count > 1
        shares = [size * inner for _, size in program.shares(groups)]
        span = row if halves else inner
        if wide is None:
            wide = max(math.prod(shape), math.prod(self.out_shape)) >= 2**31
        self.grid = (-(-outer * max(shares) // block), count if partition else 1)
        self.sizes = (outer, row, span, min(shares), inner)
        self.constants: dict[str, Any] = {
            "MEMBERS": members,
            "K": program.k,
            "SPLIT": span == 1,
            "HALVES": halves,
            "PARTITION": partition,
            "EXTRA": groups % count if partition else 0,
            "INDEX": tl.int64 if wide else tl.int32,
            "BLOCK": block,
        }
        self.options = {"num_warps": WARPS, "enable_fp_fusion": False}  # kernels say themselves what is fused

    def forward(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None] | None:
        """The gates' outputs, and the bits a backward without x needs; None where the tensor is not of the plan."""
        if x.shape != self.shape or x.dtype != self.dtype or not x.is_contiguous():
            return None
        keep = keep and self.program.approximate
        out = x.new_empty(self.out_shape)
        kept = x.new_empty(self.kept_bytes if keep else 0, dtype=torch.uint8)
        if out.numel():
            with torch.cuda.device_of(x):
                kernels.forward[self.grid](x, out, kept, *self.sizes, **self.forward_constants(keep), **self.options)
        return out, kept if keep else None

    def backward(self, grad: Tensor, saved: Tensor) -> Tensor | None:
        """The gradient, from the bits or from x; None where they do not belong together."""
        from_bits = saved.dtype == torch.uint8
        expected = torch.Size((self.kept_bytes,)) if from_bits else self.shape
        known = grad.shape == self.out_shape and grad.dtype == self.dtype and saved.device == grad.device
        fits = saved.shape == expected and (self.program.approximate if from_bits else saved.dtype == self.dtype)
        if not (known and fits and grad.is_contiguous() and saved.is_contiguous()):
            return None
        grad_x = grad.new_empty(self.shape)
        if grad_x.numel():
            with torch.cuda.device_of(grad):
                kernels.backward[self.grid](
                    grad, saved, grad_x, *self.sizes, **self.backward_constants(from_bits), **self.options
                )
        return grad_x

    def differentiate(self, _grad: Tensor, _saved: Tensor) -> None:
        """There is no shorter way than `backward`."""

    def forward_constants(self, keep: bool) -> dict[str, Any]:
        """What the forward kernel is compiled for, besides types."""
        return self.constants | {"KEEP": keep, "LARGEST": torch.finfo(self.dtype).max}

    def backward_constants(self, from_bits: bool) -> dict[str, Any]:
        """What the backward kernel is compiled for, besides types."""
        return self.constants | {"KEPT": from_bits}

    def bytes_moved(self) -> tuple[int, int]:
        """What forward and backward read and write of a device's memory, if each reads no number twice."""
        x, out = (math.prod(shape) * self.dtype.itemsize for shape in (self.shape, self.out_shape))
        saved = self.kept_bytes if self.program.approximate else x
        return x + out + self.kept_bytes, out + saved + x


@lru_cache(maxsize=4096)
def plan(
    program: Program, dtype: torch.dtype, shape: torch.Size, dim: int, block: int | None = None, wide: bool | None = None
) -> Plan:
    """The plan for contiguous tensors of this type and shape; ``block`` and ``wide`` are for tests.

    A thread has one vector of outputs; with more than two operands, which are read one after another, half of one.
    """
    if block is None:
        threads = WARPS * (64 if torch.version.hip else 32)
        block = threads * max(1, VECTOR // dtype.itemsize // (1 if program.k == 2 else 2))
    return Plan(program, dtype, shape, dim, block, wide)


def check(device: str = "cuda") -> None:
    """Raises where an approximate and an exact gate do not give on the device what their formulas give."""
    x = torch.linspace(-3, 3, 48, device=device).view(4, 12)
    for name in ("or_ail", "xnor_il"):
        program = Program.parse(f"{name}:d:k2:adjacent")
        laid_out = plan(program, x.dtype, x.shape, 1)
        leaf = x.clone().requires_grad_()
        with torch.enable_grad():
            expected = formula(leaf, program, 1)
        results = laid_out.forward(x, True)
        assert results is not None
        out, kept = results
        gradient = laid_out.backward(torch.ones_like(out), x if kept is None else kept)
        assert gradient is not None
        for got, right in ((out, expected.detach()), (gradient, torch.autograd.grad(expected.sum(), leaf)[0])):
            if not torch.allclose(got, right, rtol=1e-5, atol=1e-6):
                raise ArithmeticError(f"{name} is wrong by {float((got - right).abs().max()):.2g}")


def _member(name: str, form: str, k: int) -> tuple[int, bool, bool, float, float, int]:
    """A gate as the kernels take it."""
    operation = OPERATIONS[name]
    flips, mean, sd = operation.flips, 0.0, 1.0
    if normalised(form):
        mean, sd = moments(name, form.removeprefix("n"), k)
    kind = _KINDS[operation.base, approximate(form)]
    scale, shift = operation.output_sign(k) / sd, 0.0 - mean / sd
    return (
        kind,
        flips in ("all", "first"),
        flips in ("all", "second"),
        scale,
        shift,
        planes_of(name, k) if approximate(form) else 0,
    )
