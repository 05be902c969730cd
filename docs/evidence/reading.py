"""Reads the CSVs of this folder and makes the plots and tables of docs/choosing.md; the site's build runs it."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import numpy as np
from boolit.lab.reports.figures.style import look, style
from boolit.lab.results.resampled import ResampledSplits, estimate
from boolit.lab.results.scores import Score, ScoreFormat, ScoreSummary, score_format, summarise
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from boolit.lab.results.names import html_name, label, metric_label, paper_name, shorten_numbers
from boolit.lab.results.statistics import t_test
from boolit.lab.runs import Metric

FOLDER = Path(__file__).resolve().parent
MOST_PANELS = 3  # a data set with more sizes is drawn at its smallest, its middle and its largest


@dataclass(frozen=True)
class Gain:
    """By how much an activation is better than another, in the metric's unit: positive is better, whatever the metric."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the interval is above zero, below it, or neither."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "undecided"


@dataclass(frozen=True)
class Panel:
    """All runs of a data set at one size: a value by seed for every activation, and how many of its runs diverged.

    ``splits`` says how many rows were tested and how many were not, where every run has rows of its own.
    """

    study: str
    size: str
    metric: Metric
    values: Mapping[str, Mapping[int, float]]
    diverged: Mapping[str, int]
    seconds: Mapping[str, float]
    splits: tuple[int, int] | None = None

    @property
    def title(self) -> str:
        """The data set, and the size if there are several."""
        return f"{self.study}, {self.size} parameters" if self.size else self.study

    @property
    def ranking(self) -> list[str]:
        """The activations, the best mean first; those without any finished run are left out."""
        means = {spec: fmean(own.values()) for spec, own in self.values.items() if own}
        return sorted(means, key=lambda spec: (-self.metric.merit(means[spec]), spec))

    @property
    def format(self) -> ScoreFormat:
        """As many digits as the standard errors have."""
        return score_format(self.metric, [self._summary(spec).standard_error for spec in self.ranking])

    def mean(self, spec: str) -> float:
        """The mean of an activation's runs."""
        return fmean(self.values[spec].values())

    def gain(self, spec: str, over: str = "relu") -> Gain | None:
        """How much better an activation is than another, with a 95 % interval; None where one is not there or has one run.

        Runs that share their test rows are compared by Welch's interval; runs with rows of their own are paired by split, with
        Nadeau and Bengio's variance, as `boolit compare` does.
        """
        if spec == over or not {spec, over} <= set(self.ranking):
            return None
        sign = self.metric.merit(1.0)
        if self.splits is None:
            test = t_test(self._summary(spec), self._summary(over), welch=True)
            low, high = sorted(sign * bound for bound in test.interval)
            return None if math.isnan(low) else Gain(sign * test.difference, low, high)
        common = sorted(self.values[spec].keys() & self.values[over].keys())
        if len(common) < 2:
            return None
        pairs = [sign * (self.values[spec][seed] - self.values[over][seed]) for seed in common]
        found = estimate(pairs, ResampledSplits(len(common), *self.splits), self.metric.percent)
        return Gain(found.mean, found.low, found.high)

    def describe(self, spec: str, over: str = "relu") -> str:
        """The gain in words: ``+1.2 [0.9, 1.5] points``."""
        gain = self.gain(spec, over)
        if gain is None:
            return "not compared"
        scale, unit = (100, " points") if self.metric.percent else (1, "")
        digits = max(1, self.format.decimals) if self.metric.percent else self.format.decimals
        mean, low, high = (f"{scale * number:.{digits}f}".replace("-", "−") for number in (gain.mean, gain.low, gain.high))
        return f"{'' if mean.startswith('−') else '+'}{mean} [{low}, {high}]{unit}"

    def _summary(self, spec: str) -> ScoreSummary:
        score = Score(spec, 0, tuple(self.values[spec].values()), self.diverged[spec])
        return summarise(score, self.metric)


@dataclass
class _Group:
    values: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    diverged: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def read_panels(folder: Path = FOLDER) -> list[Panel]:
    """The panels of all CSVs of a folder, by name and size."""
    return [panel for path in sorted(folder.glob("*.csv")) for panel in _panels(path)]


def _panels(path: Path) -> list[Panel]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sizes: dict[str, set[_Size]] = defaultdict(set)
    for row in rows:
        sizes[row["activation"]].add(_size(row))
    groups: dict[tuple[int, ...], list[dict[str, str]]] = defaultdict(list)
    several = any(len(own) > 1 for own in sizes.values())
    budgets = several and any(own & other for own, other in combinations(sizes.values(), 2))
    for row in rows:
        size = _size(row)
        # A study of widths instead of budgets: the smallest networks of all are compared, then the next.
        groups[size if budgets else (sorted(sizes[row["activation"]]).index(size),)].append(row)
    depths = {int(row["depth"]) for row in rows}
    return [_panel(path, _name(own, len(depths) > 1) if len(groups) > 1 else "", own) for _, own in sorted(groups.items())]


_Size = tuple[int, int]


def _size(row: Mapping[str, str]) -> _Size:
    return int(row["depth"]), int(row["parameters"])


def _name(rows: Sequence[Mapping[str, str]], with_depth: bool) -> str:
    """A size in words: its parameters, from the fewest to the most, and its layers."""
    numbers = sorted({int(row["parameters"]) for row in rows})
    short = shorten_numbers(numbers)
    size = " to ".join(dict.fromkeys((short[numbers[0]], short[numbers[-1]])))
    return f"{rows[0]['depth']} layers, {size}" if with_depth else size


def _panel(path: Path, size: str, rows: Sequence[Mapping[str, str]]) -> Panel:
    metrics = {row["metric"] for row in rows}
    if len(metrics) != 1:
        raise ValueError(f"{path.name} has the metrics {', '.join(sorted(metrics))}; one CSV has one")
    split, _, name = metrics.pop().partition("_")
    group = _Group()
    for row in rows:
        spec = row["activation"]
        if int(row["seed"]) in group.values[spec]:
            raise ValueError(f"{path.name} has seed {row['seed']} of {spec} more than once at one size")
        group.seconds[spec].append(float(row["seconds"]))
        if row["value"]:
            group.values[spec][int(row["seed"])] = float(row["value"])
        else:
            group.diverged[spec] += 1
    tested, other = rows[0].get("tested"), rows[0].get("other")
    return Panel(
        study=rows[0]["study"],
        size=size,
        metric=Metric(name=name, split=split),
        values=group.values,
        diverged=group.diverged,
        seconds={spec: fmean(own) for spec, own in group.seconds.items()},
        splits=(int(tested), int(other)) if tested and other else None,
    )


def by_study(panels: Iterable[Panel]) -> dict[str, list[Panel]]:
    """The panels of each data set."""
    found: dict[str, list[Panel]] = {}
    for panel in panels:
        found.setdefault(panel.study, []).append(panel)
    return found


def draw_study(panels: Sequence[Panel]) -> Figure:
    """Every run of a data set a dot, the median of each activation a bar; the best mean is on top."""
    if len(panels) > MOST_PANELS:
        panels = [panels[0], panels[len(panels) // 2], panels[-1]]
    heights = [0.27 * len(panel.ranking) + 0.75 for panel in panels]
    with look():
        figure = Figure(figsize=(5, sum(heights)), dpi=130, layout="constrained")  # so narrow that a phone shows it whole
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for panel, ax in zip(panels, axes, strict=True):
            _draw_panel(panel, ax)
    return figure


def _draw_panel(panel: Panel, ax: Axes) -> None:
    scale = 100 if panel.metric.percent else 1
    drawn = np.random.default_rng(0)
    for place, spec in enumerate(panel.ranking):
        own = scale * np.array(list(panel.values[spec].values()))
        shift = drawn.uniform(-0.24, 0.24, len(own))
        ax.plot(own, place + shift, "o", color=style(spec).colour, markersize=3.5, alpha=0.6, markeredgewidth=0)
        ax.plot([median(own)] * 2, [place - 0.38, place + 0.38], color="black", linewidth=1.6)
    ax.set_yticks(range(len(panel.ranking)), [label(spec) for spec in panel.ranking])
    ax.set_ylim(len(panel.ranking) - 0.45, -0.55)
    ax.grid(axis="x")
    ax.set_title(panel.title)
    ax.set_xlabel(metric_label(panel.metric))


def figure_html(figure: Figure, alt: str, caption: str) -> str:
    """A figure inside the page, with a text for those who do not see it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    # The class and the padding keep the theme from dimming and framing a drawing that is made for white paper.
    css = "max-width:100%;height:auto;padding:0;background:#fff"
    image = f'<img class="dark-light" src="data:image/png;base64,{data}" alt="{escape(alt)}" style="{css}">'
    below = f'<figcaption style="color:#222">{escape(caption)}</figcaption>'
    return f'<figure style="background:#fff;color:#222">{image}{below}</figure>'


def study_alt(panels: Sequence[Panel]) -> str:
    """What a plot of a data set shows, in a sentence for each size."""
    best = [f"{panel.title}: best mean {panel.ranking[0]}, worst {panel.ranking[-1]}" for panel in panels]
    return "Dots of every run by activation, ordered by mean. " + "; ".join(best) + "."


def _table_html(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls by itself where it is wider than the page; the first cell of a row is its heading."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = ""
    for first, *others in rows:
        cells = "".join(f'<td style="white-space:nowrap">{cell}</td>' for cell in others)
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    # A theme leaves the colours of a "dataframe" alone, which keeps it readable in the dark.
    content = f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    table = f'<table class="dataframe table">{content}</table>'
    return f'<div style="overflow-x:auto" tabindex="0" role="region" aria-label="{escape(caption)}">{table}</div>'


def panel_table(panel: Panel) -> str:
    """Rank, mean and gain over ReLU of every activation at one size."""
    rows = []
    for rank, spec in enumerate(panel.ranking, start=1):
        lost = panel.diverged.get(spec, 0)
        runs = f"{len(panel.values[spec])}" + (f" (+{lost} diverged)" if lost else "")
        gain = "–" if spec == "relu" else escape(panel.describe(spec)).removesuffix(" points")
        rows.append((html_name(spec), str(rank), panel.format.number(panel.mean(spec)), gain, runs))
    unit = ", points" if panel.metric.percent else ""
    heads = ("activation", "rank", escape(metric_label(panel.metric)), f"better than ReLU by [95 %{unit}]", "runs")
    return _table_html(panel.title, heads, rows)


def summary_table(panels: Sequence[Panel]) -> str:
    """Rank and gain over ReLU of every activation on every data set; first those that are most often clearly better."""

    def balance(spec: str) -> tuple[int, str]:
        verdicts = [gain.verdict for panel in panels if (gain := panel.gain(spec))]
        return verdicts.count("worse") - verdicts.count("better"), spec

    specs = sorted({spec for panel in panels for spec in panel.ranking}, key=balance)
    rows = [(html_name(spec), *(_summary_cell(panel, spec) for panel in panels)) for spec in specs]
    heads = ("activation", *(f"{escape(panel.title)}{' (points)' if panel.metric.percent else ''}" for panel in panels))
    return _table_html("Rank, and better than ReLU by [95 % interval]", heads, rows)


def _summary_cell(panel: Panel, spec: str) -> str:
    if spec not in panel.ranking:
        return ""
    rank = f"{panel.ranking.index(spec) + 1} of {len(panel.ranking)}"
    gain = panel.gain(spec)
    if gain is None:
        return rank
    text = escape(panel.describe(spec).removesuffix(" points"))
    return f"{rank}<br>{text if gain.verdict == 'undecided' else f'<strong>{text}</strong>'}"


def tally(panels: Sequence[Panel], specs: Iterable[str], over: str = "relu") -> str:
    """Where activations are better than another, worse, or neither, with their gains: up to three Markdown bullets."""
    found: dict[str, dict[str, list[str]]] = {"better": {}, "worse": {}, "undecided": {}}
    for spec in specs:
        for panel in panels:
            gain = panel.gain(spec, over)
            if gain is not None:
                own = found[gain.verdict].setdefault(panel.title, [])
                number = "" if gain.verdict == "undecided" else f" {panel.describe(spec, over).removesuffix(' points')}"
                own.append(f"{paper_name(spec)}{number}")
    words = {"better": "Better than", "worse": "Worse than", "undecided": "Not distinguishable from"}
    lines = [
        f"   - {words[kind]} {paper_name(over)}: " + "; ".join(f"{title} ({', '.join(own)})" for title, own in places.items())
        for kind, places in found.items()
        if places
    ]
    return "\n".join(lines) or f"   - Nothing here has been compared with {paper_name(over)}."
