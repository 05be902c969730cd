"""A table for the terminal, by rich."""

from __future__ import annotations

from rich.color import Color
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from boolit.lab.reports._table_model import Cell, Table

_TEXT = {True: (255, 255, 255), False: (0, 0, 0)}  # not "white" and "black", which a terminal's theme may change


def terminal_table(table: Table) -> RichTable:
    """What a rich console prints; marks and background are left out where the terminal has none."""
    notes = Text(" ".join([*table.notes, table.background]).strip())
    shown = RichTable(title=Text(table.title), caption=notes, caption_justify="left", title_justify="left")
    for number, name in enumerate(table.heading):
        shown.add_column(Text(name), justify="right" if number > 1 else "left", no_wrap=number != 1)
    for row in table.rows:
        shown.add_row(Text(row.activation), Text(row.map), *map(_cell, row.cells))
    return shown


def _cell(cell: Cell) -> Text:
    marked = Style(bold=cell.marks.bold, underline=cell.marks.underlined, italic=cell.marks.italic)
    return Text.assemble((cell.text, marked), cell.spread, style=_background(cell))


def _background(cell: Cell) -> Style:
    if cell.shade is None:
        return Style()
    level = round(255 * (1 - cell.shade))
    return Style(color=Color.from_rgb(*_TEXT[cell.dark]), bgcolor=Color.from_rgb(level, level, level))
