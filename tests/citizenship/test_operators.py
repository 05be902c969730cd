"""The registered operators keep torch's rules: schema, autograd, fake tensors, tracing with dynamic shapes."""

from __future__ import annotations

import pytest
import torch
from gate_cases import MIXED, WIDTH
from torch import Tensor
from torch.library import opcheck

import boolit
from boolit.logic import Program
from boolit.nn import Ensemble, Gate

# Every operation, form, strategy and grouping, but not each with each, for the operators take all of them as a text;
# test_kernels.py compares the shapes and sizes they state of all.
K3 = ["xnor_ail_k3_halves", "or_and_xnor_nail_d_k3"]
APPROXIMATE = ["or_ail", "and_nail", "xnor_ail", "or_and_xnor_ail_d", "or_and_xnor_nail_p", "or_and_xnor_nail_pu", *K3]
SPECS = [*APPROXIMATE, "or_il", "xnor_nil", "and_il", "or_and_xnor_il_p", "or_and_xnor_nil_d", "or_il_k3", MIXED]


def program_of(spec: str) -> Program:
    module = boolit.activation(spec)
    assert isinstance(module, Gate | Ensemble)
    assert module.program is not None
    return module.program


@pytest.mark.parametrize("spec", SPECS)
def test_gates(spec: str) -> None:
    x = torch.randn(3, WIDTH, 5, requires_grad=True)
    opcheck(torch.ops.boolit.gates.default, (x, str(program_of(spec)), 1, False))


@pytest.mark.parametrize("spec", SPECS)
def test_gates_backward_from_the_input(spec: str) -> None:
    program, x = program_of(spec), torch.randn(3, WIDTH)
    opcheck(torch.ops.boolit.gates_backward.default, (torch.randn(3, program.out_channels(WIDTH)), x, str(program), 1, WIDTH))


@pytest.mark.parametrize("spec", ["or_il", "xnor_nil", "or_ail"])  # tracing a second derivative takes seconds
def test_differentiable_gates_backward_from_the_input(spec: str) -> None:
    program, x = program_of(spec), torch.randn(3, 4, requires_grad=True)
    grad = torch.randn(3, program.out_channels(4), requires_grad=True)
    opcheck(torch.ops.boolit.gates_backward.default, (grad, x, str(program), 1, 4))


@pytest.mark.parametrize("spec", APPROXIMATE)
def test_gates_and_their_backward_from_bits(spec: str) -> None:
    program, x = program_of(spec), torch.randn(3, WIDTH, requires_grad=True)
    opcheck(torch.ops.boolit.gates.default, (x, str(program), 1, True))
    out, kept = torch.ops.boolit.gates(x, str(program), 1, True)
    grad = torch.randn_like(out).requires_grad_()
    opcheck(torch.ops.boolit.gates_backward.default, (grad, kept, str(program), 1, WIDTH))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types(dtype: torch.dtype) -> None:
    for spec in ("or_and_xnor_il_d", "or_and_xnor_nail_p"):
        opcheck(torch.ops.boolit.gates.default, (torch.randn(3, WIDTH, dtype=dtype), str(program_of(spec)), 1, False))


def test_not_contiguous_arguments() -> None:
    program = program_of("or_and_xnor_ail_d")
    x: Tensor = torch.randn(WIDTH, 3).T.requires_grad_()
    opcheck(torch.ops.boolit.gates.default, (x, str(program), 1, True))
    kept = torch.ops.boolit.gates(x, str(program), 1, True)[1]
    grad = torch.randn(program.out_channels(WIDTH), 3).T
    opcheck(torch.ops.boolit.gates_backward.default, (grad, kept, str(program), 1, WIDTH))
