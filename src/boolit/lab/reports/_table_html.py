"""A table in HTML; everything that is not our own markup is escaped."""

from __future__ import annotations

from html import escape

from boolit.lab.reports._table_model import Cell, Row, Table


def html_text(table: Table) -> str:
    """Bold, underlined and italic as ``b``, ``u`` and ``i``; the background is a style of the cell."""
    notes = " ".join([*table.notes, table.background]).strip()
    headings = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.heading)
    lines = [
        '<table class="results">',
        f"<caption>{escape(table.title)}</caption>",
        f"<thead><tr>{headings}</tr></thead>",
        "<tbody>",
        *map(_row, table.rows),
        "</tbody>",
        "</table>",
        f'<p class="notes">{escape(notes)}</p>',
    ]
    return "\n".join(lines) + "\n"


def _row(row: Row) -> str:
    head = f'<th scope="row"><code>{escape(row.activation)}</code></th><td>{escape(row.map)}</td>'
    return f"<tr>{head}{''.join(map(_cell, row.cells))}</tr>"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    for applies, tag in ((cell.marks.italic, "i"), (cell.marks.underlined, "u"), (cell.marks.bold, "b")):
        text = f"<{tag}>{text}</{tag}>" if applies and text else text
    return f"<td{_style(cell)}>{text}{escape(cell.spread)}</td>"


def _style(cell: Cell) -> str:
    if cell.shade is None:
        return ""
    grey = f"{round(255 * (1 - cell.shade)):02x}" * 3
    text = "fff" if cell.dark else "000"
    return f' style="background:#{grey};color:#{text}"'
