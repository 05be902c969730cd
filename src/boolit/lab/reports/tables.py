"""Tables of results: for the terminal, and as HTML, LaTeX, CSV and Markdown.

For people, activations have the names of the paper; in CSV files, and on terminals without subscripts, they have their specs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from boolit.errors import UserError
from boolit.lab.common.files import csv_cell
from boolit.lab.results.names import (
    format_p,
    latex_escape,
    latex_name,
    map_of,
    metric_label,
    paper_name,
    shorten_numbers,
    sort_key,
)
from boolit.lab.results.splits import ONE_SPLIT, Estimate, SplitVerdict
from boolit.lab.results.statistics import ALPHA, COVERAGE, Comparison, ScoreFormat, Summary, score_format, student_p
from boolit.lab.runs import Metric

MINUS = " − "  # between the activations of a row that is a difference
_HIDE_FIRST = ("p (paper)", "effect", "difference", "map", "n", "parameters", "p vs guessing")  # on a narrow terminal
_WRAPPERS = {"bold": "textbf", "italic": "textit", "underlined": "underline"}


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
        return Table(title, shown, frame, _no_marks(frame), tuple(notes))

    def mark(self, row: str, column: str) -> str:
        """Return the marks of a cell."""
        return str(self.marks.loc[row, column]) if column in self.marks else ""

    def without_verdict(self) -> Table:
        """Return the table of an unfinished study: no tests, marks or ranking."""
        rows = sorted(self.text.index, key=sort_key)
        tests = [name for name in self.data if re.fullmatch(r"(difference|p|effect)( .*)?", str(name))]
        text, data = (frame.loc[rows].drop(columns=tests, errors="ignore") for frame in (self.text, self.data))
        return Table(f"Unfinished: {self.title}", text, data, _no_marks(text), (*self.notes[:1], COVERAGE))


def _no_marks(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(index=frame.index)


MakeTable = Callable[[pd.DataFrame], "Table | None"]
_REGISTERED: dict[str, MakeTable] = {}


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
    _REGISTERED[make.__name__] = make
    return make


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
    made = (make(frame) for make in _REGISTERED.values()) if frame is not None else ()
    return [*tables, *(table for table in made if table is not None)]


def ranking(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the activations in the order of the last comparison, the deepest and largest; others follow."""
    return list(dict.fromkeys(s.activation for comparison in reversed(comparisons) for s in comparison.summaries))


def score_table(comparisons: Sequence[Comparison], title: str) -> Table:
    """Return the scores by depth and size."""
    rows = ranking(comparisons)
    builder = _Builder(rows)
    builder.add_plain("map", [map_of(row) for row in rows])
    for comparison in comparisons:
        _add_scores(builder, comparison, comparison.label)
        _add_counts(builder, comparison, comparison.label)
    return builder.table(f"{title} by size", *_notes(comparisons))


def comparison_table(comparison: Comparison, title: str) -> Table:
    """Return every activation, the best mean first, with its test against the best."""
    summaries, leader = comparison.summaries, comparison.leader
    builder = _Builder([s.activation for s in summaries])
    builder.add_plain("map", [map_of(s.activation) for s in summaries])
    _add_scores(builder, comparison, metric_label(comparison.metric))
    builder.add("n", [str(s.n) for s in summaries], value=[s.n for s in summaries])
    _add_counts(builder, comparison)
    form = score_format(comparison.metric, [s.standard_error for s in summaries])
    pairs = [comparison.pair(leader, s) if s is not leader else None for s in summaries]
    if len(summaries) > 1 and leader.n:
        differences = [(pair.difference, *pair.interval) if pair else None for pair in pairs]
        _add_intervals(builder, "difference", differences, form.number)
        p = [pair.p if pair else None for pair in pairs]
        builder.add("p", [_p_text(value) for value in p], value=p)
        _add_intervals(
            builder, "effect", [(pair.effect, *pair.effect_interval) if pair else None for pair in pairs], _two_digits
        )
        paper = [None if s is leader else student_p(leader, s) for s in summaries]
        builder.add("p (paper)", [_p_text(value) for value in paper], value=paper)
    sizes = shorten_numbers(s.parameters for s in summaries)
    builder.add("parameters", [sizes[s.parameters] for s in summaries], value=[s.parameters for s in summaries])
    tested = (
        "Difference: best mean − this, with a simultaneous 95 % interval. p: Welch's t-test with Šidák's correction for all "
        f"{comparison.pairs} pairs of the study. Effect: Hedges' g [95 % interval]. p (paper): the paper's Student's t-test "
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
        ["" if s is None else _marks(comparison, s) for s in shown],
        value=[None if s is None else s.mean for s in shown],
        standard_error=[None if s is None else s.standard_error for s in shown],
    )


def _marks(comparison: Comparison, summary: Summary) -> str:
    leader = comparison.leader
    if summary.n == 0 or len(comparison.summaries) == 1:
        return ""
    if summary is leader:
        return "bold"
    p = comparison.p(leader, summary)
    return "" if p <= ALPHA else "italic"


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


def _p_text(p: float | None) -> str:
    return "" if p is None else format_p(p)


# Comparisons on resampled splits


def split_tables(verdict: SplitVerdict, title: str, parameters: Mapping[str, int]) -> list[Table]:
    """Return the scores of activations and baselines, and all pairs if there are more than two activations."""
    if verdict.one_split:
        return [_seed_scores(verdict, title, parameters)]
    tables = [_split_scores(verdict, title, parameters)]
    return [*tables, _split_pairs(verdict, title)] if len(verdict.activations) > 2 else tables


def coverage(verdict: SplitVerdict) -> str:
    """Return what the intervals and p-values of a comparison on splits cover."""
    splits, pairs = verdict.comparison.splits, len(verdict.comparison.pairs)
    return (
        f"Means over {splits.number} random splits, each with its own seed, tested on {splits.tested} of {splits.rows} rows. "
        "Intervals (95 %) and p cover the splits, the seeds and the test rows (Nadeau and Bengio's corrected variance); "
        f"differences are paired by split, and p is corrected for all {pairs} pair{'s' * (pairs != 1)} by Holm's method."
    )


def _split_scores(verdict: SplitVerdict, title: str, parameters: Mapping[str, int]) -> Table:
    comparison, form, reference = verdict.comparison, verdict.score_format, verdict.reference
    builder, names = _Builder(comparison.ranking), comparison.ranking
    marks = ["bold" if name == verdict.leader else "" for name in names]
    _add_estimates(
        builder, metric_label(comparison.metric, split=False), [comparison.estimates[name] for name in names], form, marks
    )
    to_reference = [None if name == reference else comparison.pair(name, reference) for name in names]
    _add_estimates(
        builder, f"difference from {paper_name(reference)}", [pair.difference if pair else None for pair in to_reference], form
    )
    to_guess = [None if name == verdict.guess else comparison.pair(name, verdict.guess) for name in names]
    for heading, pairs in (("p", to_reference), ("p vs guessing", to_guess)):
        p = [pair.p_holm if pair else None for pair in pairs]
        builder.add(heading, [_p_text(value) for value in p], value=p)
    builder.add_plain("parameters", [parameters.get(name) for name in names])
    if any(verdict.diverged.values()):
        builder.add_plain("diverged", [verdict.diverged.get(name) for name in names])
    bold = f"Bold: the {verdict.extreme} mean of an activation, which need not be significantly so."
    guess = f"{verdict.guess}: {verdict.guess_text}, on the same test rows. A diverged run counts as a guess."
    return builder.table(title, coverage(verdict), bold, guess)


def _seed_scores(verdict: SplitVerdict, title: str, parameters: Mapping[str, int]) -> Table:
    comparison, form, names = verdict.comparison, verdict.score_format, verdict.comparison.ranking
    builder = _Builder(names)
    means = [comparison.estimates[name].mean for name in names]
    deviations = [stdev(comparison.scores[name]) for name in names]
    texts = [f"{form.number(mean)} ± {form.number(sd)}" for mean, sd in zip(means, deviations, strict=True)]
    builder.add(metric_label(comparison.metric, split=False), texts, value=means, sd=deviations)
    builder.add_plain("parameters", [parameters.get(name) for name in names])
    return builder.table(title, f"Mean ± standard deviation over {comparison.splits.number} seeds.", ONE_SPLIT)


def _split_pairs(verdict: SplitVerdict, title: str) -> Table:
    comparison, order = verdict.comparison, verdict.comparison.ranking
    pairs = [comparison.pair(a, b) for place, a in enumerate(order) for b in order[place + 1 :]]
    builder = _Builder([f"{pair.first}{MINUS}{pair.second}" for pair in pairs])
    marks = ["bold" if pair.p_holm <= ALPHA else "" for pair in pairs]
    _add_estimates(builder, "difference [95 % interval]", [pair.difference for pair in pairs], verdict.score_format, marks)
    builder.add("p", [format_p(pair.p_holm) for pair in pairs], value=[pair.p_holm for pair in pairs])
    builder.add("p, uncorrected", [format_p(pair.p) for pair in pairs], value=[pair.p for pair in pairs])
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
        builder.add(name.replace("_", " "), [f"{value:.3g}" for value in columns[name]], value=columns[name])
    note = "Means over the seeds of each setting, on the rows that chose it: they say nothing about new rows."
    return builder.table(
        title, note, "A diverged run counts as the worst that did not. #2 is an activation's second-best setting."
    )


# Formats


def _names(text: str, write: Callable[[str], str], other: Callable[[str], str] = str) -> str:
    """Write the specs in the name of a row."""
    return other(MINUS).join(write(part) for part in text.split(MINUS))


def to_csv(table: Table) -> str:
    """Return CSV with unrounded numbers and specs."""
    columns = {str(name).replace(" (%)", ""): table.data[name] for name in table.data}
    frame = pd.DataFrame(columns, index=table.data.index).rename_axis("activation").reset_index()
    texts = frame.select_dtypes(["object", "string"]).columns
    cells = {name: frame[name].astype(object).map(csv_cell) for name in texts}
    return str(frame.assign(**cells).to_csv(index=False, lineterminator="\n"))


def to_latex(table: Table) -> str:
    """Return LaTeX for the package booktabs."""
    shown = table.text.map(latex_escape)
    css = pd.DataFrame("", index=shown.index, columns=shown.columns)
    for column in map(str, table.marks):
        for row in shown.index:
            if shown.loc[row, column]:
                css.loc[row, column] = "".join(f"{_WRAPPERS[mark]}:--rwrap;" for mark in table.mark(row, column).split())
    styler = shown.style.apply(lambda _: css, axis=None)
    styler = styler.format_index(lambda name: _names(str(name), latex_name, latex_escape), axis=0)
    styler = styler.format_index(lambda name: latex_escape(str(name)), axis=1)
    caption = latex_escape(" ".join([f"{table.title}.", *table.notes]))
    return str(
        styler.to_latex(hrules=True, caption=caption, column_format="l" + "r" * shown.shape[1], position_float="centering")
    )


def to_markdown(table: Table) -> str:
    """Return GitHub's Markdown."""
    wrappers = {"bold": "**{}**", "italic": "*{}*", "underlined": "<u>{}</u>"}

    def cell(row: str, column: str) -> str:
        text = _markdown_escape(str(table.text.loc[row, column]))
        for mark in table.mark(row, column).split() if text else ():
            text = wrappers[mark].format(text)
        return text

    columns = [str(name) for name in table.text]
    lines = [f"**{_markdown_escape(table.title)}**", "", _line(["activation", *map(_markdown_escape, columns)])]
    lines += [_line(["---", *["---:"] * len(columns)])]
    lines += [
        _line([_markdown_escape(_names(row, paper_name)), *(cell(row, name) for name in columns)]) for row in table.text.index
    ]
    return "\n".join([*lines, "", _markdown_escape(" ".join(table.notes))]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_escape(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text)


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "latex": to_latex, "markdown": to_markdown}


def render(table: Table, format: str) -> str:  # noqa: A002
    """Return a table in one of `FORMATS`, or as HTML."""
    if format == "html":
        from boolit.lab.reports.page import html_table

        return html_table(table)
    if format not in FORMATS:
        raise UserError(f"tables are written as {', '.join([*FORMATS, 'html'])}, not {format!r}")
    return FORMATS[format](table)


@dataclass(frozen=True)
class TerminalTable:
    """A table for a rich console. If it is too wide, details are left out, and then what follows each ±."""

    table: Table
    width: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table if options.ascii_only else self._with_paper_names()
        width = self.width or options.max_width
        for name in _HIDE_FIRST:
            if _width(table) <= width:
                break
            table = replace(table, text=table.text.drop(columns=name, errors="ignore"))
        if _width(table) > width:
            table = replace(table, text=table.text.map(lambda text: re.sub(r" (±|\[).*", "", text)))
        shown = RichTable(title=Text(table.title), caption=Text(" ".join(table.notes)), box=box.SIMPLE_HEAD, padding=(0, 1))
        shown.title_justify = shown.caption_justify = "left"
        shown.add_column("activation", no_wrap=True)
        columns = [str(column) for column in table.text]
        natural = 2 + sum(3 + max([len(name), *table.text[name].str.len()]) for name in columns) + _row_width(table)
        table_is_wide = natural > width  # then headings wrap between words, which rich does not do by itself
        for column in columns:
            fixed = _column_width(table, column) if table_is_wide else None
            shown.add_column(Text(column), justify="right", overflow="fold", width=fixed)
        for row in table.text.index:
            shown.add_row(Text(row), *(self._cell(table, row, column) for column in columns))
        yield shown

    def _with_paper_names(self) -> Table:
        text, marks = (frame.rename(index=lambda row: _names(row, paper_name)) for frame in (self.table.text, self.table.marks))
        return replace(self.table, text=text, marks=marks)

    @staticmethod
    def _cell(table: Table, row: str, column: str) -> Text:
        marks = table.mark(row, column).split()
        style = Style(bold="bold" in marks or None, italic="italic" in marks or None, underline="underlined" in marks or None)
        return Text(str(table.text.loc[row, column]), style=style)


def terminal_table(table: Table, width: int | None = None) -> TerminalTable:
    """Return a table for a rich console of a width; 80 columns are enough for the tables of every study."""
    return TerminalTable(table, width)


def _width(table: Table) -> int:
    """Return the width at which no cell has to be wrapped; headings may wrap between words."""
    return 2 + sum(width + 3 for width in [*(_column_width(table, str(name)) for name in table.text), _row_width(table)])


def _column_width(table: Table, name: str) -> int:
    return max([len(word) for word in name.split()] + table.text[name].str.len().tolist())


def _row_width(table: Table) -> int:
    return max([len("activation"), *(len(row) for row in table.text.index)])
