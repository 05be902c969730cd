"""Tables of results as the paper has them, made from comparisons or straight from records, in any format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from boolit.lab.errors import UserError
from boolit.lab.reports._table_columns import cells, contrast_columns, count_columns, score_column
from boolit.lab.reports._table_csv import csv_text
from boolit.lab.reports._table_html import html_text
from boolit.lab.reports._table_latex import latex_text
from boolit.lab.reports._table_markdown import markdown_text
from boolit.lab.reports._table_model import Cell, Marks, Row, Table
from boolit.lab.reports._table_names import by_family, map_of
from boolit.lab.reports._table_terminal import terminal_table
from boolit.lab.results.statistics import Comparison

__all__ = ["FORMATS", "Cell", "Marks", "Row", "Table", "comparison_table", "render", "score_table", "terminal_table"]

FORMATS: dict[str, Callable[[Table], str]] = {
    "markdown": markdown_text,
    "latex": latex_text,
    "html": html_text,
    "csv": csv_text,
}

_BACKGROUND = "Background: linear from worst (white) to best (black) in each column."


def render(table: Table, format: str) -> str:  # noqa: A002 (the command's own word)
    """A table as text; for the terminal, `terminal_table` gives what rich prints."""
    if format not in FORMATS:
        raise UserError(f"a table is written as {', '.join(FORMATS)}, not {format!r}")
    return FORMATS[format](table)


def score_table(columns: Mapping[str, Comparison], title: str, decimals: int | None = None) -> Table:
    """Activations by columns (sizes, depths, datasets), each column marked on its own, as in tab:mlp-covtype.

    ``decimals`` fixes the figures after the point, which otherwise follow from the standard errors. Columns for diverged and
    for solved runs follow a score where they have something to say.
    """
    blocks = [[score_column(name, c, decimals), *count_columns(c)] for name, c in columns.items()]
    found = [{summary.activation: summary for summary in comparison.ranking} for comparison in columns.values()]
    activations = sorted({activation for summaries in found for activation in summaries}, key=by_family)
    rows = [
        Row(name, map_of(name), sum((cells(block, f.get(name)) for block, f in zip(blocks, found, strict=True)), ()))
        for name in activations
    ]
    headings = tuple(heading for block in blocks for heading, _ in block)
    return Table(title, headings, tuple(rows), _notes(list(columns.values())), _BACKGROUND)


def comparison_table(comparison: Comparison, title: str) -> Table:
    """Every activation at its best size, the best first, with its test against the best: the paper's procedure in full."""
    columns = contrast_columns(comparison)
    rows = [Row(s.activation, map_of(s.activation), cells(columns, s)) for s in comparison.ranking]
    confidence = f"{100 * (1 - comparison.method.alpha):g} %"
    how = f"Difference and effect (Hedges' g): best − this [{confidence} confidence interval]."
    return Table(title, tuple(name for name, _ in columns), tuple(rows), (*_notes([comparison]), how), _BACKGROUND)


def _notes(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    numbers = sorted({summary.n for comparison in comparisons for summary in comparison.ranking})
    n = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
    method = comparisons[0].method
    test = f"{method}, p > {method.alpha:g}"
    return (
        f"Mean ± standard error, n = {n}.",
        f"Bold: best. Underlined: top two. Italic: not significantly different from the best ({test}).",
    )
