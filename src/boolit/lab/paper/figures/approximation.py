"""Differences between AIL and IL (a:diff, a:gradients), the saturation of clamped probabilities, and output densities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor
from torch.quasirandom import SobolEngine

from boolit.functional import combine
from boolit.lab.paper.figures.gates import color_bar, heatmap, plane, surface
from boolit.lab.paper.figures.look import styled
from boolit.lab.reports.style import style
from boolit.lab.results.names import paper_name
from boolit.logic import moments

# Where |AIL - IL| is largest, in numbers and words, the closed form of its value, and a free corner of the panel.
# NOTE[paper]: a:diff says the difference never exceeds 1; it reaches ln 3 for AND and OR, and tends to ln 2 for XNOR.
LARGEST_DIFFERENCES = {
    "and": ((0.0, 0.0), "at the origin", "ln 3", (0, 0)),
    "or": ((0.0, 0.0), "at the origin", "ln 3", (1, 1)),
    "xnor": ((50.0, 50.0), "as |x| = |y| → ∞", "ln 2", (0.5, 0)),
}


def difference(op: str, x: Tensor, y: Tensor) -> Tensor:
    """Return AIL - IL of a gate."""
    return surface(f"{op}_ail", x, y) - surface(f"{op}_il", x, y)


@styled
def differences(op: str) -> Figure:
    """Draw IL, AIL, AIL - IL, and its size relative to |IL|."""
    x, y = plane()
    exact, approximate = surface(f"{op}_il", x, y), surface(f"{op}_ail", x, y)
    limit = max(float(exact.abs().max()), float(approximate.abs().max()))
    figure = Figure(figsize=(7.6, 6.2), layout="compressed")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, spec, values in zip(panels[0], (f"{op}_il", f"{op}_ail"), (exact, approximate), strict=True):
        image = heatmap(axes, values, limit, range(-10, 11, 1 if limit < 7 else 2))
        axes.set_title(paper_name(spec, "mathtext"))
        color_bar(figure, image, axes)
    image = heatmap(panels[1, 0], approximate - exact, 1.1, (-1, -0.5, -0.1, 0.1, 0.5, 1))
    panels[1, 0].set_title("difference, AIL − IL")
    _state_maximum(panels[1, 0], op)
    color_bar(figure, image, panels[1, 0])
    image = heatmap(panels[1, 1], (approximate - exact).abs() / exact.abs(), 1.0, (0.1, 0.5), positive=True)
    panels[1, 1].set_title("relative difference, |AIL − IL| / |IL|")
    color_bar(figure, image, panels[1, 1], extend="max")
    return figure


def _state_maximum(axes: Axes, op: str) -> None:
    """Write the largest difference and its closed form into the panel."""
    point, place, closed_form, (right, up) = LARGEST_DIFFERENCES[op]
    size = float(difference(op, *torch.tensor(point, dtype=torch.float64)[:, None]).abs())
    axes.annotate(
        f"largest |AIL − IL|:\n{size:.4f} = {closed_form}\n{place}",
        (0.03 + 0.94 * right, 0.03 + 0.94 * up),
        xycoords="axes fraction",
        ha={0: "left", 0.5: "center", 1: "right"}[right],
        va="top" if up else "bottom",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2},
    )


def slopes(spec: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return ∂/∂x and ∂/∂y of a 2→1 activation, by autograd."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    by_x, by_y = torch.autograd.grad(surface(spec, x, y).sum(), (x, y))
    return by_x, by_y


@styled
def gradients(op: str) -> Figure:
    """Draw ∂/∂x and ∂/∂y of IL (above) and of AIL (below)."""
    figure = Figure(figsize=(6.6, 5.6), layout="compressed")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, spec in zip(panels, (f"{op}_il", f"{op}_ail"), strict=True):
        for axes, name, values in zip(row, "xy", slopes(spec, *plane()), strict=True):
            levels = (-0.8, -0.5, -0.2, 0.2, 0.5, 0.8) if spec.endswith("_il") else ()
            image = heatmap(axes, values, 1.0, levels)
            axes.set_title(f"∂ {paper_name(spec, 'mathtext')} / ∂{name}")
    color_bar(figure, image, panels, "slope")
    return figure


GATES = ("and", "or", "xnor")
CLAMP = 1e-7  # where the authors' package clamps probabilities before each logarithm
_CLAMPED = f"clamped at $10^{{{round(math.log10(CLAMP))}}}$"


def clamped_gate(op: str, x: Tensor, y: Tensor) -> Tensor:
    """Compute a gate by its definition, log p - log(1 - p), with both clamped from below."""
    both, neither = torch.sigmoid(x) * torch.sigmoid(y), torch.sigmoid(-x) * torch.sigmoid(-y)
    true, false = {"and": (both, 1 - both), "or": (1 - neither, neither), "xnor": (both + neither, 1 - both - neither)}[op]
    return torch.log(true.clamp_min(CLAMP)) - torch.log(false.clamp_min(CLAMP))


@styled
def saturation() -> Figure:
    """Draw the gates along y = x, and the errors of both ways to compute them in float32."""
    t = torch.linspace(-40, 40, 241)
    figure = Figure(figsize=(7.4, 3.9), layout="constrained")
    value_axes, error_axes = figure.subplots(1, 2)
    for op in GATES:
        exact = combine(op, t.double(), t.double())
        for name, computed, line in (("boolit", combine(op, t, t), "-"), (_CLAMPED, clamped_gate(op, t, t), ":")):
            look = {"color": style(f"{op}_il").color, "linestyle": line}
            value_axes.plot(t, computed, **look, label=f"{op.upper()}, {name}")
            error = (computed.double() - exact).abs().clamp_min(1e-9)  # so that 0 has a place on a logarithmic axis
            error_axes.semilogy(t, error, **look, linewidth=1.1)
    value_axes.set(xlabel="x = y", ylabel="output logit")
    error_axes.set(xlabel="x = y", ylabel="absolute error in float32", ylim=(5e-10, 1e2))
    for axes in (value_axes, error_axes):
        axes.grid(visible=True)
    figure.legend(*value_axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


EDGES = np.linspace(-5, 5, 101)
_PAIRS = 2**17


@styled
def normalized_densities() -> Figure:
    """Draw the densities of IL and AIL (left), and of NIL and NAIL beside the normal distribution (right)."""
    figure = Figure(figsize=(7.4, 6.6), layout="constrained")
    panels = figure.subplots(len(GATES), 2, sharex=True, sharey="col")
    for row, op in enumerate(GATES):
        for column, forms in enumerate((("il", "ail"), ("nil", "nail"))):
            _draw_densities(panels[row, column], op, forms)
        panels[row, 0].set_ylabel("density")
    for axes in panels[-1]:
        axes.set_xlabel("output")
    panels[0, 0].set_ylim(0, 1.5)
    panels[0, 1].set_ylim(0, 0.8)
    handles = [Patch(color="0.88", label="N(0, 1), and a vertical line at each mean")]
    figure.legend(handles=handles, loc="outside lower center")
    return figure


def _draw_densities(axes: Axes, op: str, forms: tuple[str, str]) -> None:
    normal = np.exp(-(EDGES**2) / 2) / math.sqrt(2 * math.pi)
    axes.fill_between(EDGES, normal, color="0.88", linewidth=0)
    pairs = normal_pairs(_PAIRS)
    for form in forms:
        spec = f"{op}_{form}"
        mean, sd = moments(op, form)
        look: dict[str, Any] = {"color": style(spec).color, "linestyle": "-" if form.endswith("ail") else "--"}
        name = f"{paper_name(spec, 'mathtext')}: mean {mean:.3f}, sd {sd:.3f}".replace("-", "−")
        axes.plot((EDGES[1:] + EDGES[:-1]) / 2, density(spec, pairs), **look, linewidth=1.5, label=name)
        axes.axvline(mean, **look, linewidth=0.7)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))


def density(spec: str, pairs: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the density of a gate in each bin of `EDGES`, from equally likely pairs of operands."""
    counts, _ = np.histogram(surface(spec, pairs[:, 0], pairs[:, 1]).numpy(), bins=EDGES)
    return np.asarray(counts / len(pairs) / np.diff(EDGES), dtype=np.float64)


def normal_pairs(count: int) -> Tensor:
    """Return pairs of independent N(0, 1) operands from a Sobol sequence."""
    engine: Any = SobolEngine(2, scramble=True, seed=0)  # torch does not annotate it
    uniform: Tensor = engine.draw(count, dtype=torch.float64)
    normal: Tensor = torch.special.ndtri(uniform)
    return normal
