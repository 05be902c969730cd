"""The tables printed in the paper, as data.

``tables/LABEL.csv`` holds the table with the LaTeX label ``tab:LABEL``. A table of results has one row per cell: activation,
column, mean (four decimals, from the cell colors in the paper's source), standard error (``nan`` if none is printed), number of
seeds, and whether the cell is bold, underlined or italic. Two tables are in the source but hidden from the reader:
``tab:tmnx-hidden``, an earlier version of tab:tmnx, and ``tab:ranking``.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from io import StringIO
from typing import TYPE_CHECKING

from boolit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FOLDER = resources.files("boolit.lab.paper").joinpath("tables")
HIDDEN = ("tab:ranking", "tab:tmnx-hidden")


@dataclass(frozen=True)
class PrintedCell:
    """A cell of a table of results, in the table's own unit.

    Example:
        >>> from boolit.lab.paper import table
        >>> [(cell.activation, cell.mean) for cell in table("tab:mlp-covtype") if cell.column == "1" and cell.bold]
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


def labels() -> list[str]:
    """Return the labels of all tables, hidden ones included."""
    return sorted(f"tab:{file.name.removesuffix('.csv')}" for file in FOLDER.iterdir() if file.name.endswith(".csv"))


def tables() -> list[str]:
    """Return the labels of the printed tables of results.

    Example:
        >>> from boolit.lab.paper import tables
        >>> "tab:mlp-covtype" in tables()
        True
    """
    return [label for label in labels() if label not in HIDDEN and has_results(label)]


def has_results(label: str) -> bool:
    """Return whether a table has results by activation; others, such as tab:datasets, are read by `frame`."""
    return _lines(label)[0].endswith("italic")


@lru_cache
def _lines(label: str) -> list[str]:
    if label not in labels():
        raise UserError(f"the paper's table {label!r} is not here; there are {', '.join(labels())}")
    return FOLDER.joinpath(f"{label.removeprefix('tab:')}.csv").read_text(encoding="utf-8").splitlines()


def frame(label: str) -> pd.DataFrame:
    """Return a table of the paper as a DataFrame.

    Example:
        >>> print(frame("tab:datasets").set_index("dataset").loc["MNIST", "train"])
        60000
    """
    import pandas as pd  # not at the top: shell completion lists the labels

    return pd.read_csv(StringIO("\n".join(_lines(label))))


def table(label: str) -> list[PrintedCell]:
    """Return the cells of a table of results by its LaTeX label.

    Example:
        >>> from boolit.lab.paper import table
        >>> table("tab:mlp-covtype")[0]  # doctest: +ELLIPSIS
        PrintedCell(activation='relu', column='1', mean=92.0644, standard_error=0.07, n=5, bold=False, ...)
    """
    if not has_results(label):
        raise UserError(f"{label} is not a table of results by activation; use frame({label!r})")
    cells = []
    for activation, column, mean, error, n, *marks in csv.reader(_lines(label)[1:]):
        bold, underlined, italic = (mark == "1" for mark in marks)
        cells.append(PrintedCell(activation, column, float(mean), float(error), int(n), bold, underlined, italic))
    return cells


def table_rows(label: str) -> list[str]:
    """Return the activations of a table in order, without rows for other networks such as "relu (base SRAN)".

    Example:
        >>> table_rows("tab:tmn-og")
        ['relu', 'max', 'max_min_d', 'xnor_ail', 'or_ail', 'or_and_ail_d', 'or_xnor_ail_d']
    """
    return [spec for spec in dict.fromkeys(cell.activation for cell in table(label)) if " " not in spec]
