"""How similar are the weight rows whose features one gate reads? Measured on finished runs, and drawn (a:correlations).

All features of a layer have the same inputs, so two of them are as similar as their rows of the weight matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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
from boolit.lab.reports.figures.style import save, style, styled
from boolit.lab.results.names import label
from boolit.lab.results.run_table import RunTable
from boolit.lab.results.store import Store
from boolit.lab.runs import Record

PROBES = 32
EDGES = np.linspace(-1, 1, 81).tolist()
_COLUMNS = 3
_MANY_PAIRS = 200


@dataclass(frozen=True)
class Correlations:
    """Cosine similarities of weight rows of one activation's runs of one size, in one layer.

    ``paired`` are of rows that one gate reads; where every gate reads one, of neighbouring rows (0, 1), (2, 3), … as if they
    were a pair. ``others`` are of all other pairs of rows.
    """

    activation: str
    study: str
    layer: int
    width: int
    runs: int
    paired: Tensor
    others: Tensor

    def metrics(self) -> dict[str, float]:
        """Means and standard deviations; NaN where there are too few pairs."""
        return {
            "paired_mean": float(self.paired.mean()),
            "paired_sd": _deviation(self.paired),
            "paired_negative": float((self.paired < 0).float().mean()),
            "others_mean": float(self.others.mean()),
            "others_sd": _deviation(self.others),
        }


def measure_correlations(store: Store, layer: int = 1, records: Sequence[Record] | None = None) -> list[Correlations]:
    """The correlations of every study and activation whose weights a store has kept, at its largest size, all seeds together.

    ``records`` limits it to some of the store's. Of several sizes with the same width in this layer, the one with the most
    parameters is the largest.
    """
    runs = (store.table() if records is None else RunTable.of(records)).where(lambda config: config.model["name"] == "mlp")
    kept = list(runs.take(runs.columns["finished"]).with_keys(store.kept_weights()))
    if not kept:
        raise UserError(f"{store.folder} keeps no weights of a multi-layer perceptron; run a study with keep_weights = true")
    deep = [record for record in kept if layer in range(1, len(record.config.width) + 1)]
    if not deep:
        depth = max(len(record.config.width) for record in kept)
        raise UserError(f"layer is {layer}; the networks of {store.folder} have {depth} hidden layers")
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in deep:
        groups.setdefault((_study(record), record.config.activation), []).append(record)
    return [_of_activation(study, spec, own, store, layer) for (study, spec), own in groups.items()]


def _of_activation(study: str, spec: str, own: Sequence[Record], store: Store, layer: int) -> Correlations:
    """Weights are stacked, so they must be of one size: the same widths before this layer, too."""

    def size(record: Record) -> tuple[int, int, list[int]]:
        config = record.config
        return config.width[layer - 1], config.parameters, config.width

    largest = max(map(size, own))
    chosen = [record for record in own if size(record) == largest]
    weights = torch.stack([_layer_weights(store.weights(record.key), layer) for record in chosen])
    width = largest[0]
    return Correlations(spec, study, layer, width, len(chosen), *row_similarities(weights, channels_read_together(spec, width)))


def _layer_weights(path: Path, layer: int) -> Tensor:
    try:
        return load_file(path)[f"linear.{layer - 1}.weight"]
    except (SafetensorError, KeyError, OSError) as error:
        fix = "delete it and run the study again in another folder"
        raise UserError(f"{path} does not hold the weights of layer {layer} ({error}); {fix}") from None


def _study(record: Record) -> str:
    return "-".join(filter(None, (record.config.study, record.config.profile)))


def _deviation(values: Tensor) -> float:
    return float(values.std()) if len(values) > 1 else math.nan


def row_similarities(weights: Tensor, paired: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine similarities of rows that are read together, and of those that are not.

    Shape: ``(…, rows, columns)`` and ``(rows, rows)``; all pairs of all matrices, flattened.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0]])
        >>> row_similarities(rows, torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]]).bool())
        (tensor([-1.]), tensor([0., 0.]))
    """
    unit = torch.nn.functional.normalize(weights.double(), dim=-1)
    similar = (unit @ unit.mT).float()
    each_once = torch.ones_like(paired).triu(1)
    return similar[..., paired & each_once].flatten(), similar[..., ~paired & each_once].flatten()


def channels_read_together(spec: str, channels: int) -> Tensor:
    """Which channels an activation reads together, found by changing one at a time; neighbours if it reads one at a time.

    Shape: ``(channels, channels)``, without the diagonal.

    Example:
        >>> channels_read_together("or_ail", 4).nonzero().tolist()
        [[0, 1], [1, 0], [2, 3], [3, 2]]
        >>> channels_read_together("glu", 4).nonzero().tolist()
        [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    module = boolit.activation(spec)
    if channels == 1:
        return torch.zeros(1, 1, dtype=torch.bool)
    if module.map[0] == 1:
        evenly = channels - channels % 2
        return torch.nn.functional.pad(channels_read_together("max", evenly), (0, channels - evenly) * 2)
    x = torch.randn(PROBES, 1, channels, generator=torch.Generator().manual_seed(0))
    changed = x + torch.diag(torch.full((channels,), 10.0))
    with torch.no_grad():
        depends = ((module(changed) - module(x)).abs() > 0).any(0).float()
    shared: Tensor = (depends @ depends.mT) > 0
    return shared & ~torch.eye(channels, dtype=torch.bool)


def write_correlations(found: Sequence[Correlations], folder: Path, layer: int) -> Path:
    """Draws them into the folder of a report, and returns the file."""
    path = folder / "report" / f"correlations-{layer}.png"
    path.parent.mkdir(exist_ok=True)
    save(row_correlations(found), path, f"Cosine similarities of the weight rows of layer {layer}.")
    return path


@styled
def row_correlations(found: Sequence[Correlations]) -> Figure:
    """A panel per activation: densities of the cosine similarity of paired rows and of all other pairs."""
    columns = min(_COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    figure = Figure(figsize=(max(2.7 * columns, 4.4), 1.0 + 1.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).flatten()
    several = len({each.study for each in found}) > 1
    for axes, each in zip(panels, found, strict=False):
        _panel(axes, each, f"{each.study}: " if several else "")
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    for axes in panels[max(0, len(found) - columns) : len(found)]:
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
    look: dict[str, Any] = {"histtype": "step", "linewidth": 1.6, "color": style(each.activation).colour}
    wider = EDGES[:: 2 if len(each.paired) >= _MANY_PAIRS else 5]  # few pairs in narrow bins are all spikes
    axes.hist(each.paired.numpy(), wider, density=len(each.paired) > 0, **look)
    axes.axvline(0, color="0.4", linewidth=0.6)
    numbers = f"pairs {metrics['paired_mean']:+.2f}, sd {metrics['paired_sd']:.2f}; others sd {metrics['others_sd']:.2f}"
    axes.set_title(f"{study}{label(each.activation)}, {each.runs} × {each.width} rows", pad=16)
    axes.text(0.5, 1.02, numbers.replace("-", "−"), transform=axes.transAxes, ha="center", va="bottom", fontsize=8)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−0.5", "0", "0.5", "1"])
    axes.set_yticks([])
