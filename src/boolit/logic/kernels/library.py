"""The compiled gates: found and loaded, or why they are not there; and programs laid out as the C interface takes them."""

from __future__ import annotations

import ctypes
import math
import os
import sysconfig
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from boolit.logic.moments import moments
from boolit.logic.program import Program
from boolit.logic.vocabulary import OPERATIONS, approximate, normalised

# What python_module.cpp has to give. Every call answers None where a tensor is not what it must be.


class KernelPlan(Protocol):
    """A program laid out for contiguous tensors of one type and shape."""

    program: Program
    dim: int
    channels: int
    kept_bytes: int

    def forward(self, x: Tensor, keep: bool, /) -> tuple[Tensor, Tensor | None] | None:
        """The gates' outputs, and the bits a backward without x needs."""

    def backward(self, grad: Tensor, saved: Tensor, /) -> Tensor | None:
        """The gradient, from the bits or from x."""

    def differentiate(self, grad: Tensor, saved: Tensor, /) -> Tensor | None:
        """The same if both are plain tensors, and nobody is to see how it is done."""


class CompiledPlan(KernelPlan, Protocol):
    """One for the CPU."""

    def double_backward(self, towards: Tensor, grad: Tensor, x: Tensor, /) -> tuple[Tensor, Tensor] | None:
        """What ``towards``, a gradient of the backward's result, gives to grad and to x."""


class KernelModule(Hashable, Protocol):
    """The compiled module."""

    abi: int
    instructions: str
    Plan: Any

    def threads(self) -> int:
        """How many threads a kernel may use."""

    def connect(self, *of_torch: Any) -> None:
        """Takes what it needs of torch."""

    def evaluate(self, x: Any, dim: Any, /, *what: Any) -> Tensor | None:
        """The output for a plain tensor whose plan was remembered under the same objects."""

    def remember(self, plan: KernelPlan, dim: int, /, *what: Any) -> None:
        """Takes a plan for later calls with these objects, which must not change."""


# Finds and loads the compiled gates, or says in a line why they are not there.

ABI = 1
MOST_GATES = 16


class GateStruct(ctypes.Structure):
    """BoolitGate of gates.cpp."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("flips", ctypes.c_int32),
        ("scale", ctypes.c_double),
        ("shift", ctypes.c_double),
        ("start", ctypes.c_int64),
        ("size", ctypes.c_int64),
    ]


class PlanStruct(ctypes.Structure):
    """BoolitPlan of gates.cpp."""

    _fields_ = [
        ("type", ctypes.c_int32),
        ("halves", ctypes.c_int32),
        ("duplicate", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("outer", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("gates", GateStruct * MOST_GATES),
    ]


@dataclass(frozen=True)
class KernelStatus:
    """Whether the kernels run, and why or why not."""

    active: bool
    reason: str
    path: str | None = None
    instructions: str | None = None
    threads: int | None = None
    abi: int | None = None


def _load() -> tuple[KernelModule | None, KernelStatus]:
    if os.environ.get("BOOLIT_KERNELS", "1") == "0":
        return None, KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them")
    path = Path(__file__).with_name(f"_gates{sysconfig.get_config_var('EXT_SUFFIX')}")
    if not path.exists():
        return None, KernelStatus(
            False,
            "not built: no C++ compiler was found at installation; install one, then `pip install --force-reinstall boolit`",
        )
    try:
        module = load_module(path)
        abi = module.abi
    except (ImportError, AttributeError) as error:
        return None, KernelStatus(False, f"{path.name} does not load ({error}); reinstall boolit", str(path))
    if abi != ABI:
        return None, KernelStatus(False, f"{path.name} is of another version of boolit; reinstall it", str(path), abi=abi)
    instructions = module.instructions
    return module, KernelStatus(True, f"built and loaded ({instructions})", str(path), instructions, module.threads(), abi)


def load_module(path: Path) -> KernelModule:
    """The compiled module in a file, whatever the file is called."""
    spec = spec_from_file_location(f"{__package__}._gates", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(KernelModule, module)


LIBRARY, STATUS = _load()  # after torch, whose threads it shares


def status() -> KernelStatus:
    """Whether the compiled kernels are in use, and the reason."""
    return STATUS


# A program laid out for tensors of one shape and type: what the C interface takes.

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_KINDS = {("or", True): 0, ("xnor", True): 1, ("or", False): 2, ("xnor", False): 3}
_FLIPS = {"none": 0, "all": 1, "first": 2, "second": 3}


def plan_for(program: Program, dtype: torch.dtype, shape: torch.Size, dim: int) -> CompiledPlan:
    """The plan for contiguous tensors of this type and shape."""
    assert LIBRARY is not None
    return _plan(LIBRARY, program, dtype, shape, dim)


@lru_cache(maxsize=4096)
def _plan(library: KernelModule, program: Program, dtype: torch.dtype, shape: torch.Size, dim: int) -> CompiledPlan:
    groups = program.groups(shape[dim])
    shares = program.shares(groups)
    gates = [_gate(member, share, program.k) for member, share in zip(program.members, shares, strict=True)]
    struct = PlanStruct(
        TYPES[dtype],
        program.pairing == "halves",
        program.strategy == "d",
        len(gates),
        math.prod(shape[:dim]),
        groups,
        program.k,
        math.prod(shape[dim + 1 :]),
        (GateStruct * MOST_GATES)(*gates),
    )
    out, kept = out_shape(program, shape, dim), kept_bytes(program, shape, dim)
    plan: CompiledPlan = library.Plan(
        bytes(struct),
        program,
        dim,
        TYPES[dtype],
        tuple(shape),
        out,
        kept,
        _like(tuple(shape), dtype),
        _like(out, dtype),
        _like((kept,), torch.uint8) if program.approximate else None,
    )
    return plan


def _like(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What torch.empty_like is given, in the memory of one element; an allocation by sizes takes a third longer."""
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.zeros(1, dtype=dtype, device="cpu").expand(shape)


def fits(program: Program, x: Tensor) -> bool:
    """Whether the kernels can do this at all."""
    return LIBRARY is not None and x.dtype in TYPES and len(program.members) <= MOST_GATES


def out_shape(program: Program, shape: Sequence[int], dim: int) -> tuple[int, ...]:
    """The output's shape."""
    return (*shape[:dim], program.out_channels(shape[dim]), *shape[dim + 1 :])


def kept_bytes(program: Program, shape: Sequence[int], dim: int) -> int:
    """How many bytes of bits a forward keeps, for symbolic shapes too; the kernels refuse a plan where they count another."""
    if not program.approximate:
        return 0
    inner = outer = 1
    for size in shape[:dim]:
        outer *= size
    for size in shape[dim + 1 :]:
        inner *= size
    groups = program.groups(shape[dim])
    total = 0
    for (name, _), (_, size) in zip(program.members, program.shares(groups), strict=True):
        planes = (program.k - 1).bit_length() + 1 if name in ("xnor", "xor") else program.k
        if program.pairing == "halves":
            plane = outer * ((size * inner + 7) // 8)
        elif inner == 1:
            merged = size == groups and (program.strategy == "p" or len(program.members) == 1)
            plane = (outer * size + 7) // 8 if merged else outer * ((size + 7) // 8)
        else:
            plane = outer * size * ((inner + 7) // 8)
        total += planes * plane
    return total


def _gate(member: tuple[str, str], share: tuple[int, int], k: int) -> GateStruct:
    name, form = member
    operation = OPERATIONS[name]
    mean, sd = moments(name, form.removeprefix("n"), k) if normalised(form) else (0.0, 1.0)
    kind = _KINDS[operation.base, approximate(form)]
    return GateStruct(kind, _FLIPS[operation.flips], operation.output_sign(k) / sd, -mean / sd, *share)
