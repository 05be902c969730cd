"""Widths and parameter counts: the paper's tables, and the inverse against brute force."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from boolit.nn.width import count_parameters, round_width, width_for_budget


@pytest.mark.parametrize(
    ("nominal", "width_multiple", "width"),
    [
        (650, 4, 648),
        (650, 6, 648),
        (512, 4, 512),
        (512, 6, 510),
        (70, 4, 72),
        (70, 6, 72),
        (650, 2, 650),
        (438, 2, 438),
        (64 * 0.2, 2, 12),
        (128 * 0.2, 2, 26),
        (512 * 0.2, 2, 102),
        (1, 6, 6),
        (0, 4, 4),
        (9, 6, 12),
        (3, 6, 6),
    ],
)
def test_rounding_to_the_width_multiple(nominal: float, width_multiple: int, width: int) -> None:
    assert round_width(nominal, width_multiple) == width


@given(st.fractions(Fraction(1, 2), 5000), st.integers(1, 64))
def test_rounding_is_to_the_nearest_multiple_half_to_even(nominal: Fraction, width_multiple: int) -> None:
    width = round_width(nominal, width_multiple)
    assert width % width_multiple == 0
    assert width >= width_multiple
    if width > width_multiple or nominal * 2 >= width_multiple:
        assert abs(nominal - width) * 2 <= width_multiple
    if abs(nominal - width) * 2 == width_multiple and width > width_multiple:
        assert width // width_multiple % 2 == 0


def test_frozen_parameters_do_not_count() -> None:
    layer = nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    assert count_parameters(layer) == 6


@given(st.integers(0, 3), st.integers(0, 9), st.integers(1, 50), st.integers(1, 12), st.integers(0, 20_000))
def test_width_for_budget_is_the_nearest_of_all(
    square: int, linear: int, constant: int, width_multiple: int, budget: int
) -> None:
    def count(width: int) -> int:
        return square * width**2 + (linear + 1) * width + constant

    widths = range(width_multiple, budget + 2 * width_multiple + 1, width_multiple)
    best = min(widths, key=lambda width: (abs(count(width) - budget), width))
    assert width_for_budget(count, budget, width_multiple) == best
