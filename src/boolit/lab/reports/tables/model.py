"""A table of results, independent of its format: cells, columns, and which of them are marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scipy import stats

from boolit.lab.results.names import metric_label, shorten_numbers
from boolit.lab.results.scores import ScoreFormat, ScoreSummary, format_p, score_format
from boolit.lab.results.statistics import Comparison, TwoSampleTest
from boolit.lab.runs import Metric

# White text is easier to read than black on greys darker than this: their contrasts (WCAG) are equal at 54 % black.
DARK = 0.54


@dataclass(frozen=True)
class Marks:
    """The paper's marks: bold for the best, underlined for the top two, italic for no significant difference from the best."""

    bold: bool = False
    underlined: bool = False
    italic: bool = False

    def __str__(self) -> str:
        return " ".join(name for name in ("bold", "underlined", "italic") if getattr(self, name))


@dataclass(frozen=True)
class ResultCell:
    """A text, a spread after it that is not marked, and a background from 0 (white) to 1 (black).

    It has a ``text``, ``spread``, ``marks`` and ``shade``. ``data`` is for programs: values by the suffix of the column's name,
    "" for the column itself.

    Example:
        >>> from boolit.lab import ResultCell
        >>> ResultCell("93.2", " ± 0.4", shade=0.9, data={"": 0.932, " standard error": 0.004}).dark
        True
    """

    text: str
    spread: str = ""
    marks: Marks = field(default_factory=Marks)
    shade: float | None = None
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def dark(self) -> bool:
        """Whether the text must be white."""
        return self.shade is not None and self.shade > DARK


@dataclass(frozen=True)
class ResultRow:
    """An ``activation``, its ``map`` (such as 2→1, or nothing), and ``cells``, one for each column.

    Example:
        >>> from boolit.lab import ResultCell, ResultRow
        >>> ResultRow("or_ail", "2→1", (ResultCell("93.2"),)).cells[0].text
        '93.2'
    """

    activation: str
    map: str
    cells: tuple[ResultCell, ...]


@dataclass(frozen=True)
class ResultTable:
    """Activations by columns.

    It has a ``title``, the names of its ``columns``, and ``rows``, each with as many cells. ``notes`` say how to read it,
    ``background`` what the shades mean where they are shown, and ``first`` is the name of the first column.

    Example:
        >>> from boolit.lab import ResultCell, ResultRow, ResultTable
        >>> rows = (ResultRow("or_ail", "2→1", (ResultCell("93.2"),)),)
        >>> ResultTable("Wine", ("accuracy (%)",), rows).heading
        ('activation', 'map', 'accuracy (%)')
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    notes: tuple[str, ...] = ()
    background: str = ""
    first: str = "activation"

    @property
    def heading(self) -> tuple[str, ...]:
        """The names of all columns, the first two included."""
        return (self.first, "map", *self.columns)


def column_marks(comparison: Comparison, resolution: float = 0.0) -> dict[str, Marks]:
    """The marks of each activation.

    Means closer than half of the table's ``resolution`` count as equal, as in the paper, where two 97.12 are both bold although
    one is 0.001 less.
    """
    finished = [summary for summary in comparison.ranking if summary.n]
    same = {test.other.activation for test in comparison.indistinguishable}
    if finished and finished[0].n > 1:
        same.add(finished[0].activation)
    return {
        summary.activation: Marks(
            bold=_is_one_of(summary, finished[:1], resolution),
            underlined=_is_one_of(summary, finished[:2], resolution),
            italic=summary.activation in same,
        )
        for summary in comparison.ranking
    }


def column_shades(comparison: Comparison) -> dict[str, float]:
    """How far each mean lies from the worst (0) to the best (1); nothing if all are equal.

    Example:
        >>> from boolit.lab.results.statistics import compare_summaries
        >>> from boolit.lab.runs import Metric
        >>> means = {"relu": 0.5, "tanh": 0.7, "or_ail": 0.6}
        >>> summaries = [ScoreSummary.from_standard_error(name, mean, 0.1, n=5) for name, mean in means.items()]
        >>> shades = column_shades(compare_summaries(summaries, Metric(name="accuracy")))
        >>> {name: round(shade, 2) for name, shade in shades.items()}
        {'tanh': 1.0, 'or_ail': 0.5, 'relu': 0.0}
    """
    means = {summary.activation: summary.mean for summary in comparison.ranking if not math.isnan(summary.mean)}
    ordered = list(means.values())
    if not ordered or ordered[0] == ordered[-1]:
        return {}
    best, worst = ordered[0], ordered[-1]
    return {activation: (mean - worst) / (best - worst) for activation, mean in means.items()}


def _is_one_of(summary: ScoreSummary, leaders: list[ScoreSummary], resolution: float) -> bool:
    return any(summary is leader or abs(summary.mean - leader.mean) < resolution / 2 for leader in leaders)


Column = tuple[str, Callable[[ScoreSummary], ResultCell]]
EMPTY = ResultCell("")
TESTS = ("difference", "p", "effect")  # the columns of a test against the best


def score_column(name: str, comparison: Comparison, decimals: int | None = None) -> Column:
    """Mean ± standard error, marked and shaded."""
    fmt = score_format(comparison.metric, (summary.standard_error for summary in comparison.ranking))
    fmt = fmt if decimals is None else ScoreFormat(fmt.percent, decimals)
    marked, shaded = column_marks(comparison, fmt.resolution), column_shades(comparison)

    def cell(summary: ScoreSummary) -> ResultCell:
        mark, error = marked[summary.activation], summary.standard_error
        return ResultCell(
            text=fmt.number(summary.mean),
            spread="" if math.isnan(error) else f" ± {fmt.number(error)}",
            marks=mark,
            shade=shaded.get(summary.activation),
            data={"": summary.mean, " standard error": error, " marks": str(mark), **_ends(summary, comparison.metric)},
        )

    return name, cell


def _ends(summary: ScoreSummary, metric: Metric) -> dict[str, float]:
    """The 95 % confidence interval of a mean over seeds, by Student's t; a share's ends at 0 and 1."""
    if summary.n < 2:
        return {}
    reach = float(stats.t.ppf(0.975, summary.n - 1)) * summary.standard_error
    low, high = summary.mean - reach, summary.mean + reach
    return {" low": max(0.0, low), " high": min(1.0, high)} if metric.percent else {" low": low, " high": high}


def count_columns(comparison: Comparison) -> list[Column]:
    """Solved runs if they were counted, and diverged ones if there are any."""
    columns: list[Column] = []
    if comparison.solved is not None:
        sign = "≥" if comparison.metric.goal == "max" else "≤"
        threshold = f"{100 * comparison.solved:g} %" if comparison.metric.percent else f"{comparison.solved:g}"
        columns.append((f"solved ({sign} {threshold})", _solved))
    if any(summary.diverged for summary in comparison.ranking):
        columns.append(("diverged", _diverged))
    return columns


def t_test_columns(comparison: Comparison) -> list[Column]:
    """Size, score, counts, and each activation's test against the best."""
    fmt = score_format(comparison.metric, (summary.standard_error for summary in comparison.ranking))
    tests = {test.other.activation: test for test in comparison.tests}
    sizes = shorten_numbers(summary.size for summary in comparison.ranking)

    def of_test(write: Callable[[TwoSampleTest], ResultCell]) -> Callable[[ScoreSummary], ResultCell]:
        return lambda s: write(tests[s.activation]) if s.activation in tests else EMPTY

    return [
        ("parameters", lambda s: ResultCell(sizes[s.size], data={"": s.size})),
        score_column(metric_label(comparison.metric), comparison),
        ("n", lambda s: ResultCell(str(s.n), data={"": s.n})),
        *count_columns(comparison),
        (TESTS[0], of_test(lambda t: _with_interval(t.difference, t.interval, fmt.number))),
        (TESTS[1], of_test(lambda t: p_cell(comparison.p(t)))),
        (TESTS[2], of_test(lambda t: _with_interval(t.effect, t.effect_interval, _format_effect))),
    ]


def cells(columns: Sequence[Column], summary: ScoreSummary | None) -> tuple[ResultCell, ...]:
    """A row of these columns; empty for an activation that was not compared."""
    return tuple(EMPTY if summary is None else write(summary) for _, write in columns)


def _solved(summary: ScoreSummary) -> ResultCell:
    solved = summary.solved or 0
    text = f"{100 * solved / summary.runs:.0f} % ({solved}/{summary.runs})"
    return ResultCell(text, data={"": solved, " runs": summary.runs})


def _diverged(summary: ScoreSummary) -> ResultCell:
    text = f"{summary.diverged}/{summary.runs}" if summary.diverged else ""
    return ResultCell(text, data={"": summary.diverged, " runs": summary.runs})


def p_cell(p: float) -> ResultCell:
    """A p-value."""
    return ResultCell(format_p(p), data={"": p})


def _with_interval(value: float, interval: tuple[float, float], write: Callable[[float], str]) -> ResultCell:
    low, high = interval
    around = "" if math.isnan(low) or math.isnan(high) else f" [{write(low)}, {write(high)}]"
    return ResultCell(f"{write(value)}{around}", data={"": value, " low": low, " high": high})


def _format_effect(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
