"""tab:normalization-constants: mean and sd of the gates under independent N(0,1) inputs, and their closed forms."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from boolit.functional import combine
from boolit.lab.paper.verification.check import Check
from boolit.logic import moments

FIVE_DECIMALS = 5e-6
# As printed: (operation, form) → mean, sd.
PAPER = {
    ("or", "il"): (1.29895, 0.94834),
    ("and", "il"): (-1.29895, 0.94834),
    ("xnor", "il"): (0.0, 0.36641),
    ("or", "ail"): (0.68104, 0.97229),
    ("and", "ail"): (-0.68104, 0.97229),
    ("xnor", "ail"): (0.0, 0.60281),
}
# NOTE[paper]: its IL rows come from 600 million samples, which leaves an error of 4e-5 in the mean; these come from quadrature.
QUADRATURE = {("or", "il"): (1.29896, 0.94836), ("and", "il"): (-1.29896, 0.94836)}
OR_AIL_MEAN = 1 / math.sqrt(2 * math.pi) + 1 / (2 * math.sqrt(math.pi))
OR_AIL_VARIANCE = 5 / 4 - 1 / (math.sqrt(2) * math.pi) - 1 / (4 * math.pi)
OPERATIONS = ("or", "and", "xnor")


def checks() -> Iterator[Check]:
    """The six rows of the table, the closed forms, and both against quadrature of the gates themselves."""
    for op, form in PAPER:
        yield from _table_row(op, form)
    yield from _closed_forms()
    for form in ("il", "ail"):
        error = max(abs(a - b) for op in OPERATIONS for a, b in zip(moments(op, form), integrate(op, form), strict=True))
        yield Check(f"{form}: our table against quadrature", 0.0, error, tolerance=1e-12)
    for form in ("nil", "nail"):
        error = max(abs(a - b) for op in OPERATIONS for a, b in zip((0.0, 1.0), integrate(op, form), strict=True))
        yield Check(f"{form}: distance from mean 0, sd 1", 0.0, error, tolerance=1e-12)


def _table_row(op: str, form: str) -> Iterator[Check]:
    printed = PAPER[op, form]
    right = QUADRATURE.get((op, form), printed)
    note = "the paper sampled it; quadrature gives {}" if right != printed else ""
    for name, paper, expected, ours in zip(("mean", "sd"), printed, right, moments(op, form), strict=True):
        yield Check(f"{op}_{form} {name}", paper, ours, expected, tolerance=FIVE_DECIMALS, note=note.format(expected))


def _closed_forms() -> Iterator[Check]:
    mean, sd = moments("or", "ail")
    yield Check("or_ail mean = 1/√(2π) + 1/(2√π)", OR_AIL_MEAN, mean, tolerance=1e-14)
    yield Check("or_ail variance = 5/4 − 1/(√2 π) − 1/(4π)", OR_AIL_VARIANCE, sd**2, tolerance=1e-14)
    yield Check("xnor_ail variance = 1 − 2/π", 1 - 2 / math.pi, moments("xnor", "ail")[1] ** 2, tolerance=1e-14)
    yield Check(
        "or_ail mean, last line of its proof",
        paper=1 / math.sqrt(2 * math.pi) + 1 / (2 * math.pi),
        ours=mean,
        expected=OR_AIL_MEAN,
        tolerance=1e-14,
        slip=True,
        note="the proof of thm:or-mean ends with 1/√(2π) + 1/(2π); its statement, with 1/(2√π), is right",
    )


def integrate(op: str, form: str) -> tuple[float, float]:
    """Mean and sd of a gate of two logits by quadrature over the plane, without our table of moments (but see ``n…``)."""
    x, y, weight = _circle() if form.endswith("ail") else _plane()
    value = combine(op, x, y, form=form)
    mean = float((value * weight).sum())
    return mean, math.sqrt(float(((value - mean) ** 2 * weight).sum()))


def _plane() -> tuple[Tensor, Tensor, Tensor]:
    """The trapezoid rule: on a smooth function times the normal density it converges faster than any power of its step."""
    points = torch.linspace(-9, 9, 181, dtype=torch.float64)
    density = torch.exp(-(points**2) / 2) / math.sqrt(2 * math.pi) * (points[1] - points[0])
    x, y = torch.meshgrid(points, points, indexing="ij")
    return x, y, torch.outer(density, density)


def _circle() -> tuple[Tensor, Tensor, Tensor]:
    """Gauss–Legendre in the angle between AIL's kinks (every 45°) and in the radius: AIL is linear in each such wedge."""
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.legendre.leggauss(48))
    angle = ((nodes + 1) / 2 + torch.arange(8)[:, None]).reshape(-1) * (math.pi / 4)
    radius = (nodes + 1) * 5
    radial = radius * torch.exp(-(radius**2) / 2) * weights * 5
    weight = torch.outer(weights.repeat(8) / 16, radial)
    return torch.outer(angle.cos(), radius), torch.outer(angle.sin(), radius), weight
