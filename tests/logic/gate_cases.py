"""The gates and ensembles the tests go through, and how two results are compared."""

from __future__ import annotations

import torch
from torch import Tensor

from boolit.logic import Program

BASIC = ("and", "or", "xnor")
FORMS = ("il", "ail", "nil", "nail")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
WIDTH = 12  # a multiple of every width multiple below

GATES = [f"{op}_{form}" for op in BASIC for form in FORMS]
ENSEMBLES = [
    *(f"or_and_xnor_{form}_{strategy}" for form in FORMS for strategy in ("d", "p")),
    "or_and_xnor_nail_pu",
    "or_xnor_ail_pl",
]
MIXED = "or_ail+xnor_il_d"
SPECS = [*GATES, *ENSEMBLES, MIXED]
EXACT = [spec for spec in SPECS if "ail" not in spec]
APPROXIMATE = [spec for spec in SPECS if "ail" in spec and spec != MIXED]


def ensembles(k: int = 2, pairing: str = "adjacent") -> list[Program]:
    """Return duplicates and partitions of gates of one form and of mixed forms."""
    members = [tuple((op, form) for op in ("or", "and", "xnor")) for form in FORMS]
    members.append((("or", "ail"), ("nand", "il"), ("xor", "nail")))
    return [Program(gates, strategy, k, pairing) for gates in members for strategy in ("d", "p", "pu", "pl")]


def singles(k: int = 2, pairing: str = "adjacent") -> list[Program]:
    """Return every operation of k logits in every form, alone."""
    two_only = ("implies", "nimplies", "implied_by", "nimplied_by") if k == 2 else ()
    names = (*BASIC, "nand", "nor", "xor", *two_only)
    return [Program(((name, form),), "d", k, pairing) for name in names for form in FORMS]


def assert_agree(actual: Tensor, expected: Tensor, units: int = 16, least: float = 0.0) -> None:
    """Compare type, shape and values, up to some units of round-off of the largest value, or of ``least`` if that is more."""
    actual, expected = actual.detach(), expected.detach()
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    unit = torch.finfo(expected.dtype).eps
    finite = expected[expected.isfinite()]
    largest = max(least, float(finite.abs().max())) if finite.numel() else least
    torch.testing.assert_close(actual, expected, rtol=units * unit, atol=units * unit * largest, equal_nan=True)
