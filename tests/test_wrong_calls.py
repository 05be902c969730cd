"""Wrong calls of the public functions: the right exception, in one sentence that names the value and the fix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import boolit
from boolit.functional import combine, ensemble, gate, signed_geomean

X = torch.zeros(3, 6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gate(torch.zeros(2, 5), "or"), ValueError, r"or_ail.* needs a multiple of 2 channels, got 5; use 4 or 6"),
        (lambda: ensemble(X[:, :4], ["or", "and"], strategy="p", k=3), ValueError, r"multiple of 6 channels, got 4"),
        (lambda: gate(X, "ro"), ValueError, r"unknown operation 'ro'; choose one of and, or, xnor"),
        (lambda: gate(X, "or", "li"), ValueError, r"unknown form 'li'; choose one of il, ail, nil, nail"),
        (lambda: gate(X, "or", k=1), ValueError, r"k=1 is not a group size: a gate reads at least 2"),
        (lambda: gate(X, "or", pairing="odd"), ValueError, r"unknown pairing 'odd'; choose one of adjacent, halves"),
        (lambda: ensemble(X, ["or"], strategy="dup"), ValueError, r"unknown strategy 'dup'; choose one of d, p"),  # type: ignore[arg-type]
        (lambda: ensemble(X, []), ValueError, r"needs at least one gate, got none"),
        (lambda: gate(X, "implies", k=3), ValueError, r"'implies' is an operation of exactly 2 logits"),
        (
            lambda: gate(X.long(), "or"),
            TypeError,
            r"logits must be floating-point, got torch.int64; convert them with x.float\(\)",
        ),
        (lambda: gate(X.bool(), "or"), TypeError, r"logits must be floating-point, got torch.bool"),
        (lambda: gate(X.to(torch.complex64), "or"), TypeError, r"logits must be floating-point, got torch.complex64"),
        (lambda: gate(X, "or", dim=2), IndexError, r"dim=2 is out of range for a tensor of shape \(3, 6\); use -2 to 1"),
        (lambda: gate(X, "or", dim=-3), IndexError, r"dim=-3 is out of range"),
        (lambda: combine("or", X), ValueError, r"combine\('or', …\) needs at least 2 tensors of logits, got 1"),
        (lambda: combine("ro", X, X), ValueError, r"unknown operation 'ro'"),
        (lambda: combine("or", X, X, form="li"), ValueError, r"unknown form 'li'"),
        (lambda: combine("or", X.long(), X.long()), TypeError, r"floating-point, got torch.int64"),
        (lambda: signed_geomean(torch.zeros(5)), ValueError, r"multiple of 2 channels, got 5; use 4 or 6"),
        (lambda: signed_geomean(X, pairing="odd"), ValueError, r"unknown pairing 'odd'"),
        (lambda: signed_geomean(X, dim=2), IndexError, r"dim=2 is out of range for a tensor of shape \(3, 6\)"),
        (lambda: signed_geomean(X.long()), TypeError, r"floating-point, got torch.int64"),
        (lambda: boolit.logic.moments("ro", "il"), ValueError, r"unknown operation 'ro'"),
        (lambda: boolit.logic.moments("or", "li"), ValueError, r"unknown form 'li'"),
        (lambda: boolit.logic.moments("or", "il", 1), ValueError, r"k=1 is not a group size"),
    ],
)
def test_wrong_calls_get_one_clear_sentence(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_scalar_has_no_channels() -> None:
    with pytest.raises(IndexError, match=r"a tensor of shape \(\)") as caught:
        gate(torch.tensor(1.0), "or")
    assert "use 0 to -1" not in str(caught.value), "a range that holds nothing is no advice"


def test_one_channel_is_not_advised_to_become_none() -> None:
    with pytest.raises(ValueError, match="multiple of 2 channels, got 1") as caught:
        gate(torch.zeros(3, 1), "or")
    assert "use 0" not in str(caught.value)
