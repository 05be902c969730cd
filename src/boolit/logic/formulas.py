"""A program evaluated by formula: any device, any float type, any transform. The kernels must agree with this file."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boolit.logic import approximate, exact
from boolit.logic.moments import moments
from boolit.logic.program import Program
from boolit.logic.vocabulary import OPERATIONS, normalised

_BINARY: dict[tuple[str, str], Callable[[Tensor, Tensor], Tensor]] = {
    ("or", "il"): exact.or_il,
    ("xnor", "il"): exact.xnor_il,
    ("or", "ail"): approximate.or_ail,
    ("xnor", "ail"): approximate.xnor_ail,
}


def formula(x: Tensor, program: Program, dim: int) -> Tensor:
    """The program's output, concatenated over its members along ``dim`` (which must not be negative).

    bfloat16 and float16 are computed in float32 and rounded once.
    """
    if x.dtype in (torch.bfloat16, torch.float16):
        return formula(x.float(), program, dim).to(x.dtype)
    groups = program.groups(x.shape[dim])
    adjacent = program.pairing == "adjacent"
    grouped = x.unflatten(dim, (groups, program.k) if adjacent else (program.k, groups))
    operands = grouped.movedim(dim + 1 if adjacent else dim, 0)
    outputs = [
        _gate(operands.narrow(dim + 1, start, size), name, form)
        for (name, form), (start, size) in zip(program.members, program.shares(groups), strict=True)
    ]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim)


def _gate(operands: Tensor, name: str, form: str) -> Tensor:
    """One gate on operands stacked along dimension 0."""
    k = operands.shape[0]
    operation = OPERATIONS[name]
    signs = operation.input_signs(k)
    if operation.flips == "all":
        operands = -operands
    elif -1 in signs:
        operands = torch.stack([operand if sign > 0 else -operand for operand, sign in zip(operands, signs, strict=True)])
    value = fold(_BINARY[operation.base, form.removeprefix("n")], operands)
    if operation.output_sign(k) < 0:
        value = -value
    if normalised(form):
        mean, sd = moments(name, form.removeprefix("n"), k)
        value = (value - mean) / sd
    return value


def fold(binary: Callable[[Tensor, Tensor], Tensor], operands: Tensor) -> Tensor:
    """An associative function of two tensors applied to all along dimension 0: neighbours first, so log₂ k steps."""
    while operands.shape[0] > 1:
        whole = operands.shape[0] // 2 * 2
        paired = binary(operands[0:whole:2], operands[1:whole:2])
        operands = torch.cat([paired, operands[whole:]]) if whole < operands.shape[0] else paired
    return operands[0]
