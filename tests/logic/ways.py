"""The ways a gate can be computed: by formula, and by the kernel of every instruction set this machine has, in one process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from boolit import functional
from boolit.logic import Program
from boolit.logic.kernels import library, operators
from boolit.logic.reference import formula

Way = Callable[[Tensor, Program], tuple[Tensor, Tensor]]
LEVELS = ("baseline", "x86-64-v3", "x86-64-v4")


def by_formula(x: Tensor, program: Program) -> tuple[Tensor, Tensor]:
    """Values and their derivatives, of groups along dimension 1."""
    leaf = x.clone().requires_grad_()
    value = formula(leaf, program, 1)
    (gradient,) = torch.autograd.grad(value, leaf, torch.ones_like(value))
    return value.detach(), gradient


def by_kernel(kernels: library.KernelModule, x: Tensor, program: Program) -> tuple[Tensor, Tensor]:
    """The same from the operands, and from the bits where all gates are approximate."""
    x = x.contiguous()
    plan = library._plan(kernels, program, x.dtype, x.shape, 1)
    results = plan.forward(x, True)
    assert results is not None
    value, kept = results
    gradient = plan.backward(torch.ones_like(value), x if kept is None else kept)
    assert gradient is not None
    return value, gradient


@contextmanager
def calls_by(kernels: library.KernelModule | None) -> Iterator[None]:
    """Every call goes to these kernels, or to the formulas, instead of those the process has loaded."""
    call = kernels.evaluate if kernels else operators.call_none
    with (
        mock.patch.object(library, "LIBRARY", kernels),
        mock.patch.object(operators, "call_kernel", call),
        mock.patch.object(functional, "call_kernel", call),
    ):
        yield


@cache
def libraries() -> dict[str, library.KernelModule]:
    """The kernels at every level this machine has. A library reads BOOLIT_INSTRUCTIONS when it is loaded: each is a copy."""
    found: dict[str, library.KernelModule] = {}
    if library.STATUS.path is None:
        return found
    with tempfile.TemporaryDirectory() as folder:
        for level in LEVELS:
            copy = Path(folder) / f"gates-{level}.so"
            shutil.copy(library.STATUS.path, copy)
            with mock.patch.dict(os.environ, BOOLIT_INSTRUCTIONS=level):
                kernels = library.load_module(copy)
            operators.connect(kernels)
            if kernels.instructions == level:
                found[level] = kernels
    return found


def ways() -> dict[str, Way]:
    """Every way by name."""
    return {"formula": by_formula} | {level: partial(by_kernel, kernels) for level, kernels in libraries().items()}
