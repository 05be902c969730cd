"""The charts' data and specifications: quantiles of runs, the table's order, the figures' colours, and the cached script."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from boolit.lab.reports import charts
from boolit.lab.reports.chart_data import HIGH, LOW, MOST_EPOCHS
from boolit.lab.reports.charts import DARK_BACKGROUND, QUANTILES, dark_colour, ratio_chart, run_charts, vega_script
from boolit.lab.reports.figures.style import style
from boolit.lab.results.names import paper_name
from boolit.lab.runs import Metric, Record, Run
from boolit.nn import known_specs

ACCURACY = Metric(name="accuracy")


def record(spec: str, seed: int, curve: list[float], state: Any = "finished", **entries: Any) -> Record:
    config = {"activation": spec, "seed": seed, "parameters": 36, "width": [4], "depth": 1, **entries}
    run = Run.from_dict(config)
    return Record(run.key, run.config, state, {"test_accuracy": curve[-1]}, {"test_accuracy": curve}, seconds=0.5)


def expand(column: Any) -> list[Any]:
    if isinstance(column, list):
        return column
    levels, rows = column["levels"], column["rows"]
    return [levels[row] for row in rows] if len(levels) > 1 else levels * (rows[0] if rows else 0)


def test_a_band_holds_quantiles_of_runs_and_no_share_lies_beyond_one() -> None:
    drawn = np.random.default_rng(0).beta(20, 1, size=(40, 30))  # nearly all close to 1: mean + sd would pass it
    assert (drawn.mean(0) + drawn.std(0, ddof=1) > 1).any()
    found = run_charts([record("relu", seed, curve.tolist()) for seed, curve in enumerate(drawn)], ACCURACY, []).tables[
        "curves"
    ]
    low, median, high = np.quantile(drawn, (LOW, 0.5, HIGH), axis=0)
    for name, expected in (("low", low), ("median", median), ("high", high)):
        assert found[name] == pytest.approx(expected.tolist(), rel=1e-4)
    assert max(found["high"]) <= 1
    assert found["epoch"] == list(range(1, 31))
    assert QUANTILES == "25–75 %"


def test_a_curve_ends_where_most_of_its_runs_have_stopped() -> None:
    curves = [[0.1] * 10, [0.2] * 6, [0.3] * 4]
    found = run_charts([record("relu", seed, curve) for seed, curve in enumerate(curves)], ACCURACY, []).tables["curves"]
    assert found["epoch"] == [1, 2, 3, 4, 5, 6]
    assert found["runs"] == [3, 3, 3, 3, 2, 2]
    assert found["median"][-1] == pytest.approx(0.15)


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    found = run_charts([record("relu", 0, [epoch / 1000 for epoch in range(1, 1001)])], ACCURACY, []).tables["curves"]
    assert len(found["epoch"]) == MOST_EPOCHS
    assert (found["epoch"][0], found["epoch"][-1]) == (1, 1000)


def test_every_finished_run_is_a_dot_and_names_are_in_the_tables_order() -> None:
    records = [record(spec, seed, [0.5, 0.6]) for spec in ("relu", "tanh", "xnor_ail") for seed in range(3)]
    broken = record("relu", 9, [0.5, float("nan")], "diverged")
    found = run_charts([*records, broken], ACCURACY, ["xnor_ail", "majority class", "relu", "tanh"])
    assert found.activations == ("xnor_ail", "relu", "tanh")
    runs = found.tables["runs"]
    assert sorted(runs["key"]) == sorted(each.key for each in records)
    assert len(expand(runs["activation"])) == len(records)
    strip = next(chart for chart in found.charts if chart.name == "runs")
    assert strip.spec["encoding"]["y"]["scale"]["domain"] == ["XNORₐᵢₗ", "ReLU", "Tanh"]


def test_sizes_and_depths_are_panels_by_their_numbers() -> None:
    sizes = [(budget, depth) for budget in (64_000, 4_000_000, 500) for depth in (1, 2)]
    records = [record("relu", 0, [0.5], budget=budget, parameters=budget, depth=depth) for budget, depth in sizes]
    names = run_charts(records, ACCURACY, []).panels
    assert names[:3] == (
        "1 hidden layer, 500 parameters",
        "1 hidden layer, 64k parameters",
        "1 hidden layer, 4M parameters",
    )
    assert len(names) == 6
    assert run_charts(records[:1], ACCURACY, []).panels == ()


def test_colours_are_the_figures_and_stand_out_from_a_dark_page() -> None:
    specs = known_specs()
    series = run_charts([record(spec, 0, [0.5]) for spec in specs], ACCURACY, specs).to_json()["series"]
    assert [(one["name"], one["light"]) for one in series] == [(paper_name(spec), style(spec).colour) for spec in specs]

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for one in series:
        assert (luminance(one["dark"]) + 0.05) / (luminance(DARK_BACKGROUND) + 0.05) >= 3
    assert dark_colour("#FFFFFF") == "#FFFFFF"


def test_a_chart_of_ratios_has_limits_where_there_are_any() -> None:
    table = ratio_chart("r", "Ratios", {"or_ail": (0.4, 0.7), "relu": (1.0, None)}, "times").tables["ratios"]
    assert (table["activation"], table["ratio"], table["limit"]) == (["ORₐᵢₗ", "ReLU"], [0.4, 1.0], [0.7, None])


def test_the_script_is_bundled_once_and_a_damaged_copy_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled: list[int] = []

    def bundle(_: object) -> str:
        bundled.append(1)
        return "var vega;"

    monkeypatch.setitem(sys.modules, "vl_convert", SimpleNamespace(javascript_bundle=bundle))
    monkeypatch.setattr(charts, "PlatformDirs", lambda *_, **__: SimpleNamespace(user_cache_path=tmp_path / "cache"))
    fresh = vega_script.__wrapped__
    assert (fresh(), fresh(), len(bundled)) == ("var vega;", "var vega;", 1)
    (kept,) = (tmp_path / "cache").iterdir()
    assert kept.stem.endswith(hashlib.sha256(b"var vega;").hexdigest()[:16])
    kept.write_text("var other;")
    assert (fresh(), len(bundled)) == ("var vega;", 2)
    monkeypatch.setattr(charts, "PlatformDirs", lambda *_, **__: SimpleNamespace(user_cache_path=Path("/dev/null/cache")))
    assert (fresh(), len(bundled)) == ("var vega;", 3)
