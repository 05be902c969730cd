"""A table for the terminal, by rich."""

from __future__ import annotations

from dataclasses import replace

from rich import box
from rich.color import Color
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from boolit.lab.reports._table_model import Cell, Table

_FIRST_TO_GO = ("effect", "difference", "map", "n", "parameters", "p, guess")
LEFT_OUT = "What follows ± is left out for want of width."
_TEXT = {True: (255, 255, 255), False: (0, 0, 0)}  # not "white" and "black", which a terminal's theme may change


def terminal_table(table: Table, width: int | None = None) -> RichTable:
    """What a rich console prints; marks and background are left out where the terminal has none.

    Where ``width`` columns of text do not hold the table, it goes without its widest details, which every file has; where they
    still do not, without what follows each ±, and with headings in two lines.
    """
    hidden: tuple[str, ...] = ()
    for name in _FIRST_TO_GO:
        if width is None or _natural_width(table, hidden) <= width:
            break
        hidden += (name,)
    if width is not None and _natural_width(table, hidden) > width:
        table = _narrowed(table)
    notes = Text(" ".join([*table.notes, table.background]).strip())
    shown = RichTable(title=Text(table.title), caption=notes, caption_justify="left", title_justify="left", box=box.SIMPLE_HEAD)
    kept = [number for number, name in enumerate(table.heading) if name not in hidden]
    for number in kept:
        shown.add_column(Text(table.heading[number]), justify="right" if number > 1 else "left", no_wrap=True)
    for row in table.rows:
        texts = [Text(row.activation), Text(row.map), *map(_cell, row.cells)]
        shown.add_row(*(texts[number] for number in kept))
    return shown


def _narrowed(table: Table) -> Table:
    rows = tuple(replace(row, cells=tuple(replace(cell, spread="") for cell in row.cells)) for row in table.rows)
    columns = tuple(name.replace(", ", ",\n") for name in table.columns)
    return replace(
        table, columns=columns, rows=rows, notes=(*table.notes, "What follows ± is left out here; --format csv has it.")
    )


def _natural_width(table: Table, hidden: tuple[str, ...]) -> int:
    rows = [[row.activation, row.map, *(cell.text + cell.spread for cell in row.cells)] for row in table.rows]
    columns = zip(table.heading, *rows, strict=True)
    return 2 + sum(3 + max(map(len, column)) for column in columns if column[0] not in hidden)


def _cell(cell: Cell) -> Text:
    marked = Style(bold=cell.marks.bold, underline=cell.marks.underlined, italic=cell.marks.italic)
    return Text.assemble((cell.text, marked), cell.spread, style=_background(cell))


def _background(cell: Cell) -> Style:
    if cell.shade is None:
        return Style()
    level = round(255 * (1 - cell.shade))
    return Style(color=Color.from_rgb(*_TEXT[cell.dark]), bgcolor=Color.from_rgb(level, level, level))
