"""The columns of a comparison: scores with their marks, diverged and solved runs, and the tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from boolit.lab.reports._table_model import Cell
from boolit.lab.reports._table_names import amounts, metric_label
from boolit.lab.reports.marks import marks, shades
from boolit.lab.results.notation import Notation, notation, p_number
from boolit.lab.results.statistics import Comparison, Contrast, Summary

Column = tuple[str, Callable[[Summary], Cell]]
NOTHING = Cell("")
TESTS = ("difference", "p", "effect")  # the columns of a contrast with the best


def score_column(name: str, comparison: Comparison, decimals: int | None = None) -> Column:
    """Mean ± standard error, marked and shaded."""
    writing = notation(comparison.metric, comparison.ranking)
    writing = writing if decimals is None else Notation(writing.percent, decimals)
    marked, shaded = marks(comparison, writing.resolution), shades(comparison)

    def cell(summary: Summary) -> Cell:
        mark, error = marked[summary.activation], summary.standard_error
        return Cell(
            text=writing.number(summary.mean),
            spread="" if math.isnan(error) else f" ± {writing.number(error)}",
            marks=mark,
            shade=shaded.get(summary.activation),
            data={"": summary.mean, " standard error": error, " marks": str(mark)},
        )

    return name, cell


def count_columns(comparison: Comparison) -> list[Column]:
    """Solved runs if they were counted, and diverged ones if there are any."""
    columns: list[Column] = []
    if comparison.solved is not None:
        sign = "≥" if comparison.metric.goal == "max" else "≤"
        threshold = f"{100 * comparison.solved:g} %" if comparison.metric.percent else f"{comparison.solved:g}"
        columns.append((f"solved ({sign} {threshold})", _solved))
    if any(summary.diverged for summary in comparison.ranking):
        columns.append(("diverged", _diverged))
    return columns


def contrast_columns(comparison: Comparison) -> list[Column]:
    """Size, score, counts, and each activation's contrast with the best."""
    writing = notation(comparison.metric, comparison.ranking)
    contrasts = {contrast.other.activation: contrast for contrast in comparison.contrasts}
    sizes = amounts(summary.size for summary in comparison.ranking)

    def of_contrast(write: Callable[[Contrast], Cell]) -> Callable[[Summary], Cell]:
        return lambda s: write(contrasts[s.activation]) if s.activation in contrasts else NOTHING

    return [
        ("parameters", lambda s: Cell(sizes[s.size], data={"": s.size})),
        score_column(metric_label(comparison.metric), comparison),
        ("n", lambda s: Cell(str(s.n), data={"": s.n})),
        *count_columns(comparison),
        (TESTS[0], of_contrast(lambda c: _with_interval(c.difference, c.interval, writing.number))),
        (TESTS[1], of_contrast(lambda c: Cell(p_number(comparison.p(c)), data={"": comparison.p(c)}))),
        (TESTS[2], of_contrast(lambda c: _with_interval(c.effect, c.effect_interval, _effect))),
    ]


def cells(columns: Sequence[Column], summary: Summary | None) -> tuple[Cell, ...]:
    """A row of these columns; empty for an activation that is not among the compared."""
    return tuple(NOTHING if summary is None else write(summary) for _, write in columns)


def _solved(summary: Summary) -> Cell:
    solved = summary.solved or 0
    text = f"{100 * solved / summary.runs:.0f} % ({solved}/{summary.runs})"
    return Cell(text, data={"": solved, " runs": summary.runs})


def _diverged(summary: Summary) -> Cell:
    text = f"{summary.diverged}/{summary.runs}" if summary.diverged else ""
    return Cell(text, data={"": summary.diverged, " runs": summary.runs})


def _with_interval(value: float, interval: tuple[float, float], write: Callable[[float], str]) -> Cell:
    low, high = interval
    around = "" if math.isnan(low) or math.isnan(high) else f" [{write(low)}, {write(high)}]"
    return Cell(f"{write(value)}{around}", data={"": value, " low": low, " high": high})


def _effect(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
