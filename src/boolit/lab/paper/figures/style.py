"""One style for every figure: an activation has the same colour, marker and line everywhere.

The hue shows its family, the line and the marker's filling show the form. The colours start from Okabe and Ito's palette,
as dark as a line on white must be (contrast 3:1). Any two activations of a study differ to normal, protan, deutan and tritan
eyes by their colour (CIE76 ΔE > 15), or else by both line and marker.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import style as matplotlib_style
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from boolit.errors import UserError
from boolit.logic import FORMS, OPERATIONS

POSITIVE, NEGATIVE = "#D17A00", "#0072B2"  # orange and blue, as in fig:parity
MIN_CONTRAST = 3.0  # of a line on white (WCAG 2.1, 1.4.11)
_RAMP = ["#084B78", "#2E8BC4", "#A6D0EA", "#FFFFFF", "#F7CF85", "#E08A1E", "#8F4700"]
DIVERGING = LinearSegmentedColormap.from_list("boolit", _RAMP, N=257)  # odd, so 0 is exactly white
PROBABILITY = LinearSegmentedColormap.from_list("boolit_probability", _RAMP[1:-1], N=257)  # lighter: samples lie on it
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
    "leaky_relu": ("#606263", "v"),
    "prelu": ("#414442", "^"),
    "softplus": ("#8A8D8F", "<"),
    "identity": ("#6B726F", "."),
    # 1→1, smooth: brown
    "silu": ("#815234", "s"),
    "elu": ("#4C2C16", ">"),
    "celu": ("#826247", "h"),
    "selu": ("#A76144", "p"),
    "gelu": ("#926A4C", "D"),
    "hardswish": ("#775B43", "H"),
    "mish": ("#653C1B", "8"),
    # 1→1, saturating: olive
    "tanh": ("#797713", "d"),
    "softsign": ("#9F9404", "P"),
    "sigmoid": ("#9E9601", "X"),
    # gated linear units: slate
    "glu": ("#637790", "*"),
    "swiglu": ("#4F5F7D", "<"),
    "geglu": ("#7E92A6", ">"),
    "bilinear": ("#27364D", "h"),
    # extrema, kin of OR and AND: pale and greyish blue
    "max": ("#7893BC", "^"),
    "min": ("#257293", "v"),
    "max_min_d": ("#8C9397", "H"),
    # gates, and the geometric mean that mimics XNOR
    "or": ("#1D92DA", "s"),
    "and": ("#10895C", "o"),
    "xnor": ("#C44D00", "D"),
    "signed_geomean": ("#9D005B", "X"),
    # ensembles: a mixture of their members
    "or_and_d": ("#115E69", "P"),
    "or_xnor_p": ("#BF8942", "<"),
    "or_xnor_d": ("#DF7901", ">"),
    "or_and_xnor_p": ("#875CE3", "p"),
    "or_and_xnor_pu": ("#875CE3", "h"),
    "or_and_xnor_d": ("#6B2681", "*"),
}
_DASHES = {  # of activations that are not in the paper's figures: their colours are close to those of others
    (8.0, 2.0): ("leaky_relu", "elu", "hardswish", "sigmoid", "bilinear", "or_and_xnor_pu"),
    (1.0, 1.0): ("prelu", "celu", "mish", "glu"),
    (6.0, 1.5, 1.0, 1.5, 1.0, 1.5): ("softplus", "selu", "tanh", "swiglu"),
    (3.0, 1.0): ("identity", "gelu", "softsign", "geglu", "min"),
}
_DASHES_OF = {family: dashes for dashes, families in _DASHES.items() for family in families}
_LINES = {"": "-", "ail": "-", "nail": "--", "il": "-.", "nil": ":"}
_FILLINGS = {"": "full", "ail": "full", "nail": "none", "il": "left", "nil": "bottom"}
_FORM = re.compile(rf"_({'|'.join(sorted(FORMS, key=len, reverse=True))})(?=_|$)")
_MARKERS = "ov^<>sphHDdPX*8"


class ActivationStyle(NamedTuple):
    """How an activation is drawn; ``dashes`` are lengths on and off, and come before ``line`` where there are any."""

    colour: str
    marker: str
    line: str
    filling: str
    dashes: tuple[float, ...] = ()

    def plot_arguments(self) -> dict[str, Any]:
        """Arguments of matplotlib's line functions."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": (0, self.dashes) if self.dashes else self.line,
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
    family = _FORM.sub("", spec)
    colour, marker = _colour_and_marker(family)
    dashes = _DASHES_OF.get(family, ())
    return ActivationStyle(colour, marker, "--" if dashes else _LINES[word], _FILLINGS[word], dashes)


def _colour_and_marker(family: str) -> tuple[str, str]:
    """The table's, or for another spec a shade of a related hue, chosen by a hash of the name."""
    if family in _COLOURS_AND_MARKERS:
        return _COLOURS_AND_MARKERS[family]
    digest = hashlib.sha256(family.encode()).digest()
    hue, _ = _COLOURS_AND_MARKERS[_related(family, digest[0])]
    white = 0.15 + 0.4 * digest[1] / 255
    red, green, blue = (channel * (1 - white) + white for channel in to_rgb(hue))
    while contrast_on_white(colour := to_hex((red, green, blue)).upper()) < MIN_CONTRAST:
        red, green, blue = 0.97 * red, 0.97 * green, 0.97 * blue
    return colour, _MARKERS[digest[2] % len(_MARKERS)]


def contrast_on_white(colour: str) -> float:
    """The contrast of a colour on white, as WCAG defines it, from 1 to 21.

    Example:
        >>> round(contrast_on_white("#000000")), round(contrast_on_white("#767676"), 1)
        (21, 4.5)
    """
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 1.05 / (luminance + 0.05)


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


def save(figure: Figure, path: Path, caption: str = "", small: bool = False) -> None:
    """Writes the figure in the format of the path's ending, with the caption inside and no date.

    A ``small`` PNG has 256 colours of its own, which takes a moment: a quarter of the bytes, for files that are kept.
    """
    if path.suffix[1:] not in FORMATS:
        raise UserError(f"cannot write {path.name!r}: the ending of a figure's file is one of {', '.join(FORMATS)}")
    metadata = {
        ".png": {"Description": caption, "Software": None},
        ".svg": {"Description": caption, "Date": None},
        ".pdf": {"Subject": caption, "CreationDate": None},
    }[path.suffix]
    with look():
        if path.suffix == ".png" and small:
            _save_small(figure, path, caption)
        else:
            figure.savefig(path, metadata=metadata)


def _save_small(figure: Figure, path: Path, caption: str) -> None:
    drawn, information = BytesIO(), PngInfo()
    figure.savefig(drawn, format="png")
    information.add_itxt("Description", caption)
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
        few.save(path, pnginfo=information, optimize=True, dpi=image.info["dpi"])
