"""Charts of runs, each described once in Altair: the page embeds them, and vl-convert writes PNG, SVG and PDF files.

The page has one legend for all charts: its buttons set the parameter ``hidden`` of every chart, and in dark mode the page
replaces each color by its counterpart. Files have a legend of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert
from platformdirs import PlatformDirs

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write
from boolit.lab.reports.style import dark_color, style
from boolit.lab.results.names import metric_label, paper_name
from boolit.lab.results.statistics import size_groups
from boolit.lab.runs import Metric
from boolit.lab.training.recipe import METRICS

DRAWN = 200  # runs of an activation and size that are drawn one by one; more dots would hide each other
LOW, HIGH = 0.25, 0.75  # quantiles of a band
EPOCHS = 60  # points of a curve
DIGITS = 5
ROW, HEIGHT = 26, 300  # pixels
TICKS: dict[str, Any] = {"tickCount": 6, "labelOverlap": "greedy", "labelSeparation": 8}  # no colliding labels
GOLDEN = 0.618034  # its multiples modulo 1 lie evenly: a reproducible jitter
FORMATS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Chart:
    """A chart with its name, a title and a description for those who cannot see it."""

    name: str
    title: str
    description: str
    chart: Any
    records: list[dict[str, Any]]
    activations: tuple[str, ...]

    def spec(self, legend: bool = False) -> dict[str, Any]:
        """Return the Vega-Lite specification; without a legend, its width is that of its container."""
        width: Any = 480 if legend else "container"
        chart = self.chart.properties(width=width, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        text = json.dumps(chart.to_dict())
        look = {"symbolLimit": 0, "title": None, "columns": -(-len(self.activations) // 16), "symbolOpacity": 1}
        lines = {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2} if self.name == "curves" else {}
        shown = look | lines if legend else None
        spec: dict[str, Any] = json.loads(text.replace('"legend": {"title": "activation"}', f'"legend": {json.dumps(shown)}'))
        return spec | {"data": {"values": self.records}}  # Altair would validate every row

    def save(self, path: Path) -> Path:
        """Write the chart as PNG, SVG or PDF, chosen by the suffix of the path."""
        suffix = path.suffix[1:]
        if suffix not in FORMATS:
            raise UserError(f"cannot write {path.name!r}: charts are written as {', '.join(FORMATS)}")
        spec = self.spec(legend=True) | {"title": self.title, "background": "white"}
        content = {
            "png": lambda: vl_convert.vegalite_to_png(spec, scale=2),
            "svg": lambda: vl_convert.vegalite_to_svg(spec).encode(),
            "pdf": lambda: vl_convert.vegalite_to_pdf(spec),
        }[suffix]()
        with atomic_write(path) as part:
            part.write_bytes(content)
        return path


def series(activations: Iterable[str]) -> list[dict[str, Any]]:
    """Return what the page's legend shows of each activation."""
    looks = ((spec, style(spec)) for spec in activations)
    return [
        {"spec": spec, "name": paper_name(spec), "color": look.color, "dark": dark_color(look.color), "dash": look.dash}
        for spec, look in looks
    ]


@cache
def vega_script() -> str:
    """Return Vega, Vega-Lite and Vega-Embed in one script. Bundling takes seconds, so it is cached on disk."""
    path = PlatformDirs("boolit", appauthor=False, opinion=False).user_cache_path
    path /= f"vega-{metadata.version('vl-convert-python')}.js"
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        script = str(vl_convert.javascript_bundle(None))  # type: ignore[arg-type]  # its stub is wrong
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(script, encoding="utf-8")
    except OSError:
        pass  # the next report bundles it again
    return script


def run_charts(frame: pd.DataFrame, curves: pd.DataFrame, metric: Metric, order: Sequence[str]) -> list[Chart]:
    """Return the charts of a study: runs as dots, learning curves, and scores against parameters and seconds.

    Args:
        frame: the runs.
        curves: their curves, or those of the runs that `drawn` returns.
        metric: the metric of the study.
        order: activations in the order of the table.
    """
    frame = _with_panels(frame, metric)
    shown = tuple(spec for spec in order if spec in set(frame["activation"]))
    finite = frame[frame["score"].notna()]
    plots = _Plots(shown, metric, list(dict.fromkeys(frame["panel"])))
    charts = [plots.runs(_drawn(finite))]
    followed = _curve_table(_drawn(frame), curves, metric)
    if followed is not None:
        charts.append(plots.curves(*followed))
    sizes = _size_table(finite)
    if sizes["parameters"].nunique() > 1:
        charts.append(plots.against(sizes, "parameters", "parameters", log=True))
    if len(sizes) and sizes["seconds"].max() > 0:
        charts.append(plots.against(sizes, "seconds", "seconds per run"))
    return charts


def drawn(frame: pd.DataFrame, metric: Metric) -> list[str]:
    """Return the keys of the runs whose curves are drawn."""
    return _drawn(_with_panels(frame, metric))["key"].tolist()


def search_charts(frame: pd.DataFrame, metric: Metric, names: Sequence[str]) -> list[Chart]:
    """Return the trials of a search by stage and against each hyper-parameter."""
    frame = frame.assign(score=frame[metric.key].where(frame["state"] == "finished"), panel="")
    frame = frame[frame["score"].notna()]
    plots = _Plots(tuple(dict.fromkeys(frame["activation"])), metric, [""])
    stages = sorted(set(frame["stage"].dropna()), key=lambda stage: (stage == "final", stage))
    return [plots.runs(frame, "stage", stages), *(plots.trials(frame, name) for name in names)]


def _with_panels(frame: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Add the columns ``score`` (NaN if diverged) and ``panel`` (the label of depth and size)."""
    values = frame[metric.key] if metric.key in frame else pd.Series(np.nan, frame.index)
    parts = [frame[mask].assign(panel=label) for label, mask in size_groups(frame).items()]
    frame = pd.concat(parts, ignore_index=False)
    finished = (frame["state"] == "finished").to_numpy() & np.isfinite(values[frame.index].to_numpy(float))
    return frame.assign(score=np.where(finished, values[frame.index], np.nan)).reset_index(drop=True)


def _drawn(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.groupby(["activation", "panel"]).cumcount() < DRAWN]


def _size_table(frame: pd.DataFrame) -> pd.DataFrame:
    grouped = frame.groupby(["activation", "depth", "parameters"])
    bands = grouped["score"].quantile(np.array([LOW, 0.5, HIGH])).unstack()
    table = bands.set_axis(["low", "median", "high"], axis=1)
    return table.assign(seconds=grouped["seconds"].median(), runs=grouped.size()).reset_index()


def _curve_table(frame: pd.DataFrame, curves: pd.DataFrame, metric: Metric) -> tuple[pd.DataFrame, str] | None:
    """Return median and quantiles by epoch, and the metric: the study's, or the nearest that was followed."""
    followed = set(curves["metric"])
    others = [f"{split}_{name}" for name in (metric.name, "loss") for split in ("valid", "train")]
    key = next((name for name in (metric.key, *others) if name in followed), None)
    if key is None:
        return None
    merged = curves[curves["metric"] == key].merge(frame[["key", "activation", "panel"]].astype({"key": str}), on="key")
    merged = merged[np.isfinite(merged["value"])]
    last = merged["epoch"].max()
    merged = merged[merged["epoch"].isin(np.unique(np.linspace(1, last, EPOCHS).round()))]
    grouped = merged.groupby(["activation", "panel", "epoch"])["value"]
    table = grouped.quantile([LOW, 0.5, HIGH]).unstack().set_axis(["low", "median", "high"], axis=1)
    table = table.assign(runs=grouped.size()).reset_index()
    total = frame.groupby(["activation", "panel"]).size().rename("total").reset_index()
    table = table.merge(total, on=["activation", "panel"])
    return table[2 * table["runs"] >= table["total"]].drop(columns="total"), key  # few remaining runs say little about all


class _Plots:
    """Altair charts of one section."""

    def __init__(self, activations: tuple[str, ...], metric: Metric, panels: Sequence[str]) -> None:
        self.activations, self.panels = activations, panels
        self.names, looks = [paper_name(spec) for spec in activations], [style(spec) for spec in activations]
        self.percent, self.title = metric.percent, metric_label(metric).removesuffix(" (%)")
        legend = alt.Legend(title="activation")

        def scale(values: list[Any]) -> alt.Scale:
            return alt.Scale(domain=self.names, range=values)

        colors = scale([look.color for look in looks])
        self.color = alt.Color("activation:N", scale=colors, legend=legend)
        self.fill = alt.Fill("activation:N", scale=colors, legend=None)
        dashes = [list(look.dash) or [1, 0] for look in looks]
        self.dash = alt.StrokeDash("activation:N", scale=scale(dashes), legend=legend)
        self.shape = alt.Shape("activation:N", scale=scale([look.shape for look in looks]), legend=legend)
        opacities = alt.Scale(type="ordinal", domain=self.names, range=[look.fill for look in looks])
        self.filling = alt.FillOpacity("activation:N", scale=opacities, legend=legend)

    def runs(self, frame: pd.DataFrame, row: str = "activation", rows: Sequence[str] | None = None) -> Chart:
        """Return every run as a dot."""
        domain = list(rows or self.names)
        table = self.table(frame, "score", "seed", "parameters", "key", *([row] if row != "activation" else []))
        size = 45 if len(table) < 1000 else 20
        dots = (
            alt.Chart()
            .transform_calculate(jitter=f"(datum.seed * {GOLDEN}) % 1")
            .mark_circle(size=size, opacity=0.6)
            .encode(
                x=self.score(alt.X, "score"),
                y=alt.Y(f"{row}:N", scale=alt.Scale(domain=domain), title=None, axis=alt.Axis(grid=True, labelLimit=260)),
                yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-0.4, 1.4])),
                color=self.color,
                tooltip=self.tooltip("score", "seed", "parameters", "key"),
            )
        )
        title = f"{_capital(self.title)} of runs"
        text = f"{title}, one dot each, in rows by {row}. Dots are spread within their row so that they do not hide each other."
        if frame.groupby(["activation", "panel"]).size().max() >= DRAWN:
            text += f" At most {DRAWN} runs of an activation and size are drawn."
        return self.finish("runs", title, text, dots, table, rows=len(domain))

    def curves(self, frame: pd.DataFrame, key: str) -> Chart:
        """Return the median and a band of quantiles by epoch."""
        label = key.replace("_", " ")
        name = key.partition("_")[2]
        percent = METRICS.get(name).percent if name in METRICS.names() else self.percent
        table = self.table(frame, "epoch", "median", "low", "high", "runs")
        base = alt.Chart().encode(x=alt.X("epoch:Q", scale=alt.Scale(nice=False), axis=alt.Axis(**TICKS)), color=self.color)
        band = base.mark_area(opacity=0.14).encode(y=self.score(alt.Y, "low", label, percent), y2="high:Q")
        middle = self.score(alt.Y, "median", label, percent)
        line = base.mark_line(strokeWidth=2).encode(y=middle, strokeDash=self.dash)
        near = alt.selection_point("near", on="pointerover", nearest=True, empty=False, clear="pointerout")
        dots = base.mark_circle(size=70).encode(
            y="median:Q",
            opacity=alt.condition(near, alt.value(1), alt.value(0)),
            tooltip=self.tooltip("epoch", "median", "low", "high", "runs", percent=percent),
        )
        title = f"{_capital(label)} by epoch"
        text = (
            f"{title}: the line is the median of an activation's runs and the band holds the middle half of them, "
            "as long as at least half of them were trained."
        )
        return self.finish("curves", title, text, alt.layer(band, line, dots.add_params(near)), table)

    def against(self, frame: pd.DataFrame, field: str, title: str, log: bool = False) -> Chart:
        """Return scores against parameters or seconds."""
        table = self.table(frame, "parameters", "seconds", "median", "low", "high", "runs")
        scale = alt.Scale(type="log", nice=False, padding=20) if log else alt.Scale(zero=False, padding=20)
        across = alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format="~s" if log else "~g", **TICKS))
        base = alt.Chart().encode(x=across, color=self.color)
        bars = base.mark_rule(opacity=0.5).encode(y=self.score(alt.Y, "low"), y2="high:Q")
        marks = base.mark_point(size=80, opacity=1, strokeWidth=1.5).encode(
            y=self.score(alt.Y, "median"),
            fill=self.fill,
            shape=self.shape,
            fillOpacity=self.filling,
            tooltip=self.tooltip("parameters", "seconds", "median", "low", "high", "runs"),
        )
        head = f"{_capital(self.title)} against {title}"
        text = f"{head}: a mark is the median of the runs of an activation and size; the line holds the middle half of them."
        return self.finish(field, head, text, alt.layer(bars, marks), table)

    def trials(self, frame: pd.DataFrame, name: str) -> Chart:
        """Return the trials of a search against a hyper-parameter."""
        words, values = name.replace("_", " "), frame[name].dropna()
        wide = len(values) > 0 and values.min() > 0 and values.max() > 30 * values.min()
        scale = alt.Scale(type="log", nice=False) if wide else alt.Scale(zero=False)
        across = alt.X(f"{name}:Q", title=words, scale=scale, axis=alt.Axis(format="~g", **TICKS))
        table = self.table(frame, "score", "seed", "parameters", "key", name)
        dots = alt.Chart().mark_circle(size=45, opacity=0.6).encode(x=across, y=self.score(alt.Y, "score"), color=self.color)
        title = f"{_capital(self.title)} against {words}"
        dots = dots.encode(tooltip=self.tooltip("score", "seed", name, "key"))
        return self.finish(name, title, f"{title}: every trial is a dot.", dots, table)

    def table(self, frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        """Return the columns of a chart's data, with short numbers and the paper's names."""
        names = dict(zip(self.activations, self.names, strict=True))
        panel = ["panel"] if "panel" in frame else []
        table = frame[["activation", *panel, *columns]].copy()
        table["activation"] = table["activation"].map(names)
        for name in table.select_dtypes("float"):
            table[name] = [float(f"{value:.{DIGITS}g}") for value in table[name]]
        return table

    def score(self, axis: Any, field: str, title: str = "", percent: bool | None = None) -> Any:
        share = self.percent if percent is None else percent
        look = alt.Axis(format="~%" if share else "~g", **TICKS)
        return axis(f"{field}:Q", title=title or self.title, scale=alt.Scale(zero=False), axis=look)

    def tooltip(self, *fields: str, percent: bool | None = None) -> list[alt.Tooltip]:
        share = self.percent if percent is None else percent
        titles = {"score": self.title, "low": "25 % of runs below", "high": "25 % of runs above", "key": "run"}
        tips = [alt.Tooltip("activation:N")]
        for field in fields:
            title = titles.get(field, field.replace("_", " "))
            if field == "key":
                tips.append(alt.Tooltip("key:N", title=title))
            elif field in ("score", "median", "low", "high"):
                tips.append(alt.Tooltip(f"{field}:Q", title=title, format=".2%" if share else ".4~g"))
            else:
                tips.append(alt.Tooltip(f"{field}:Q", title=title))
        return tips

    def finish(self, name: str, title: str, text: str, chart: Any, table: pd.DataFrame, rows: int = 0) -> Chart:
        """Add data, size, the parameter that hides activations, and a choice of the panel if there are several."""
        chart = chart.transform_filter("indexof(hidden, datum.activation) < 0").add_params(alt.param("hidden", value=[]))
        if len(self.panels) > 1 and "panel" in table:
            choice = alt.binding_select(options=list(self.panels), name="size: ")
            chart = chart.add_params(alt.param("panel", value=self.panels[-1], bind=choice))
            chart = chart.transform_filter("datum.panel === panel")
        columns = [column for column in table if column != "panel" or len(self.panels) > 1]
        records = json.loads(table[columns].to_json(orient="records"))
        chart = chart.properties(data=alt.NamedData("table"), height=max(HEIGHT, ROW * rows))
        return Chart(name, title, text, chart, records, self.activations)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
