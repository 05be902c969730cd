"""Widths and parameter counts: the paper's tables, and the inverse against brute force."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from boolit.nn import MLP, activation
from boolit.nn.width import count_parameters, round_width, width_for_budget

KINDS = {
    "1-1": "relu",
    "2-1": "or_ail",
    "2-2": "or_and_ail_d",
    "2-3": "or_and_xnor_ail_d",
    "p2": "or_xnor_ail_p",
    "p3": "or_and_xnor_ail_p",
}


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


TRANSFER = [  # fact sheet 5.1: kind, width, counts for 101, 10, 100, 102 and 196 classes
    ("1-1", 512, (577_125, 530_442, 576_612, 577_638, 625_860)),
    ("2-2", 512, (577_125, 530_442, 576_612, 577_638, 625_860)),
    ("2-1", 650, (578_276, 548_610, 577_950, 578_602, 609_246)),
    ("p2", 648, (575_849, 546_274, 575_524, 576_174, 606_724)),
    ("p3", 648, (575_849, 546_274, 575_524, 576_174, 606_724)),
    ("2-3", 438, (579_356, 519_478, 578_698, 580_014, 641_866)),
    ("2-1", 512, (420_197, 396_810, 419_940, 420_454, 444_612)),
    ("p3", 510, (418_046, 394_750, 417_790, 418_302, 442_366)),
    ("2-3", 512, (734_053, 664_074, 733_284, 734_822, 807_108)),
]


@pytest.mark.parametrize(("kind", "width", "counts"), TRANSFER)
def test_transfer_heads(kind: str, width: int, counts: tuple[int, ...]) -> None:
    heads = [MLP(512, [width, width], classes, KINDS[kind]) for classes in (101, 10, 100, 102, 196)]
    assert tuple(count_parameters(head) for head in heads) == counts


MNIST = [  # fact sheet 5.2: kind, and (target, width, count)
    ("1-1", [(14, 20, 16_410), (16, 75, 65_635), (18, 250, 262_510), (22, 1687, 4_195_579)]),
    ("2-1", [(14, 20, 16_110), (16, 78, 65_062), (18, 280, 261_810), (22, 2208, 4_193_002)]),
    ("2-2", [(14, 20, 16_410), (16, 74, 64_686), (18, 250, 262_510), (22, 1686, 4_191_406)]),
    ("2-3", [(14, 20, 16_710), (16, 72, 65_746), (18, 228, 261_526), (22, 1426, 4_198_154)]),
    ("p2", [(14, 20, 16_110), (16, 80, 66_810), (18, 280, 261_810)]),
    ("p3", [(14, 18, 14_482), (16, 78, 65_062), (18, 282, 263_962)]),
]


@pytest.mark.parametrize(("kind", "columns"), MNIST)
def test_mnist_mlps_nearest_to_their_targets(kind: str, columns: list[tuple[int, int, int]]) -> None:
    gate = activation(KINDS[kind])

    def count(width: int) -> int:
        with torch.device("meta"):
            return count_parameters(MLP(784, [width, width], 10, gate, normalization="batch"))

    for exponent, width, parameters in columns:
        assert width_for_budget(count, 2**exponent, gate.width_multiple) == width
        assert count(width) == parameters


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
