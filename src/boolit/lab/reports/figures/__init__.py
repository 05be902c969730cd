"""Figures with one look, in which an activation has the same colour, marker and line everywhere.

`FIGURES` holds those that need no results and `draw` writes them; the functions below take models or results.
"""

from boolit.lab.reports.figures._catalogue import FIGURES, Entry
from boolit.lab.reports.figures._correlations import row_correlations
from boolit.lab.reports.figures._draw import draw
from boolit.lab.reports.figures._names import label
from boolit.lab.reports.figures._results import (
    accuracy_against_parameters,
    learning_curves,
    score_intervals,
    solved_share,
)
from boolit.lab.reports.figures._seen_unseen import seen_against_unseen
from boolit.lab.reports.figures._style import Style, save, style
from boolit.lab.reports.figures._weights import Network, learnt_weights
from boolit.lab.reports.figures._wiring import Wire, wiring
from boolit.lab.reports.figures._xor import xor_decision

__all__ = [
    "FIGURES",
    "Entry",
    "Network",
    "Style",
    "Wire",
    "accuracy_against_parameters",
    "draw",
    "label",
    "learning_curves",
    "learnt_weights",
    "row_correlations",
    "save",
    "score_intervals",
    "seen_against_unseen",
    "solved_share",
    "style",
    "wiring",
    "xor_decision",
]
