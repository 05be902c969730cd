"""The weights a small network has learnt, as lines between its units (fig:parity, fig:2nd_parity)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from boolit.lab.reports.figures._names import label
from boolit.lab.reports.figures._style import NEGATIVE, POSITIVE, style, styled
from boolit.lab.reports.figures._wiring import wiring
from boolit.nn import activation

_WIDEST = 5.0  # points, of the largest weight in a network
_LAYER, _GATE = 2.2, 0.8  # how far a weight matrix and a gate reach to the right


class Network(NamedTuple):
    """A multilayer perceptron: its activation, the weight matrices (outputs, inputs) in order, and a title."""

    activation: str
    weights: Sequence[Tensor]
    title: str = ""


@styled
def learnt_weights(*networks: Network) -> Figure:
    """Networks side by side: a line a weight, wide where it is large, orange where positive, blue where negative.

    Between layers, gates are drawn where the activation has them: the units they read, and the feature they make.
    """
    tallest = max(max(weight.shape) for network in networks for weight in network.weights)
    widths = [_LAYER * len(network.weights) + _GATE * (len(network.weights) - 1) for network in networks]
    figure = Figure(figsize=(sum(widths) * 0.62 + 0.6, 1.3 + 0.42 * tallest), layout="constrained")
    panels = figure.subplots(1, len(networks), squeeze=False, width_ratios=widths)[0]
    for axes, network in zip(panels, networks, strict=True):
        _draw(axes, network)
    handles = [Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in _SIGNS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


_SIGNS = {"positive weight": POSITIVE, "negative weight": NEGATIVE}


def _draw(axes: Axes, network: Network) -> None:
    check(network)
    largest = max(float(weight.abs().max()) for weight in network.weights)
    left, features = 0.0, spread(network.weights[0].shape[1])
    axes.scatter([left] * len(features), features, s=50, color="0.25", zorder=4)
    for index, height in enumerate(features):
        axes.text(left - 0.25, height, f"$x_{{{index}}}$", ha="right", va="center")
    for layer, weight in enumerate(network.weights):
        units = spread(weight.shape[0])
        _lines(axes, weight.detach(), left, features, units, largest)
        left += _LAYER
        axes.scatter([left] * len(units), units, s=50, facecolor="white", edgecolor="0.25", zorder=4)
        if layer < len(network.weights) - 1:
            features = _gates(axes, network.activation, left, units)
            left += _GATE
    axes.set_title(f"{network.title or label(network.activation)}\nlargest |weight| {largest:.2g}")
    axes.set(xlim=(-0.7, left + 0.2))
    axes.axis("off")


def check(network: Network) -> None:
    """Raises where a matrix does not take what the activation makes of the one before."""
    module = activation(network.activation)
    for index, (weight, following) in enumerate(zip(network.weights, network.weights[1:], strict=False)):
        expected = module.out_features(weight.shape[0])
        if following.shape[1] != expected:
            raise ValueError(
                f"{network.activation} makes {expected} features of the {weight.shape[0]} units of layer {index}, "
                f"but the weights of layer {index + 1} have shape {tuple(following.shape)}; they need {expected} columns"
            )


def spread(count: int) -> list[float]:
    """Heights of that many units, centred, the first one on top."""
    return [(count - 1) / 2 - index for index in range(count)]


def _lines(axes: Axes, weight: Tensor, left: float, features: list[float], units: list[float], largest: float) -> None:
    """Small weights first, so that the large ones lie on top."""
    for flat in torch.argsort(weight.abs().flatten()).tolist():
        unit, feature = divmod(flat, weight.shape[1])
        value = float(weight[unit, feature])
        if value:
            colour, width = (POSITIVE if value > 0 else NEGATIVE), _WIDEST * abs(value) / largest
            axes.plot([left, left + _LAYER], [features[feature], units[unit]], color=colour, linewidth=width, zorder=2)


def _gates(axes: Axes, spec: str, left: float, units: list[float]) -> list[float]:
    """Draws the activation's wires and gates; returns the heights of the features it makes."""
    wires = wiring(activation(spec), len(units))
    if len({wire.inputs for wire in wires}) == len(wires):
        features = [sum(units[channel] for channel in wire.inputs) / len(wire.inputs) for wire in wires]
    else:
        features = spread(len(wires))
    for wire, height in zip(wires, features, strict=True):
        look = style(wire.gate.spec)
        for channel in wire.inputs:
            axes.plot([left, left + _GATE], [units[channel], height], color="0.5", linewidth=1.0, zorder=1)
        axes.plot(left + _GATE, height, marker=look.marker, color=look.colour, markersize=8, zorder=4)
    return features


def parity_by_hand() -> Figure:
    """The sparse XNOR network that computes the parity of four logits, its weights set by hand."""
    weights = [torch.eye(4), torch.eye(2), -torch.ones(1, 1)]
    return learnt_weights(Network("xnor_ail", weights, f"{label('xnor_ail')}, weights set by hand"))
