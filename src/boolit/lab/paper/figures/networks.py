"""Small networks: weights as lines between units (a:parity), and decisions in the plane (a:xor).

They are drawn with weights set by hand for the paper's figures, and of the trained networks of a study.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from safetensors.torch import load_file
from torch import Tensor, nn

from boolit.lab.datasets import load
from boolit.lab.models import restore
from boolit.lab.paper.figures.gates import plane
from boolit.lab.paper.figures.look import NEGATIVE, POSITIVE, PROBABILITY, png, styled
from boolit.lab.reports.report import Picture
from boolit.lab.reports.style import style
from boolit.lab.results.names import paper_name
from boolit.lab.results.statistics import ScoreFormat
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Result
from boolit.nn import Activation, Ensemble, activation

_MAX_LINE_WIDTH = 5.0  # points, of the largest weight in a network
_MAPS_IN_ROW = 4
_MANY_SAMPLES = 100  # from which on they are drawn smaller
_LAYER, _GATE = 2.2, 0.8  # how far a weight matrix and a gate reach to the right
MAX_DRAWABLE_WIDTH = 16  # lines between more units cannot be told apart
MAX_MAPS = 8  # decision maps of one figure: two rows of four
MAX_RUNS = 200  # of an activation in a figure of correlations


class MLPWeights(NamedTuple):
    """Weights of a multi-layer perceptron: activation, matrices (outputs, inputs) in order, and a title."""

    activation: str
    weights: Sequence[Tensor]
    title: str = ""


@styled
def learned_weights(*networks: MLPWeights) -> Figure:
    """Draw networks side by side: a line per weight, wide if it is large, orange if positive, blue if negative.

    Between layers, gates are drawn with the units they read and the feature they make.
    """
    tallest = max(max(weight.shape) for network in networks for weight in network.weights)
    widths = [_LAYER * len(network.weights) + _GATE * (len(network.weights) - 1) for network in networks]
    figure = Figure(figsize=(sum(widths) * 0.62 + 0.6, 1.3 + 0.42 * tallest), layout="constrained")
    panels = figure.subplots(1, len(networks), squeeze=False, width_ratios=widths)[0]
    for axes, network in zip(panels, networks, strict=True):
        _draw(axes, network)
    signs = {"positive weight": POSITIVE, "negative weight": NEGATIVE}
    handles = [Line2D([], [], color=color, linewidth=3, label=name) for name, color in signs.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _draw(axes: Axes, network: MLPWeights) -> None:
    largest = max(float(weight.abs().max()) for weight in network.weights)
    left, features = 0.0, _unit_heights(network.weights[0].shape[1])
    axes.scatter([left] * len(features), features, s=50, color="0.25", zorder=4)
    for index, height in enumerate(features):
        axes.text(left - 0.25, height, f"$x_{{{index}}}$", ha="right", va="center")
    for layer, weight in enumerate(network.weights):
        units = _unit_heights(weight.shape[0])
        _lines(axes, weight.detach(), left, features, units, largest)
        left += _LAYER
        axes.scatter([left] * len(units), units, s=50, facecolor="white", edgecolor="0.25", zorder=4)
        if layer < len(network.weights) - 1:
            features = _gates(axes, network.activation, left, units)
            left += _GATE
    axes.set_title(f"{network.title or paper_name(network.activation, 'mathtext')}\nlargest |weight| {largest:.2g}")
    axes.set(xlim=(-0.7, left + 0.2))
    axes.axis("off")


def _unit_heights(count: int) -> list[float]:
    return [(count - 1) / 2 - index for index in range(count)]


def _lines(axes: Axes, weight: Tensor, left: float, features: list[float], units: list[float], largest: float) -> None:
    # Small weights first, so that large ones lie on top.
    for flat in torch.argsort(weight.abs().flatten()).tolist():
        unit, feature = divmod(flat, weight.shape[1])
        value = float(weight[unit, feature])
        if value:
            color, width = (POSITIVE if value > 0 else NEGATIVE), _MAX_LINE_WIDTH * abs(value) / largest
            axes.plot([left, left + _LAYER], [features[feature], units[unit]], color=color, linewidth=width, zorder=2)


class Wire(NamedTuple):
    """An output channel: the input channels it depends on, and the activation that computes it."""

    inputs: tuple[int, ...]
    gate: Activation


def wiring(module: Activation, channels: int) -> list[Wire]:
    """Return the wire of every output channel of a module with this many input channels."""
    module = copy.deepcopy(module).double()
    x = _probes(module, channels)
    values = module(x)
    wires = []
    for output in range(values.shape[1]):
        slopes = torch.autograd.grad(values[:, output].sum(), x, retain_graph=True)[0]
        inputs = tuple(slopes.ne(0).any(0).nonzero().flatten().tolist())
        wires.append(Wire(inputs, _member(module, x[:, list(inputs)], values[:, output])))
    return wires


def _probes(module: Activation, channels: int) -> Tensor:
    """Return so many random inputs that every operand has a slope at one of them.

    An approximate XNOR of k passes a slope to one operand at a time, so 32 k inputs miss one with probability e⁻³².
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randn(32 * module.channels[0], channels, dtype=torch.float64, generator=generator).requires_grad_()


def _member(module: Activation, operands: Tensor, output: Tensor) -> Activation:
    """Return the member of an ensemble that gives this output for these operands."""
    if not isinstance(module, Ensemble):
        return module
    for part in module.parts:
        if part.width_multiple == operands.shape[1] and torch.allclose(part(operands)[:, 0], output):
            return part
    raise ValueError(f"no member of {module.spec} gives one of its outputs; a wiring needs gates that act on each group alone")


def _gates(axes: Axes, spec: str, left: float, units: list[float]) -> list[float]:
    """Draw the activation's wires and gates and return the heights of its features."""
    wires = wiring(activation(spec), len(units))
    if len({wire.inputs for wire in wires}) == len(wires):
        features = [sum(units[channel] for channel in wire.inputs) / len(wire.inputs) for wire in wires]
    else:
        features = _unit_heights(len(wires))
    for wire, height in zip(wires, features, strict=True):
        look = style(wire.gate.spec)
        for channel in wire.inputs:
            axes.plot([left, left + _GATE], [units[channel], height], color="0.5", linewidth=1.0, zorder=1)
        axes.plot(left + _GATE, height, marker=look.marker, color=look.color, markersize=8, zorder=4)
    return features


def parity_by_hand() -> Figure:
    """Draw the sparse XNOR network that computes the parity of four logits, with weights set by hand."""
    weights = [torch.eye(4), torch.eye(2), -torch.ones(1, 1)]
    return learned_weights(MLPWeights("xnor_ail", weights, f"{paper_name('xnor_ail', 'mathtext')}, weights set by hand"))


Model = Callable[[Tensor], Tensor]


@styled
def xor_decision(models: Mapping[str, Model], points: Tensor, labels: Tensor, note: str | Mapping[str, str] = "") -> Figure:
    """Draw the probability that each model gives to every point of the plane, far beyond the training samples.

    Args:
        models: by spec or by any name; each maps points to one logit per point, or to two, one per class.
        points: the training samples, of shape ``(n, 2)``.
        labels: 1 or True for positive samples, of shape ``(n,)`` or ``(n, 1)``.
        note: written under each title, one for all or one for each model.
    """
    positive = labels.flatten().bool()
    columns = min(_MAPS_IN_ROW, len(models))
    rows = -(-len(models) // columns)
    figure = Figure(figsize=(1.1 + 2.3 * columns, 0.5 + 2.95 * rows), layout="compressed")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, (name, model) in zip(panels.flat, models.items(), strict=False):
        right = float((probability(model, points).gt(0.5) == positive).float().mean())
        image = _decision(axes, model, reach=2.5 * float(points.abs().max()))
        samples = _samples(axes, points, positive)
        under = note if isinstance(note, str) else note.get(name, "")
        axes.set_title("\n".join(filter(None, [paper_name(name, "mathtext"), under, f"{100 * right:.3g} % of samples right"])))
    for axes in panels.flat[len(models) :]:
        axes.set_visible(False)
    figure.colorbar(
        image, ax=panels, label="probability of positive", pad=0.02, aspect=18 * rows, ticks=[0, 0.25, 0.5, 0.75, 1]
    )
    figure.legend(handles=samples, loc="outside lower center", ncols=len(samples))
    return figure


def probability(model: Model, points: Tensor) -> Tensor:
    """Return the probability of the positive class from a model with one logit, or two, one per class."""
    with torch.no_grad():
        logits = model(points).reshape(len(points), -1)
    return torch.sigmoid(logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0])


def _decision(axes: Axes, model: Model, reach: float) -> AxesImage:
    x, y = plane(reach, 200)
    values = probability(model, torch.stack([x, y], -1).flatten(0, 1).float()).reshape(x.shape).numpy()
    corners = (-reach, reach, -reach, reach)
    image = axes.imshow(values, cmap=PROBABILITY, vmin=0, vmax=1, origin="lower", extent=corners)
    if values.min() < 0.5 < values.max():
        line = np.linspace(-reach, reach, len(values))
        axes.contour(line, line, values, levels=[0.5], colors="0.15", linewidths=1.4)
    axes.set(xlabel="x", ylabel="y", aspect="equal")
    axes.label_outer()
    return image


def _samples(axes: Axes, points: Tensor, positive: Tensor) -> list[Artist]:
    drawn: list[Artist] = []
    size = 26 if len(points) <= _MANY_SAMPLES else 14
    looks = ((~positive, "white", "o", "negative sample"), (positive, "0.1", "s", "positive sample"))
    for chosen, color, marker, name in looks:
        x, y = points[chosen].T.numpy()
        edge = "0.1" if color == "white" else "white"
        drawn.append(axes.scatter(x, y, c=color, marker=marker, edgecolors=edge, linewidths=0.7, s=size, zorder=3, label=name))
    low, high = points.min(0).values.tolist(), points.max(0).values.tolist()
    box = Rectangle((low[0], low[1]), high[0] - low[0], high[1] - low[1], facecolor="none", edgecolor="0.1", linestyle="--")
    box.set(linewidth=1.1, label="box of all samples", zorder=2.5)
    drawn.append(axes.add_patch(box))
    return drawn


def xor_by_hand() -> Figure:
    """Draw the decisions of networks with one hidden layer of 2 units and weights set by hand."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    points = corners.repeat(10, 1) + 0.15 * torch.randn(40, 2, generator=generator)
    models = {spec: hand_set_network(spec) for spec in ("relu", "xnor_nil", "xnor_nail")}
    return xor_decision(models, points, points[:, 0] * points[:, 1] < 0, note="weights set by hand")


def hand_set_network(spec: str) -> nn.Sequential:
    """Return a network with 2 hidden units that solves XOR: |x - y| > 1 by ReLU, -XNOR(x, y) by an XNOR gate."""
    hidden = [[1.0, -1.0], [-1.0, 1.0]] if spec == "relu" else [[1.0, 0.0], [0.0, 1.0]]
    outer, bias = ([[2.0, 2.0]], [-2.0]) if spec == "relu" else ([[-1.5]], [0.0])
    first, last = nn.Linear(2, 2), nn.Linear(len(outer[0]), 1)
    first.load_state_dict({"weight": torch.tensor(hidden), "bias": torch.zeros(2)})
    last.load_state_dict({"weight": torch.tensor(outer), "bias": torch.tensor(bias)})
    return nn.Sequential(first, activation(spec), last)


def pictures(store: Store, frame: pd.DataFrame, metric: Metric, order: Sequence[str]) -> Iterator[Picture]:
    """Draw the networks whose weights a study has kept, for `boolit.lab.reports.report.write_report`.

    Of each activation, the seed with the best score on validation or training rows is drawn; test rows choose nothing.
    """
    kept = frame[(frame["state"] == "finished") & frame["key"].map(lambda key: store.weights(key).exists())]
    if kept.empty:
        return
    chosen = choose_by(kept, metric)
    ranked = kept.sort_values(chosen.key, ascending=chosen.goal == "min", kind="stable").groupby("activation", sort=False)
    places = {spec: place for place, spec in enumerate(order)}
    best = ranked.head(1).sort_values("activation", key=lambda specs: specs.map(places))
    results = {result.key: result for result in store.results(best["key"], history=False)}
    runs, seed = [results[key] for key in best["key"]], f"the seed with the best {chosen.key.replace('_', ' ')}"
    perceptrons = [run for run in runs if run.config.model.name == "mlp"]
    small = [run for run in perceptrons if max(run.config.widths, default=0) <= MAX_DRAWABLE_WIDTH]
    if small:
        caption = f"The weights of {seed}: wider lines for larger weights, orange positive, blue negative."
        yield _picture("weights", caption, learned_weights(*(_weights(run, metric, store) for run in _with_relu(small, 2))))
    if len(small) < len(perceptrons):
        caption = (
            "Cosine similarity of the rows of the first weight matrix that a gate reads together (neighbors, if it reads one), "
            "and of all other pairs of rows. Titles: runs × rows; mean and standard deviation of pairs, and of the others."
        )
        from boolit.lab.paper.figures.correlations import measure_correlations, row_correlations  # which import `wiring`

        measured = measure_correlations(store, frame=kept.groupby("activation").head(MAX_RUNS))
        measured.sort(key=lambda each: places.get(each.activation, len(places)))
        yield _picture("correlations", caption, row_correlations(measured))
    planes = [run for run in runs if run.config.inputs == (2,) and metric.percent]
    if planes:
        caption = (
            f"The probability that {seed} of each activation gives to every point of the plane. The dashed box holds all "
            "training samples (circles negative, squares positive); beyond it, the network extrapolates."
        )
        yield _picture("decisions", caption, _decisions(_with_relu(planes, MAX_MAPS), metric, store))


def choose_by(frame: pd.DataFrame, metric: Metric) -> Metric:
    """Return the metric that chooses the runs to draw: the study's on ``valid`` or ``train``, or the training loss."""
    others = (metric.model_copy(update={"split": split}) for split in ("valid", "train"))
    return next((other for other in others if other.key in frame), Metric.model_validate({"name": "loss", "split": "train"}))


def _picture(name: str, caption: str, figure: Figure) -> Picture:
    return Picture(name, caption, png(figure, caption))


def _with_relu(runs: Sequence[Result], most: int) -> list[Result]:
    """Return the first runs, the last of them replaced by ReLU's if that comes later."""
    relu = [run for run in runs[most:] if run.config.activation == "relu"]
    return [*runs[: most - 1], *relu] if relu else list(runs[:most])


def _weights(run: Result, metric: Metric, store: Store) -> MLPWeights:
    weights, spec = load_file(store.weights(run.key)), run.config.activation
    layers = [weights[f"linear.{layer}.weight"] for layer in range(len(run.config.widths) + 1)]
    return MLPWeights(spec, layers, f"{paper_name(spec, 'mathtext')}: {_score(run, metric)}")


def _decisions(runs: Sequence[Result], metric: Metric, store: Store) -> Figure:
    samples = load(runs[0].config.data).splits["train"]
    models = {}
    for run in runs:
        c = run.config
        models[c.activation] = restore(c.model, c.inputs, c.outputs, c.widths, c.activation, load_file(store.weights(run.key)))
    notes = {run.config.activation: _score(run, metric) for run in runs}
    return xor_decision(models, samples.x, samples.y.flatten(), notes)


def _score(run: Result, metric: Metric) -> str:
    form = ScoreFormat(metric.percent, 1 if metric.percent else 3)
    return f"{metric.key.replace('_', ' ')} {form.number(run.metrics[metric.key])}{form.unit}"
