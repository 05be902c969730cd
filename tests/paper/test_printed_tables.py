"""The paper's tables as data: complete, as printed, and consistent with their own captions.

The printed ± is the standard error of the mean. Bold is the best of a column, underlined the best two. Italic (no significant
difference from the best) agrees with a t-test on the printed figures except in the cells listed here. Rounding the ± to two
decimals explains all but three: SignedGeomean on STL-10 (p = 0.12) is upright in tab:transfer-head-big; two cells of the CIFAR
tables are italic at p = 0.03 and 0.04, perhaps with other than 4 seeds (other means are not multiples of 0.01 / 4).
"""

from __future__ import annotations

import math
from itertools import product

import pytest

import boolit
from boolit.errors import UserError
from boolit.lab import paper
from boolit.lab.results.statistics import Summary, student_p

PRINTED = 0.01  # the resolution of the printed figures, in percent
DATASETS = ("Cal101", "CIFAR10", "CIFAR100", "Flowers", "StfCars", "STL-10", "SVHN")
SIZES = ("6M", "10M", "23M", "67M", "225M")
CANDIDATES = ("Top-1", "Top-2", "Top-3")
CONFIGURATIONS = ("Acc", "Center", "2×2G", "3×3G", "O-IC", "O-IG", "L-R", "U-D")
NO_SPECS = {"linear", "relu (base SRAN)", "relu (TMN as published)"}
# label: rows, columns, seeds
SHAPES = {
    "tab:mlp-covtype": (45, ("1", "2", "3"), 5),
    "tab:mlp-mnist": (12, ("16k", "65k", "262k", "4M"), 40),
    "tab:cnn-mnist": (12, ("15k", "63k", "260k", "4M"), 40),
    "tab:resnet50-cifar10": (12, SIZES, 4),
    "tab:resnet50-cifar100": (12, SIZES, 4),
    "tab:transfer-head-big": (24, DATASETS, 5),
    "tab:transfer-extra": (46, DATASETS, 5),
    "tab:transfer-head-512": (46, DATASETS, 5),
    "tab:sran": (15, CONFIGURATIONS, 1),
    "tab:tmn-og": (8, CANDIDATES, 5),
    "tab:tmnx": (45, CANDIDATES, 5),
}
TESTED = [label for label in SHAPES if label not in ("tab:sran", "tab:tmn-og")]  # those with italic cells
ROUNDED = {
    ("tab:mlp-covtype", "2", "xnor_ail"),
    ("tab:mlp-covtype", "3", "or_and_xnor_ail_p"),
    ("tab:mlp-mnist", "262k", "or_xnor_ail_d"),
    ("tab:mlp-mnist", "262k", "or_and_xnor_ail_p"),
    ("tab:cnn-mnist", "4M", "silu"),
    ("tab:transfer-head-big", "STL-10", "or_and_nil_d"),
    ("tab:tmnx", "Top-1", "tanh"),
}
UNEXPLAINED = {
    ("tab:resnet50-cifar10", "6M", "or_ail"),
    ("tab:resnet50-cifar100", "225M", "max"),
    ("tab:transfer-head-big", "STL-10", "signed_geomean"),
}


def columns(label: str) -> dict[str, list[paper.PrintedCell]]:
    cells: dict[str, list[paper.PrintedCell]] = {}
    for cell in paper.table(label):
        cells.setdefault(cell.column, []).append(cell)
    return cells


def summary(cell: paper.PrintedCell, rounded_away: float = 0.0) -> Summary:
    return Summary(cell.activation, cell.n, cell.mean, max(cell.standard_error + rounded_away, 0.0) * math.sqrt(cell.n))


@pytest.mark.parametrize("label", SHAPES)
def test_a_table_is_complete(label: str) -> None:
    rows, names, seeds = SHAPES[label]
    cells = paper.table(label)
    specs = list(dict.fromkeys(cell.activation for cell in cells))
    assert [(cell.activation, cell.column) for cell in cells] == list(product(specs, names))
    assert len(specs) == rows
    for spec in set(specs) - NO_SPECS:
        assert boolit.activation(spec).spec == spec
    assert all(0 < cell.mean < 100 for cell in cells)
    without_error = {cell.activation for cell in cells if math.isnan(cell.standard_error)}
    assert without_error == (set(specs) if label == "tab:sran" else set(specs) & {"relu (TMN as published)"})
    assert {cell.n for cell in cells if cell.activation not in without_error} <= {seeds}
    assert {cell.n for cell in cells if cell.activation in without_error} <= {1}


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UserError, match="'tab:nothing' is not here; there are tab:cnn-mnist, tab:datasets"):
        paper.table("tab:nothing")


@pytest.mark.parametrize(
    ("label", "activation", "column", "mean", "error", "style"),
    [
        ("tab:resnet50-cifar10", "relu", "225M", 95.7025, 0.06, "underlined italic"),
        ("tab:resnet50-cifar10", "xnor_ail", "67M", 90.7725, 0.53, ""),
        ("tab:resnet50-cifar100", "silu", "6M", 72.8825, 0.13, "bold underlined italic"),
        ("tab:resnet50-cifar100", "or_and_xnor_ail_d", "23M", 75.5378, 0.15, ""),
        ("tab:transfer-head-big", "linear", "Cal101", 88.3491, 0.15, "bold underlined italic"),
        ("tab:transfer-head-big", "signed_geomean", "CIFAR10", 51.4520, 16.92, "italic"),
        ("tab:transfer-head-big", "or_and_nail_d", "STL-10", 94.6125, 0.08, "italic"),
        ("tab:transfer-extra", "or_and_nail_d", "STL-10", 94.6125, 0.08, ""),
        ("tab:transfer-extra", "or_and_xnor_nail_p", "STL-10", 94.9450, 0.02, "bold underlined italic"),
        ("tab:transfer-extra", "xnor_il", "StfCars", 1.3401, 0.11, ""),
        ("tab:transfer-head-512", "xnor_nil", "Cal101", 87.9410, 0.08, "underlined"),
        ("tab:transfer-head-512", "or_and_xnor_nil_d", "CIFAR10", 83.1060, 0.10, "bold underlined italic"),
        ("tab:tmnx", "celu", "Top-3", 12.0013, 0.19, "italic"),
        ("tab:tmnx", "or_and_xnor_nail_d", "Top-1", 2.5783, 0.09, ""),
        ("tab:tmn-og", "or_ail", "Top-2", 6.80, 0.08, "bold underlined"),
    ],
)
def test_cells_read_by_eye(label: str, activation: str, column: str, mean: float, error: float, style: str) -> None:
    (cell,) = [cell for cell in paper.table(label) if (cell.activation, cell.column) == (activation, column)]
    assert (cell.mean, cell.standard_error) == (mean, error)
    assert {name for name in ("bold", "underlined", "italic") if getattr(cell, name)} == set(style.split())


def test_published_networks_and_those_of_one_run_have_no_error() -> None:
    published = [cell.mean for cell in paper.table("tab:tmn-og") if cell.activation == "relu (TMN as published)"]
    assert published == [2.9, 7.1, 11.5]
    base = [cell.mean for cell in paper.table("tab:sran") if cell.activation == "relu (base SRAN)"]
    assert base == [60.8, 78.2, 50.1, 42.4, 68.2, 46.3, 70.1, 70.3]


@pytest.mark.parametrize("label", SHAPES)
def test_bold_is_the_best_and_underlined_the_best_two(label: str) -> None:
    for column, cells in columns(label).items():
        ranked = sorted((cell for cell in cells if "published" not in cell.activation), key=lambda cell: -cell.mean)
        bold, underlined = ({cell.activation for cell in ranked if getattr(cell, mark)} for mark in ("bold", "underlined"))
        if (label, column) == ("tab:sran", "2×2G"):  # 50.1 of the base and 50.0 share the first place, two 49.5 the second
            assert (len(bold), len(underlined)) == (2, 4)
            continue
        for marked, leaders in ((bold, ranked[:1]), (underlined, ranked[:2])):
            assert marked == {c.activation for c in ranked if any(abs(c.mean - best.mean) < PRINTED / 2 for best in leaders)}


def test_italic_is_what_a_t_test_says_except_for_ten_cells() -> None:
    differing = set()
    for label in TESTED:
        for column, cells in columns(label).items():
            best = max(cells, key=lambda cell: cell.mean)
            for cell in cells:
                if (cell is best or student_p(summary(best), summary(cell)) > 0.05) != cell.italic:
                    differing.add((label, column, cell.activation))
    assert differing == ROUNDED | UNEXPLAINED


@pytest.mark.parametrize(("label", "column", "activation"), sorted(ROUNDED | UNEXPLAINED))
def test_rounding_could_have_decided_seven_of_them(label: str, column: str, activation: str) -> None:
    cells = {cell.activation: cell for cell in columns(label)[column]}
    best, half = max(cells.values(), key=lambda cell: cell.mean), PRINTED / 2
    p_values = [student_p(summary(best, a), summary(cells[activation], b)) for a, b in product((-half, half), repeat=2)]
    assert (min(p_values) < 0.05 < max(p_values)) == ((label, column, activation) in ROUNDED)


def test_read_as_standard_deviations_the_covertype_table_contradicts_itself() -> None:
    impossible = set()
    for column, cells in columns("tab:mlp-covtype").items():
        best = max(cells, key=lambda cell: cell.mean)
        for cell in cells:
            widest = [Summary(c.activation, c.n, c.mean, c.standard_error + PRINTED / 2) for c in (best, cell)]
            if cell.italic and cell is not best and student_p(*widest) <= 0.05:
                impossible.add((cell.activation, column))
    assert impossible == {("xnor_ail", "2"), ("tanh", "3"), ("glu", "3"), ("or_and_xnor_ail_p", "3")}


def test_both_widths_share_the_heads_whose_width_is_512_anyway() -> None:
    big, narrow = ({(c.activation, c.column): c for c in paper.table(f"tab:transfer-{name}")} for name in ("extra", "head-512"))
    assert big.keys() == narrow.keys()
    for key, cell in big.items():
        same = (cell.mean, cell.standard_error) == (narrow[key].mean, narrow[key].standard_error)
        is_512 = key[0] == "linear" or boolit.activation(key[0]).feature_factor == 1
        assert same == is_512


def test_the_table_of_the_text_is_part_of_the_whole_one() -> None:
    whole = {(cell.activation, cell.column): (cell.mean, cell.standard_error) for cell in paper.table("tab:transfer-extra")}
    for cell in paper.table("tab:transfer-head-big"):
        assert whole[cell.activation, cell.column] == (cell.mean, cell.standard_error)


def test_accuracy_on_iraven_is_the_mean_of_its_configurations() -> None:
    for activation in dict.fromkeys(cell.activation for cell in paper.table("tab:sran")):
        overall, *others = (cell.mean for cell in paper.table("tab:sran") if cell.activation == activation)
        assert overall == pytest.approx(sum(others) / 7, abs=0.1)
