"""Figures of results: medians, bars, bands and shares are those of the values, and names are in the table's order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from scipy.stats import binomtest

from boolit.lab.paper import table
from boolit.lab.reports.figures.results import (
    Bars,
    accuracy_against_parameters,
    learning_curves,
    middle_and_bar,
    quantiles_by_epoch,
    score_intervals,
    solved_share,
    wilson,
)
from boolit.lab.reports.figures.study import study_figures
from boolit.lab.reports.figures.style import style
from boolit.lab.reports.tables import study_tables
from boolit.lab.results.names import label
from boolit.lab.results.scores import Score
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Record, RunConfig
from boolit.nn import known_specs

ACCURACY = Metric(name="accuracy")


def record(activation: str, accuracy: float, seed: int = 0, curve: Sequence[float] = (0.5,), depth: int = 1) -> Record:
    config = RunConfig(activation=activation, parameters=9, seed=seed, depth=depth, metric=ACCURACY)
    return Record(f"{activation}-{seed}-{depth}", config, "finished", {ACCURACY.key: accuracy}, {ACCURACY.key: list(curve)})


def segments(axes: Axes) -> list[tuple[float, float, float]]:
    """Where each vertical bar is, and its ends."""
    found = [collection for collection in axes.collections if isinstance(collection, LineCollection)]
    return [(segment[0, 0], *segment[:, 1]) for collection in found for segment in collection.get_segments()]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_medians_means_bars_and_dots_are_those_of_the_values() -> None:
    values = (0.5, 0.7, 0.8, 0.85, 0.9)
    scores = [Score("or_ail", 1000, values), Score("or_ail", 100, (0.4,), diverged=2), Score("relu", 100, (), diverged=3)]
    sd, mean = np.std(values, ddof=1), np.mean(values)
    expected = {"quantiles": (0.8, 0.7, 0.85), "se": (mean, mean - sd / math.sqrt(5), mean + sd / math.sqrt(5))}
    for bars, (centre, low, high) in expected.items():
        figure = accuracy_against_parameters(scores, "test_accuracy", bars)
        axes = figure.axes[0]
        line = axes.lines[0]
        assert line.get_xydata().tolist() == [[100, 0.4], [1000, pytest.approx(centre)]]
        assert segments(axes) == [(100, 0.4, 0.4), pytest.approx((1000, low, high))]
        assert (axes.get_xscale(), line.get_color()) == ("log", style("or_ail").colour)
        assert [text.get_text() for text in axes.texts] == ["2 diverged"]
        dots = [c.get_offsets().tolist() for c in axes.collections if isinstance(c, PathCollection)]
        assert dots == [[[100, 0.4]], [[1000, value] for value in values]]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from(["quantiles", "sd", "se"]))
def test_no_bar_leaves_the_range_of_its_runs(values: list[float], bars: Bars) -> None:
    centre, low, high = middle_and_bar(values, bars)
    assert min(values) <= low <= high <= max(values)
    assert min(values) - 1e-12 <= centre <= max(values) + 1e-12


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=12))
def test_no_band_leaves_the_range_of_its_runs(curves: list[list[float]]) -> None:
    low, median, high = quantiles_by_epoch(curves)
    for epoch in range(len(median)):
        values = [curve[epoch] for curve in curves if len(curve) > epoch]
        if 2 * len(values) >= len(curves):
            assert min(values) <= low[epoch] <= median[epoch] <= high[epoch] <= max(values)
        else:
            assert np.isnan([low[epoch], median[epoch], high[epoch]]).all()


def test_the_drawn_band_and_axis_end_at_100_percent() -> None:
    curves = [[0.5, 1.0]] * 5 + [[0.5, 0.6]] * 3  # mean + sd would be 1.06
    figure = learning_curves([record("xnor_il", c[-1], seed, c) for seed, c in enumerate(curves)], "test_accuracy")
    axes = figure.axes[0]
    (band,) = axes.collections
    ends = band.get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == (0.5, 1.0)
    FigureCanvasAgg(figure).draw()
    assert max(axes.get_ylim()) < 1.02
    assert "100 %" in [tick.get_text() for tick in axes.get_yticklabels()]
    assert "25 % to 75 %" in axes.get_ylabel()


def test_every_list_of_names_is_in_the_tables_order(tmp_path: Path) -> None:
    means = {"relu": 0.5, "tanh": 0.9, "xnor_ail": 0.7, "and_ail": 0.6}
    records = [record(name, mean + 0.01 * seed, seed) for name, mean in means.items() for seed in (0, 1)]
    records += [replace(r, config=r.config.model_copy(update={"parameters": 99}), key=f"{r.key}-99") for r in records]
    (*_, table_) = study_tables(records)
    ranked = [label(row.activation) for row in table_.rows]
    assert ranked[0] == "Tanh"
    with Store(tmp_path) as store:
        figures = {name: figure for name, _, figure in study_figures(records, store, solved=0.9)}
    assert legend(figures["sizes"]) == legend(figures["curves"]) == ranked  # curves of the best size alone
    rows = [tick.get_text() for tick in figures["solved"].axes[0].get_yticklabels()]
    assert list(dict.fromkeys(name.rpartition(", ")[0] for name in rows)) == ranked
    assert legend(learning_curves(records[:8], "test_accuracy")) == ranked


def test_of_many_activations_the_best_are_drawn_with_relu_and_the_caption_says_so(tmp_path: Path) -> None:
    specs = [spec for spec in known_specs() if spec != "relu"][:19]
    records = [record(spec, 0.9 - 0.01 * place) for place, spec in enumerate([*specs, "relu"])]
    with Store(tmp_path) as store:
        ((_, caption, figure),) = study_figures(records, store)
    assert legend(figure) == [label(spec) for spec in [*specs[:15], "relu"]]
    assert caption.endswith("The best mean comes first, as in the table. Not drawn: 4 further activations.")


def test_another_order_is_kept_and_names_it_lacks_come_last() -> None:
    records = [record(name, 0.5) for name in ("relu", "tanh", "xnor_nail", "silu")]
    figure = learning_curves(records, "test_accuracy", order=["xnor_nail", "tanh"])
    assert legend(figure) == [label(name) for name in ("xnor_nail", "tanh", "relu", "silu")]


def test_names_have_their_subscripts_in_every_figure() -> None:
    specs = ("xnor_nail", "or_and_xnor_ail_d")
    scores = [Score(spec, 9, (0.5, 0.6)) for spec in specs]
    rows = [
        solved_share(scores, 0.5),
        score_intervals(dict.fromkeys(specs, (0.5, 0.4, 0.6)), "test_accuracy", ("majority class", 0.4)),
    ]
    named = [[tick.get_text() for tick in figure.axes[0].get_yticklabels()] for figure in rows]
    named += [
        legend(accuracy_against_parameters(scores)),
        legend(learning_curves([record(s, 0.5) for s in specs], "test_accuracy")),
    ]
    for names in named:
        assert sorted(names) == sorted(label(spec) for spec in specs)
        assert all("_{\\mathrm{" in name for name in names)


def test_the_legend_covers_no_panel() -> None:
    figure = learning_curves(
        [record(spec, 0.5, depth=depth) for spec in ("relu", "or_ail") for depth in (1, 2)], "test_accuracy"
    )
    FigureCanvasAgg(figure).draw()
    box = figure.legends[0].get_window_extent()
    assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_each_depth_has_its_panel() -> None:
    scores = [Score("relu", 10, (0.1, 0.2), depth=depth) for depth in (2, 1, 3, 0)]
    assert [axes.get_title() for axes in accuracy_against_parameters(scores).axes] == [
        "no hidden layer",
        "1 hidden layer",
        "2 hidden layers",
        "3 hidden layers",
    ]


def test_curves_are_medians_while_half_of_the_runs_have_a_value() -> None:
    curves = [[1.0, 2.0, 3.0], [3.0, math.inf], [2.0, 4.0, math.nan]]
    config = RunConfig(activation="xnor_il", parameters=9, depth=1)
    records = [Record(str(key), config, "finished", {}, {"loss": curve}) for key, curve in enumerate(curves)]
    records.append(Record("other", RunConfig(activation="relu", parameters=9), "finished", {}, {"other": [0.0]}))
    line = learning_curves(records, "loss").axes[0].lines[0]
    assert line.get_ydata()[:2].tolist() == [2.0, 3.0]
    assert math.isnan(line.get_ydata()[2])


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
