"""A table in LaTeX (booktabs, and xcolor with its option ``table``)."""

from __future__ import annotations

from boolit.lab.reports._table_model import Cell, Table
from boolit.nn import activation

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


def latex_text(table: Table) -> str:
    r"""Bold as ``\textbf``, underlined as ``\underline``, italic as ``\textit``, background as ``\cellcolor``."""
    caption = " ".join([f"{table.title}.", *table.notes, table.background]).strip()
    lines = [
        r"% needs \usepackage{booktabs} and \usepackage[table]{xcolor}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(caption)}}}",
        rf"\begin{{tabular}}{{lc{'r' * len(table.columns)}}}",
        r"\toprule",
        _line([_escaped(name) for name in table.heading]),
        r"\midrule",
        *(_line([_name(row.activation), _escaped(row.map), *map(_cell, row.cells)]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    for applies, command in (
        (cell.marks.italic, "textit"),
        (cell.marks.underlined, "underline"),
        (cell.marks.bold, "textbf"),
    ):
        text = rf"\{command}{{{text}}}" if applies and text else text
    shade = "" if cell.shade is None else rf"\cellcolor{{black!{round(100 * cell.shade)}}}"
    colour = r"\color{white}" if cell.dark else ""
    return f"{shade}{colour}{text}{_escaped(cell.spread)}"


def _name(spec: str) -> str:
    # The figures' names, which are LaTeX as well, come with matplotlib, which no other format needs.
    from boolit.lab.reports.figures._names import module_label

    try:
        return module_label(activation(spec))
    except ValueError:
        return _escaped(spec)


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
