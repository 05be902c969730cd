"""What the gates are by definition, and what the paper says of them: largest errors on points, truth tables, limits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

import boolit
from boolit.functional import combine
from boolit.lab.paper.verification.check import Check, uniform
from boolit.logic import OPERATIONS

CERTAIN = 30.0  # a logit so large that every gate's sign is its truth value
# Of (0,0), (0,1), (1,0), (1,1).
TRUTH = {
    "and": "0001",
    "or": "0111",
    "xnor": "1001",
    "nand": "1110",
    "nor": "1000",
    "xor": "0110",
    "implies": "1101",
    "nimplies": "0010",
    "implied_by": "1011",
    "nimplied_by": "0100",
}


def checks() -> Iterator[Check]:
    """Definitions, algebra, limits, ensembles and truth tables."""
    x, y, z = _points()
    yield from _probabilities(x, y)
    yield from _approximations(x, y)
    yield from _algebra(x, y, z)
    yield from _limits(x)
    yield _sorted_pairs(x, y)
    yield from _truth_tables()
    yield from _reachable_operations()


def _points() -> Tensor:
    """Three sets of logits, sd 3: the whole range in which a probability in float64 still has digits to compare."""
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(3, 20_000, dtype=torch.float64, generator=generator)


def _error(name: str, ours: Tensor, theirs: Tensor, tolerance: float = 0.0) -> Check:
    distance = torch.where(ours == theirs, 0.0, (ours - theirs).abs())  # equal infinities are 0 apart, not NaN
    return Check(f"{name}: error", 0.0, float(distance.max()), tolerance=tolerance)


def _probabilities(x: Tensor, y: Tensor) -> Iterator[Check]:
    p, q = x.sigmoid(), y.sigmoid()
    meanings = {
        "σ(and_il) = σ(x) σ(y)": ("and", p * q),
        "σ(or_il) = 1 − (1 − σ(x)) (1 − σ(y))": ("or", 1 - (1 - p) * (1 - q)),
        "σ(xnor_il) = σ(x) σ(y) + σ(−x) σ(−y)": ("xnor", p * q + (1 - p) * (1 - q)),
    }
    for name, (op, probability) in meanings.items():
        yield _error(name, combine(op, x, y, form="il").sigmoid(), probability, tolerance=1e-15)


def _approximations(x: Tensor, y: Tensor) -> Iterator[Check]:
    both_true, both_false = (x > 0) & (y > 0), (x < 0) & (y < 0)
    cases = {
        "and_ail = x + y if both < 0, else min": ("and", torch.where(both_false, x + y, torch.minimum(x, y))),
        "or_ail = x + y if both > 0, else max": ("or", torch.where(both_true, x + y, torch.maximum(x, y))),
        "xnor_ail = sgn(x y) min(|x|, |y|)": ("xnor", torch.sign(x * y) * torch.minimum(x.abs(), y.abs())),
    }
    for name, (op, value) in cases.items():
        yield _error(name, combine(op, x, y, form="ail"), value)
    yield _error("or_ail(x, 0) = ReLU(x)", combine("or", x, torch.zeros_like(x), form="ail"), x.relu())


def _algebra(x: Tensor, y: Tensor, z: Tensor) -> Iterator[Check]:
    for form in ("il", "ail"):
        conjunction, disjunction = combine("and", x, y, form=form), combine("or", -x, -y, form=form)
        yield _error(f"and_{form}(x, y) = −or_{form}(−x, −y)", conjunction, -disjunction)
    for form in ("il", "ail"):
        for op in ("and", "or", "xnor"):
            left = combine(op, combine(op, x, y, form=form), z, form=form)
            right = combine(op, x, combine(op, y, z, form=form), form=form)
            # A sum of logits up to 40 is rounded at 2⁻⁴⁸, once on each side.
            yield _error(f"{op}_{form} is associative", left, right, tolerance=2e-14)


def _limits(y: Tensor) -> Iterator[Check]:
    """A certain event as one operand, in either place."""
    infinite = torch.full_like(y, math.inf)
    certain = {
        "and(+∞, y) = y": ("and", infinite, y),
        "and(−∞, y) = −∞": ("and", -infinite, -infinite),
        "or(−∞, y) = y": ("or", -infinite, y),
        "or(+∞, y) = +∞": ("or", infinite, infinite),
        "xnor(+∞, y) = y": ("xnor", infinite, y),
        "xnor(−∞, y) = −y": ("xnor", -infinite, -y),
    }
    for name, (op, event, value) in certain.items():
        ours = [combine(op, *pair, form=form) for form in ("il", "ail") for pair in ((event, y), (y, event))]
        yield _error(f"{name}, il and ail", torch.stack(ours), value, tolerance=1e-14)


def _sorted_pairs(x: Tensor, y: Tensor) -> Check:
    pairs = torch.stack([x, y], -1)
    maxima, minima = boolit.activation("max_min_d")(pairs.flatten()).chunk(2)
    return Check(
        "{max, min (d)} = GroupSort of pairs: error",
        paper=0.0,
        ours=float((torch.stack([minima, maxima], -1) - pairs.sort(-1).values).abs().max()),
        slip=True,
        note="the paper says equivalent; it is up to the order of channels, first all maxima, then all minima",
    )


def _truth_tables() -> Iterator[Check]:
    for op in OPERATIONS:
        yield Check(f"truth table of {op}, il and ail", TRUTH[op], uniform({form: _table(op, form) for form in ("il", "ail")}))


def _table(op: str, form: str, x_sign: int = 1, y_sign: int = 1, sign: int = 1) -> str:
    x = CERTAIN * torch.tensor([-1.0, -1.0, 1.0, 1.0])
    y = CERTAIN * torch.tensor([-1.0, 1.0, -1.0, 1.0])
    return "".join("1" if value > 0 else "0" for value in sign * combine(op, x_sign * x, y_sign * y, form=form))


def _reachable_operations() -> Iterator[Check]:
    """How many of the 16 Boolean operations AND, OR and XNOR give with at most one change of sign."""
    inversions = [(1, 1, 1), (-1, 1, 1), (1, -1, 1), (1, 1, -1)]
    tables = {_table(op, "ail", *signs) for op in ("and", "or", "xnor") for signs in inversions}
    passed_through = tables | {"0011", "0101", "1100", "1010"}
    note = "the paper says 12; these are the 10 that depend on both inputs, x, y and their inverses make 14, constants 16"
    yield Check("operations with at most one inversion", 12, len(tables), expected=10, slip=True, note=note)
    yield Check("… with pass-through and constants (bias)", 16, len(passed_through | {"0000", "1111"}))
