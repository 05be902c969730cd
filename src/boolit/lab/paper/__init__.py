"""The paper's printed results as data, to compare a reproduction with.

A CSV file is one table: for each activation and column the mean (four decimals, from the cell colours in the paper's source),
the standard error (``nan`` where none is printed) and number of seeds as printed, and whether the cell is bold, underlined or
italic.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

from boolit.errors import UserError


@dataclass(frozen=True)
class PrintedCell:
    """One cell of a table: an ``activation``'s score in one ``column``, in the table's own unit, and the marks it carries.

    ``mean``, ``standard_error`` (NaN where none is printed) and ``n`` seeds; ``bold``, ``underlined`` and ``italic``.

    Example:
        >>> from boolit.lab import paper_table
        >>> [(cell.activation, cell.mean) for cell in paper_table("tab:mlp-covtype") if cell.column == "1" and cell.bold]
        [('signed_geomean', 94.7213)]
    """

    activation: str
    column: str
    mean: float
    standard_error: float
    n: int
    bold: bool
    underlined: bool
    italic: bool


def tables() -> list[str]:
    """The labels of the paper's tables that are here.

    Example:
        >>> from boolit.lab import paper_tables
        >>> "tab:mlp-covtype" in paper_tables()
        True
    """
    names = (file.name for file in resources.files(__name__).iterdir() if file.name.endswith(".csv"))
    return sorted(f"tab:{name.removesuffix('.csv')}" for name in names)


def table(label: str) -> list[PrintedCell]:
    """A table of the paper by its LaTeX ``label``, cell by cell; `paper_tables` has the labels.

    Example:
        >>> from boolit.lab import paper_table
        >>> paper_table("tab:mlp-covtype")[0]  # doctest: +ELLIPSIS
        PrintedCell(activation='relu', column='1', mean=92.0644, standard_error=0.07, n=5, bold=False, ...)
    """
    if label not in tables():
        raise UserError(f"the paper's table {label!r} is not here; there are {', '.join(tables())}")
    text = resources.files(__name__).joinpath(f"{label.removeprefix('tab:')}.csv").read_text(encoding="utf-8")
    return [_cell(row) for row in list(csv.reader(text.splitlines()))[1:]]


def table_rows(label: str) -> list[str]:
    """The activations of a table, in order; rows for other networks, such as "relu (base SRAN)", are left out.

    Example:
        >>> table_rows("tab:tmn-og")
        ['relu', 'max', 'max_min_d', 'xnor_ail', 'or_ail', 'or_and_ail_d', 'or_xnor_ail_d']
    """
    return [spec for spec in dict.fromkeys(cell.activation for cell in table(label)) if " " not in spec]


def _cell(row: list[str]) -> PrintedCell:
    activation, column, mean, standard_error, n, *marks = row
    bold, underlined, italic = (mark == "1" for mark in marks)
    return PrintedCell(activation, column, float(mean), float(standard_error), int(n), bold, underlined, italic)
