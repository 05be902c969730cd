"""How networks divide the plane when they solve XOR (a:xor)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from boolit.lab.reports.figures._names import label
from boolit.lab.reports.figures._plane import plane
from boolit.lab.reports.figures._style import DIVERGING, NEGATIVE, POSITIVE, styled
from boolit.nn import activation

Model = Callable[[Tensor], Tensor]


@styled
def xor_decision(models: Mapping[str, Model], points: Tensor, labels: Tensor, note: str = "") -> Figure:
    """The probability each model gives to every point of the plane, far beyond the training samples.

    Args:
        models: by spec or by any name; each maps points to one logit a point, or to two, one a class.
        points: the training samples.
        labels: 1 or True for positive samples.
        note: written under each title.

    Shape: points ``(n, 2)``, labels ``(n,)`` or ``(n, 1)``.
    """
    positive = labels.flatten().bool()
    figure = Figure(figsize=(0.9 + 2.9 * len(models), 3.6), layout="compressed")
    panels = figure.subplots(1, len(models), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, model) in zip(panels, models.items(), strict=True):
        right = float((probability(model, points).gt(0.5) == positive).float().mean())
        image = _decision(axes, model, reach=2.5 * float(points.abs().max()))
        _samples(axes, points, positive)
        axes.set_title("\n".join(filter(None, [label(name), note, f"{right:.0%} of samples right"])))
    figure.colorbar(image, ax=panels, label="probability of positive", pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1])
    return figure


def probability(model: Model, points: Tensor) -> Tensor:
    """What a model with one logit (or two, one a class) gives to the positive class.

    Shape: ``(n, 2)`` to ``(n,)``.
    """
    with torch.no_grad():
        logits = model(points).reshape(len(points), -1)
    return torch.sigmoid(logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0])


def _decision(axes: Axes, model: Model, reach: float) -> AxesImage:
    x, y = plane(reach, 200)
    values = probability(model, torch.stack([x, y], -1).flatten(0, 1).float()).reshape(x.shape).numpy()
    corners = (-reach, reach, -reach, reach)
    image = axes.imshow(values, cmap=DIVERGING, vmin=0, vmax=1, origin="lower", extent=corners)
    if values.min() < 0.5 < values.max():
        line = np.linspace(-reach, reach, len(values))
        axes.contour(line, line, values, levels=[0.5], colors="0.15", linewidths=1.4)
    axes.set(xlabel="x", ylabel="y", aspect="equal")
    axes.label_outer()
    return image


def _samples(axes: Axes, points: Tensor, positive: Tensor) -> None:
    """The samples, and a dashed box around all of them: what lies outside it is extrapolation."""
    for chosen, colour, marker in ((~positive, NEGATIVE, "o"), (positive, POSITIVE, "s")):
        x, y = points[chosen].T.numpy()
        axes.scatter(x, y, c=colour, marker=marker, edgecolors="white", linewidths=0.8, s=36, zorder=3)
    low, high = points.min(0).values.tolist(), points.max(0).values.tolist()
    size = (high[0] - low[0], high[1] - low[1])
    axes.add_patch(Rectangle((low[0], low[1]), *size, facecolor="none", edgecolor="0.15", linestyle="--", linewidth=0.8))


def xor_by_hand() -> Figure:
    """The same for networks with one hidden layer of 2 units whose weights are set by hand."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    points = corners.repeat(10, 1) + 0.15 * torch.randn(40, 2, generator=generator)
    models = {spec: hand_set(spec) for spec in ("relu", "xnor_nil", "xnor_nail")}
    return xor_decision(models, points, points[:, 0] * points[:, 1] < 0, note="weights set by hand")


def hand_set(spec: str) -> nn.Sequential:
    """A network with 2 hidden units that solves XOR: |x - y| > 1 by ReLU, -XNOR(x, y) by an XNOR gate."""
    hidden = [[1.0, -1.0], [-1.0, 1.0]] if spec == "relu" else [[1.0, 0.0], [0.0, 1.0]]
    outer, bias = ([[2.0, 2.0]], [-2.0]) if spec == "relu" else ([[-1.5]], [0.0])
    first, last = nn.Linear(2, 2), nn.Linear(len(outer[0]), 1)
    first.load_state_dict({"weight": torch.tensor(hidden), "bias": torch.zeros(2)})
    last.load_state_dict({"weight": torch.tensor(outer), "bias": torch.tensor(bias)})
    return nn.Sequential(first, activation(spec), last)
