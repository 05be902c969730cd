"""A table as CSV, HTML, LaTeX or Markdown, or for the terminal by rich."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from html import escape
from itertools import chain

from rich import box
from rich.color import Color
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from boolit.lab.reports.tables.model import ResultCell, ResultRow, ResultTable
from boolit.lab.results.names import label, map_of


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
    """Bold, underlined and italic as ``b``, ``u`` and ``i``; the background is a style of the cell. All text is escaped."""
    notes = " ".join([*table.notes, table.background]).strip()
    headings = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.heading)
    lines = [
        '<table class="results">',
        f"<caption>{escape(table.title)}</caption>",
        f"<thead><tr>{headings}</tr></thead>",
        "<tbody>",
        *map(_html_row, table.rows),
        "</tbody>",
        "</table>",
        f'<p class="notes">{escape(notes)}</p>',
    ]
    return "\n".join(lines) + "\n"


def _html_row(row: ResultRow) -> str:
    head = f'<th scope="row"><code>{escape(row.activation)}</code></th><td>{escape(row.map)}</td>'
    return f"<tr>{head}{''.join(map(_html_cell, row.cells))}</tr>"


def _html_cell(cell: ResultCell) -> str:
    text, style = _mark(cell, escape(cell.text), {"italic": "<i>{}</i>", "underlined": "<u>{}</u>", "bold": "<b>{}</b>"}), ""
    if cell.shade is not None:
        grey, colour = f"{round(255 * (1 - cell.shade)):02x}" * 3, "fff" if cell.dark else "000"
        style = f' style="background:#{grey};color:#{colour}"'
    return f"<td{style}>{text}{escape(cell.spread)}</td>"


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
        _latex_line([_latex_escape(name) for name in table.heading]),
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


def _latex_name(spec: str) -> str:
    return label(spec) if map_of(spec) else _latex_escape(spec)


def _latex_escape(text: str) -> str:
    return text.translate(_ESCAPES)


_SPEC = re.compile(r"[a-z0-9_+]+")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def to_markdown(table: ResultTable) -> str:
    """GitHub's Markdown: bold as ``**``, italic as ``*``, underlined as ``<u>``; no background."""
    right = ["---:"] * len(table.columns)
    lines = [
        f"**{_markdown_escape(table.title)}**",
        "",
        _markdown_line(map(_markdown_escape, table.heading)),
        _markdown_line(["---", "---", *right]),
        *(
            _markdown_line([_markdown_name(row.activation), _markdown_escape(row.map), *map(_markdown_cell, row.cells)])
            for row in table.rows
        ),
        "",
        " ".join(map(_markdown_escape, table.notes)),
    ]
    return "\n".join(lines) + "\n"


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_name(activation: str) -> str:
    # A spec is code; what a user may have called an activation instead could end the code early.
    return f"`{activation}`" if _SPEC.fullmatch(activation) else _markdown_escape(activation)


def _markdown_cell(cell: ResultCell) -> str:
    text = _mark(cell, _markdown_escape(cell.text), {"italic": "*{}*", "bold": "**{}**", "underlined": "<u>{}</u>"})
    return text + _markdown_escape(cell.spread)


def _markdown_escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


_HIDE_FIRST = ("effect", "difference", "map", "n", "parameters", "p, guess")
_TEXT = {True: (255, 255, 255), False: (0, 0, 0)}  # not "white" and "black", which a terminal's theme may change


def terminal_table(table: ResultTable, width: int | None = None) -> RichTable:
    """What a rich console prints; marks and background are left out where the terminal has none.

    If the table is wider than ``width`` characters, its widest details are hidden (every file has them); if it still is, so is
    what follows each ±, and headings get two lines.
    """
    hidden: tuple[str, ...] = ()
    for name in _HIDE_FIRST:
        if width is None or _natural_width(table, hidden) <= width:
            break
        hidden += (name,)
    if width is not None and _natural_width(table, hidden) > width:
        table = _narrow(table)
    notes = Text(" ".join([*table.notes, table.background]).strip())
    shown = RichTable(title=Text(table.title), caption=notes, caption_justify="left", title_justify="left", box=box.SIMPLE_HEAD)
    kept = [number for number, name in enumerate(table.heading) if name not in hidden]
    for number in kept:
        shown.add_column(Text(table.heading[number]), justify="right" if number > 1 else "left", no_wrap=True)
    for row in table.rows:
        texts = [Text(row.activation), Text(row.map), *map(_terminal_cell, row.cells)]
        shown.add_row(*(texts[number] for number in kept))
    return shown


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
