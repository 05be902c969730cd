"""The constants of vector_math.h, derived again in 50 digits: polynomials, their errors, the table of roots, limits."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from mpmath import atanh, chebyfit, exp, expm1, floor, log, mp, mpf, polyval, sqrt

from boolit.logic import kernels

HEADER = (Path(kernels.__file__).parent / "vector_math.h").read_text(encoding="utf-8")
ROUND_OFF = {"float": mpf(2) ** -24, "double": mpf(2) ** -53}
HALF_LN2 = log(mpf(2)) / 2
MARGIN = 1 + mpf(2) ** -10  # the intervals are this much longer, for arguments that rounding put outside


@pytest.fixture(autouse=True)
def _digits() -> object:
    with mp.workdps(50):
        yield


def exp_tail(r: mpf) -> mpf:
    """(e^r - 1 - r) / r²."""
    return (expm1(r) - r) / r**2 if abs(r) > mpf(10) ** -15 else mpf(1) / 2 + r / 6


def atanh_tail(z: mpf) -> mpf:
    """(2 atanh(s) - 2s) / (2s)³ of z = (2s)²."""
    return (2 * atanh(sqrt(z) / 2) - sqrt(z)) / sqrt(z) ** 3 if z > mpf(10) ** -18 else mpf(1) / 12 + z / 80


def constants(kind: str, name: str) -> list[float]:
    """The numbers the header gives to this name in Lanes<float> or Lanes<double>."""
    lanes = HEADER[HEADER.index(f"struct Lanes<{kind}>") :]
    found = re.search(rf"\b{name}(?:\[\])? = \{{?([^;}}]*)", lanes)
    assert found is not None, name
    return [float.fromhex(text) if "0x" in text else float(text) for text in re.sub(r"f\b", "", found[1]).split(",")]


def rounded(kind: str, value: mpf) -> float:
    """The nearest number of the type."""
    return float(struct.unpack("f", struct.pack("f", float(value)))[0]) if kind == "float" else float(value)


Case = tuple[str, str, Callable[[mpf], mpf], mpf, mpf]
SERIES: list[Case] = [
    *((kind, "exp_series", exp_tail, -HALF_LN2 * MARGIN, HALF_LN2 * MARGIN) for kind in ROUND_OFF),
    ("float", "short_exp_series", exp_tail, -HALF_LN2 / 8 * MARGIN, HALF_LN2 / 8 * MARGIN),
    *((kind, "atanh_series", atanh_tail, mpf(0), mpf(4) / 9 * MARGIN) for kind in ROUND_OFF),
]


@pytest.mark.parametrize(("kind", "name", "function", "low", "high"), SERIES, ids=lambda value: str(value)[:20])
def test_polynomials_are_the_near_minimax_ones(
    kind: str, name: str, function: Callable[[mpf], mpf], low: mpf, high: mpf
) -> None:
    coefficients = constants(kind, name)
    fitted = chebyfit(function, [low, high], len(coefficients))[::-1]
    # the interval's ends are rounded, and a change of the last digit of one coefficient is made up for by the others
    for ours, theirs in zip(coefficients, fitted, strict=True):
        assert abs(ours - rounded(kind, theirs)) <= 4 * ROUND_OFF[kind] * abs(theirs)

    worst = mpf(0)
    for i in range(401):
        x = low + (high - low) * i / 400
        missed = abs(polyval(coefficients[::-1], x) - function(x))
        worst = max(worst, missed * x**2 / exp(x) if function is exp_tail else missed * x / (1 + x * function(x)))
    assert worst < mpf("0.3") * ROUND_OFF[kind]


def test_the_table_has_the_eighth_roots_of_powers_of_two_less_their_place() -> None:
    bits = [int(text, 16) for text in re.findall(r"\b[a-h] = (0x[0-9a-f]{8})", HEADER)]
    roots = [struct.unpack("I", struct.pack("f", rounded("float", mpf(2) ** (mpf(i) / 8))))[0] for i in range(8)]
    assert bits == [root - (i << 20) for i, root in enumerate(roots)]


@pytest.mark.parametrize(("kind", "mantissa", "bias"), [("float", 23, 127), ("double", 52, 1023)])
def test_limits_of_the_exponential(kind: str, mantissa: int, bias: int) -> None:
    least, lowest, half_ulp = (constants(kind, name)[0] for name in ("least_exp", "lowest_exp", "half_ulp"))
    for limit, lift in ((least, 0), (lowest, mantissa + 1)):  # where the field of 2^(n + lift)'s exponent is 0
        for parts in (1, 8) if kind == "float" else (1,):
            assert floor(parts * limit / log(mpf(2)) + mpf("0.5")) == -parts * (bias + lift)
    assert half_ulp == 2.0 ** (floor(log(-least, 2)) - mantissa - 1)


@pytest.mark.parametrize(("kind", "bits"), [("float", 9), ("double", 36)])
def test_the_two_parts_of_the_logarithm_of_two(kind: str, bits: int) -> None:
    assert constants(kind, "ln2")[0] == pytest.approx(float(log(mpf(2))), abs=0)
    high = mpf(float.fromhex("0x1.62e42fefap-1")) if kind == "double" else mpf("0.693359375")
    assert high * mpf(2) ** bits == floor(high * mpf(2) ** bits), "its products with exponents are exact"
    assert abs(high - log(mpf(2))) < mpf(2) ** -(bits if kind == "double" else 12)
