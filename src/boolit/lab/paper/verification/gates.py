"""Checks of the gates: moments under N(0,1) inputs, distance of AIL from IL, and identities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

import boolit
from boolit.functional import combine
from boolit.lab.paper.printed import frame
from boolit.lab.paper.verification import Check

OPERATIONS, FORMS = ("and", "or", "xnor"), ("il", "ail")

# NOTE[paper]: the IL rows of tab:normalization-constants come from 600 million samples, which leaves an error of 4e-5.
QUADRATURE = {"or_il": [1.29896, 0.94836], "and_il": [-1.29896, 0.94836]}
OR_AIL_MEAN = 1 / math.sqrt(2 * math.pi) + 1 / (2 * math.sqrt(math.pi))
OR_AIL_VARIANCE = 5 / 4 - 1 / (math.sqrt(2) * math.pi) - 1 / (4 * math.pi)


def check_moments() -> Iterator[Check]:
    """Check the six rows of the table, the closed forms, and both against quadrature."""
    for row in frame("tab:normalization-constants").to_dict("records"):
        spec, *printed = row.values()
        op, form = spec.split("_")
        right = QUADRATURE.get(spec, printed)
        note = "the paper sampled it; quadrature gives {}" if right != printed else ""
        for name, paper, expected, ours in zip(("mean", "sd"), printed, right, normalization(op, form), strict=True):
            yield Check(f"{spec} {name}", paper, ours, expected, tolerance=5e-6, note=note.format(expected))
    mean, sd = normalization("or", "ail")
    yield Check("or_ail mean = 1/√(2π) + 1/(2√π)", OR_AIL_MEAN, mean, tolerance=1e-13)
    yield Check("or_ail variance = 5/4 − 1/(√2 π) − 1/(4π)", OR_AIL_VARIANCE, sd**2, tolerance=1e-13)
    yield Check("xnor_ail variance = 1 − 2/π", 1 - 2 / math.pi, normalization("xnor", "ail")[1] ** 2, tolerance=1e-13)
    note = "the proof of thm:or-mean ends with 1/√(2π) + 1/(2π); its statement, with 1/(2√π), is right"
    paper = 1 / math.sqrt(2 * math.pi) + 1 / (2 * math.pi)
    yield Check("or_ail mean, last line of its proof", paper, mean, OR_AIL_MEAN, 1e-13, kind="erratum", note=note)
    for form in FORMS:
        pairs = [zip(normalization(op, form), integrate(op, form), strict=True) for op in OPERATIONS]
        error = max(abs(a - b) for pair in pairs for a, b in pair)
        yield Check(f"{form}: our constants against quadrature", 0.0, error, tolerance=1e-12, kind="identity")
    for form in ("nil", "nail"):
        error = max(max(abs(mean), abs(sd - 1)) for mean, sd in (integrate(op, form) for op in OPERATIONS))
        yield Check(f"{form}: distance from mean 0, sd 1", 0.0, error, tolerance=1e-12, kind="identity")


def normalization(op: str, form: str) -> tuple[float, float]:
    """Return the mean and sd that the normalized gate subtracts and divides by, from its values at two points."""
    x = torch.tensor([3.0, -3.0], dtype=torch.float64)
    y = torch.tensor([3.0, 3.0 if op == "xnor" else -3.0], dtype=torch.float64)
    plain, normalized = combine(op, x, y, form=form), combine(op, x, y, form=f"n{form}")
    sd = float((plain[0] - plain[1]) / (normalized[0] - normalized[1]))
    return float(plain.sum() / 2 - sd * normalized.sum() / 2), sd


def integrate(op: str, form: str) -> tuple[float, float]:
    """Return the mean and sd of a gate of two N(0,1) logits by quadrature over the plane."""
    x, y, weight = _circle()
    value = combine(op, x, y, form=form)
    mean = float((value * weight).sum())
    return mean, math.sqrt(float(((value - mean) ** 2 * weight).sum()))


def _circle() -> tuple[Tensor, Tensor, Tensor]:
    # Gauss–Legendre in the radius and in the angle between the kinks of AIL (every 45°): AIL is linear in each such wedge.
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.legendre.leggauss(48))
    angle = ((nodes + 1) / 2 + torch.arange(8)[:, None]).reshape(-1) * (math.pi / 4)
    radius = (nodes + 1) * 5
    weight = torch.outer(weights.repeat(8) / 16, radius * torch.exp(-(radius**2) / 2) * weights * 5)
    return torch.outer(angle.cos(), radius), torch.outer(angle.sin(), radius), weight


# a:diff. NOTE[paper]: it says that AIL and IL never differ by more than 1. For AND and OR the difference is ln 3 at the origin
# and above 1 up to max(|x|, |y|) = REACH; that it is largest along the boundary lines of AIL is right.

REACH = -math.log(math.e - 2)  # on the boundary of OR the difference is log(2 + e^-r), which is 1 here
RADII = tuple(torch.logspace(-3, math.log10(40), 200, dtype=torch.float64).tolist())
ROUNDING = 1e-13


def check_difference() -> Iterator[Check]:
    """Check the largest difference of AIL and IL, where it lies, and how it shrinks relative to the inputs."""
    note = f"the paper says never more than 1; it is ln 3 at the origin, and above 1 up to |x| or |y| = {REACH:.2f}"
    for op in ("and", "or"):
        anywhere = max(_largest(op, radius) for radius in (0.0, *RADII))
        for place, largest in (("at the origin", _largest(op, 0.0)), ("anywhere", anywhere)):
            yield Check(f"{op}: {place}", "≤ 1", largest, math.log(3), ROUNDING, kind="erratum", note=note)
        beyond = max(_largest(op, radius) for radius in (REACH, *RADII) if radius >= REACH)
        yield Check(f"{op}: where |x| or |y| ≥ {REACH:.4f}", "≤ 1", beyond, 1.0, ROUNDING, kind="derived")
    yield Check("xnor: at the origin", "≤ 1", _largest("xnor", 0.0), 0.0, kind="derived")
    note = "the paper's bound of 1 holds but is not tight: the supremum is ln 2, as |x| = |y| → ∞"
    largest = max(_largest("xnor", radius) for radius in RADII)
    yield Check("xnor: anywhere", "≤ 1", largest, math.log(2), ROUNDING, kind="derived", note=note)
    squares = "of the squares max(|x|, |y|) = r, those where the largest difference lies on a boundary line of AIL"
    # Relative to the inputs: IL itself is 0 along a curve.
    relative = "the largest difference on the square max(|x|, |y|) = r, divided by r, is smaller on each larger square"
    for op in OPERATIONS:
        peaks = sum(_peaks_on_boundary(op, radius) for radius in RADII)
        yield Check(f"{op}: share that peaks on the boundary of AIL", 1.0, peaks / len(RADII), kind="identity", note=squares)
        ratios = [_largest(op, radius) / radius for radius in RADII]
        shrinking = sum(after < before for before, after in pairwise(ratios)) / (len(ratios) - 1)
        yield Check(
            f"{op}: share of squares with a smaller relative difference", 1.0, shrinking, kind="identity", note=relative
        )


def _square(radius: float) -> tuple[Tensor, Tensor]:
    """Return points with max(|x|, |y|) = radius, among them the axes and diagonals, where AIL has its boundaries."""
    side = radius * (torch.arange(-64, 65, dtype=torch.float64) / 64)
    edge = torch.full_like(side, radius)
    return torch.cat([side, side, edge, -edge]), torch.cat([edge, -edge, side, side])


def _difference(op: str, x: Tensor, y: Tensor) -> Tensor:
    return (combine(op, x, y, form="ail") - combine(op, x, y, form="il")).abs()


def _largest(op: str, radius: float) -> float:
    return float(_difference(op, *_square(radius)).max())


def _peaks_on_boundary(op: str, radius: float) -> bool:
    x, y = _square(radius)
    difference = _difference(op, x, y)
    a, b = (-x, -y) if op == "and" else (x, y)
    boundary = ((a == 0) & (b >= 0)) | ((b == 0) & (a >= 0)) | ((a == b) & (a <= 0)) if op != "xnor" else x.abs() == y.abs()
    return float(difference[boundary].max()) >= float(difference.max()) - ROUNDING


# Definitions, algebra, limits, gradients, ensembles and truth tables.

CERTAIN = 30.0  # a logit so large that every gate's sign is its truth value
NAMES = ("and", "or", "xnor", "nand", "nor", "xor", "implies", "nimplies", "implied_by", "nimplied_by")
# Values at (0,0), (0,1), (1,0), (1,1).
TRUTH = dict(zip(NAMES, ("0001", "0111", "1001", "1110", "1000", "0110", "1101", "0010", "1011", "0100"), strict=True))


def check_identities() -> Iterator[Check]:
    """Check the gates' definitions and what the paper says of them."""
    generator = torch.Generator().manual_seed(0)
    # With sd 3, a probability in float64 still has digits to compare.
    x, y, z = 3 * torch.randn(3, 20_000, dtype=torch.float64, generator=generator)
    yield from _definitions(x, y)
    yield from _algebra(x, y, z)
    yield from _gradients()
    pairs = torch.stack([x, y], -1)
    maxima, minima = boolit.activation("max_min_d")(pairs.flatten()).chunk(2)
    error = float((torch.stack([minima, maxima], -1) - pairs.sort(-1).values).abs().max())
    note = "the paper says equivalent; it is up to the order of channels, first all maxima, then all minima"
    yield Check("{max, min (d)} = GroupSort of pairs: error", 0.0, error, kind="erratum", note=note)
    for op, truth in TRUTH.items():
        ours = " or ".join(dict.fromkeys(_truth_table(op, form) for form in FORMS))
        yield Check(f"truth table of {op}, il and ail", truth, ours, kind="identity")
    inversions = [(1, 1, 1), (-1, 1, 1), (1, -1, 1), (1, 1, -1)]
    reached = {_truth_table(op, "ail", *signs) for op in OPERATIONS for signs in inversions}
    note = "the paper says 12; these are the 10 that depend on both inputs, x, y and their inverses make 14, constants 16"
    yield Check("operations with at most one inversion", 12, len(reached), 10, kind="erratum", note=note)
    bits = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    for op, bias in (("and", -1.5), ("or", -0.5)):
        signs = "".join("1" if value > 0 else "0" for value in bits.sum(-1) + bias)
        yield Check(f"sign of x₀ + x₁ {bias:+} is {op} of bits", TRUTH[op], signs)
    every = reached | {"0011", "0101", "1100", "1010", "0000", "1111"}
    yield Check("… with pass-through and constants (bias)", 16, len(every))


def _error(name: str, ours: Tensor, right: Tensor, tolerance: float = 0.0) -> Check:
    distance = torch.where(ours == right, 0.0, (ours - right).abs())  # equal infinities are 0 apart, not NaN
    return Check(f"{name}: error", 0.0, float(distance.max()), tolerance=tolerance, kind="identity")


def _definitions(x: Tensor, y: Tensor) -> Iterator[Check]:
    p, q = x.sigmoid(), y.sigmoid()
    exact = {
        "σ(and_il) = σ(x) σ(y)": ("and", p * q),
        "σ(or_il) = 1 − (1 − σ(x)) (1 − σ(y))": ("or", 1 - (1 - p) * (1 - q)),
        "σ(xnor_il) = σ(x) σ(y) + σ(−x) σ(−y)": ("xnor", p * q + (1 - p) * (1 - q)),
    }
    for name, (op, probability) in exact.items():
        yield _error(name, combine(op, x, y, form="il").sigmoid(), probability, tolerance=1e-15)
    both_true, both_false = (x > 0) & (y > 0), (x < 0) & (y < 0)
    approximate = {
        "and_ail = x + y if both < 0, else min": ("and", torch.where(both_false, x + y, torch.minimum(x, y))),
        "or_ail = x + y if both > 0, else max": ("or", torch.where(both_true, x + y, torch.maximum(x, y))),
        "xnor_ail = sgn(x y) min(|x|, |y|)": ("xnor", torch.sign(x * y) * torch.minimum(x.abs(), y.abs())),
    }
    for name, (op, value) in approximate.items():
        yield _error(name, combine(op, x, y, form="ail"), value)
    yield _error("or_ail(x, 0) = ReLU(x)", combine("or", x, torch.zeros_like(x), form="ail"), x.relu())


def _algebra(x: Tensor, y: Tensor, z: Tensor) -> Iterator[Check]:
    for form in FORMS:
        both, either = combine("and", x, y, form=form), combine("or", -x, -y, form=form)
        yield _error(f"and_{form}(x, y) = −or_{form}(−x, −y)", both, -either)
        for op in OPERATIONS:
            left = combine(op, combine(op, x, y, form=form), z, form=form)
            right = combine(op, x, combine(op, y, z, form=form), form=form)
            # A sum of logits up to 40 is rounded at 2⁻⁴⁸, once on each side.
            yield _error(f"{op}_{form} is associative", left, right, tolerance=2e-14)
    certain = torch.full_like(y, math.inf)
    limits = {
        "and(+∞, y) = y": ("and", certain, y),
        "and(−∞, y) = −∞": ("and", -certain, -certain),
        "or(−∞, y) = y": ("or", -certain, y),
        "or(+∞, y) = +∞": ("or", certain, certain),
        "xnor(+∞, y) = y": ("xnor", certain, y),
        "xnor(−∞, y) = −y": ("xnor", -certain, -y),
    }
    for name, (op, event, value) in limits.items():
        ours = [combine(op, *pair, form=form) for form in FORMS for pair in ((event, y), (y, event))]
        yield _error(f"{name}, il and ail", torch.stack(ours), value, tolerance=1e-14)


def _gradients() -> Iterator[Check]:
    # a:gradients: there is always a gradient with respect to at least one of x and y. The grid has the kinks of AIL.
    x, y = torch.meshgrid(*[torch.linspace(-4, 4, 65, dtype=torch.float64)] * 2, indexing="ij")
    for op in OPERATIONS:
        points = [each[(x * y != 0) | (op != "xnor")].requires_grad_() for each in (x, y)]  # XNOR's sign is 0 on its axes
        partials = torch.autograd.grad(combine(op, *points, form="ail").sum(), points)
        smallest = float(torch.stack(partials).abs().max(dim=0).values.min())
        place = " off the axes" if op == "xnor" else ""
        yield Check(f"{op}_ail: the larger partial derivative is at least{place}", 1.0, smallest, kind="identity")


def _truth_table(op: str, form: str, x_sign: int = 1, y_sign: int = 1, sign: int = 1) -> str:
    x = CERTAIN * torch.tensor([-1.0, -1.0, 1.0, 1.0])
    y = CERTAIN * torch.tensor([-1.0, 1.0, -1.0, 1.0])
    return "".join("1" if value > 0 else "0" for value in sign * combine(op, x_sign * x, y_sign * y, form=form))
