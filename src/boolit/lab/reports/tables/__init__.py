"""Tables of results as in the paper, from comparisons or from records, in any format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from boolit.errors import UserError
from boolit.lab.reports.tables.formats import terminal_table, to_csv, to_html, to_latex, to_markdown
from boolit.lab.reports.tables.model import (
    TESTS,
    Marks,
    ResultCell,
    ResultRow,
    ResultTable,
    cells,
    count_columns,
    score_column,
    t_test_columns,
)
from boolit.lab.results.names import map_of, metric_label, shorten_numbers, sort_key
from boolit.lab.results.run_table import RunTable
from boolit.lab.results.scores import metric_of, scores, size_of
from boolit.lab.results.statistics import BEST_SIZES, COVERAGE, Comparison, ComparisonMethod, compare
from boolit.lab.runs import Record, RunConfig

__all__ = [
    "FORMATS",
    "comparison_table",
    "provenance",
    "register",
    "render",
    "score_table",
    "study_tables",
    "terminal_table",
]

ORIGINS = {"reconstructed": "reconstructed encoder weights", "own": "encoder weights of an own file"}


def provenance(records: Sequence[Record]) -> str:
    """Whose weights the encoder behind some runs had, if not the published ones; nothing for other runs."""
    origins = {str(config.data.get("origin")) for config in RunTable.of(records).shared_configs()}
    return ", ".join(ORIGINS[origin] for origin in sorted(origins & ORIGINS.keys()))


FORMATS: dict[str, Callable[[ResultTable], str]] = {"markdown": to_markdown, "latex": to_latex, "html": to_html, "csv": to_csv}

MakeTable = Callable[[Sequence[Record]], ResultTable | None]
_REGISTERED: dict[str, MakeTable] = {}

_BACKGROUND = "Background: linear from worst (white) to best (black) in each column."


def register(make: MakeTable) -> MakeTable:
    """Adds a table to the report of every study: a decorator of a function.

    Args:
        make: takes the study's records and returns a `ResultTable`, or None where it has nothing to say.

    Example:
        >>> from boolit.lab import Record, ResultCell, ResultRow, ResultTable, Run, register_table
        >>> @register_table
        ... def longest_run(records):
        ...     longest = max(records, key=lambda record: record.seconds)
        ...     cell = ResultCell(f"{longest.seconds:.1f}", data={"": longest.seconds})
        ...     return ResultTable("The longest run", ("seconds",), (ResultRow(longest.config.activation, "", (cell,)),))
        >>> run = Run.from_dict({"activation": "relu"})
        >>> longest_run([Record(run.key, run.config, "finished", {}, seconds=2.5)]).rows[0].cells[0].text
        '2.5'
    """
    _REGISTERED[make.__name__] = make
    return make


def render(table: ResultTable, format: str) -> str:  # noqa: A002 (the command's own word)
    """A table as text; for the terminal, `terminal_table` gives what rich prints."""
    if format not in FORMATS:
        raise UserError(f"a table is written as {', '.join(FORMATS)}, not {format!r}")
    return FORMATS[format](table)


def score_table(columns: Mapping[str, Comparison], title: str, decimals: int | None = None) -> ResultTable:
    """Activations by columns (sizes, depths, datasets), each column marked on its own, as in tab:mlp-covtype.

    ``decimals`` fixes the digits after the decimal point, which otherwise follow from the standard errors. Columns for diverged
    and for solved runs follow a score where there are any.
    """
    blocks = [[score_column(name, c, decimals), *count_columns(c)] for name, c in columns.items()]
    found = [{summary.activation: summary for summary in comparison.ranking} for comparison in columns.values()]
    activations = sorted({activation for summaries in found for activation in summaries}, key=sort_key)
    rows = [
        ResultRow(name, map_of(name), sum((cells(block, f.get(name)) for block, f in zip(blocks, found, strict=True)), ()))
        for name in activations
    ]
    headings = tuple(heading for block in blocks for heading, _ in block)
    return ResultTable(title, headings, tuple(rows), _notes(list(columns.values())), _BACKGROUND)


def comparison_table(comparison: Comparison, title: str) -> ResultTable:
    """Every activation at its best size, the best first, with its test against the best: the paper's procedure in full."""
    columns = t_test_columns(comparison)
    rows = [ResultRow(s.activation, map_of(s.activation), cells(columns, s)) for s in comparison.ranking]
    confidence = f"{100 * (1 - comparison.method.alpha):g} %"
    how = f"Difference and effect (Hedges' g): best − this [{confidence} confidence interval]."
    return ResultTable(title, tuple(name for name, _ in columns), tuple(rows), (*_notes([comparison]), how), _BACKGROUND)


def _notes(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    numbers = sorted({summary.n for comparison in comparisons for summary in comparison.ranking})
    n = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
    method = comparisons[0].method
    test = f"{method}, p > {method.alpha:g}"
    return (
        f"Mean ± standard error, n = {n}.",
        f"Bold: best. Underlined: top two. Italic: not significantly different from the best ({test}).",
    )


Groups = Mapping[str, RunTable]


def study_tables(
    records: Sequence[Record], method: ComparisonMethod | None = None, solved: float | None = None, unfinished: bool = False
) -> list[ResultTable]:
    """For each study and profile: its scores by depth, budget or width, whichever was swept, and its tests.

    ``solved`` is a threshold: the share of runs that reach it is shown. The tables of an ``unfinished`` study
    have scores only: nothing in them says which is best.
    """
    studies = RunTable.of(records).group_by(_study_name)
    tables = [table for name, group in studies.items() for table in _tables(group, name, method, solved)]
    tables += [table for make in _REGISTERED.values() for group in studies.values() if (table := make(group)) is not None]
    return [_remove_verdict(table) for table in tables] if unfinished else tables


def _study_name(config: RunConfig) -> str:
    return f"{config.study} ({config.profile})" if config.profile else config.study


def _remove_verdict(table: ResultTable) -> ResultTable:
    """The table without tests, marks, shades, and the ranking."""
    kept = [number for number, name in enumerate(table.columns) if name not in TESTS]
    rows = (
        replace(row, cells=tuple(_remove_marks(row.cells[number]) for number in kept))
        for row in sorted(table.rows, key=lambda row: sort_key(row.activation))
    )
    columns, notes = tuple(table.columns[number] for number in kept), (table.notes[0], COVERAGE)
    return ResultTable(f"Unfinished: {table.title}", columns, tuple(rows), notes)


def _remove_marks(cell: ResultCell) -> ResultCell:
    data = {name: value for name, value in cell.data.items() if name != " marks"}
    return replace(cell, marks=Marks(), shade=None, data=data)


def _tables(runs: RunTable, name: str, method: ComparisonMethod | None, solved: float | None) -> list[ResultTable]:
    metric = metric_of(runs)
    title = "; ".join(filter(None, (f"{name}: {metric_label(metric)}", provenance(runs))))

    def compare_group(group: RunTable) -> Comparison:
        return compare(scores(group, metric.key), metric, method, solved)

    # Depths are compared apart, as in tab:mlp-covtype; sizes compete, and the best one of each activation is tested.
    by_depth = _group_by_depth(runs)
    tests = [
        comparison_table(compare_group(group), f"{title}, {depth}" if len(by_depth) > 1 else title)
        for depth, group in by_depth.items()
    ]
    swept, groups = ("depth", by_depth) if len(by_depth) > 1 else _group_by_size(runs)
    sizes = {(config.activation, size_of(config)) for config in runs.shared_configs()}
    several = len(sizes) > len({spec for spec, _ in sizes})
    tests = [_with_notes(table, *([BEST_SIZES] if several else []), COVERAGE) for table in tests]
    if not groups:
        return tests
    scored = score_table({column: compare_group(group) for column, group in groups.items()}, f"{title} by {swept}")
    return [_with_notes(scored, COVERAGE), *tests]


def _with_notes(table: ResultTable, *notes: str) -> ResultTable:
    return replace(table, notes=(*table.notes, *notes))


def _group_by_depth(runs: RunTable) -> Groups:
    """The runs by number of hidden layers; those of networks without any are compared with each of the others."""
    groups = runs.group_by(lambda config: config.depth)
    linear = [groups.pop(0)] if 0 in groups else []
    return {f"depth {depth}": RunTable.join([group, *linear]) for depth, group in groups.items()} or {"depth 0": runs}


def _group_by_size(runs: RunTable) -> tuple[str, Groups]:
    """The runs by parameter budget or by width, whichever was swept; nothing if every activation has one size."""
    by_budget = runs.group_by(lambda config: size_of(config) if config.budget is not None else 0)
    if len(by_budget) > 1:
        names = shorten_numbers(by_budget)
        return "parameters", {names[size]: by_budget[size] for size in sorted(by_budget)}
    networks = {(config.activation, tuple(config.width)) for config in runs.shared_configs()}
    if len(networks) > len({spec for spec, _ in networks}):
        by_width = runs.group_by(lambda config: tuple(config.width))
        return "width", {"-".join(map(str, width)): by_width[width] for width in sorted(by_width)}
    return "", {}
