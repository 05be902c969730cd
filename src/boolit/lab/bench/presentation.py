"""A result in tables of plain text, and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from boolit.errors import UserError
from boolit.lab.bench import MET, MISSED
from boolit.lab.bench.result import CALLS, GatesResult, Ratio, TimingGroup, time_bars
from boolit.lab.bench.settings import REFERENCES, CandidateKey
from boolit.lab.paper.figures.look import FORMATS, save, styled
from boolit.lab.reports.style import style
from boolit.lab.results.names import label

INVERTED = ("published", "compiled")  # compared the other way round: how many times faster we are
BUSY = 0.1  # a disturbance from which on the times are not to be trusted


@dataclass(frozen=True)
class BenchTable:
    """Rows of as many cells as there are headings; ``references`` are the rows of what we compare with."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    references: Sequence[Sequence[str]]


def headline(result: GatesResult) -> str:
    """Machine, software and settings in a line or two."""
    stamp, settings = result.stamp, result.settings
    rounds = f"{str(settings.dtype).removeprefix('torch.')}, least of {settings.repeats} rounds"
    if settings.device.type != "cpu":
        ours = f"kernels by {stamp['gpu_kernels']}" if stamp["gpu_kernels_active"] else "formulas (no kernels)"
        return f"{stamp['device']}; torch {stamp['torch']}, boolit's {ours}; {rounds}"
    ours = f"boolit's kernels {stamp['kernels_instructions']}" if stamp["kernels_active"] else "boolit by formula (no kernels)"
    where = f"{stamp['cpu']}, threads: {stamp['threads']}; torch {stamp['torch']} {stamp['torch_instructions']}"
    return f"{where}, {ours}; {rounds}"


def tables(result: GatesResult) -> list[BenchTable]:
    """One a tensor and direction, and one for what every call costs."""
    return [*(_times(group) for group in result.groups if not group.call), _calls(result)]


def remarks(result: GatesResult) -> list[str]:
    """What was left out, and whether the times are to be trusted."""
    reasons: dict[str, list[str]] = {}
    for name, reason in result.skipped.items():
        reasons.setdefault(reason, []).append(name)
    lines = [f"left out: {', '.join(names)} ({reason})" for reason, names in reasons.items()]
    disturbance = result.disturbance()
    if disturbance > BUSY:
        lines.append(
            f"the machine was busy: ratios of minima and median ratios are {disturbance:.0%} apart; run again when it is idle"
        )
    return lines


def _times(group: TimingGroup) -> BenchTable:
    names = [name for name in (*REFERENCES, *INVERTED) if any(name in group.ratios(spec) for spec in group.specs)]
    rows = []
    for spec in group.specs:
        ratios = group.ratios(spec)
        cells = [_cell(ratios[name]) if name in ratios else "–" for name in names]
        rows.append([spec, *_milliseconds(group, CandidateKey("boolit", spec)), *cells])
    references = [
        [name, *_milliseconds(group, key), *("" for _ in names)]
        for name in REFERENCES
        if (key := CandidateKey("torch", name)) in group.timings
    ]
    headings = ["spec", "ms", "median", *names]
    return BenchTable(f"{group.case}: {group.direction}", headings, rows, references)


def _milliseconds(group: TimingGroup, key: CandidateKey) -> tuple[str, str]:
    timing = group.timings[key]
    return _digits(timing.minimum * 1e3), _digits(timing.median * 1e3)


def _cell(ratio: Ratio) -> str:
    """The ratio, its bar and whether it is met: ``0.45 ≤0.7 ✓``, or how many times faster: ``41× ≥20 ✓``."""
    if ratio.against in INVERTED:
        text, bar = f"{_digits(1 / ratio.value)}×", "" if ratio.bar is None else f"≥{1 / ratio.bar:g}"
    else:
        text, bar = _digits(ratio.value), "" if ratio.bar is None else f"≤{ratio.bar:g}"
    return with_verdict(f"{text} {bar}".rstrip(), ratio.met)


def with_verdict(text: str, met: bool | None) -> str:
    return text if met is None else f"{text} {MET if met else MISSED}"


def _calls(result: GatesResult) -> BenchTable:
    groups = [group for group in result.groups if group.call]
    rows = [[spec, *_kept(result, spec), *(_call(group, spec) for group in groups)] for spec in result.settings.specs]
    references = [_reference(result, groups, name) for name in REFERENCES]
    short = [f"{group.style}: fwd" if group.direction == "forward" else "fwd+bwd" for group in groups]
    bars = " and ".join(f"≤{bar:g}" for bar in CALLS.values())
    title = f"Bytes kept for backward per input element; and an 8×8 call × relu's (functions: {bars})"
    return BenchTable(title, ["spec", "kept", "published", *short], rows, references)


def _call(group: TimingGroup, spec: str) -> str:
    if spec not in group.specs:
        return "–"
    ratio = group.ratios(spec)["relu"]
    return with_verdict(_digits(ratio.value), ratio.met)


def _kept(result: GatesResult, spec: str) -> tuple[str, str]:
    most, bar = result.worst_kept(CandidateKey("boolit", spec)), result.kept_bar(spec)
    assert most is not None  # our own are never left out
    ours = f"{most:.4g}" if bar is None else with_verdict(f"{most:.4g} ≤{bar:.4g}", most <= bar)
    theirs = result.worst_kept(CandidateKey("published", spec))
    return ours, "–" if theirs is None else f"{theirs:.4g}"


def _reference(result: GatesResult, groups: Sequence[TimingGroup], name: str) -> list[str]:
    """The references' own times, in microseconds."""
    key = CandidateKey("torch", name)
    most = result.worst_kept(key)
    times = [f"{_digits(group.timings[key].minimum * 1e6)} µs" for group in groups]
    return [name, "–" if most is None else f"{most:.4g}", "", *times]


def _digits(value: float) -> str:
    """Three significant digits or two decimals, whichever is shorter: 0.45, 1.23, 14.6, 103."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


# The result as a chart: times as multiples of ReLU's.

CAPTION = (
    "Time of forward and backward as a multiple of ReLU's, on a logarithmic axis, the fastest first; the black lines are the "
    "limits boolit sets itself."
)
ROW = 0.25  # inches a name
GREY = "0.45"
RELU = CandidateKey("torch", "relu")
LEGEND = OURS, TORCH, PUBLISHED, LIMIT = "boolit", "torch", "published package", "limit boolit sets itself"


def check_file(path: Path) -> None:
    """Refuses a file that cannot be written, before a minute has gone into what it is to show."""
    if path.suffix[1:] not in FORMATS:
        raise UserError(f"cannot draw {str(path)!r}: the ending of a chart's file is one of {', '.join(FORMATS)}")
    if not path.parent.is_dir() or path.is_dir():
        raise UserError(f"cannot draw {str(path)!r}: name a file in a folder that exists")


def draw(result: GatesResult, path: Path) -> None:
    """Writes the chart in the format of the path's ending."""
    try:
        save(chart(result), path, CAPTION)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose a file that can be written") from error


@styled
def chart(result: GatesResult) -> Figure:
    """One panel a tensor, the fastest on top: ours, torch's, and on our rows the published package where it has the spec."""
    groups = [group for group in result.groups if not group.call and group.direction == "forward+backward"]
    names = _fastest_first(groups)
    figure = Figure(figsize=(1.8 + 3.4 * len(groups), 1.3 + ROW * len(names)), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, len(groups), squeeze=False, sharex=True, sharey=True)[0]
    for panel, group in zip(panels, groups, strict=True):
        _draw(panel, group, names)
    panels[0].set_yticks(range(len(names)), [label(name) for name in names])
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    handles = {name: handle for panel in panels for handle, name in zip(*panel.get_legend_handles_labels(), strict=True)}
    named = [name for name in LEGEND if name in handles]
    figure.legend([handles[name] for name in named], named, loc="outside lower center", ncols=len(named))
    return figure


def _fastest_first(groups: Sequence[TimingGroup]) -> list[str]:
    """Our specs and the references by the geometric mean of their times over the tensors, which no unit changes."""
    times: dict[str, list[float]] = {}
    for group in groups:
        for key, timing in group.timings.items():
            if key.maker in ("boolit", "torch") and not (key.maker == "torch" and key.name in group.specs):
                times.setdefault(key.name, []).append(timing.ratio(group.timings[RELU]))
    return sorted(times, key=lambda name: geometric_mean(times[name]))


def _draw(panel: Axes, group: TimingGroup, names: Sequence[str]) -> None:
    relu = group.timings[RELU]
    for row, name in enumerate(names):
        published = group.timings.get(CandidateKey("published", name))
        if name in group.specs:
            limit = _draw_limits(panel, row, group, name)
            _draw_time(panel, row, group.ratios(name)["relu"].value, style(name).color, "o", OURS, limit=limit)
        elif (key := CandidateKey("torch", name)) in group.timings:
            _draw_time(panel, row, group.timings[key].ratio(relu), GREY, "s", TORCH)
        if published is not None:
            _draw_time(panel, row, published.ratio(relu), GREY, "D", PUBLISHED, face="white")
    panel.axvline(1, color="0.2", linewidth=1, linestyle="--", zorder=0)
    panel.set_xscale("log")
    panel.margins(x=0.14)
    panel.xaxis.set_major_locator(LogLocator(10, subs=(1, 3)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(visible=True)
    panel.set_title(str(group.case))
    panel.set_xlabel("forward + backward, as a multiple of ReLU's time")


def _draw_limits(panel: Axes, row: int, group: TimingGroup, spec: str) -> float:
    """Draws the limits on the time of a spec, and returns the largest, or 0 if it has none."""
    largest = 0.0
    for against, limit in time_bars(spec, len(group.case.shape)).items():
        if against in REFERENCES and against in group.ratios(spec):
            place = limit * group.timings[CandidateKey("torch", against)].ratio(group.timings[RELU])
            height = [row - 0.42, row + 0.42]
            panel.plot([place, place], height, color="black", linewidth=1.6, zorder=1.5, label=LIMIT)
            largest = max(largest, place)
    return largest


def _draw_time(
    panel: Axes, row: int, ratio: float, colour: str, marker: str, name: str, face: str = "", limit: float = 0.0
) -> None:
    """A time and its number, which is beyond the line of its limit, too."""
    panel.plot([ratio], [row], marker, color=colour, markerfacecolor=face or colour, markersize=6.5, label=name)
    number, place = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}", (max(ratio, limit), row)
    beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 7.5}
    panel.annotate(number, place, (7, 0), bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}, **beside)
