"""A program laid out for tensors of one shape and type: what the C interface takes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from boolit.logic.kernels.library import LIBRARY, MOST_GATES, GateStruct, PlanStruct
from boolit.logic.kernels.logits import address
from boolit.logic.moments import moments
from boolit.logic.program import Program
from boolit.logic.vocabulary import OPERATIONS, approximate, normalised

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_KINDS = {("or", True): 0, ("xnor", True): 1, ("or", False): 2, ("xnor", False): 3}
_FLIPS = {"none": 0, "all": 1, "first": 2, "second": 3}


@dataclass(frozen=True)
class Plan:
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
def plan_for(program: Program, dtype: torch.dtype, shape: torch.Size, dim: int) -> Plan:
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
    return Plan(struct, start, out, strides, in_bytes, out_bytes, LIBRARY.boolit_kept_bytes(start))


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
