"""A program evaluated by formula: any device, any float type, any transform. The kernels must agree with this file."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boolit.logic import approximate, exact
from boolit.logic.finite import affine, narrow
from boolit.logic.moments import moments
from boolit.logic.program import Program
from boolit.logic.vocabulary import OPERATIONS, normalised

_OF_TWO: dict[tuple[str, str], Callable[[Tensor, Tensor], Tensor]] = {
    ("or", "il"): exact.or_il,
    ("xnor", "il"): exact.xnor_il,
    ("or", "ail"): approximate.or_ail,
    ("xnor", "ail"): approximate.xnor_ail,
}
_OF_MANY: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
    ("or", "il"): exact.or_il_many,
    ("xnor", "il"): exact.xnor_il_many,
    ("or", "ail"): approximate.or_ail_many,
    ("xnor", "ail"): approximate.xnor_ail_many,
}


def formula(x: Tensor, program: Program, dim: int) -> Tensor:
    """The program's output, concatenated over its members along ``dim`` (which must not be negative).

    bfloat16 and float16 are computed in float32 and rounded once.
    """
    if x.dtype in (torch.bfloat16, torch.float16):
        return narrow(formula(x.float(), program, dim), x.dtype)
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
    kind = operation.base, form.removeprefix("n")
    value = _OF_TWO[kind](operands[0], operands[1]) if k == 2 else _OF_MANY[kind](operands)
    if operation.output_sign(k) < 0:
        value = -value
    if normalised(form):
        mean, sd = moments(name, form.removeprefix("n"), k)
        value = affine(value, 1 / sd, -mean / sd)  # each constant rounded once, after the division
    return value
