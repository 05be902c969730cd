"""One look for the paper's figures in matplotlib, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import style as matplotlib_style
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

POSITIVE, NEGATIVE = "#D17A00", "#0072B2"  # orange and blue, as in fig:parity
_RAMP = ["#084B78", "#2E8BC4", "#A6D0EA", "#FFFFFF", "#F7CF85", "#E08A1E", "#8F4700"]
DIVERGING = LinearSegmentedColormap.from_list("boolit", _RAMP, N=257)  # odd, so 0 is exactly white
PROBABILITY = LinearSegmentedColormap.from_list("boolit_probability", _RAMP[1:-1], N=257)  # lighter: samples lie on it
SEQUENTIAL = LinearSegmentedColormap.from_list("boolit_positive", _RAMP[3:])
FORMATS = ("png", "svg", "pdf")
LOOK: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
    "svg.hashsalt": "boolit",  # the same figure gives the same bytes
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextmanager
def look() -> Iterator[None]:
    """Use matplotlib's defaults with `LOOK` on top, whatever the user's own settings are."""
    with matplotlib_style.context(["default", LOOK]):
        yield


styled = look()  # as a decorator


def save(figure: Figure, path: Path, caption: str = "") -> None:
    """Write a figure in the format of the path's suffix, with the caption in its metadata and no date.

    A PNG has a palette of 256 colors, which takes a quarter of the bytes.
    """
    with look():
        if path.suffix == ".png":
            path.write_bytes(png(figure, caption))
        else:
            metadata = {".svg": {"Description": caption, "Date": None}, ".pdf": {"Subject": caption, "CreationDate": None}}
            figure.savefig(path, metadata=metadata[path.suffix])


def png(figure: Figure, caption: str = "") -> bytes:
    """Return a figure as a PNG with 256 colors."""
    drawn, small, information = BytesIO(), BytesIO(), PngInfo()
    with look():
        figure.savefig(drawn, format="png")
    information.add_itxt("Description", caption)
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
        few.save(small, "png", pnginfo=information, optimize=True, dpi=image.info["dpi"])
    return small.getvalue()
