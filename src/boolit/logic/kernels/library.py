"""The compiled gates: found and loaded, or why they are not there; and programs laid out as the C interface takes them."""

from __future__ import annotations

import ctypes
import math
import os
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from boolit.logic.kernels.logits import address
from boolit.logic.moments import moments
from boolit.logic.program import Program
from boolit.logic.vocabulary import OPERATIONS, approximate, normalised

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


def _load() -> tuple[ctypes.CDLL | None, KernelStatus]:
    if os.environ.get("BOOLIT_KERNELS", "1") == "0":
        return None, KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them")
    path = Path(__file__).with_name(f"_gates{sysconfig.get_config_var('EXT_SUFFIX')}")
    if not path.exists():
        return None, KernelStatus(
            False,
            "not built: no C++ compiler was found at installation; install one, then `pip install --force-reinstall boolit`",
        )
    try:
        library = ctypes.CDLL(str(path))
        abi = int(library.boolit_abi())
    except (OSError, AttributeError) as error:
        return None, KernelStatus(False, f"{path.name} does not load ({error}); reinstall boolit", str(path))
    if abi != ABI:
        return None, KernelStatus(False, f"{path.name} is of another version of boolit; reinstall it", str(path), abi=abi)
    _declare(library)
    instructions = library.boolit_instructions().decode()
    return library, KernelStatus(
        True, f"built and loaded ({instructions})", str(path), instructions, library.boolit_threads(), abi
    )


def _declare(library: ctypes.CDLL) -> None:
    pointer = plan = ctypes.c_void_p
    library.boolit_instructions.restype = ctypes.c_char_p
    library.boolit_kept_bytes.argtypes, library.boolit_kept_bytes.restype = [plan], ctypes.c_int64
    library.boolit_forward.argtypes, library.boolit_forward.restype = [plan, pointer, pointer, pointer], None
    library.boolit_backward.argtypes, library.boolit_backward.restype = [plan, pointer, pointer, pointer, pointer], None


LIBRARY, STATUS = _load()


def status() -> KernelStatus:
    """Whether the compiled kernels are in use, and the reason."""
    return STATUS


# A program laid out for tensors of one shape and type: what the C interface takes.

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_KINDS = {("or", True): 0, ("xnor", True): 1, ("or", False): 2, ("xnor", False): 3}
_FLIPS = {"none": 0, "all": 1, "first": 2, "second": 3}


@dataclass(frozen=True)
class KernelPlan:
    """The C structure, its address, and the sizes of what it writes."""

    struct: PlanStruct
    address: int
    out_shape: tuple[int, ...]
    out_strides: tuple[int, ...]
    in_bytes: int
    out_bytes: int
    kept_bytes: int

    def forward(self, x: Tensor, out: Tensor, kept: Tensor | None) -> None:
        """Writes the gates' outputs, and the bits a backward without x needs."""
        assert LIBRARY is not None
        kept_address = None if kept is None else kept.data_ptr()
        LIBRARY.boolit_forward(self.address, address(x, self.in_bytes), out.data_ptr(), kept_address)

    def backward(self, grad: Tensor, x: Tensor | None, kept: Tensor | None, grad_x: Tensor) -> None:
        """Writes the gradient, from x or from the bits."""
        assert LIBRARY is not None
        x_address = None if x is None else address(x, self.in_bytes)
        kept_address = None if kept is None else address(kept, self.kept_bytes)
        LIBRARY.boolit_backward(self.address, address(grad, self.out_bytes), x_address, kept_address, grad_x.data_ptr())


@lru_cache(maxsize=4096)
def plan_for(program: Program, dtype: torch.dtype, shape: torch.Size, dim: int) -> KernelPlan:
    """The plan for contiguous tensors of this type and shape."""
    assert LIBRARY is not None
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
    start, out = ctypes.addressof(struct), out_shape(program, shape, dim)
    strides = tuple(math.prod(max(1, size) for size in out[axis + 1 :]) for axis in range(len(out)))
    in_bytes, out_bytes = (math.prod(sizes) * dtype.itemsize for sizes in (shape, out))
    return KernelPlan(struct, start, out, strides, in_bytes, out_bytes, LIBRARY.boolit_kept_bytes(start))


def fits(program: Program, x: Tensor) -> bool:
    """Whether the kernels can do this at all."""
    return LIBRARY is not None and x.dtype in TYPES and len(program.members) <= MOST_GATES


def out_shape(program: Program, shape: Sequence[int], dim: int) -> tuple[int, ...]:
    """The output's shape."""
    return (*shape[:dim], program.out_channels(shape[dim]), *shape[dim + 1 :])


def _gate(member: tuple[str, str], share: tuple[int, int], k: int) -> GateStruct:
    name, form = member
    operation = OPERATIONS[name]
    mean, sd = moments(name, form.removeprefix("n"), k) if normalised(form) else (0.0, 1.0)
    kind = _KINDS[operation.base, approximate(form)]
    return GateStruct(kind, _FLIPS[operation.flips], operation.output_sign(k) / sd, -mean / sd, *share)
