"""The ways a gate can be computed: by the reference, and by the kernels of every instruction set this machine has."""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from boolit.logic import Program, cpu
from boolit.logic.reference import evaluate_reference

Way = Callable[[Tensor, Program], tuple[Tensor, Tensor]]


def by_reference(x: Tensor, program: Program) -> tuple[Tensor, Tensor]:
    """Return values and derivatives of groups along dimension 1."""
    leaf = x.clone().requires_grad_()
    value = evaluate_reference(leaf, program, 1)
    (gradient,) = torch.autograd.grad(value, leaf, torch.ones_like(value))
    return value.detach(), gradient


def by_kernel(library: ctypes.CDLL, x: Tensor, program: Program) -> tuple[Tensor, Tensor]:
    """Return the same from the kernels: from the bits if all gates are approximate, else from the operands."""
    x = x.contiguous()
    with calls_by(library):
        plan = cpu.Plan(program, x.dtype, x.shape, 1)
    value, kept = plan.forward(x, True)
    return value, plan.backward(torch.ones_like(value), x if kept is None else kept)


@contextmanager
def calls_by(library: ctypes.CDLL | None) -> Iterator[None]:
    """Use this library for plans that are made within, or the reference if it is None."""
    with mock.patch.object(cpu, "LIBRARY", library):
        yield


@cache
def libraries() -> dict[str, ctypes.CDLL]:
    """Return the kernels of every instruction set that this machine has."""
    best = cpu.status().instructions
    if best is None:
        return {}
    loaded = {}
    for level in cpu.INSTRUCTIONS[cpu.INSTRUCTIONS.index(best) :]:
        name = f"_gates_{level.replace('-', '_')}{sysconfig.get_config_var('EXT_SUFFIX')}"
        library, status = cpu._open(Path(cpu.__file__).parent / "kernels" / name, level)
        assert library is not None, status.reason
        loaded[level] = library
    return loaded


def ways() -> dict[str, Way]:
    """Return every way by name."""
    return {"reference": by_reference} | {level: partial(by_kernel, library) for level, library in libraries().items()}
