"""How activations are drawn: the same color, dash pattern and mark in every chart and figure.

Hue shows the family; dashes and filling show the form, so XNOR_IL and XNOR_AIL share a color and differ in both. Colors start
from Okabe and Ito's palette and have a contrast of at least 3:1 on white. A style depends on the spec alone.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import NamedTuple

from boolit.logic import FORMS, OPERATIONS

DARK_BACKGROUND = "#14181d"  # as in page.css

_FAMILIES = {  # color and matplotlib's marker
    # 1→1, rectifiers: neutral
    "relu": ("#000000", "o"),
    "leaky_relu": ("#606263", "v"),
    "prelu": ("#414442", "^"),
    "softplus": ("#8A8D8F", "<"),
    "identity": ("#6B726F", "s"),
    # 1→1, smooth: brown
    "silu": ("#815234", "s"),
    "elu": ("#4C2C16", ">"),
    "celu": ("#826247", "h"),
    "selu": ("#A76144", "p"),
    "gelu": ("#926A4C", "D"),
    "hardswish": ("#775B43", "*"),
    "mish": ("#653C1B", "P"),
    # 1→1, saturating: olive
    "tanh": ("#797713", "o"),
    "softsign": ("#9F9404", "P"),
    "sigmoid": ("#9E9601", "X"),
    # gated linear units: slate
    "glu": ("#637790", "*"),
    "swiglu": ("#4F5F7D", "<"),
    "geglu": ("#7E92A6", ">"),
    "bilinear": ("#27364D", "h"),
    # extrema, close to OR and AND: pale blue
    "max": ("#7893BC", "^"),
    "min": ("#257293", "v"),
    "max_min_d": ("#8C9397", "h"),
    # gates, and the geometric mean that resembles XNOR
    "or": ("#1D92DA", "s"),
    "and": ("#10895C", "o"),
    "signed_geomean": ("#9D005B", "X"),
    "xnor": ("#C44D00", "D"),
    # ensembles: mixtures of their gates
    "or_and_d": ("#115E69", "P"),
    "or_xnor_p": ("#BF8942", "<"),
    "or_xnor_d": ("#DF7901", ">"),
    "or_and_xnor_p": ("#875CE3", "p"),
    "or_and_xnor_d": ("#6B2681", "*"),
}
_DASHES, _GAPS = (14, 10, 7, 4.5, 2.5), (2, 3.5, 5, 7)
_DOTS = {"": 0, "ail": 0, "nail": 1, "il": 2, "nil": 3}
_FILLS = {"": 1.0, "ail": 1.0, "nail": 0.5, "il": 0.0, "nil": 0.25}
_FORM = re.compile(rf"_({'|'.join(sorted(FORMS, key=len, reverse=True))})(?=_|$)")


class ActivationStyle(NamedTuple):
    """Color, dash pattern (lengths on and off; empty for a solid line), mark, and how much of it is filled."""

    color: str
    dash: tuple[float, ...]
    marker: str
    fill: float

    @property
    def shape(self) -> str:
        """The mark in Vega: a name or an SVG path."""
        return _SHAPES[self.marker]


def style(spec: str) -> ActivationStyle:
    """Return the style of an activation.

    Example:
        >>> exact, approximate = style("xnor_il"), style("xnor_ail")
        >>> exact.color == approximate.color, exact.dash == approximate.dash, exact.fill, approximate.fill
        (True, False, 0.0, 1.0)
    """
    form = _FORM.search(spec)
    word, family = form[1] if form else "", re.sub("_p[ul]$", "_p", _FORM.sub("", spec))
    place = list(_FAMILIES).index(family) if family in _FAMILIES else hashlib.sha256(family.encode()).digest()[0]
    color, marker = _FAMILIES[_related(family, place)]
    dash = (float(_DASHES[place % 5]), _GAPS[place // 5 % 4] + 4.0 * (place >= 20), *(1.0, 2.0) * _DOTS[word])
    return ActivationStyle(color, () if spec == "relu" else dash, marker, _FILLS[word])


def _related(family: str, choice: int) -> str:
    """Return the longest beginning of a family's name that has a style, the base of its operation, or any other family."""
    words = re.split(r"[_+]", family)
    beginnings = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
    known = [name for name in beginnings if name in _FAMILIES]
    bases = [OPERATIONS[name].base for name in beginnings if name in OPERATIONS]
    return [*known, *bases, list(_FAMILIES)[choice % len(_FAMILIES)]][0]


def dark_color(color: str) -> str:
    """Return a color for a dark page: mixed with white until its contrast is 4:1.

    Example:
        >>> dark_color("#000000"), dark_color("#D55E00")
        ('#808080', '#D55E00')
    """
    behind = _luminance(_channels(DARK_BACKGROUND))
    for step in range(21):
        mixed = [channel + (1 - channel) * step / 20 for channel in _channels(color)]
        if (_luminance(mixed) + 0.05) / (behind + 0.05) >= 4:
            break
    return _hex(mixed)


def _channels(color: str) -> list[float]:
    return [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def _hex(channels: list[float]) -> str:
    return "#" + "".join(f"{round(255 * channel):02X}" for channel in channels)


def _luminance(channels: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _polygon(radii: tuple[float, ...], turn: float = 0.0) -> str:
    """Return a closed SVG path whose corners lie at these radii, evenly around the origin."""
    angles = [2 * math.pi * (place / len(radii) + turn) - math.pi / 2 for place in range(len(radii))]
    corners = [f"{r * math.cos(a):.3f},{r * math.sin(a):.3f}" for r, a in zip(radii, angles, strict=True)]
    return f"M{'L'.join(corners)}Z"


_SHAPES = {
    "o": "circle",
    "s": "square",
    "P": "cross",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": _polygon((1.0,) * 5),
    "h": _polygon((1.0,) * 6),
    "*": _polygon((1.0, 0.4) * 5),
    "X": _polygon((1.0, 0.35) * 4, turn=1 / 8),
}
