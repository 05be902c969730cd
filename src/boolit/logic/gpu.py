"""Gates on CUDA and ROCm devices: plans that launch the Triton kernels, and whether they can be used.

Triton comes with torch's builds for such devices. It is imported with the first tensor on one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from boolit.logic.cpu import KernelStatus, gate_constants, out_shape
from boolit.logic.operations import OPERATIONS, Program
from boolit.logic.reference import evaluate_reference

TYPES = (torch.float32, torch.bfloat16, torch.float16)  # float64 is rare on GPUs: the reference computes it
WARPS = 4
VECTOR = 16  # bytes a thread reads or writes at once, at best


class Plan:
    """A program laid out for contiguous tensors of one type and shape: one launch, or one for each share of a partition."""

    def __init__(self, program: Program, dtype: torch.dtype, shape: torch.Size, dim: int, block: int = 0) -> None:
        from boolit.logic.kernels import triton_pairs  # takes a second

        self.kernels: Any = triton_pairs
        self.program, self.dtype, self.shape, self.dim = program, dtype, shape, dim
        self.out_shape = torch.Size(out_shape(program, shape, dim))
        self.kept_bytes = kept_bytes(program, shape, dim)
        groups, outer, inner = program.groups(shape[dim]), math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
        span = groups * inner if program.pairing == "halves" else inner
        members = tuple(_member(*member) for member in program.members)
        shares: list[tuple[tuple[Any, ...], int, int]] = [(members, 0, groups)]
        if program.strategy != "d":
            shares = [((member,), *share) for member, share in zip(members, program.shares(groups), strict=True)]
        block = block or WARPS * (64 if torch.version.hip else 32) * VECTOR // dtype.itemsize
        wide = max(math.prod(shape), math.prod(self.out_shape)) >= 2**31
        self.constants = {"SPLIT": span == 1, "PART": len(shares) > 1, "WIDE": wide, "BLOCK": block}
        self.options = {"num_warps": WARPS, "enable_fp_fusion": False}  # kernels say themselves what is fused
        self.launches: list[tuple[tuple[int], tuple[Any, ...], tuple[int, ...], int]] = []
        kept = 0
        for gates, start, size in shares:
            units = outer * size * inner
            sizes = (units, size * inner, groups * inner, span, start * inner, self.out_shape[dim] * inner)
            if units:
                self.launches.append(((-(-units // block),), gates, sizes, kept))
            kept += 2 * len(gates) * ((units + 7) // 8)

    def forward(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Return the outputs and, if ``keep`` and all gates are approximate, the bits that the backward needs."""
        keep = keep and self.program.approximate
        out, kept = x.new_empty(self.out_shape), x.new_empty(self.kept_bytes if keep else 0, dtype=torch.uint8)
        constants = self.constants | {"KEEP": keep, "LARGEST": torch.finfo(self.dtype).max}
        with torch.cuda.device_of(x):
            for grid, members, sizes, offset in self.launches:
                self.kernels.forward[grid](x, out, kept[offset:], *sizes, MEMBERS=members, **constants, **self.options)
        return out, kept if keep else None

    def backward(self, grad: Tensor, saved: Tensor) -> Tensor:
        """Return the gradient of x from the kept bits or, if ``saved`` is not bits, from x."""
        grad, saved, from_bits = grad.contiguous(), saved.contiguous(), saved.dtype == torch.uint8
        grad_x = grad.new_empty(self.shape)
        with torch.cuda.device_of(grad):
            for grid, members, sizes, offset in self.launches:
                bits = saved[offset:] if from_bits else saved
                constants = self.constants | {"MEMBERS": members, "KEPT": from_bits}
                self.kernels.backward[grid](grad, bits, grad_x, *sizes, **constants, **self.options)
        return grad_x


def _member(name: str, form: str) -> tuple[int, bool, bool, float, float]:
    kind, scale, shift = gate_constants(name, form, 2)
    flips = OPERATIONS[name].flips
    return kind, flips in ("all", "first"), flips in ("all", "second"), scale, shift


def kept_bytes(program: Program, shape: Sequence[int], dim: int) -> int:
    """Return the size of the bits that a forward keeps, for symbolic shapes too."""
    if not program.approximate:
        return 0
    positions = math.prod(shape[:dim]) * math.prod(shape[dim + 1 :])
    return sum(2 * ((size * positions + 7) // 8) for _, size in program.shares(program.groups(shape[dim])))


_tried: KernelStatus | None = None  # the result of the check on a device


def status() -> KernelStatus:
    """Return whether gates on a GPU use kernels. A device is tried with its first tensor."""
    if _tried is not None:
        return _tried
    if os.environ.get("BOOLIT_KERNELS", "1") == "0":
        return KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them")
    if find_spec("triton") is None:
        return KernelStatus(False, "Triton is not installed; torch's builds for CUDA and ROCm have it, or pip install triton")
    return KernelStatus(True, "Triton")


def is_ready() -> bool:
    """Return whether the kernels may be used: they are first tried on a few numbers of the current device."""
    global _tried
    if _tried is None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return False  # nothing may be tried now; the reference is captured as well as a kernel
        result = status()
        if result.active:
            try:
                with _disable_current_modes(), torch.no_grad():
                    check()
            except Exception as error:  # no compiler for launches, an unknown device, wrong results: the reference works
                first_line = str(error).strip().split("\n")[0]
                result = KernelStatus(False, f"{result.reason} does not work here ({type(error).__name__}: {first_line})")
        _tried = result
    return _tried.active


is_ready._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile asks once and does not look inside


def has_kernel(x: Tensor) -> bool:
    """Return whether a CUDA tensor's dtype has kernels and Triton works here."""
    return x.dtype in TYPES and is_ready()


def check(device: str = "cuda") -> None:
    """Raise ArithmeticError if the kernel of an approximate or exact gate disagrees with the reference on the device."""
    x = torch.linspace(-3, 3, 48, device=device).view(4, 12)
    for spec in ("or_ail", "xnor_il"):
        plan = Plan(program := Program.parse(spec), x.dtype, x.shape, 1)
        out, kept = plan.forward(x, True)
        expected, pullback, *_ = torch.func.vjp(partial(evaluate_reference, program=program, dim=1), x)
        gradient = plan.backward(torch.ones_like(out), x if kept is None else kept)
        for actual, right in ((out, expected), (gradient, pullback(torch.ones_like(out))[0])):
            if not torch.allclose(actual, right, rtol=1e-5, atol=1e-6):
                raise ArithmeticError(f"{spec} is wrong by {float((actual - right).abs().max()):.2g}")
