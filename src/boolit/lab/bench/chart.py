"""The result as a bar chart: times as multiples of relu's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from boolit.lab.bench.bars import time_bars
from boolit.lab.bench.candidates import REFERENCES, Key
from boolit.lab.bench.result import Group, Result
from boolit.lab.errors import UserError
from boolit.lab.reports.figures import label, save, style
from boolit.lab.reports.figures._style import FORMATS, styled

CAPTION = "Time of forward and backward as a multiple of relu's; the black lines are the bars boolit sets itself."
ROW = 0.24  # inches a bar
GREY = "0.75"


def check_file(path: Path) -> None:
    """Refuses a file that cannot be written, before a minute has gone into what it is to show."""
    if path.suffix[1:] not in FORMATS:
        raise UserError(f"cannot draw {str(path)!r}: the ending of a chart's file is one of {', '.join(FORMATS)}")
    if not path.parent.is_dir() or path.is_dir():
        raise UserError(f"cannot draw {str(path)!r}: name a file in a folder that exists")


def draw(result: Result, path: Path) -> None:
    """Writes the chart in the format of the path's ending."""
    try:
        save(chart(result), path, CAPTION)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; choose a file that can be written") from error


@styled
def chart(result: Result) -> Figure:
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


def _draw(panel: Axes, group: Group, names: Sequence[str]) -> None:
    for row, name in enumerate(names):
        if name in group.specs:
            _draw_ours(panel, row, group, name)
        elif (key := Key("torch", name)) in group.timings:
            _draw_bar(panel, row, group.timings[key].ratio(group.timings[Key("torch", "relu")]), GREY)
    panel.axvline(1, color="black", linewidth=0.8, linestyle=":", zorder=0)
    panel.margins(x=0.12)
    panel.grid(axis="x")
    panel.set_title(str(group.case))
    panel.set_xlabel("forward + backward, × relu's time; black: the bar")
    if any(key.maker == "published" for key in group.timings):
        panel.text(1.01, -1, "published", transform=panel.get_yaxis_transform(), va="center", fontsize=7, color="0.4")


def _draw_ours(panel: Axes, row: int, group: Group, spec: str) -> None:
    ratios = group.ratios(spec)
    limits = [
        limit * group.timings[Key("torch", against)].ratio(group.timings[Key("torch", "relu")])
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
