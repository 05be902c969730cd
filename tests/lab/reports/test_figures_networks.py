"""Figures of networks: decisions, wires and weights as they are in the modules."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from boolit import activation
from boolit.lab.execute import execute
from boolit.lab.reports.figures import pathways as _pathways
from boolit.lab.reports.figures.gates import plane
from boolit.lab.reports.figures.networks import MLPWeights, hand_set_network, learnt_weights, probability, xor_decision
from boolit.lab.reports.figures.pathways import wiring
from boolit.lab.reports.figures.study import study_figures
from boolit.lab.reports.figures.style import NEGATIVE, POSITIVE
from boolit.lab.results.names import label
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study, plan


def quadrants(model: object, reach: float) -> bool:
    x, y = plane(reach, 60)
    points = torch.stack([x, y], -1).flatten(0, 1).float()
    return bool((probability(model, points).gt(0.5) == (points.prod(1) < 0)).all())


def test_xnor_has_all_quadrants_and_relu_only_the_samples() -> None:
    corners = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    relu = hand_set_network("relu")
    assert probability(relu, corners).gt(0.5).tolist() == [False, False, True, True]
    assert not quadrants(relu, 4.0)
    assert quadrants(hand_set_network("xnor_nil"), 4.0)
    assert quadrants(hand_set_network("xnor_nail"), 4.0)


def test_xor_decision_draws_probabilities_and_samples() -> None:
    points = torch.tensor([[1.0, 2.0], [-1.0, 1.0], [0.5, 1.0]])
    figure = xor_decision({"identity": lambda p: p[:, :1], "two logits": lambda p: p}, points, torch.tensor([[1], [0], [0]]))
    first, second = (np.asarray(axes.images[0].get_array()) for axes in figure.axes[:2])
    line = torch.linspace(-5, 5, 200)
    np.testing.assert_allclose(first[7], torch.sigmoid(line), atol=1e-6)
    np.testing.assert_allclose(second, torch.sigmoid(line[:, None] - line), atol=1e-6)
    titles = [axes.get_title() for axes in figure.axes[:2]]
    assert [title.split("\n")[0] for title in titles] == ["Identity", "two logits"]
    assert titles[0].endswith("66.7 % of samples right")
    negative, positive = (np.asarray(scatter.get_offsets()).tolist() for scatter in figure.axes[0].collections[-2:])
    assert (positive, negative) == ([[1.0, 2.0]], [[-1.0, 1.0], [0.5, 1.0]])
    limits = {image.get_clim() for axes in figure.axes[:2] for image in axes.images}
    assert limits == {(0, 1)}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "negative sample",
        "positive sample",
        "box of all samples",
    ]


def test_many_maps_are_in_rows_of_readable_panels_with_their_own_notes() -> None:
    points = torch.tensor([[1.0, 2.0], [-1.0, 1.0]])
    names = ["relu", "xnor_nil", "or_ail", "max", "tanh", "silu"]
    notes = {name: f"test accuracy {place}" for place, name in enumerate(names)}
    figure = xor_decision({name: lambda p: p[:, :1] for name in names}, points, torch.tensor([1, 0]), notes)
    FigureCanvasAgg(figure).draw()
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.images]
    assert [axes.get_title().split("\n")[:2] for axes in shown] == [[label(name), notes[name]] for name in names]
    assert min(axes.get_window_extent().width for axes in shown) >= 150
    boxes = [axes.get_tightbbox() for axes in shown]
    assert all(not a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_a_study_has_at_most_eight_maps_in_the_tables_order_and_relu_is_among_them(tmp_path: Path) -> None:
    specs = ["or_ail", "and_ail", "xnor_ail", "max", "min", "tanh", "silu", "gelu", "elu", "relu"]
    sets = ["data.train=32", "data.test=32", "training.epochs=1", f"sweep.activation={specs}"]
    with Store(tmp_path) as store:
        execute(plan(load_study("xor"), seeds=1, sets=sets), store, progress=False)
        records = store.records()
        order = ["gelu", *(spec for spec in specs if spec != "gelu")]
        found = {name: (caption, figure) for name, caption, figure in study_figures(records, store, order=order)}
    caption, figure = found["decisions"]
    titles = [axes.get_title().split("\n") for axes in figure.axes if axes.get_title()]
    assert [name for name, *_ in titles] == [label(spec) for spec in [*order[:7], "relu"]]
    assert all(score.startswith("test accuracy ") and score.endswith(" %") for _, score, _ in titles)
    assert "Not drawn: 2 further activations." in caption
    assert len([axes for axes in found["weights"][1].axes if axes.get_title()]) == 2  # the best, and relu or another


def pairs(start: int, stop: int) -> list[tuple[int, int]]:
    return [(channel, channel + 1) for channel in range(start, stop, 2)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("relu", [((i,), "relu") for i in range(12)]),
        ("or_ail", [(pair, "or_ail") for pair in pairs(0, 12)]),
        ("or_xnor_ail_p", [(p, "or_ail") for p in pairs(0, 6)] + [(p, "xnor_ail") for p in pairs(6, 12)]),
        ("or_xnor_ail_d", [(p, f"{op}_ail") for op in ("or", "xnor") for p in pairs(0, 12)]),
        (
            "or_and_xnor_ail_p",
            [(p, f"{op}_ail") for i, op in enumerate(("or", "and", "xnor")) for p in pairs(4 * i, 4 * i + 4)],
        ),
        ("or_and_xnor_ail_d", [(p, f"{op}_ail") for op in ("or", "and", "xnor") for p in pairs(0, 12)]),
        ("glu", [((i, i + 6), "glu") for i in range(6)]),
        ("xnor_ail_k6", [(tuple(range(6)), "xnor_ail_k6"), (tuple(range(6, 12)), "xnor_ail_k6")]),
        ("xnor_ail_k3_halves", [((i, i + 4, i + 8), "xnor_ail_k3_halves") for i in range(4)]),
    ],
)
def test_probed_wiring_is_the_definition(spec: str, expected: list[tuple[tuple[int, ...], str]]) -> None:
    assert [(wire.inputs, wire.gate.spec) for wire in wiring(activation(spec), 12)] == expected


def test_probing_leaves_the_module_as_it_was() -> None:
    module = activation("prelu")
    wiring(module, 4)
    assert next(module.parameters()).dtype == torch.float32


@pytest.mark.parametrize("spec", _pathways.PANELS)
def test_pathways_draw_every_wire_once(spec: str) -> None:
    axes = Figure().subplots()
    _pathways.pathway(axes, activation(spec), 12)
    wires = wiring(activation(spec), 12)
    before, after = _pathways.heights(12), _pathways.heights(len(wires))
    assert before == sorted(before, reverse=True)  # the first channel on top
    lines = [tuple(line.get_xydata().flatten()) for line in axes.lines]
    pre, gate = _pathways._PRE, _pathways._GATE
    found = sorted(line for line in lines if len(line) == 4 and line[0] == pre)
    assert found == sorted(
        (pre, before[i], gate, height) for wire, height in zip(wires, after, strict=True) for i in wire.inputs
    )
    texts = [text.get_text() for text in axes.texts]
    factor = {"relu": "C", "or_xnor_ail_d": "C", "or_and_xnor_ail_d": "3C/2"}.get(spec, "C/2")
    assert {f"{factor} = {len(wires)}", "C = 12"} <= set(texts)


def weight_lines(figure: Figure) -> set[tuple[str, float, float, float]]:
    """Colour, width, and the heights each line leads from and to."""
    lines = [line for line in figure.axes[0].lines if line.get_color() in (POSITIVE, NEGATIVE)]
    return {(line.get_color(), round(line.get_linewidth(), 6), *map(float, line.get_ydata())) for line in lines}


def test_lines_tell_the_weights() -> None:
    first, last = torch.tensor([[2.0, -1.0], [0.0, 0.5]]), torch.tensor([[-4.0]])
    orange, blue = POSITIVE, NEGATIVE
    assert weight_lines(learnt_weights(MLPWeights("xnor_ail", [first, last]))) == {
        (orange, 2.5, 0.5, 0.5),
        (blue, 1.25, -0.5, 0.5),
        (orange, 0.625, -0.5, -0.5),
        (blue, 5.0, 0.0, 0.0),
    }


def test_weights_that_do_not_fit_the_activation_are_refused() -> None:
    with pytest.raises(ValueError, match=r"xnor_ail makes 2 features of the 4 units of layer 0.*\(1, 4\).*2 columns"):
        learnt_weights(MLPWeights("xnor_ail", [torch.ones(4, 4), torch.ones(1, 4)]))


def test_the_hand_set_parity_network_computes_parity() -> None:
    gate = activation("xnor_ail")
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4)))
    output = -gate(gate(signs)).flatten()  # identity weights, then -1
    assert ((output > 0) == ((signs > 0).sum(1) % 2 == 1)).all()
