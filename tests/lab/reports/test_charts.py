"""Charts: what they show, how activations are told apart, and their files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from boolit.errors import UserError
from boolit.lab.paper import table_rows
from boolit.lab.reports.charts import DRAWN, drawn, run_charts
from boolit.lab.reports.style import DARK_BACKGROUND, dark_color, style
from boolit.lab.results.names import paper_name
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric
from boolit.lab.studies import load_study, plan
from boolit.nn import known_specs

ACCURACY = Metric(name="accuracy")
# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as dichromats see it.
VISION = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def cielab(color: str, matrix: object) -> np.ndarray:
    rgb = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = np.array(to_xyz) @ np.clip(np.array(matrix) @ linear, 0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast_on_white(color: str) -> float:
    """Return WCAG's contrast, from 1 to 21."""
    rgb = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return 1.05 / (float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)


@pytest.mark.parametrize("study", ["covertype-1", "transfer-cifar10", "mnist-mlp"])
def test_activations_of_a_study_differ_in_color_or_in_dash_and_mark(study: str) -> None:
    specs = list(dict.fromkeys(run.activation for run in plan(load_study(study), "paper", seeds=1).runs))
    seen = {spec: [cielab(style(spec).color, matrix) for matrix in VISION.values()] for spec in specs}
    for first, second in itertools.combinations(specs, 2):
        a, b = style(first), style(second)
        distance = min(np.linalg.norm(x - y) for x, y in zip(seen[first], seen[second], strict=True))
        marks = (a.marker, a.fill) != (b.marker, b.fill)
        assert distance > 15 or (a.dash != b.dash and marks), (first, second)


def test_dash_patterns_are_distinct_and_forms_share_the_hue() -> None:
    specs = [spec for spec in table_rows("tab:transfer-extra") if spec != "linear"]
    assert len(specs) > 40
    assert len({style(spec).dash for spec in specs}) == len(specs)
    forms = [style(f"xnor_{form}") for form in ("il", "ail", "nil", "nail")]
    assert len({(look.color, look.marker) for look in forms}) == 1
    assert len({look.fill for look in forms}) == 4


def test_colors_have_contrast_on_light_and_dark_pages() -> None:
    behind = contrast_on_white(DARK_BACKGROUND)
    for spec in [*known_specs(), "or_ail_k3", "my_activation", "max+xnor_ail_d"]:
        assert contrast_on_white(style(spec).color) >= 3, spec
        assert behind / contrast_on_white(dark_color(style(spec).color)) >= 3.9, spec


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, make_result) -> Store:
    store = Store(tmp_path_factory.mktemp("charts"))
    for place, spec in enumerate(("relu", "or_ail", "xnor_il", "xnor_ail")):
        for size in (1000, 4000):
            level = 0.5 + 0.1 * place
            results = [
                make_result(
                    spec,
                    seed,
                    level + seed / 1000,
                    budget=size,
                    parameters=size + place,
                    widths=(size,),
                    history={"test_accuracy": [0.5, level, level + seed / 1000]},
                )
                for seed in range(5)
            ]
            store.record([*results, make_result(spec, 9, state="diverged", budget=size, widths=(size,), parameters=size)])
    return store


def test_charts_show_the_runs_in_the_order_of_the_table(store: Store) -> None:
    frame, order = store.frame(), ["xnor_ail", "xnor_il", "or_ail", "relu"]
    charts = {chart.name: chart for chart in run_charts(frame, store.curves(drawn(frame, ACCURACY)), ACCURACY, order)}
    assert list(charts) == ["runs", "curves", "parameters", "seconds"]
    assert len(charts["runs"].records) == 4 * 2 * 5  # diverged runs have no score
    last = [row for row in charts["curves"].records if row["epoch"] == 3 and row["panel"] == "1k parameters"]
    assert {row["activation"]: row["median"] for row in last}[paper_name("xnor_ail")] == pytest.approx(0.802)
    for chart in charts.values():
        text = json.dumps(chart.spec(), ensure_ascii=False)
        assert json.dumps([paper_name(spec) for spec in order], ensure_ascii=False) in text
    dashes = charts["curves"].spec()["layer"][1]["encoding"]["strokeDash"]["scale"]["range"]
    assert len({tuple(dash) for dash in dashes}) == 4


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_charts_are_written_with_a_legend(store: Store, tmp_path: Path, suffix: str, start: bytes) -> None:
    chart = run_charts(store.frame(), store.curves(), ACCURACY, ["xnor_ail", "relu"])[0]
    assert chart.save(tmp_path / f"runs.{suffix}").read_bytes().startswith(start)
    with pytest.raises(UserError, match="png, svg, pdf"):
        chart.save(tmp_path / "runs.gif")


def test_very_many_runs_are_drawn_in_part(tmp_path: Path, make_result) -> None:
    store = Store(tmp_path)
    store.record(make_result(seed=seed, value=seed / 1000) for seed in range(DRAWN + 10))
    assert len(drawn(store.frame(), ACCURACY)) == DRAWN
