"""A table in CSV, for machines: numbers unrounded and not in percent, and the marks in words."""

from __future__ import annotations

import csv
import io
from itertools import chain

from boolit.lab.reports._table_model import Table


def csv_text(table: Table) -> str:
    """A score's column ``x`` becomes ``x``, ``x standard error`` and ``x marks``; an interval ``x low`` and ``x high``."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = [_parts(table, column) for column in range(len(table.columns))]
    headings = ([name.removesuffix(" (%)") + part for part in found] for name, found in zip(table.columns, parts, strict=True))
    writer.writerow(["activation", "map", *chain(*headings)])
    for row in table.rows:
        values = ([cell.data.get(part, "") for part in found] for cell, found in zip(row.cells, parts, strict=True))
        writer.writerow([row.activation, row.map, *chain(*values)])
    return file.getvalue()


def _parts(table: Table, column: int) -> list[str]:
    return list(dict.fromkeys(part for row in table.rows for part in row.cells[column].data))
