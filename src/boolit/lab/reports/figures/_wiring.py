"""Which inputs feed which output of an activation, and by which gate, found by probing the module itself."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from boolit.nn import Activation, Ensemble


class Wire(NamedTuple):
    """One output channel: the input channels it depends on, and the activation that makes it from them."""

    inputs: tuple[int, ...]
    gate: Activation


def wiring(module: Activation, channels: int) -> list[Wire]:
    """The wire of every output channel of a module with so many input channels.

    Example:
        >>> from boolit import activation
        >>> [(wire.inputs, wire.gate.spec) for wire in wiring(activation("or_xnor_ail_p"), 4)]
        [((0, 1), 'or_ail'), ((2, 3), 'xnor_ail')]
    """
    module = copy.deepcopy(module).double()
    x = _probes(module, channels)
    values = module(x)
    wires = []
    for output in range(values.shape[1]):
        slopes = torch.autograd.grad(values[:, output].sum(), x, retain_graph=True)[0]
        inputs = tuple(slopes.ne(0).any(0).nonzero().flatten().tolist())
        wires.append(Wire(inputs, _maker(module, x[:, list(inputs)], values[:, output])))
    return wires


def _probes(module: Activation, channels: int) -> Tensor:
    """Random inputs, so many that every operand has a slope at one of them.

    An approximate XNOR of k passes a slope to one operand at a time, so 32 k probes miss one with probability e⁻³².
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randn(32 * module.map[0], channels, dtype=torch.float64, generator=generator).requires_grad_()


def _maker(module: Activation, operands: Tensor, output: Tensor) -> Activation:
    """The member of an ensemble that gives this output for these operands."""
    if not isinstance(module, Ensemble):
        return module
    for part in module.parts:
        if part.divisor == operands.shape[1] and torch.allclose(part(operands)[:, 0], output):
            return part
    raise ValueError(f"no member of {module.spec} gives one of its outputs; a wiring needs gates that act on each group alone")
