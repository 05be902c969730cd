"""Cosine similarities of weight rows whose features one gate reads (a:correlations).

All features of a layer have the same inputs, so two features are as similar as their rows of the weight matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

import boolit
from boolit.errors import UserError
from boolit.lab.paper.figures.look import save, styled
from boolit.lab.paper.figures.networks import wiring
from boolit.lab.reports.style import style
from boolit.lab.results.names import paper_name
from boolit.lab.results.store import Store

EDGES = np.linspace(-1, 1, 81).tolist()
_COLUMNS = 3
_MANY_PAIRS = 200


@dataclass(frozen=True)
class Correlations:
    """Cosine similarities of the weight rows of one layer, over an activation's runs of one size.

    ``paired`` has the rows that one gate reads, or neighboring rows if the activation reads one channel at a time, and
    ``others`` all other pairs.
    """

    activation: str
    study: str
    layer: int
    width: int
    runs: int
    paired: Tensor
    others: Tensor

    def metrics(self) -> dict[str, float]:
        """Return means and standard deviations; NaN if there are too few pairs."""
        return {
            "paired_mean": float(self.paired.mean()),
            "paired_sd": _deviation(self.paired),
            "others_sd": _deviation(self.others),
        }


def measure_correlations(store: Store, layer: int = 1, frame: pd.DataFrame | None = None) -> list[Correlations]:
    """Measure every study and activation whose weights a store has kept, at its largest size, over all seeds.

    Args:
        store: the results folder.
        layer: the hidden layer, counted from 1.
        frame: the runs to measure; all by default.
    """
    frame = store.frame() if frame is None else frame
    kept = frame[(frame["model"] == "mlp") & (frame["state"] == "finished")]
    kept = kept[kept["key"].map(lambda key: store.weights(key).exists()).astype(bool)]
    if kept.empty:
        raise UserError(f"{store.folder} keeps no weights of a multi-layer perceptron; run a study with keep_weights = true")
    deep = kept[kept["depth"] >= layer]
    if deep.empty or layer < 1:
        raise UserError(f"layer is {layer}; the networks of {store.folder} have {kept['depth'].max()} hidden layers")
    measured = []
    for (study, profile, spec), group in deep.groupby(["study", "profile", "activation"], dropna=False, sort=False):
        sizes = group["widths"].str.split("-").str[layer - 1].astype(int)
        largest = group[sizes == sizes.max()]
        largest = largest[largest["parameters"] == largest["parameters"].max()]
        largest = largest[largest["widths"] == largest["widths"].iloc[0]]
        weights = torch.stack([_layer_weights(store.weights(key), layer) for key in largest["key"]])
        name, width = "-".join(str(part) for part in (study, profile) if isinstance(part, str) and part), int(sizes.max())
        similar = row_similarities(weights, channels_read_together(str(spec), width))
        measured.append(Correlations(str(spec), name, layer, width, len(largest), *similar))
    return measured


def _layer_weights(path: Path, layer: int) -> Tensor:
    try:
        return load_file(path)[f"linear.{layer - 1}.weight"]
    except (SafetensorError, KeyError, OSError) as error:
        raise UserError(
            f"{path} does not hold the weights of layer {layer} ({error}); delete it and run the study again"
        ) from None


def _deviation(values: Tensor) -> float:
    return float(values.std()) if len(values) > 1 else math.nan


def row_similarities(weights: Tensor, paired: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine similarities of pairs of rows that one gate reads, and of all other pairs.

    Shape: ``(…, rows, columns)`` and ``(rows, rows)`` to two flat tensors.
    """
    unit = torch.nn.functional.normalize(weights.double(), dim=-1)
    similar = (unit @ unit.mT).float()
    each_once = torch.ones_like(paired).triu(1)
    return similar[..., paired & each_once].flatten(), similar[..., ~paired & each_once].flatten()


def channels_read_together(spec: str, channels: int) -> Tensor:
    """Return which channels an activation reads together, without the diagonal: neighbors if it reads one at a time.

    Example:
        >>> channels_read_together("or_ail", 4).nonzero().tolist()
        [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    module, shared = boolit.activation(spec), torch.zeros(channels, channels, dtype=torch.bool)
    groups: list[tuple[int, ...]] = [(first, first + 1) for first in range(0, channels - 1, 2)]
    if module.channels[0] > 1:
        groups = [wire.inputs for wire in wiring(module, channels)]
    for first, second in {pair for group in groups for pair in permutations(group, 2)}:
        shared[first, second] = True
    return shared


def draw_correlations(results: Path, out: Path, format: str = "png") -> list[Path]:  # noqa: A002
    """Draw the correlations of every hidden layer of a results folder as ``out/correlations-LAYER.FORMAT``."""
    paths = []
    with Store(results) as store:
        frame = store.frame()
        for layer in range(1, 1 + max([1, *frame[frame["model"] == "mlp"]["depth"]])):
            paths.append(out / f"correlations-{layer}.{format}")
            figure = row_correlations(measure_correlations(store, layer, frame))
            out.mkdir(parents=True, exist_ok=True)
            save(figure, paths[-1], f"Cosine similarities of the weight rows of layer {layer}.")
    return paths


@styled
def row_correlations(measured: Sequence[Correlations]) -> Figure:
    """Draw a panel per activation: densities of the cosine similarity of paired rows and of all other pairs."""
    columns = min(_COLUMNS, len(measured))
    rows = math.ceil(len(measured) / columns)
    figure = Figure(figsize=(max(2.7 * columns, 4.4), 1.0 + 1.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    several = len({each.study for each in measured}) > 1
    for axes, each in zip(panels, measured, strict=False):
        _panel(axes, each, f"{each.study}: " if several else "")
    for axes in panels[len(measured) :]:
        axes.set_visible(False)
    for axes in panels[max(0, len(measured) - columns) : len(measured)]:
        axes.tick_params(labelbottom=True)  # the lowest of its column
    figure.supxlabel("cosine similarity of two rows of the weight matrix", fontsize=10)
    figure.supylabel("density", fontsize=10)
    looks = [
        Patch(color="0.8", label="all other pairs"),
        Line2D([], [], color="0.2", linewidth=1.6, label="pairs that a gate reads"),
    ]
    figure.legend(handles=looks, loc="outside upper center", ncols=2)
    return figure


def _panel(axes: Axes, each: Correlations, study: str) -> None:
    metrics = each.metrics()
    axes.hist(each.others.numpy(), EDGES, density=len(each.others) > 0, color="0.8")
    look: dict[str, Any] = {"histtype": "step", "linewidth": 1.6, "color": style(each.activation).color}
    wider = EDGES[:: 2 if len(each.paired) >= _MANY_PAIRS else 5]  # few pairs in narrow bins are all spikes
    axes.hist(each.paired.numpy(), wider, density=len(each.paired) > 0, **look)
    axes.axvline(0, color="0.4", linewidth=0.6)
    others = f"; others sd {metrics['others_sd']:.2f}" if len(each.others) > 1 else ""
    numbers = f"pairs {metrics['paired_mean']:+.2f}, sd {metrics['paired_sd']:.2f}{others}"
    axes.set_title(f"{study}{paper_name(each.activation, 'mathtext')}, {each.runs} × {each.width} rows", pad=16)
    axes.text(0.5, 1.02, numbers.replace("-", "−"), transform=axes.transAxes, ha="center", va="bottom", fontsize=8)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−0.5", "0", "0.5", "1"])
    axes.set_yticks([])
