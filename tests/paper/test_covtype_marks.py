"""The paper's tables fed as data: our marks against the printed ones.

The printed ± is the standard error of the mean (read as a standard deviation, four italic cells of tab:mlp-covtype could
not be italic whatever was rounded away). Bold and underlined agree everywhere. Italic agrees except where the test's outcome
hangs on what the rounding of the ± to two figures after the point has taken away; those cells are listed here, and each of
them is shown to be within the rounding.
"""

from __future__ import annotations

import math
from itertools import product

import pytest

from boolit.errors import UserError
from boolit.lab import paper
from boolit.lab.results.statistics import Summary, student_p

PRINTED = 0.01  # the resolution of the printed figures, in percent

# (activation, column): the paper says italic and the printed figures say p < 0.05, or (the last) the other way round
HANGS_ON_ROUNDING = {
    "tab:mlp-covtype": {("xnor_ail", "2"), ("or_and_xnor_ail_p", "3")},
    "tab:mlp-mnist": {("or_xnor_ail_d", "262k"), ("or_and_xnor_ail_p", "262k")},
    "tab:cnn-mnist": {("silu", "4M")},
}
LABELS = list(HANGS_ON_ROUNDING)


def columns(label: str) -> dict[str, list[paper.PrintedCell]]:
    cells: dict[str, list[paper.PrintedCell]] = {}
    for cell in paper.table(label):
        cells.setdefault(cell.column, []).append(cell)
    return cells


def summary(cell: paper.PrintedCell, rounded_away: float = 0.0) -> Summary:
    error = max(cell.standard_error + rounded_away, 0.0)
    return Summary(cell.activation, cell.n, cell.mean, error * math.sqrt(cell.n))


@pytest.mark.parametrize("label", LABELS)
def test_bold_is_the_best_and_underlined_the_best_two(label: str) -> None:
    for cells in columns(label).values():
        ranked = sorted(cells, key=lambda cell: -cell.mean)
        for mark, leaders in (("bold", ranked[:1]), ("underlined", ranked[:2])):
            near = {c.activation for c in cells if any(abs(c.mean - leader.mean) < PRINTED / 2 for leader in leaders)}
            assert {cell.activation for cell in cells if getattr(cell, mark)} == near


@pytest.mark.parametrize("label", LABELS)
def test_italic_is_the_papers_but_where_rounding_decides(label: str) -> None:
    differing = set()
    for column, cells in columns(label).items():
        best = max(cells, key=lambda cell: cell.mean)
        for cell in cells:
            if (cell is best or student_p(summary(best), summary(cell)) > 0.05) != cell.italic:
                differing.add((cell.activation, column))
    assert differing == HANGS_ON_ROUNDING[label]


@pytest.mark.parametrize("label", LABELS)
def test_where_they_differ_rounding_could_have_decided(label):
    for activation, column in HANGS_ON_ROUNDING[label]:
        cells = {cell.activation: cell for cell in columns(label)[column]}
        cell, best = cells[activation], max(cells.values(), key=lambda c: c.mean)
        half = PRINTED / 2
        p_values = [student_p(summary(best, a), summary(cell, b)) for a, b in product((-half, half), repeat=2)]
        assert min(p_values) < 0.05 < max(p_values)


def test_read_as_standard_deviations_the_covertype_table_contradicts_itself():
    impossible = set()
    for column, cells in columns("tab:mlp-covtype").items():
        best = max(cells, key=lambda c: c.mean)
        for cell in cells:
            widest = [Summary(c.activation, c.n, c.mean, c.standard_error + PRINTED / 2) for c in (best, cell)]
            if cell.italic and cell is not best and student_p(*widest) <= 0.05:
                impossible.add((cell.activation, column))
    assert impossible == {("xnor_ail", "2"), ("tanh", "3"), ("glu", "3"), ("or_and_xnor_ail_p", "3")}


@pytest.mark.parametrize(
    ("label", "activations", "width"), [("tab:mlp-covtype", 45, 3), ("tab:mlp-mnist", 12, 4), ("tab:cnn-mnist", 12, 4)]
)
def test_tables_are_whole(label, activations, width):
    cells = paper.table(label)
    assert len({cell.activation for cell in cells}) == activations
    assert len({(cell.activation, cell.column) for cell in cells}) == len(cells) == activations * width
    assert all(0 < cell.mean < 100 and math.isfinite(cell.standard_error) for cell in cells)


def test_an_unknown_table_is_named():
    with pytest.raises(UserError, match="'tab:nothing' is not here; there are tab:cnn-mnist, tab:datasets"):
        paper.table("tab:nothing")
