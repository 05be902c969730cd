"""Programs on CUDA and ROCm devices by Triton kernels, or the reason why their formulas are used.

Triton comes with torch's own builds for such devices. It is imported when the first of their tensors comes, never before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import metadata

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from boolit.logic.kernels.library import KernelPlan, KernelStatus
from boolit.logic.program import Program

LEAST_VERSION = (3, 4)  # constants of a kernel may be tuples of tuples
_tried: KernelStatus | None = None  # the kernels on a device, once they have been


def status() -> KernelStatus:
    """Whether gates on a GPU run by kernels; what only a device can tell is known after the first tensor there."""
    if _tried is not None:
        return _tried
    if os.environ.get("BOOLIT_KERNELS", "1") == "0":
        return KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them")
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return KernelStatus(
            False, "Triton is not installed; torch's builds for CUDA and ROCm bring it, pip install triton does too"
        )
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        return KernelStatus(False, f"Triton {version} is too old; install {least} or later")
    return KernelStatus(True, f"Triton {version}")


def are_ready() -> bool:
    """Whether the kernels may be used: at the first question they are tried on a few numbers of the current device."""
    global _tried  # a device is tried once, and everybody is told the same
    if _tried is None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return False  # nothing may be tried then; the formula is captured as well as a kernel
        _tried = status()
        if _tried.active:
            _tried = _try_out(_tried)
    return _tried.active


are_ready._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile asks once, and does not look inside


def _try_out(found: KernelStatus) -> KernelStatus:
    """Without a compiler for its launches, on a device it does not know or with an answer that is wrong, Triton is not used."""
    try:
        from boolit.logic.kernels.gpu.launch import check

        with _disable_current_modes(), torch.no_grad():
            check()
    except Exception as error:  # whatever it is: the formulas work
        first_line = str(error).strip().split("\n")[0]
        return KernelStatus(False, f"{found.reason} does not work here ({type(error).__name__}: {first_line})")
    return found


def plan_for(program: Program, dtype: torch.dtype, shape: torch.Size, dim: int) -> KernelPlan:
    """The plan for contiguous tensors of this type and shape."""
    from boolit.logic.kernels.gpu.launch import plan

    return plan(program, dtype, shape, dim)


def is_on_gpu(x: Tensor) -> bool:
    """Whether the tensor is on a device these kernels are for; ROCm calls itself CUDA too."""
    return x.is_cuda


def kept_bytes(program: Program, shape: Sequence[int], dim: int) -> int:
    """How many bytes of bits a forward keeps, for symbolic shapes too: of each member planes of a bit per unit."""
    if not program.approximate:
        return 0
    positions = 1
    for size in (*shape[:dim], *shape[dim + 1 :]):
        positions *= size
    shares = program.shares(program.groups(shape[dim]))
    return sum(
        planes_of(name, program.k) * ((size * positions + 7) // 8)
        for (name, _), (_, size) in zip(program.members, shares, strict=True)
    )


def planes_of(name: str, k: int) -> int:
    """Bits that an approximate gate keeps of a group."""
    return (k - 1).bit_length() + 1 if name in ("xnor", "xor") else k
