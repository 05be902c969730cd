"""Channels through one layer (a:ensembling), drawn from the modules' own wiring."""

from __future__ import annotations

from fractions import Fraction

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from boolit.lab.paper.figures.look import styled
from boolit.lab.paper.figures.networks import wiring
from boolit.lab.reports.style import ActivationStyle, style
from boolit.lab.results.names import channels_of, gate_name
from boolit.nn import Activation, activation

CHANNELS = 12
PANELS = {
    "relu": "ReLU",
    "or_ail": "OR",
    "or_xnor_ail_p": "partition, OR and XNOR",
    "or_xnor_ail_d": "duplication, OR and XNOR",
    "or_and_xnor_ail_p": "partition, OR, AND and XNOR",
    "or_and_xnor_ail_d": "duplication, OR, AND and XNOR",
}
_BEFORE, _PRE, _GATE, _POST, _AFTER = 0.0, 1.5, 4.0, 5.2, 6.7


@styled
def pathways() -> Figure:
    """Draw a panel per layer: weights, channels before the activation, its gates, channels after it, the next weights."""
    figure = Figure(figsize=(8.6, 10.2), layout="constrained")
    used: dict[str, ActivationStyle] = {}
    for axes, letter, (spec, title) in zip(figure.subplots(3, 2).flat, "abcdef", PANELS.items(), strict=True):
        module = activation(spec)
        used |= pathway(axes, module, CHANNELS)
        weights = multiple_of_c(module.feature_factor).replace("C", "C²")  # of the next layer, which makes C channels again
        axes.set_title(f"({letter}) {title} ({channels_of(spec)})\n{weights} + C parameters a layer")
    handles = [Line2D([], [], color=look.color, marker=look.marker, label=name) for name, look in sorted(used.items())]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def pathway(axes: Axes, module: Activation, channels: int) -> dict[str, ActivationStyle]:
    """Draw one layer and return the style of each gate in it."""
    wires = wiring(module, channels)
    before, after = heights(channels), heights(len(wires))
    used = {}
    for wire, height in zip(wires, after, strict=True):
        look = used[gate_name(wire.gate)] = style(wire.gate.spec)
        for channel in wire.inputs:
            axes.plot([_PRE, _GATE], [before[channel], height], color=look.color, linewidth=0.9)
        axes.plot([_GATE, _AFTER], [height, height], color=look.color, linewidth=0.9, zorder=1)
        axes.plot(_GATE, height, marker=look.marker, color=look.color, markersize=7)
    axes.hlines(before, _BEFORE, _PRE, color="0.6", linewidth=0.7)
    axes.scatter([_PRE] * channels, before, s=14, color="0.25", zorder=3)
    axes.scatter([_POST] * len(wires), after, s=14, color="0.25", zorder=3)
    _frame(axes, module, channels, len(wires))
    return used


def heights(count: int) -> list[float]:
    """Return the heights of channels, evenly spaced over the panel, the first on top."""
    return [1 - (index + 0.5) / count for index in range(count)]


def multiple_of_c(factor: Fraction) -> str:
    """Return the channels after an activation in terms of the channels C before it, such as "3C/2"."""
    top = "C" if factor.numerator == 1 else f"{factor.numerator}C"
    return top if factor.denominator == 1 else f"{top}/{factor.denominator}"


def _frame(axes: Axes, module: Activation, channels: int, outputs: int) -> None:
    for center, name in ((_BEFORE, "$W_l$"), (_AFTER, "$W_{l+1}$")):
        shape = "round,pad=0,rounding_size=0.05"
        axes.add_patch(FancyBboxPatch((center - 0.5, 0.0), 1.0, 1.0, boxstyle=shape, fc="0.9", ec="0.4", zorder=4))
        axes.text(center, 0.5, name, ha="center", va="center", zorder=5)
    axes.text(_PRE, -0.06, f"C = {channels}", ha="center")
    axes.text(_POST, -0.06, f"{multiple_of_c(module.feature_factor)} = {outputs}", ha="center")
    axes.text(_AFTER + 0.6, 0.5, "→ C", va="center")
    axes.set(xlim=(-0.6, 8.1), ylim=(-0.1, 1.02))
    axes.axis("off")
