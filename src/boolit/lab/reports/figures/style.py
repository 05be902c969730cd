"""One style for every figure: an activation has the same colour, marker and line everywhere.

The hue shows its family, the line and the marker's filling show the form. The colours start from Okabe and Ito's
palette; any two activations of the paper's figures stay apart (CIE76 ΔE > 15) for normal, protan, deutan and tritan eyes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import style as matplotlib_style
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure

from boolit.lab.common.errors import UserError
from boolit.logic import FORMS, OPERATIONS

POSITIVE, NEGATIVE = "#E69F00", "#0072B2"  # orange and blue, as in fig:parity
_RAMP = ["#084B78", "#2E8BC4", "#A6D0EA", "#FFFFFF", "#F7CF85", "#E08A1E", "#8F4700"]
DIVERGING = LinearSegmentedColormap.from_list("boolit", _RAMP, N=257)  # odd, so 0 is exactly white
SEQUENTIAL = LinearSegmentedColormap.from_list("boolit_positive", _RAMP[3:])
LOOK: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "0.9",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
    "svg.hashsalt": "boolit",  # the same figure gives the same bytes
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
FORMATS = ("png", "svg", "pdf")

_COLOURS_AND_MARKERS = {
    # 1→1, rectifiers: neutral
    "relu": ("#000000", "o"),
    "leaky_relu": ("#454545", "v"),
    "prelu": ("#6E6E6E", "^"),
    "softplus": ("#969696", "<"),
    "identity": ("#B5B5B5", "."),
    # 1→1, smooth: brown
    "silu": ("#8A5C3F", "s"),
    "elu": ("#5C3A24", ">"),
    "celu": ("#6E4A31", "h"),
    "selu": ("#7A3B1E", "p"),
    "gelu": ("#B08968", "D"),
    "hardswish": ("#C9A98D", "H"),
    "mish": ("#A0714F", "8"),
    # 1→1, saturating: olive
    "tanh": ("#6B6B00", "d"),
    "softsign": ("#A39B00", "P"),
    "sigmoid": ("#D1C71D", "X"),
    # gated linear units: slate
    "glu": ("#7D8FA9", "*"),
    "swiglu": ("#5B6E8C", "<"),
    "geglu": ("#A7B5C9", ">"),
    "bilinear": ("#3F4F66", "h"),
    # extrema, kin of OR and AND: sky
    "max": ("#56B4E9", "^"),
    "min": ("#3A87AD", "v"),
    "max_min_d": ("#A3D9E0", "H"),
    # gates, and the geometric mean that mimics XNOR
    "or": ("#0072B2", "s"),
    "and": ("#009E73", "o"),
    "xnor": ("#D55E00", "D"),
    "signed_geomean": ("#B12774", "X"),
    # ensembles: a mixture of their members
    "or_and_d": ("#044849", "P"),
    "or_xnor_p": ("#EDB45F", "<"),
    "or_xnor_d": ("#FE8E04", ">"),
    "or_and_xnor_p": ("#7A51D8", "p"),
    "or_and_xnor_d": ("#6B2680", "*"),
}
_LINES = {"": "-", "ail": "-", "nail": "--", "il": "-.", "nil": ":"}
_FILLINGS = {"": "full", "ail": "full", "nail": "none", "il": "left", "nil": "bottom"}
_FORM = re.compile(rf"_({'|'.join(sorted(FORMS, key=len, reverse=True))})(?=_|$)")
_MARKERS = "ov^<>sphHDdPX*8"


class ActivationStyle(NamedTuple):
    """How an activation is drawn."""

    colour: str
    marker: str
    line: str
    filling: str

    def plot_arguments(self) -> dict[str, Any]:
        """Arguments of matplotlib's line functions."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "fillstyle": self.filling,
            "markerfacecoloralt": "white",
            "markersize": 6,
        }


def style(spec: str) -> ActivationStyle:
    """The style of an activation; it depends on the spec alone, never on what else is drawn.

    Example:
        >>> style("or_ail").colour == style("or_nil").colour, style("or_nil").line
        (True, ':')
    """
    form = _FORM.search(spec)
    word = form[1] if form else ""
    colour, marker = _colour_and_marker(_FORM.sub("", spec))
    return ActivationStyle(colour, marker, _LINES[word], _FILLINGS[word])


def _colour_and_marker(family: str) -> tuple[str, str]:
    """The table's, or for another spec a shade of a related hue, chosen by a hash of the name."""
    if family in _COLOURS_AND_MARKERS:
        return _COLOURS_AND_MARKERS[family]
    digest = hashlib.sha256(family.encode()).digest()
    hue, _ = _COLOURS_AND_MARKERS[_related(family, digest[0])]
    white = 0.15 + 0.4 * digest[1] / 255
    red, green, blue = (channel * (1 - white) + white for channel in to_rgb(hue))
    return to_hex((red, green, blue)).upper(), _MARKERS[digest[2] % len(_MARKERS)]


def _related(family: str, choice: int) -> str:
    """The longest beginning of the name that is in the table; else the base of its operation; else one by hash."""
    words = re.split(r"[_+]", family)
    beginnings = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
    known = [name for name in beginnings if name in _COLOURS_AND_MARKERS]
    bases = [OPERATIONS[name].base for name in beginnings if name in OPERATIONS]
    return [*known, *bases, list(_COLOURS_AND_MARKERS)[choice % len(_COLOURS_AND_MARKERS)]][0]


@contextmanager
def look() -> Iterator[None]:
    """matplotlib's defaults with `LOOK` on top, whatever the user's own settings are, and back afterwards."""
    with matplotlib_style.context(["default", LOOK]):
        yield


styled = look()  # as a decorator


def save(figure: Figure, path: Path, caption: str = "") -> None:
    """Writes the figure in the format of the path's ending, with the caption inside and no date."""
    if path.suffix[1:] not in FORMATS:
        raise UserError(f"cannot write {path.name!r}: the ending of a figure's file is one of {', '.join(FORMATS)}")
    metadata = {
        ".png": {"Description": caption, "Software": None},
        ".svg": {"Description": caption, "Date": None},
        ".pdf": {"Subject": caption, "CreationDate": None},
    }[path.suffix]
    with look():
        figure.savefig(path, metadata=metadata)
