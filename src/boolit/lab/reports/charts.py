"""Interactive charts of runs: Vega-Lite through Altair, and compact tables of what they show.

A chart's data is not in its specification but in a table of columns that all charts of a section share; the page expands it.
Colours are the page's to set (it knows whether it is light or dark): a scale here has a domain only. The parameter ``hidden``
has the names that the page's legend hides; of a table with the column ``panel``, charts get the rows of one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from platformdirs import PlatformDirs

from boolit.lab.common.files import atomic_write
from boolit.lab.reports.chart_data import (
    HIGH,
    LOW,
    Columns,
    best_panel,
    curve_metric,
    curve_table,
    drawn_runs,
    levels,
    panel_namer,
    panel_order,
    run_table,
    short,
    size_table,
)
from boolit.lab.reports.figures.results import left_out
from boolit.lab.reports.figures.style import style
from boolit.lab.results.names import metric_label, paper_name
from boolit.lab.results.run_table import RunTable
from boolit.lab.runs import Metric, Record, in_percent

if TYPE_CHECKING:
    import altair as alt

QUANTILES = f"{100 * LOW:g}–{100 * HIGH:g} %"
ROW = 26  # pixels of an activation in a strip plot
HEIGHT = 300
MANY_DOTS = 1000  # from which on they are drawn smaller
LOGARITHMIC = 30  # the ratio of values from which on their axis is
GOLDEN = 0.618034  # multiples of it, without their integers, lie evenly: jitter that is the same every time
DARK_BACKGROUND = "#14181d"  # as in page.css
DASHES = {"-": [1, 0], "--": [6, 3], "-.": [6, 2, 1, 2], ":": [2, 2]}
SHAPES = {
    **dict.fromkeys("o.8", "circle"),
    **dict.fromkeys("sp", "square"),
    **dict.fromkeys("Dd", "diamond"),
    **dict.fromkeys("PX*+", "cross"),
    **dict.fromkeys("^hH", "triangle-up"),
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
}


@dataclass(frozen=True)
class Chart:
    """A chart, what it is called, and a sentence for those who cannot see it."""

    name: str
    title: str
    description: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class ChartSet:
    """Charts that share tables, a legend and a choice of panels (sizes and depths); the first panel shown is ``panel``."""

    charts: tuple[Chart, ...]
    tables: Mapping[str, Columns]
    activations: tuple[str, ...]
    panels: tuple[str, ...] = ()
    panel: str = ""

    def to_json(self) -> dict[str, Any]:
        """What the page's script reads."""
        series = [
            {"name": paper_name(spec), "light": style(spec).colour, "dark": dark_colour(style(spec).colour)}
            for spec in self.activations
        ]
        charts = {chart.name: chart.spec for chart in self.charts}
        return {"series": series, "panel": self.panel, "tables": self.tables, "charts": charts}


@cache
def vega_script() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script. Bundling takes seconds, so it is kept in the platform's cache folder."""
    import vl_convert

    version = metadata.version("vl-convert-python")
    folder = PlatformDirs("boolit", appauthor=False, opinion=False).user_cache_path
    for path in folder.glob(f"vega-{version}-*.js"):
        kept = path.read_text(encoding="utf-8")
        if hashlib.sha256(kept.encode()).hexdigest()[:16] == path.stem.rpartition("-")[2]:
            return kept
    script = str(vl_convert.javascript_bundle(None))  # type: ignore[arg-type]  # of its stub
    name = f"vega-{version}-{hashlib.sha256(script.encode()).hexdigest()[:16]}.js"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as part:
            part.write_text(script, encoding="utf-8")
    except OSError:  # the next report takes its time again
        pass
    return script


def run_charts(records: Sequence[Record], metric: Metric, order: Sequence[str]) -> ChartSet:
    """Every run as a dot, learning curves, and parameters and seconds against the score, in the order of a table."""
    runs = RunTable.of(records)
    panel_of = panel_namer(runs.shared_configs())
    known = {config.activation for config in runs.shared_configs()}
    activations = tuple(dict.fromkeys([*(spec for spec in order if spec in known), *sorted(known)]))
    finite = runs.take(runs.finite_scores(metric.key))
    dots, followed = drawn_runs(finite, panel_of), drawn_runs(runs, panel_of)
    sizes, shown = size_table(finite, metric), curve_metric(followed, metric)
    tables = {"runs": run_table(dots, metric, panel_of), "sizes": sizes}
    tables |= {"curves": curve_table(followed, shown, panel_of)} if shown else {}
    plot = _Plots(activations, metric, len(runs))
    charts = [plot.strip(omitted=left_out(finite, dots))]
    charts += [plot.curves(shown, left_out(runs, followed))] if shown else []
    if len(set(sizes["parameters"])) > 1:
        charts.append(plot.against("parameters", "parameters", log=True))
    if any(sizes["seconds"]):
        charts.append(plot.against("seconds", "seconds per run"))
    panels = tuple(sorted({panel_of(config) for config in runs.shared_configs()}, key=panel_order))
    first = best_panel(finite, metric, panel_of, activations[0])
    return ChartSet(tuple(charts), tables, activations, panels if len(panels) > 1 else (), first)


def search_charts(records: Sequence[Record], metric: Metric, names: Sequence[str]) -> ChartSet:
    """Every trial of a search as a dot: by stage, and against each hyper-parameter that was searched."""
    runs = RunTable.of(records)
    kept = runs.take(runs.finite_scores(metric.key))
    activations = tuple(dict.fromkeys(config.activation for config in kept.shared_configs()))
    table = run_table(kept, metric, lambda _: "")
    table["stage"] = levels(str(record.config.search) for record in kept)
    for place, name in enumerate(names):
        table[f"p{place}"] = [short(float(record.config.training.get(name, math.nan))) for record in kept]
    plot = _Plots(activations, metric, len(records))
    stages = sorted({str(record.config.search) for record in kept}, key=lambda stage: (stage == "final", stage))
    wide = {name: _is_wide(table[f"p{place}"]) for place, name in enumerate(names)}
    others = (plot.trials(f"p{place}", name, wide[name]) for place, name in enumerate(names))
    charts = [plot.strip("stage", stages), *others]
    return ChartSet(tuple(charts), {"runs": table}, activations)


def ratio_chart(name: str, title: str, ratios: Mapping[str, tuple[float, float | None]], axis: str) -> ChartSet:
    """Bars of ratios by activation, each with the limit it is to keep, if it has one."""
    import altair as alt

    names = [paper_name(spec) for spec in ratios]
    limits = [None if limit is None else short(limit) for _, limit in ratios.values()]
    table = {"activation": names, "ratio": [short(value) for value, _ in ratios.values()], "limit": limits}
    plot = _Plots(tuple(ratios), None)
    rows = alt.Y("activation:N", scale=alt.Scale(domain=names), title=None, axis=alt.Axis(labelLimit=260))
    tooltip = [alt.Tooltip("activation:N"), alt.Tooltip("ratio:Q", format=".3~f"), alt.Tooltip("limit:Q", format=".3~f")]
    bars = alt.Chart().mark_bar(height={"band": 0.6}).encode(x=alt.X("ratio:Q", title=axis), y=rows, color=plot.colour())
    ticks = alt.Chart().mark_tick(thickness=3, height=18, color="#888").encode(x="limit:Q", y=rows)
    layers = alt.layer(bars.encode(tooltip=tooltip), ticks)
    chart = Chart(name, title, f"{title}; a grey tick is the limit.", plot.finish(layers, "ratios", height=ROW * len(names)))
    return ChartSet((chart,), {"ratios": table}, tuple(ratios))


class _Plots:
    """Altair's charts of the tables below; names are the paper's."""

    def __init__(self, activations: Sequence[str], metric: Metric | None, dots: int = 0) -> None:
        self.dot: dict[str, Any] = {"size": 45 if dots < MANY_DOTS else 20, "opacity": 0.6}
        self.names = [paper_name(spec) for spec in activations]
        self.styles = [style(spec) for spec in activations]
        self.percent = metric is not None and metric.percent
        self.title = metric_label(metric).removesuffix(" (%)") if metric else ""

    def colour(self) -> alt.Color:
        import altair as alt

        return alt.Color("activation:N", scale=alt.Scale(domain=self.names), legend=None)

    def score(self, axis: Any, field: str = "score", title: str = "", percent: bool | None = None) -> Any:
        import altair as alt

        share = self.percent if percent is None else percent
        return axis(f"{field}:Q", title=title or self.title, scale=alt.Scale(zero=False), axis=alt.Axis(format=_format(share)))

    def strip(self, row: str = "activation", rows: Sequence[str] | None = None, omitted: str = "") -> Chart:
        import altair as alt

        domain = rows or self.names
        dots = (
            alt.Chart()
            .transform_calculate(jitter=f"(datum.seed * {GOLDEN}) % 1")
            .mark_circle(**self.dot)
            .encode(
                x=self.score(alt.X),
                y=alt.Y(f"{row}:N", scale=alt.Scale(domain=domain), title=None, axis=alt.Axis(grid=True, labelLimit=260)),
                yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-0.4, 1.4])),
                color=self.colour(),
                tooltip=self.run_tooltip(),
            )
        )
        what = f"{self.title[:1].upper()}{self.title[1:]} of {'runs' if omitted else 'every run'}"
        text = f"{what}, one dot each, in rows by {row}; dots are spread within their row so that they do not hide each other."
        text += omitted
        spec = self.finish(dots, "runs", height=ROW * len(domain))
        return Chart("runs", what, text, spec)

    def curves(self, key: str, omitted: str = "") -> Chart:
        import altair as alt

        label, percent = key.replace("_", " "), in_percent(key)
        dashes = alt.Scale(domain=self.names, range=[DASHES[own.line] for own in self.styles])
        base = alt.Chart().encode(x=alt.X("epoch:Q", scale=alt.Scale(nice=False)), color=self.colour())
        band = base.mark_area(opacity=0.14).encode(y=self.score(alt.Y, "low", label, percent), y2="high:Q")
        dashed = alt.StrokeDash("activation:N", scale=dashes, legend=None)
        middle = self.score(alt.Y, "median", label, percent)
        line = base.mark_line(strokeWidth=2).encode(y=middle, strokeDash=dashed)
        near = alt.selection_point("near", on="pointerover", nearest=True, empty=False, clear="pointerout")
        fmt = ".2%" if percent else ".4~g"
        tooltip = [
            alt.Tooltip("activation:N"),
            alt.Tooltip("epoch:Q"),
            alt.Tooltip("median:Q", format=fmt),
            alt.Tooltip("low:Q", title=f"{100 * LOW:g} % of runs below", format=fmt),
            alt.Tooltip("high:Q", title=f"{100 * LOW:g} % of runs above", format=fmt),
            alt.Tooltip("runs:Q"),
        ]
        seen = alt.condition(near, alt.value(1), alt.value(0))
        dots = base.mark_circle(size=70).encode(y="median:Q", opacity=seen, tooltip=tooltip).add_params(near)
        title = f"{label[:1].upper()}{label[1:]} by epoch"
        text = f"{title}: the line is the median of an activation's runs, the band holds their {QUANTILES} quantiles"
        text += f", as far as at least half of them were trained.{omitted}"
        return Chart("curves", title, text, self.finish(alt.layer(band, line, dots), "curves"))

    def against(self, field: str, title: str, log: bool = False) -> Chart:
        import altair as alt

        shapes = alt.Scale(domain=self.names, range=[SHAPES.get(own.marker, "circle") for own in self.styles])
        scale = alt.Scale(type="log", nice=False, padding=20) if log else alt.Scale(zero=False, padding=20)
        across = alt.X(f"{field}:Q", title=title, scale=scale)
        base = alt.Chart().encode(x=across, color=self.colour())
        fmt = ".2%" if self.percent else ".4~g"
        tooltip = [
            alt.Tooltip("activation:N"),
            alt.Tooltip("parameters:Q"),
            alt.Tooltip("seconds:Q", format=".3~g"),
            alt.Tooltip("median:Q", format=fmt),
            alt.Tooltip("low:Q", title=f"{100 * LOW:g} % of runs below", format=fmt),
            alt.Tooltip("high:Q", title=f"{100 * LOW:g} % of runs above", format=fmt),
            alt.Tooltip("runs:Q"),
        ]
        bars = base.mark_rule(opacity=0.5).encode(y=self.score(alt.Y, "low"), y2="high:Q")
        dots = base.mark_point(filled=True, size=80, opacity=1).encode(
            y=self.score(alt.Y, "median"), shape=alt.Shape("activation:N", scale=shapes, legend=None), tooltip=tooltip
        )
        head = f"{self.title[:1].upper()}{self.title[1:]} against {title}"
        text = (
            f"{head}: a mark is the median of the runs of one activation and size, the line holds their {QUANTILES} quantiles."
        )
        return Chart(field, head, text, self.finish(alt.layer(bars, dots), "sizes"))

    def trials(self, field: str, name: str, log: bool) -> Chart:
        import altair as alt

        words = name.replace("_", " ")
        scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
        across = alt.X(f"{field}:Q", title=words, scale=scale, axis=alt.Axis(format="~g"))
        title = f"{self.title[:1].upper()}{self.title[1:]} against {words}"
        dots = alt.Chart().mark_circle(**self.dot).encode(x=across, y=self.score(alt.Y), color=self.colour())
        dots = dots.encode(tooltip=[*self.run_tooltip(), alt.Tooltip(f"{field}:Q", title=words, format=".4~g")])
        return Chart(name, title, f"{title}: every trial is a dot.", self.finish(dots, "runs"))

    def run_tooltip(self) -> list[alt.Tooltip]:
        import altair as alt

        return [
            alt.Tooltip("activation:N"),
            alt.Tooltip("score:Q", title=self.title, format=".2%" if self.percent else ".4~g"),
            alt.Tooltip("seed:Q"),
            alt.Tooltip("parameters:Q"),
            alt.Tooltip("key:N", title="run"),
        ]

    def finish(self, chart: Any, table: str, height: int = HEIGHT) -> dict[str, Any]:
        """The specification with its table, parameters and size."""
        import altair as alt

        shown = chart.transform_filter("indexof(hidden, datum.activation) < 0")
        shown = shown.add_params(alt.param("hidden", value=[])).properties(data=alt.NamedData(table), width="container")
        fitted = alt.AutoSizeParams(type="fit-x", contains="padding")
        spec: dict[str, Any] = shown.properties(height=height, autosize=fitted).to_dict()
        spec.pop("config", None)  # the page has its own, light and dark
        return spec


def _is_wide(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) > LOGARITHMIC * min(known)


def _format(percent: bool) -> str:
    return "~%" if percent else "~g"


def dark_colour(colour: str) -> str:
    """The colour for a dark page: mixed with white until it stands out from the background (WCAG: 3 to 1 at least).

    Example:
        >>> dark_colour("#000000"), dark_colour("#D55E00")
        ('#808080', '#D55E00')
    """
    channels = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    behind = _luminance([int(DARK_BACKGROUND[place : place + 2], 16) for place in (1, 3, 5)])
    for step in range(21):
        mixed = [round(channel + (255 - channel) * step / 20) for channel in channels]
        if (_luminance(mixed) + 0.05) / (behind + 0.05) >= 4:
            return "#" + "".join(f"{channel:02X}" for channel in mixed)
    return "#FFFFFF"


def _luminance(channels: Sequence[int]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (channel / 255 for channel in channels)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
