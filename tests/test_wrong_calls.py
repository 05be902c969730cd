"""Wrong calls of the public functions: the right exception, in one sentence that names the value and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import boolit
from boolit.functional import combine, gate, or_ail, signed_geomean, xnor_nil
from boolit.nn import Custom, Ensemble, Gate, Gated, Pointwise, Reduction

X = torch.zeros(3, 6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gate(torch.zeros(2, 5), "or_ail"), ValueError, r"^or_ail needs a multiple of 2 channels, got 5; use 4 or 6"),
        (lambda: or_ail(torch.zeros(3, 7)), ValueError, r"^or_ail needs a multiple of 2 channels, got 7; use 6 or 8$"),
        (lambda: xnor_nil(torch.zeros(7), k=3), ValueError, r"^xnor_nil_k3 needs a multiple of 3 channels, got 7; use 6 or 9$"),
        (
            lambda: gate(torch.zeros(6), "or_and_il_p_halves"),
            ValueError,
            r"^or_and_il_p_halves needs a multiple of 4 channels, got 6; use 4 or 8$",
        ),
        (lambda: gate(X, ["or"]), TypeError, r"^a spec is a string such as 'or_ail', got list"),  # type: ignore[arg-type]
        (lambda: Ensemble("or", "d"), TypeError, r"members is a list of activation modules, got 'or'; make each with"),  # type: ignore[arg-type]
        (lambda: Ensemble(["or"], "d"), TypeError, r"members is a list of activation modules, got \['or'\]"),  # type: ignore[list-item]
        (lambda: boolit.activation("RELU"), ValueError, r"^unknown activation 'RELU'; did you mean relu\?$"),
        (lambda: boolit.activation("OR-AIL"), ValueError, r"did you mean or_ail\?$"),
        (lambda: boolit.activation("Or AND xnor nail D"), ValueError, r"did you mean or_and_xnor_nail_d\?$"),
        (lambda: boolit.activation("Gelo"), ValueError, r"did you mean .*gelu"),
        (lambda: combine("or", X, [1.0] * 6), TypeError, r"logits must be a torch.Tensor, got list"),  # type: ignore[arg-type]
        (lambda: gate(X, "ro_ail"), ValueError, r"'ro_ail' is not a gate or an ensemble"),
        (lambda: or_ail(X, k=1), ValueError, r"k=1 is not a group size: a gate reads at least 2"),
        (lambda: or_ail(X, pairing="odd"), ValueError, r"unknown pairing 'odd'; choose one of adjacent, halves"),
        (lambda: gate(X, "implies_il_k3"), ValueError, r"'implies' is an operation of exactly 2 logits"),
        (lambda: gate(X, "or_ail", dim=2), IndexError, r"dim=2 is out of range for a tensor of shape \(3, 6\); use -2 to 1"),
        (lambda: gate(X, "or_ail", dim=-3), IndexError, r"dim=-3 is out of range"),
        (lambda: combine("or", X), ValueError, r"combine\('or', …\) needs at least 2 tensors of logits, got 1"),
        (lambda: combine("ro", X, X), ValueError, r"unknown operation 'ro'"),
        (lambda: combine("or", X, X, form="li"), ValueError, r"unknown form 'li'"),
        (lambda: combine("or", X.long(), X.long()), TypeError, r"float32, float64, bfloat16 or float16, got torch.int64"),
        (lambda: signed_geomean(torch.zeros(5)), ValueError, r"multiple of 2 channels, got 5; use 4 or 6"),
        (lambda: signed_geomean(X, pairing="odd"), ValueError, r"unknown pairing 'odd'"),
        (lambda: signed_geomean(X, dim=2), IndexError, r"dim=2 is out of range for a tensor of shape \(3, 6\)"),
        (lambda: signed_geomean(X.long()), TypeError, r"float32, float64, bfloat16 or float16, got torch.int64"),
    ],
)
def test_wrong_calls_get_one_clear_sentence(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_scalar_has_no_channels() -> None:
    with pytest.raises(IndexError, match=r"a tensor of shape \(\)") as caught:
        gate(torch.tensor(1.0), "or_ail")
    assert "use 0 to -1" not in str(caught.value), "a range that holds nothing is no advice"


def test_one_channel_is_not_advised_to_become_none() -> None:
    with pytest.raises(ValueError, match="multiple of 2 channels, got 1") as caught:
        gate(torch.zeros(3, 1), "or_ail")
    assert "use 0" not in str(caught.value)


K: dict[str, Callable[[Any], object]] = {
    "or_ail": lambda k: or_ail(X, k=k),
    "Gate": lambda k: Gate("or", k=k)(X),
    "Reduction": lambda k: Reduction("max", k=k)(X),
    "moments": lambda k: boolit.logic.moments("or", "il", k),
}
DIM: dict[str, Callable[[Any], object]] = {
    "gate": lambda dim: gate(X, "or_ail", dim=dim),
    "or_ail": lambda dim: or_ail(X, dim=dim),
    "signed_geomean": lambda dim: signed_geomean(X, dim),
    "Gate": lambda dim: Gate("or", dim=dim)(X),
    "Ensemble": lambda dim: Ensemble([Gate("or", dim=1), Gate("xnor", dim=1)], "d", dim)(X),
    "Reduction": lambda dim: Reduction("max", dim=dim)(X),
    "Gated": lambda dim: Gated("glu", dim)(X),
    "Pointwise": lambda dim: Pointwise("relu", dim)(X),
    "Custom": lambda dim: Custom(torch.tanh, dim)(X),
    "activation": lambda dim: boolit.activation("or_xnor_ail_d", dim)(X),
}
INTEGERS = [int, np.int64, torch.tensor]
NOT_INTEGERS = [str, lambda value: value + 0.5]


@pytest.mark.parametrize(
    ("name", "value", "call"), [("k", 2, call) for call in K.values()] + [("dim", 1, call) for call in DIM.values()]
)
def test_integers_of_any_kind(name: str, value: int, call: Callable[[Any], object]) -> None:
    for convert in INTEGERS:
        call(convert(value))  # type: ignore[operator]
    for convert in NOT_INTEGERS:
        with pytest.raises(TypeError, match=rf"^{name}=.* is not an integer; "):
            call(convert(value))  # type: ignore[operator]
