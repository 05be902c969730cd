"""How a gate's output is distributed when its operands are standard normal, before and after normalisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.quasirandom import SobolEngine

from boolit.lab.reports.figures._names import label
from boolit.lab.reports.figures._plane import surface
from boolit.lab.reports.figures._style import style, styled
from boolit.logic import moments

GATES = ("and", "or", "xnor")
EDGES = np.linspace(-5, 5, 101)
_PAIRS = 2**17


@styled
def normalised() -> Figure:
    """Densities of IL and AIL (above), of NIL and NAIL beside the normal they are brought to (below)."""
    figure = Figure(figsize=(9.4, 5.4), layout="constrained")
    panels = figure.subplots(2, len(GATES), sharex=True, sharey="row")
    for column, op in enumerate(GATES):
        for row, forms in enumerate((("il", "ail"), ("nil", "nail"))):
            _compare(panels[row, column], op, forms)
        panels[1, column].set_xlabel("output")
    for axes in panels[:, 0]:
        axes.set_ylabel("density")
    panels[0, 0].set_ylim(0, 1.5)
    panels[1, 0].set_ylim(0, 0.8)
    return figure


def _compare(axes: Axes, op: str, forms: tuple[str, str]) -> None:
    normal = np.exp(-(EDGES**2) / 2) / math.sqrt(2 * math.pi)
    axes.fill_between(EDGES, normal, color="0.88", linewidth=0, label="N(0, 1)")
    pairs = normal_pairs(_PAIRS)
    for form in forms:
        spec = f"{op}_{form}"
        mean, sd = moments(op, form)
        look: dict[str, Any] = {"color": style(spec).colour, "linestyle": style(spec).line}
        name = f"{label(spec)}: mean {mean:.3f}, sd {sd:.3f}"
        axes.plot((EDGES[1:] + EDGES[:-1]) / 2, density(spec, pairs), **look, linewidth=1.4, label=name)
        axes.axvline(mean, **look, linewidth=0.7)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))


def density(spec: str, pairs: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The density of a gate between `EDGES`, from equally likely pairs of operands.

    Shape: pairs ``(n, 2)``; one value a bin.
    """
    counts, _ = np.histogram(surface(spec, pairs[:, 0], pairs[:, 1]).numpy(), bins=EDGES)
    return np.asarray(counts / len(pairs) / np.diff(EDGES), dtype=np.float64)


def normal_pairs(count: int) -> Tensor:
    """Pairs of independent N(0, 1) operands, spread more evenly than random ones, always the same.

    Shape: ``(count, 2)``.
    """
    engine: Any = SobolEngine(2, scramble=True, seed=0)  # torch does not annotate it
    uniform: Tensor = engine.draw(count, dtype=torch.float64)
    normal: Tensor = torch.special.ndtri(uniform)
    return normal
