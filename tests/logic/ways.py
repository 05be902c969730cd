"""The ways a gate can be computed: by formula, and by the kernel of every instruction set this machine has, in one process."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from boolit.logic import Program
from boolit.logic.kernels import library
from boolit.logic.reference import formula

Way = Callable[[Tensor, Program], tuple[Tensor, Tensor]]
LEVELS = ("baseline", "x86-64-v3", "x86-64-v4")


def by_formula(x: Tensor, program: Program) -> tuple[Tensor, Tensor]:
    """Values and their derivatives, of groups along dimension 1."""
    leaf = x.clone().requires_grad_()
    value = formula(leaf, program, 1)
    (gradient,) = torch.autograd.grad(value, leaf, torch.ones_like(value))
    return value.detach(), gradient


def by_kernel(kernels: ctypes.CDLL, x: Tensor, program: Program) -> tuple[Tensor, Tensor]:
    """The same from the operands, and from the bits where all gates are approximate."""
    x = x.contiguous()
    laid_out = library.plan_for(program, x.dtype, x.shape, 1)
    value, gradient = x.new_empty(laid_out.out_shape), torch.empty_like(x)
    ones = torch.ones_like(value)
    kept = torch.empty(max(1, laid_out.kept_bytes), dtype=torch.uint8)
    bits, source = (kept.data_ptr(), None) if program.approximate else (None, x.data_ptr())
    kernels.boolit_forward(laid_out.address, x.data_ptr(), value.data_ptr(), bits)
    kernels.boolit_backward(laid_out.address, ones.data_ptr(), source, bits, gradient.data_ptr())
    return value, gradient


@cache
def libraries() -> dict[str, ctypes.CDLL]:
    """The kernels at every level this machine has. A library reads BOOLIT_INSTRUCTIONS when it is loaded: each is a copy."""
    found: dict[str, ctypes.CDLL] = {}
    if library.STATUS.path is None:
        return found
    with tempfile.TemporaryDirectory() as folder:
        for level in LEVELS:
            copy = Path(folder) / f"gates-{level}.so"
            shutil.copy(library.STATUS.path, copy)
            with mock.patch.dict(os.environ, BOOLIT_INSTRUCTIONS=level):
                kernels = ctypes.CDLL(str(copy))
            library._declare(kernels)
            if kernels.boolit_instructions().decode() == level:
                found[level] = kernels
    return found


def ways() -> dict[str, Way]:
    """Every way by name."""
    return {"formula": by_formula} | {level: partial(by_kernel, kernels) for level, kernels in libraries().items()}
