"""A result in tables of plain text, and as a bar chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from boolit.lab.bench import MET, MISSED
from boolit.lab.bench.result import CALL, GatesResult, Ratio, TimingGroup, time_bars
from boolit.lab.bench.settings import REFERENCES, CandidateKey
from boolit.lab.common.errors import UserError
from boolit.lab.reports.figures.style import FORMATS, save, style, styled
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
    ours = f"boolit's kernels {stamp['kernels_instructions']}" if stamp["kernels_active"] else "boolit by formula (no kernels)"
    return (
        f"{stamp['cpu']}, threads: {stamp['threads']}; torch {stamp['torch']} {stamp['torch_instructions']}, {ours}; "
        f"{str(settings.dtype).removeprefix('torch.')}, least of {settings.repeats} rounds"
    )


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
    return _with_verdict(f"{text} {bar}".rstrip(), ratio.met)


def _with_verdict(text: str, met: bool | None) -> str:
    return text if met is None else f"{text} {MET if met else MISSED}"


def _calls(result: GatesResult) -> BenchTable:
    groups = [group for group in result.groups if group.call]
    rows = [[spec, *_kept(result, spec), *(_call(group, spec) for group in groups)] for spec in result.settings.specs]
    references = [_reference(result, groups, name) for name in REFERENCES]
    short = [f"{group.style}: fwd" if group.direction == "forward" else "fwd+bwd" for group in groups]
    title = f"Bytes kept for backward per input element; and an 8×8 call × relu's (≤{CALL:g})"
    return BenchTable(title, ["spec", "kept", "published", *short], rows, references)


def _call(group: TimingGroup, spec: str) -> str:
    if spec not in group.specs:
        return "–"
    ratio = group.ratios(spec)["relu"]
    return _with_verdict(_digits(ratio.value), ratio.met)


def _kept(result: GatesResult, spec: str) -> tuple[str, str]:
    most, bar = result.worst_kept(CandidateKey("boolit", spec)), result.kept_bar(spec)
    assert most is not None  # our own are never left out
    ours = f"{most:.4g}" if bar is None else _with_verdict(f"{most:.4g} ≤{bar:.4g}", most <= bar)
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


# The result as a bar chart: times as multiples of relu's.

CAPTION = "Time of forward and backward as a multiple of relu's; the black lines are the bars boolit sets itself."
ROW = 0.24  # inches a bar
GREY = "0.75"


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
    """One panel a tensor: our specs, then what they are compared with; at the right, how much slower the published ones are."""
    groups = [group for group in result.groups if not group.call and group.direction == "forward+backward"]
    names = [*groups[0].specs, *(name for name in REFERENCES if name not in groups[0].specs)]
    figure = Figure(figsize=(1.6 + 4.2 * len(groups), 1.1 + ROW * len(names)), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
    for panel, group in zip(panels, groups, strict=True):
        _draw(panel, group, names)
    panels[0].set_yticks(range(len(names)), [label(name) for name in names])
    panels[0].invert_yaxis()
    return figure


def _draw(panel: Axes, group: TimingGroup, names: Sequence[str]) -> None:
    for row, name in enumerate(names):
        if name in group.specs:
            _draw_ours(panel, row, group, name)
        elif (key := CandidateKey("torch", name)) in group.timings:
            _draw_bar(panel, row, group.timings[key].ratio(group.timings[CandidateKey("torch", "relu")]), GREY)
    panel.axvline(1, color="black", linewidth=0.8, linestyle=":", zorder=0)
    panel.margins(x=0.12)
    panel.grid(axis="x")
    panel.set_title(str(group.case))
    panel.set_xlabel("forward + backward, × relu's time; black: the bar")
    if any(key.maker == "published" for key in group.timings):
        panel.text(1.01, -1, "published", transform=panel.get_yaxis_transform(), va="center", fontsize=7, color="0.4")


def _draw_ours(panel: Axes, row: int, group: TimingGroup, spec: str) -> None:
    ratios = group.ratios(spec)
    limits = [
        limit * group.timings[CandidateKey("torch", against)].ratio(group.timings[CandidateKey("torch", "relu")])
        for against, limit in time_bars(spec).items()
        if against in ratios and against in REFERENCES
    ]
    _draw_bar(panel, row, ratios["relu"].value, style(spec).colour, max(limits, default=0))
    for limit in limits:
        panel.plot([limit, limit], [row - 0.45, row + 0.45], color="black", linewidth=1.5)
    if "published" in ratios:
        times = f"{1 / ratios['published'].value:.0f}× ours"
        panel.text(1.01, row, times, transform=panel.get_yaxis_transform(), va="center", fontsize=7, color="0.4")


def _draw_bar(panel: Axes, row: int, ratio: float, colour: str, limit: float = 0) -> None:
    panel.barh(row, ratio, height=0.7, color=colour)
    place = (max(ratio, limit), row)  # beyond the line of its bar, too
    panel.annotate(f"{ratio:.2f}", place, (4, 0), textcoords="offset points", va="center", fontsize=7)
