"""The compiled kernels for CPUs: chosen and loaded once, and called through ctypes by plans."""

from __future__ import annotations

import ctypes
import math
import os
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from boolit.logic.moments import moments
from boolit.logic.operations import OPERATIONS, Program, is_approximate, is_normalized

ABI = 5
SHORT, ROOM = 64, 496  # runs of fewer groups share a block of up to so many groups (SHORT and BLOCK - MARGIN of gates.cpp)
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
INSTRUCTIONS = ("x86-64-v4", "x86-64-v3", "baseline")
_CAPABILITIES = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}  # what torch calls them
_FLIPS = {"none": 0, "all": 1, "first": 2, "second": 3}


class GateStruct(ctypes.Structure):
    """BoolitGate of gates.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("kind", "flips")),
        *((name, ctypes.c_double) for name in ("scale", "shift")),
        *((name, ctypes.c_int64) for name in ("start", "size")),
    ]


class LayoutStruct(ctypes.Structure):
    """BoolitLayout of gates.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("type", "halves", "duplicate", "count")),
        *((name, ctypes.c_int64) for name in ("outer", "groups", "k", "inner")),
    ]


@dataclass(frozen=True)
class KernelStatus:
    """Whether kernels are in use, and the reason."""

    active: bool
    reason: str
    path: str | None = None
    instructions: str | None = None
    threads: int | None = None
    abi: int | None = None


def _load() -> tuple[ctypes.CDLL | None, KernelStatus]:
    if os.environ.get("BOOLIT_KERNELS", "1") == "0":
        return None, KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them")
    best = _CAPABILITIES.get(torch.backends.cpu.get_cpu_capability(), "baseline")
    limit = os.environ.get("BOOLIT_INSTRUCTIONS", best)
    usable = INSTRUCTIONS[max(INSTRUCTIONS.index(name) for name in (best, limit) if name in INSTRUCTIONS) :]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    folder = Path(__file__).with_name("kernels")
    for name in usable:
        path = folder / f"_gates_{name.replace('-', '_')}{suffix}"
        if path.exists():
            return _open(path, name)
    return None, KernelStatus(
        False,
        "not built: no C++ compiler was found at installation; install one, then `pip install --force-reinstall boolit`",
    )


def _open(path: Path, instructions: str) -> tuple[ctypes.CDLL | None, KernelStatus]:
    try:
        library = ctypes.CDLL(str(path))  # after torch, whose threads it shares
        abi = int(library.boolit_abi())
    except (OSError, AttributeError) as error:
        return None, KernelStatus(False, f"{path.name} does not load ({error}); reinstall boolit", str(path))
    if abi != ABI:
        return None, KernelStatus(False, f"{path.name} is from another version of boolit; reinstall it", str(path), abi=abi)
    pointer = ctypes.c_void_p
    library.boolit_plan.argtypes, library.boolit_plan.restype = [pointer, pointer], pointer
    library.boolit_free.argtypes, library.boolit_free.restype = [pointer], None
    library.boolit_kept_bytes.argtypes, library.boolit_kept_bytes.restype = [pointer], ctypes.c_int64
    library.boolit_forward.argtypes, library.boolit_forward.restype = [pointer] * 4, None
    library.boolit_backward.argtypes, library.boolit_backward.restype = [pointer] * 5, None
    threads = int(library.boolit_threads())
    return library, KernelStatus(True, f"built and loaded ({instructions})", str(path), instructions, threads, abi)


LIBRARY, _STATUS = _load()


def status() -> KernelStatus:
    """Return whether the compiled kernels are in use, and the reason."""
    return _STATUS


def has_kernel(x: Tensor) -> bool:
    """Return whether there are kernels for a CPU tensor of this type."""
    return LIBRARY is not None and x.dtype in TYPES


class Plan:
    """A program laid out for contiguous CPU tensors of one type and shape."""

    def __init__(self, program: Program, dtype: torch.dtype, shape: torch.Size, dim: int) -> None:
        assert LIBRARY is not None
        self.program, self.dtype, self.shape, self.dim = program, dtype, shape, dim
        groups = program.groups(shape[dim])
        gates = [
            GateStruct(kind, _FLIPS[OPERATIONS[name].flips], scale, shift, start, size)
            for (name, form), (start, size) in zip(program.members, program.shares(groups), strict=True)
            for kind, scale, shift in [gate_constants(name, form, program.k)]
        ]
        layout = LayoutStruct(
            TYPES[dtype],
            program.pairing == "halves",
            program.strategy == "d",
            len(gates),
            math.prod(shape[:dim]),
            groups,
            program.k,
            math.prod(shape[dim + 1 :]),
        )
        self._library = LIBRARY  # outlives the plan also while Python shuts down
        self._handle = LIBRARY.boolit_plan(ctypes.byref(layout), (GateStruct * len(gates))(*gates))
        self.out_shape = torch.Size(out_shape(program, shape, dim))
        self.kept_bytes = int(LIBRARY.boolit_kept_bytes(self._handle))
        self._x, self._out = _template(shape, dtype), _template(self.out_shape, dtype)
        self._kept = _template((self.kept_bytes,), torch.uint8)
        self._forward, self._backward = LIBRARY.boolit_forward, LIBRARY.boolit_backward

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._library.boolit_free(self._handle)

    def forward(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Return the outputs and, if ``keep`` and all gates are approximate, the bits that the backward needs."""
        out = torch.empty_like(self._out)
        if not keep or not self.program.approximate:
            self._forward(self._handle, x.data_ptr(), out.data_ptr(), None)
            return out, None
        kept = torch.empty_like(self._kept)
        self._forward(self._handle, x.data_ptr(), out.data_ptr(), kept.data_ptr())
        return out, kept

    def backward(self, grad: Tensor, saved: Tensor) -> Tensor:
        """Return the gradient of x from the kept bits or, if ``saved`` is not bits, from x."""
        if saved.dtype == torch.uint8:
            fits = saved.numel() == self.kept_bytes and self.program.approximate
        else:
            fits = saved.dtype == self.dtype and saved.shape == self.shape
        if not (fits and grad.shape == self.out_shape and grad.dtype == self.dtype and saved.is_cpu and grad.is_cpu):
            message = f"the gradient or the saved tensor of {self.program.spec} is not what it was"
            raise ValueError(f"{message}; hooks must return what they were given")
        if not (grad.data_ptr() and saved.data_ptr()) and grad.numel():
            raise RuntimeError("the gradient or the saved tensor has no memory")
        grad, saved = grad.contiguous(), saved.contiguous()
        grad_x = torch.empty_like(self._x)
        x, kept = (None, saved.data_ptr()) if saved.dtype == torch.uint8 else (saved.data_ptr(), None)
        self._backward(self._handle, grad.data_ptr(), x, kept, grad_x.data_ptr())
        return grad_x


def _template(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return a view of one element for torch.empty_like, which allocates all of it; torch.empty takes a third longer."""
    if 0 in shape:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    return torch.zeros(1, dtype=dtype, device="cpu").expand(tuple(shape))


def gate_constants(name: str, form: str, k: int) -> tuple[int, float, float]:
    """Return kind (OR_AIL, XNOR_AIL, OR_IL, XNOR_IL), scale and shift of a gate: ``scale · base + shift``."""
    operation = OPERATIONS[name]
    mean, sd = moments(name, form.removeprefix("n"), k) if is_normalized(form) else (0.0, 1.0)
    kind = 2 * (not is_approximate(form)) + (operation.base == "xnor")
    return kind, operation.output_sign(k) / sd, 0.0 - mean / sd


def out_shape(program: Program, shape: Sequence[int], dim: int) -> tuple[int, ...]:
    """Return the output's shape."""
    return (*shape[:dim], program.out_channels(shape[dim]), *shape[dim + 1 :])


def kept_bytes(program: Program, shape: Sequence[int], dim: int) -> int:
    """Return the size of the bits that a forward keeps, for symbolic shapes too: two bits for each pair of each gate."""
    if not program.approximate:
        return 0
    outer, inner, groups = math.prod(shape[:dim]), math.prod(shape[dim + 1 :]), program.groups(shape[dim])
    joined = program.strategy != "d" or len(program.members) == 1  # a gate on rows that follow each other has one long run
    total = 0
    for _, size in program.shares(groups):
        if program.pairing == "halves":
            runs, lanes = outer, size * inner
        elif inner != 1:
            runs, lanes = outer * size, inner
        else:
            runs, lanes = (1, outer * size) if joined and size == groups else (outer, size)
        rows = ROOM // lanes if program.k == 2 and 0 < lanes < SHORT else 1  # runs of a block
        plane = runs // rows * ((rows * lanes + 7) // 8) + (runs % rows * lanes + 7) // 8
        total += 2 * (program.k - 1) * plane
    return total
