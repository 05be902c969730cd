"""Tables of results: for the terminal, and as HTML, LaTeX, CSV and Markdown.

For people, activations have the names of the paper; in CSV files, and on terminals without subscripts, they have their specs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, cast

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from boolit.errors import UserError
from boolit.lab.common.plugins import Registry
from boolit.lab.results.names import (
    MINUS,
    channels_of,
    format_p,
    latex_escape,
    metric_label,
    paper_name,
    shorten_numbers,
    sort_key,
)
from boolit.lab.results.splits import ONE_SPLIT, Estimate, SplitVerdict
from boolit.lab.results.statistics import ALPHA, COVERAGE, Comparison, ScoreFormat, Summary, score_format, student_p
from boolit.lab.results.store import csv_text
from boolit.lab.runs import Metric

_HIDE_FIRST = ("p (paper)", "effect", "difference", "channels", "n", "parameters", "p vs guessing")  # on a narrow terminal


@dataclass(frozen=True)
class Table:
    """A table of results: one row per activation, with the same rows in three frames.

    Args:
        title: what the table shows.
        text: the cells as they are shown.
        data: the numbers behind them, for CSV and sorting. A column may be followed by others, such as ``p`` and ``p low``.
        marks: ``bold``, ``italic`` and ``underlined``, separated by spaces, for cells of columns that have any.
        notes: how to read the table.
    """

    title: str
    text: pd.DataFrame
    data: pd.DataFrame
    marks: pd.DataFrame
    notes: tuple[str, ...] = ()

    @staticmethod
    def from_frame(title: str, frame: pd.DataFrame, notes: Sequence[str] = ()) -> Table:
        """Return a table of a frame whose index has the names of the rows.

        Example:
            >>> table = Table.from_frame("Seconds", pd.DataFrame({"seconds": [2.51234]}, index=["relu"]))
            >>> table.text.loc["relu", "seconds"]
            '2.512'
        """
        shown = frame.map(lambda value: f"{value:.4g}" if isinstance(value, float) else str(value))
        return Table(title, shown, frame, pd.DataFrame(index=frame.index), tuple(notes))

    # NOTE[paper]: the paper shades cells by value; these tables only mark the best means.
    def mark(self, row: str, column: str) -> str:
        """Return the marks of a cell."""
        return str(self.marks.loc[row, column]) if column in self.marks else ""

    def without_verdict(self) -> Table:
        """Return the table of an unfinished study: no tests, marks or ranking."""
        rows = sorted(self.text.index, key=sort_key)
        tests = [name for name in self.data if re.fullmatch(r"(difference|p|effect)( .*)?", str(name))]
        text, data = (frame.loc[rows].drop(columns=tests, errors="ignore") for frame in (self.text, self.data))
        return Table(f"Unfinished: {self.title}", text, data, pd.DataFrame(index=rows), (*self.notes[:1], COVERAGE))

    def numbers(self) -> pd.DataFrame:
        """Return the unrounded numbers with a column of specs. Shares are not in percent, so no column is named so."""
        return self.data.rename(columns=lambda name: name.replace(" (%)", "")).rename_axis("activation").reset_index()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as JSON values, with unrounded numbers and specs."""
        frame = self.numbers().astype(object)
        unknown = frame.isna() | frame.isin([math.inf, -math.inf])
        return cast("list[dict[str, Any]]", frame.mask(unknown, None).to_dict("records"))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table for a terminal. If it is too wide, details are left out, then errors; at last it is split."""
        text = self.text if options.ascii_only else self.text.rename(index=paper_name)
        for name in _HIDE_FIRST:
            if _width(text) > options.max_width:
                text = text.drop(columns=name, errors="ignore")
        if _width(text) > options.max_width:
            text = text.map(lambda cell: re.sub(r" (±|\[).*", "", cell))
        parts = list(_parts(text, options.max_width))
        for part in parts:
            shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1), title_justify="left", caption_justify="left")
            shown.title = Text(self.title) if part is parts[0] else None
            shown.caption = Text(" ".join(self.notes)) if part is parts[-1] else None
            shown.add_column("activation", no_wrap=True)
            wide = _width(part, str.splitlines) > options.max_width  # then headings wrap between words, which rich does not do
            for column in map(str, part):
                width = _column_width(column, part[column], str.split) if wide else None
                shown.add_column(Text(column), justify="right", overflow="fold", width=width)
            for row, name in zip(self.text.index, part.index, strict=True):
                marks = (self.mark(row, column).replace("underlined", "underline") for column in map(str, part))
                shown.add_row(Text(name), *map(Text, part.loc[name], marks))
            yield shown


def _parts(text: pd.DataFrame, width: int) -> Iterator[pd.DataFrame]:
    """Split a table by its columns so that each part fits into ``width``."""
    start = 0
    for end in range(1, len(text.columns) + 1):
        if end == len(text.columns) or _width(text.iloc[:, start : end + 1]) > width:
            yield text.iloc[:, start:end]
            start = end


def _width(text: pd.DataFrame, split_heading: Callable[[str], list[str]] = str.split) -> int:
    """Return the width at which no cell has to be wrapped; headings may wrap between words."""
    columns = {"activation": text.index, **{str(name): text[name] for name in text}}
    return 1 + sum(3 + _column_width(name, cells, split_heading) for name, cells in columns.items())


def _column_width(heading: str, cells: Iterable[str], split_heading: Callable[[str], list[str]]) -> int:
    return max(map(len, [*split_heading(heading), *cells]))


MakeTable = Callable[[pd.DataFrame], "Table | None"]
TABLES: Registry[MakeTable] = Registry("table", {})


def register(make: MakeTable) -> MakeTable:
    """Add a table to the report of every study: a decorator.

    Args:
        make: a function of the study's frame that returns a `Table`, or None if it does not apply.

    Example:
        >>> from boolit.lab.reports.tables import Table, register
        >>> @register
        ... def longest_run(frame):
        ...     return Table.from_frame("Longest run", frame.groupby("activation")[["seconds"]].max())
        >>> longest_run(pd.DataFrame({"activation": ["relu", "relu"], "seconds": [1.0, 2.5]})).text.loc["relu", "seconds"]
        '2.5'
    """
    return TABLES.add(make.__name__, make)


class _Builder:
    """Columns of a table, added one by one."""

    def __init__(self, rows: Sequence[str]) -> None:
        self.rows = list(rows)
        self.text, self.data, self.marks = (pd.DataFrame(index=self.rows) for _ in range(3))

    def add(self, name: str, texts: Sequence[str], marks: Sequence[str] | None = None, **data: Sequence[Any]) -> None:
        """Add a column; the keywords ``value``, ``low``, … are the numbers behind it."""
        self.text[name] = list(texts)
        for part, values in data.items():
            self.data[name if part == "value" else f"{name} {part.replace('_', ' ')}"] = list(values)
        if marks is not None:
            self.marks[name] = list(marks)

    def add_plain(self, name: str, values: Sequence[str | int | None]) -> None:
        """Add a column whose values are shown as they are; None and 0 are empty cells."""
        self.add(name, [str(value) if value else "" for value in values], value=values)

    def table(self, title: str, *notes: str) -> Table:
        return Table(title, self.text, self.data, self.marks, notes)


def study_tables(comparisons: Sequence[Comparison], title: str, frame: pd.DataFrame | None = None) -> list[Table]:
    """Return the tables of a study: the scores of all sizes if there are several, the tests of each, and registered ones."""
    tables = [score_table(comparisons, title)] if len(comparisons) > 1 else []
    for comparison in comparisons:
        tables.append(comparison_table(comparison, f"{title}, {comparison.label}" if comparison.label else title))
    made = (make(frame) for make in TABLES.registered.values()) if frame is not None else ()
    return [*tables, *(table for table in made if table is not None)]


def ranking(comparisons: Sequence[Comparison]) -> list[str]:
    """Return all activations, ordered as in the last comparison (of the deepest, largest networks) and then the others."""
    return list(dict.fromkeys(s.activation for comparison in reversed(comparisons) for s in comparison.summaries))


def score_table(comparisons: Sequence[Comparison], title: str) -> Table:
    """Return the scores by depth and size."""
    rows = ranking(comparisons)
    builder = _Builder(rows)
    builder.add_plain("channels", [channels_of(row) for row in rows])
    for comparison in comparisons:
        _add_scores(builder, comparison, comparison.label)
        _add_counts(builder, comparison, comparison.label)
    return builder.table(f"{title} by size", *_notes(comparisons))


def comparison_table(comparison: Comparison, title: str) -> Table:
    """Return every activation, the best mean first, with its test against the best."""
    summaries, leader = comparison.summaries, comparison.leader
    builder = _Builder([s.activation for s in summaries])
    builder.add_plain("channels", [channels_of(s.activation) for s in summaries])
    _add_scores(builder, comparison, metric_label(comparison.metric))
    builder.add("n", [str(s.n) for s in summaries], value=[s.n for s in summaries])
    _add_counts(builder, comparison)
    form = score_format(comparison.metric, [s.standard_error for s in summaries])
    pairs = [comparison.pair(leader, s) if s is not leader else None for s in summaries]
    if len(summaries) > 1 and leader.n:
        differences = [(pair.difference, *pair.interval) if pair else None for pair in pairs]
        _add_intervals(builder, "difference", differences, form.number)
        _add_p(builder, "p", [pair.p if pair else None for pair in pairs])
        effects = [pair.effect if pair else None for pair in pairs]
        builder.add("effect", ["" if effect is None else _two_digits(effect) for effect in effects], value=effects)
        _add_p(builder, "p (paper)", [None if s is leader else student_p(leader, s) for s in summaries])
    sizes = shorten_numbers(s.parameters for s in summaries)
    builder.add("parameters", [sizes[s.parameters] for s in summaries], value=[s.parameters for s in summaries])
    pairs_tested = "the only pair" if comparison.pairs == 1 else f"all {comparison.pairs} pairs"
    tested = (
        "Difference: best mean − this, with a simultaneous 95 % interval. p: Welch's t-test with Šidák's correction for "
        f"{pairs_tested} of the study. Effect: Hedges' g. p (paper): the paper's Student's t-test "
        "against the best, not corrected; it decides nothing here."
    )
    return builder.table(title, *_notes([comparison]), *([tested] if "p" in builder.text else []))


def _notes(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    numbers = sorted({s.n for comparison in comparisons for s in comparison.summaries})
    n = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
    marks = f"Bold: best mean. Italic: not significantly different from it (p > {ALPHA:g} after correction, or not tested)."
    return f"Mean ± standard error, n = {n}.", marks, COVERAGE


def _add_scores(builder: _Builder, comparison: Comparison, name: str) -> None:
    form = score_format(comparison.metric, [s.standard_error for s in comparison.summaries])
    summaries = {s.activation: s for s in comparison.summaries}
    shown = [summaries.get(row) for row in builder.rows]
    builder.add(
        name,
        ["" if s is None else form.score(s).removesuffix(form.unit) for s in shown],
        [_marks(comparison, s) for s in shown],
        value=[None if s is None else s.mean for s in shown],
        standard_error=[None if s is None else s.standard_error for s in shown],
    )


def _marks(comparison: Comparison, summary: Summary | None) -> str:
    if summary is None or summary.n == 0 or len(comparison.summaries) == 1:
        return ""
    if summary is comparison.leader:
        return "bold"
    return "" if comparison.p(comparison.leader, summary) <= ALPHA else "italic"


def _add_counts(builder: _Builder, comparison: Comparison, suffix: str = "") -> None:
    """Add the numbers of solved runs, if they are counted, and of diverged runs, if there are any."""
    metric, summaries = comparison.metric, {s.activation: s for s in comparison.summaries}
    shown = [summaries.get(row) for row in builder.rows]
    after = f", {suffix}" if suffix else ""
    if metric.solved is not None:
        threshold = f"{100 * metric.solved:g} %" if metric.percent else f"{metric.solved:g}"
        name = f"solved ({'≥' if metric.goal == 'max' else '≤'} {threshold}){after}"
        builder.add(name, [f"{s.solved}/{s.runs}" if s else "" for s in shown], value=[s and s.solved for s in shown])
    if any(s and s.diverged for s in shown):
        texts = [f"{s.diverged}/{s.runs}" if s and s.diverged else "" for s in shown]
        builder.add(f"diverged{after}", texts, value=[s and s.diverged for s in shown])


def _add_intervals(
    builder: _Builder, name: str, values: Sequence[tuple[float, float, float] | None], write: Callable[[float], str]
) -> None:
    texts = []
    for value in values:
        known = value is not None and not math.isnan(value[1])
        texts.append("" if value is None else write(value[0]) + (f" [{write(value[1])}, {write(value[2])}]" if known else ""))
    columns = zip(*(value or (None, None, None) for value in values), strict=True)
    builder.add(name, texts, **dict(zip(("value", "low", "high"), columns, strict=True)))


def _two_digits(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def _add_p(builder: _Builder, name: str, p: Sequence[float | None]) -> None:
    builder.add(name, ["" if value is None else format_p(value) for value in p], value=p)


# Comparisons on resampled splits


def split_tables(verdict: SplitVerdict, title: str, parameters: Mapping[str, int]) -> list[Table]:
    """Return the scores of activations and baselines, and all pairs if there are more than two activations."""
    if verdict.one_split:
        return [_seed_scores(verdict, title, parameters)]
    tables = [_split_scores(verdict, title, parameters)]
    return [*tables, _split_pairs(verdict, title)] if len(verdict.activations) > 2 else tables


def _coverage(verdict: SplitVerdict) -> str:
    """Return what the intervals and p-values of a comparison on splits cover."""
    rows, pairs = f"{verdict.tested} of {verdict.tested + verdict.others} rows", len(verdict.pairs)
    return (
        f"Means over {verdict.splits} splits, each with its own seed, tested on {rows}. "
        "Intervals (95 %) and p cover the splits, the seeds and the test rows (Nadeau and Bengio's corrected variance); "
        f"differences are paired by split, and p is corrected for all {pairs} pair{'s' * (pairs != 1)} by Holm's method."
    )


def _split_scores(verdict: SplitVerdict, title: str, parameters: Mapping[str, int]) -> Table:
    names, reference, guess = verdict.ranking, verdict.reference, verdict.guess
    builder = _Builder(names)
    marks = ["bold" if name == verdict.leader else "" for name in names]
    estimates = [verdict.estimates[name] for name in names]
    _add_estimates(builder, metric_label(verdict.metric, split=False), estimates, verdict.score_format, marks)
    to_reference = [None if name == reference else verdict.pair(name, reference) for name in names]
    differences = [pair.difference if pair else None for pair in to_reference]
    _add_estimates(builder, f"difference from {paper_name(reference)}", differences, verdict.score_format)
    to_guess = [None if name == guess else verdict.pair(name, guess) for name in names]
    for heading, pairs in (("p", to_reference), ("p vs guessing", to_guess)):
        _add_p(builder, heading, [pair.p_holm if pair else None for pair in pairs])
    builder.add_plain("parameters", [parameters.get(name) for name in names])
    if any(verdict.diverged.values()):
        builder.add_plain("diverged", [verdict.diverged.get(name) for name in names])
    bold = f"Bold: the {verdict.metric.extreme} mean of an activation, which need not be significantly so."
    note = f"{guess}: {verdict.guess_text}, on the same test rows. A diverged run counts as a guess."
    return builder.table(title, _coverage(verdict), bold, note)


def _seed_scores(verdict: SplitVerdict, title: str, parameters: Mapping[str, int]) -> Table:
    form, names = verdict.score_format, verdict.ranking
    builder = _Builder(names)
    means = [verdict.estimates[name].mean for name in names]
    deviations = [stdev(verdict.scores[name]) for name in names]
    texts = [f"{form.number(mean)} ± {form.number(sd)}" for mean, sd in zip(means, deviations, strict=True)]
    builder.add(metric_label(verdict.metric, split=False), texts, value=means, sd=deviations)
    builder.add_plain("parameters", [parameters.get(name) for name in names])
    return builder.table(title, f"Mean ± standard deviation over {verdict.splits} seeds.", ONE_SPLIT)


def _split_pairs(verdict: SplitVerdict, title: str) -> Table:
    pairs = verdict.pairs
    builder = _Builder([f"{pair.first}{MINUS}{pair.second}" for pair in pairs])
    marks = ["bold" if pair.p_holm <= ALPHA else "" for pair in pairs]
    _add_estimates(builder, "difference [95 % interval]", [pair.difference for pair in pairs], verdict.score_format, marks)
    _add_p(builder, "p", [pair.p_holm for pair in pairs])
    _add_p(builder, "p, uncorrected", [pair.p for pair in pairs])
    return builder.table(
        f"{title}: all pairs", "Intervals are of each difference alone. Bold: significant after the correction."
    )


def _add_estimates(
    builder: _Builder, name: str, estimates: Sequence[Estimate | None], form: ScoreFormat, marks: Sequence[str] | None = None
) -> None:
    _add_intervals(builder, name, [(e.mean, e.low, e.high) if e else None for e in estimates], form.number)
    if marks is not None:
        builder.marks[name] = list(marks)


# Searches


def search_table(frame: pd.DataFrame, metric: Metric, names: Sequence[str], title: str) -> Table:
    """Return the settings of a search's final, the best of each activation first; a diverged run counts as the worst.

    Args:
        frame: the final's runs, with a column for each searched hyper-parameter.
        metric: the metric that chose the settings.
        names: the searched hyper-parameters.
        title: the table's title.
    """
    values = frame[metric.key].where(frame["state"] == "finished")
    frame = frame.assign(value=values.fillna(values.min() if metric.goal == "max" else values.max()))
    grouped = frame.groupby(["activation", *names], dropna=False)
    settings = grouped.agg(
        mean=("value", "mean"), seeds=("value", "size"), diverged=("state", lambda s: (s == "diverged").sum())
    )
    settings = settings.reset_index().sort_values("mean", ascending=metric.goal == "min", kind="stable")
    first = {spec: place for place, spec in enumerate(dict.fromkeys(settings["activation"]))}
    settings = settings.sort_values("activation", key=lambda column: column.map(first), kind="stable")
    form = ScoreFormat(metric.percent, 2 if metric.percent else 4)
    ranks = settings.groupby("activation").cumcount() + 1
    builder = _Builder(
        [f"{spec} #{rank}" if rank > 1 else spec for spec, rank in zip(settings["activation"], ranks, strict=True)]
    )
    columns = {name: settings[name].tolist() for name in settings}
    builder.add(metric_label(metric), [form.number(mean) for mean in columns["mean"]], value=columns["mean"])
    for name in ("seeds", "diverged"):
        builder.add(name, [str(count) for count in columns[name]], value=columns[name])
    for name in names:
        builder.add(name.replace("_", " "), [f"{value:.7g}" for value in columns[name]], value=columns[name])
    note = "Means over the seeds of each setting, on the rows that chose it: they say nothing about new rows."
    return builder.table(
        title, note, "A diverged run counts as the worst that did not. #2 is an activation's second-best setting."
    )


# Formats


def _cells(table: Table, markup: str, escape: Callable[[str], str], wrappers: Mapping[str, str]) -> pd.DataFrame:
    """Return the text of a table with names in a markup, escaped, and with each marked cell inside its wrappers."""
    cells = table.text.map(escape)
    for column in map(str, table.marks):
        for row in cells.index[cells[column] != ""]:
            for mark in table.mark(row, column).split():
                cells.loc[row, column] = wrappers[mark].format(cells.loc[row, column])
    return cells.rename(columns=escape, index=lambda row: paper_name(row, markup))


def to_csv(table: Table) -> str:
    """Return CSV with unrounded numbers and specs."""
    return csv_text(table.numbers())


def to_latex(table: Table) -> str:
    """Return the table in LaTeX, using the package booktabs."""
    wrappers = {"bold": r"\textbf{{{}}}", "italic": r"\textit{{{}}}", "underlined": r"\underline{{{}}}"}
    cells = _cells(table, "latex", latex_escape, wrappers)
    caption = latex_escape(" ".join([f"{table.title}.", *table.notes]))
    columns = "l" + "r" * cells.shape[1]
    return str(cells.style.to_latex(hrules=True, caption=caption, column_format=columns, position_float="centering"))


def to_markdown(table: Table) -> str:
    """Return GitHub's Markdown."""
    wrappers = {"bold": "**{}**", "italic": "*{}*", "underlined": "<u>{}</u>"}
    cells = _cells(table, "text", _markdown_escape, wrappers)
    rows = [["activation", *cells.columns], ["---", *["---:"] * cells.shape[1]]]
    rows += [[_markdown_escape(str(name)), *texts] for name, *texts in cells.itertuples()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"**{_markdown_escape(table.title)}**", "", *lines, "", _markdown_escape(" ".join(table.notes)), ""])


def _markdown_escape(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text)


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "latex": to_latex, "markdown": to_markdown}


def render(table: Table, format: str) -> str:  # noqa: A002
    """Return a table in one of `FORMATS`."""
    if format not in FORMATS:
        raise UserError(f"tables are written as {', '.join(FORMATS)}, not {format!r}")
    return FORMATS[format](table)
