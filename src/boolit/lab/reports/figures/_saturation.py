"""Where a gate computed through clamped probabilities stops being the gate."""

from __future__ import annotations

import math

import torch
from matplotlib.figure import Figure
from torch import Tensor

from boolit.functional import combine
from boolit.lab.reports.figures._style import style, styled

CLAMP = 1e-7  # what the authors' published package clamps probabilities at before each logarithm
_CLAMPED = f"clamped at $10^{{{round(math.log10(CLAMP))}}}$"
_GATES = ("and", "or", "xnor")


def clamped(op: str, x: Tensor, y: Tensor) -> Tensor:
    """A gate by its definition: log p - log(1 - p), with both clamped from below.

    Shape: the broadcast shape of x and y.

    Example:
        >>> clamped("or", torch.tensor(40.0), torch.tensor(40.0))
        tensor(16.1181)
    """
    both, neither = torch.sigmoid(x) * torch.sigmoid(y), torch.sigmoid(-x) * torch.sigmoid(-y)
    true, false = {"and": (both, 1 - both), "or": (1 - neither, neither), "xnor": (both + neither, 1 - both - neither)}[op]
    return torch.log(true.clamp_min(CLAMP)) - torch.log(false.clamp_min(CLAMP))


@styled
def saturation() -> Figure:
    """The gates along y = x, and the errors of both ways to compute them in float32."""
    t = torch.linspace(-40, 40, 241)
    figure = Figure(figsize=(9.4, 3.6), layout="constrained")
    value_axes, error_axes = figure.subplots(1, 2)
    for op in _GATES:
        exact = combine(op, t.double(), t.double())
        for name, computed, line in (("boolit", combine(op, t, t), "-"), (_CLAMPED, clamped(op, t, t), ":")):
            look = {"color": style(f"{op}_il").colour, "linestyle": line}
            value_axes.plot(t, computed, **look, label=f"{op.upper()}, {name}")
            error_axes.semilogy(t, _error(computed, exact), **look, linewidth=1.1)
    value_axes.set(xlabel="x = y", ylabel="output logit")
    error_axes.set(xlabel="x = y", ylabel="absolute error in float32", ylim=(5e-10, 1e2))
    for axes in (value_axes, error_axes):
        axes.grid(visible=True)
    figure.legend(*value_axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


def _error(computed: Tensor, exact: Tensor) -> Tensor:
    """Absolute, and at least 1e-9 so that an error of 0 has a place on a logarithmic axis."""
    return (computed.double() - exact).abs().clamp_min(1e-9)
