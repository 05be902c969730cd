"""A table as CSV, HTML, LaTeX or Markdown, or for the terminal by rich.

For people, activations have the names of the paper; for programs (CSV), and where a terminal has no subscripts, their specs.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from html import escape
from itertools import chain

from rich import box
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from boolit.lab.reports.tables.model import ResultCell, ResultRow, ResultTable
from boolit.lab.results.names import html_name, label, map_of, paper_name

MINUS = " − "  # between the two activations of a row or heading that is of a difference
VERSUS = "minus "  # before the activation that a column's differences are from


def _translate(text: str, write: Callable[[str], str], other: Callable[[str], str] = str) -> str:
    """A row's name or a heading with its specs as ``write`` has them, and the rest as ``other`` has it."""
    if text.startswith(VERSUS):
        return other(VERSUS) + write(text.removeprefix(VERSUS))
    return other(MINUS).join(map(write, text.split(MINUS)))


def to_csv(table: ResultTable) -> str:
    """For programs: numbers unrounded and not in percent, and the marks in words.

    A score's column ``x`` becomes ``x``, ``x standard error`` and ``x marks``; an interval ``x low`` and ``x high``.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = [_parts(table, column) for column in range(len(table.columns))]
    headings = ([name.removesuffix(" (%)") + part for part in found] for name, found in zip(table.columns, parts, strict=True))
    writer.writerow(["activation", "map", *chain(*headings)])
    for row in table.rows:
        values = ([cell.data.get(part, "") for part in found] for cell, found in zip(row.cells, parts, strict=True))
        writer.writerow([row.activation, row.map, *chain(*values)])
    return file.getvalue()


def _parts(table: ResultTable, column: int) -> list[str]:
    return list(dict.fromkeys(part for row in table.rows for part in row.cells[column].data))


def to_html(table: ResultTable) -> str:
    """A table that the report's script makes sortable: a value to sort by in every cell that has one; all text is escaped.

    Bold, underlined and italic are ``b``, ``u`` and ``i``. An interval is drawn as a bar with a dot, on one scale per column.
    """
    mapped = any(row.map for row in table.rows)
    # What is known before any training comes last, so that a narrow screen shows the scores first.
    order = sorted(range(len(table.columns)), key=lambda column: table.columns[column] in LAST)
    names = [table.heading[0], *(table.columns[column] for column in order), *(["map"] if mapped else [])]
    headings = [_html_heading(name) for name in names]
    scales = {column: _scale(table, column) for column in order}
    notes = " ".join(table.notes)
    drawn = " A dot is a mean and the bar its 95 % interval, on one scale per column." if any(scales.values()) else ""
    lines = [
        f'<div class="scroll" role="region" aria-label="{escape(table.title)}" tabindex="0">',
        '<table class="results">',
        f"<caption>{escape(table.title)}</caption>",
        f"<thead><tr>{''.join(headings)}</tr></thead>",
        "<tbody>",
        *(_html_row(row, mapped, scales) for row in table.rows),
        "</tbody>",
        "</table>",
        "</div>",
        f'<p class="notes">{escape(notes)}{drawn}</p>',
    ]
    return "\n".join(lines) + "\n"


LAST = ("parameters",)
Scale = tuple[float, float] | None


def _scale(table: ResultTable, column: int) -> Scale:
    """The ends of the intervals of a column; None if it has none, or all are one point.

    A baseline that is far from every activation would leave no room for their differences: it has no say in it.
    """
    found = [_interval(row.cells[column]) for row in table.rows if all(map(map_of, row.activation.split(MINUS)))]
    ends = [value for interval in found if interval for value in interval]
    return (min(ends), max(ends)) if ends and min(ends) < max(ends) else None


def _interval(cell: ResultCell) -> tuple[float, float, float] | None:
    values = [cell.data.get(part) for part in (" low", "", " high")]
    numbers = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _html_heading(name: str) -> str:
    written = _translate(name, html_name if name.startswith(VERSUS) else escape, escape)
    return f'<th scope="col"><button type="button" class="sort">{written}</button></th>'


def _html_row(row: ResultRow, mapped: bool, scales: Mapping[int, Scale]) -> str:
    spec = escape(row.activation)
    name = _translate(row.activation, html_name, escape)
    small = f'<code class="spec">{spec}</code>' if name != spec else ""
    head = f'<th scope="row" data-spec="{spec}" title="{spec}">{name}{small}</th>'
    cells = "".join(_html_cell(row.cells[column], scale) for column, scale in scales.items())
    return f"<tr>{head}{cells}{f'<td>{escape(row.map)}</td>' if mapped else ''}</tr>"


def _html_cell(cell: ResultCell, scale: Scale) -> str:
    text = _mark(cell, escape(cell.text), {"italic": "<i>{}</i>", "underlined": "<u>{}</u>", "bold": "<b>{}</b>"})
    value, drawn = cell.data.get(""), ""
    sortable = isinstance(value, (int, float)) and math.isfinite(value)
    interval = _interval(cell)
    if scale and interval and scale[0] <= interval[0] and interval[2] <= scale[1]:
        low, middle, high = (round(4 + 92 * (end - scale[0]) / (scale[1] - scale[0]), 1) for end in interval)
        drawn = (
            '<svg class="interval" viewBox="0 0 100 12" width="100" height="12" aria-hidden="true">'
            f'<line x1="{low}" x2="{high}" y1="6" y2="6"></line><circle cx="{middle}" cy="6" r="4"></circle></svg>'
        )
    attribute = f' data-value="{value!r}"' if sortable else ""
    return f"<td{attribute}>{text}{escape(cell.spread)}{drawn}</td>"


def _mark(cell: ResultCell, text: str, marks: Mapping[str, str]) -> str:
    """The text within each mark that the cell has, the first one innermost."""
    for name, mark in marks.items():
        text = mark.format(text) if getattr(cell.marks, name) and text else text
    return text


_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "±": r"$\pm$",
        "−": "$-$",
        "–": "--",
        "→": r"$\to$",
    }
)


def to_latex(table: ResultTable) -> str:
    r"""For booktabs and xcolor: marks as ``\textbf``, ``\underline`` and ``\textit``, the background as ``\cellcolor``."""
    caption = " ".join([f"{table.title}.", *table.notes, table.background]).strip()
    lines = [
        r"% needs \usepackage{booktabs} and \usepackage[table]{xcolor}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex_escape(caption)}}}",
        rf"\begin{{tabular}}{{lc{'r' * len(table.columns)}}}",
        r"\toprule",
        _latex_line([_latex_heading(name) for name in table.heading]),
        r"\midrule",
        *(
            _latex_line([_latex_name(row.activation), _latex_escape(row.map), *map(_latex_cell, row.cells)])
            for row in table.rows
        ),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_line(cells: list[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _latex_cell(cell: ResultCell) -> str:
    commands = {"italic": r"\textit{{{}}}", "underlined": r"\underline{{{}}}", "bold": r"\textbf{{{}}}"}
    text = _mark(cell, _latex_escape(cell.text), commands)
    shade = "" if cell.shade is None else rf"\cellcolor{{black!{round(100 * cell.shade)}}}"
    colour = r"\color{white}" if cell.dark else ""
    return f"{shade}{colour}{text}{_latex_escape(cell.spread)}"


def _latex_heading(name: str) -> str:
    return _translate(name, _latex_spec if name.startswith(VERSUS) else _latex_escape, _latex_escape)


def _latex_name(name: str) -> str:
    return _translate(name, _latex_spec, _latex_escape)


def _latex_spec(spec: str) -> str:
    return label(spec) if map_of(spec) else _latex_escape(spec)


def _latex_escape(text: str) -> str:
    return text.translate(_ESCAPES)


_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def to_markdown(table: ResultTable) -> str:
    """GitHub's Markdown: bold as ``**``, italic as ``*``, underlined as ``<u>``; no background."""
    right = ["---:"] * len(table.columns)
    lines = [
        f"**{_markdown_escape(table.title)}**",
        "",
        _markdown_line(_markdown_escape(_heading(name)) for name in table.heading),
        _markdown_line(["---", "---", *right]),
        *(
            _markdown_line(
                [
                    _markdown_escape(_translate(row.activation, paper_name)),
                    _markdown_escape(row.map),
                    *map(_markdown_cell, row.cells),
                ]
            )
            for row in table.rows
        ),
        "",
        " ".join(map(_markdown_escape, table.notes)),
    ]
    return "\n".join(lines) + "\n"


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _heading(name: str) -> str:
    return _translate(name, paper_name) if name.startswith(VERSUS) else name


def _markdown_cell(cell: ResultCell) -> str:
    text = _mark(cell, _markdown_escape(cell.text), {"italic": "*{}*", "bold": "**{}**", "underlined": "<u>{}</u>"})
    return text + _markdown_escape(cell.spread)


def _markdown_escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


_HIDE_FIRST = ("effect", "difference", "map", "n", "parameters", "p, guess")
_TEXT = {True: (255, 255, 255), False: (0, 0, 0)}  # not "white" and "black", which a terminal's theme may change


class TerminalTable:
    """What a rich console prints; marks and background are left out where the terminal has none.

    If the table is wider than ``width`` characters, its widest details are hidden (every file has them); if it still is, so is
    what follows each ±, and headings get two lines. A terminal that has ASCII only gets specs instead of the paper's names.
    """

    def __init__(self, table: ResultTable, width: int | None = None) -> None:
        self.table, self.width = table, width

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.rich_table(options.ascii_only)

    def rich_table(self, ascii_only: bool = False) -> RichTable:
        """The table of rich's."""
        named = self.table if ascii_only else _with_paper_names(self.table)
        hidden: tuple[str, ...] = ()
        for name in _HIDE_FIRST:
            if self.width is None or _natural_width(named, hidden) <= self.width:
                break
            hidden += (name,)
        table = _narrow(named) if self.width is not None and _natural_width(named, hidden) > self.width else named
        notes = Text(" ".join([*table.notes, table.background]).strip())
        texts = {"caption_justify": "left", "title_justify": "left"}
        shown = RichTable(title=Text(table.title), caption=notes, box=box.SIMPLE_HEAD, **texts)  # type: ignore[arg-type]
        kept = [number for number, name in enumerate(table.heading) if name not in hidden]
        for number in kept:
            shown.add_column(Text(table.heading[number]), justify="right" if number > 1 else "left", no_wrap=True)
        for row in table.rows:
            cells = [Text(row.activation), Text(row.map), *map(_terminal_cell, row.cells)]
            shown.add_row(*(cells[number] for number in kept))
        return shown


def terminal_table(table: ResultTable, width: int | None = None) -> TerminalTable:
    """What a rich console prints; see `TerminalTable`."""
    return TerminalTable(table, width)


def _with_paper_names(table: ResultTable) -> ResultTable:
    rows = tuple(replace(row, activation=_translate(row.activation, paper_name)) for row in table.rows)
    return replace(table, rows=rows, columns=tuple(map(_heading, table.columns)))


def _narrow(table: ResultTable) -> ResultTable:
    rows = tuple(replace(row, cells=tuple(replace(cell, spread="") for cell in row.cells)) for row in table.rows)
    columns = tuple(name.replace(", ", ",\n") for name in table.columns)
    return replace(
        table, columns=columns, rows=rows, notes=(*table.notes, "What follows ± is left out here; --format csv has it.")
    )


def _natural_width(table: ResultTable, hidden: tuple[str, ...]) -> int:
    rows = [[row.activation, row.map, *(cell.text + cell.spread for cell in row.cells)] for row in table.rows]
    columns = zip(table.heading, *rows, strict=True)
    return 2 + sum(3 + max(map(len, column)) for column in columns if column[0] not in hidden)


def _terminal_cell(cell: ResultCell) -> Text:
    marked = Style(bold=cell.marks.bold, underline=cell.marks.underlined, italic=cell.marks.italic)
    return Text.assemble((cell.text, marked), cell.spread, style=_terminal_background(cell))


def _terminal_background(cell: ResultCell) -> Style:
    if cell.shade is None:
        return Style()
    level = round(255 * (1 - cell.shade))
    return Style(color=Color.from_rgb(*_TEXT[cell.dark]), bgcolor=Color.from_rgb(level, level, level))
