"""Figures of results: means, bars, bands and shares are those of the values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scipy.stats import binomtest

from boolit.lab.paper import table
from boolit.lab.reports.figures.results import (
    accuracy_against_parameters,
    learning_curves,
    mean_and_sd,
    solved_share,
    wilson,
)
from boolit.lab.reports.figures.style import style
from boolit.lab.results.scores import Score
from boolit.lab.runs import Record, RunConfig


class Run(NamedTuple):
    config: RunConfig
    history: dict[str, list[float]]


def test_means_and_bars_are_those_of_the_values() -> None:
    values = (0.5, 0.7, 0.9)
    scores = [Score("or_ail", 1000, values), Score("or_ail", 100, (0.4,), diverged=2), Score("relu", 100, (), diverged=3)]
    for bars, span in (("sd", np.std(values, ddof=1)), ("se", np.std(values, ddof=1) / math.sqrt(3))):
        figure = accuracy_against_parameters(scores, "test_accuracy", bars)
        axes = figure.axes[0]
        (container, _) = axes.containers
        assert container.lines[0].get_xydata().tolist() == [[100, 0.4], [1000, pytest.approx(0.7)]]
        segments = container.lines[2][0].get_segments()
        assert segments[1][:, 1].tolist() == pytest.approx([0.7 - span, 0.7 + span])
        assert (axes.get_xscale(), container.lines[0].get_color()) == ("log", style("or_ail").colour)
        assert [text.get_text() for text in axes.texts] == ["2 diverged"]


def test_each_depth_has_its_panel() -> None:
    scores = [Score("relu", 10, (0.1, 0.2), depth=depth) for depth in (2, 1, 3, 0)]
    assert [axes.get_title() for axes in accuracy_against_parameters(scores).axes] == [
        "no hidden layer",
        "1 hidden layer",
        "2 hidden layers",
        "3 hidden layers",
    ]


def test_learning_curves_are_means_over_runs_that_still_have_a_value() -> None:
    curves = [[1.0, 2.0, 3.0], [3.0, math.inf], [2.0, 4.0, math.nan]]
    config = RunConfig.from_dict({"activation": "xnor_il", "parameters": 9, "depth": 1})
    runs = [Run(config, {"loss": curve}) for curve in curves]
    runs.append(Run(RunConfig.from_dict({"activation": "relu", "parameters": 9}), {"other": [0.0]}))
    line = learning_curves(runs, "loss").axes[0].lines[0]
    assert line.get_xydata().tolist() == [[1, 2.0], [2, 3.0], [3, 3.0]]
    _, sd = mean_and_sd(curves)
    assert sd.tolist() == pytest.approx([1.0, math.sqrt(2), 0.0])


def test_a_legend_of_many_names_stays_within_the_figure() -> None:
    cells = table("tab:transfer-extra")
    specs = [spec for spec in dict.fromkeys(cell.activation for cell in cells) if spec != "linear"]
    figure = accuracy_against_parameters([Score(spec, 10, (0.1, 0.2), depth=1) for spec in specs])
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert len(legend.get_texts()) == len(specs) == 45
    assert box.y0 >= whole.y0
    assert box.x1 <= whole.x1


def test_sizes_of_an_activation_are_curves_of_their_own() -> None:
    records = [
        Record(str(size), RunConfig(activation="relu", parameters=size, depth=1), "finished", {}, {"test_accuracy": [0.5]})
        for size in (36, 18, 36)
    ]
    axes = learning_curves(records, "test_accuracy").axes[0]
    assert [line.get_label() for line in axes.lines] == ["ReLU, 18", "ReLU, 36"]


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(case: tuple[int, int]) -> None:
    interval = binomtest(*case).proportion_ci(method="wilson")
    assert wilson(*case) == pytest.approx((interval.low, interval.high), abs=1e-12)


@pytest.mark.parametrize(("goal", "share"), [("max", 2 / 5), ("min", 3 / 5)])
def test_a_diverged_run_has_not_solved_the_task(goal: str, share: float) -> None:
    score = Score("xnor_ail", 36, (1.0, 0.99, 0.5, 0.4), diverged=1)
    axes = solved_share([score, Score("relu", 36, ())], 0.99, goal=goal).axes[0]
    (bar,) = axes.patches
    assert bar.get_width() == pytest.approx(share)
    assert [text.get_text() for text in axes.texts] == [f"{round(5 * share)}/5"]


def test_no_results_are_an_empty_figure() -> None:
    assert accuracy_against_parameters([]).axes[0].lines[:] == []
    assert learning_curves([], "loss").axes[0].lines[:] == []
