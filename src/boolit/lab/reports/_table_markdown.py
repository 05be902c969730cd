"""A table in Markdown, as GitHub reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from boolit.lab.reports._table_model import Cell, Table

_SPEC = re.compile(r"[a-z0-9_+]+")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def markdown_text(table: Table) -> str:
    """Bold as ``**``, italic as ``*``, underlined as ``<u>``; no background."""
    right = ["---:"] * len(table.columns)
    lines = [
        f"**{_escaped(table.title)}**",
        "",
        _line(map(_escaped, table.heading)),
        _line(["---", "---", *right]),
        *(_line([_name(row.activation), _escaped(row.map), *map(_cell, row.cells)]) for row in table.rows),
        "",
        " ".join(map(_escaped, table.notes)),
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(activation: str) -> str:
    # A spec is code; what a user may have called an activation instead could end the code early.
    return f"`{activation}`" if _SPEC.fullmatch(activation) else _escaped(activation)


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    for applies, before, after in (
        (cell.marks.italic, "*", "*"),
        (cell.marks.bold, "**", "**"),
        (cell.marks.underlined, "<u>", "</u>"),
    ):
        text = f"{before}{text}{after}" if applies and text else text
    return text + _escaped(cell.spread)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
