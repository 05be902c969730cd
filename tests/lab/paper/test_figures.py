"""The paper's figures: what is drawn is what the functions compute."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import save_file

from boolit import activation
from boolit.errors import UserError
from boolit.functional import combine
from boolit.lab.execute import execute
from boolit.lab.paper.figures import FIGURES, draw
from boolit.lab.paper.figures.approximation import difference
from boolit.lab.paper.figures.correlations import (
    channels_read_together,
    draw_correlations,
    measure_correlations,
    row_similarities,
)
from boolit.lab.paper.figures.gates import plane
from boolit.lab.paper.figures.look import NEGATIVE, POSITIVE, save
from boolit.lab.paper.figures.networks import (
    MLPWeights,
    choose_by,
    hand_set_network,
    learned_weights,
    pictures,
    probability,
    wiring,
    xor_decision,
)
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric
from boolit.lab.studies import load_study, plan

OPS = ("and", "or", "xnor")


@lru_cache
def drawn(name: str) -> Figure:
    return FIGURES[name].draw()


def images(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


@pytest.mark.parametrize(("op", "rough"), [("and", torch.minimum), ("or", torch.maximum), ("xnor", None)])
def test_gate_panels_are_the_functions_on_one_scale(op: str, rough: object) -> None:
    figure = drawn(f"gate-{op}")
    x, y = plane()
    third = rough(x, y) if callable(rough) else torch.sign(x * y) * (x * y).abs().sqrt()
    expected = [combine(op, x, y, form="il"), combine(op, x, y, form="ail"), third]
    panels = images(figure)[:3]
    for image, values in zip(panels, expected, strict=True):
        np.testing.assert_allclose(image, values, atol=1e-12)
    scales = {image.get_clim() for axes in figure.axes[:3] for image in axes.images}
    ((low, high),) = scales
    assert -low == high == max(np.abs(image).max() for image in panels)


@pytest.mark.parametrize(("op", "closed_form"), [("and", math.log(3)), ("or", math.log(3)), ("xnor", math.log(2))])
def test_the_stated_largest_difference_is_the_supremum(op: str, closed_form: float) -> None:
    figure = drawn(f"difference-{op}")
    text = next(text.get_text() for text in figure.axes[2].texts if "largest" in text.get_text())
    stated = float(re.search(r"[0-9.]+", text.split(":")[1])[0])
    assert stated == round(closed_form, 4)
    assert f"ln {round(math.exp(closed_form))}" in text
    side = torch.cat([-torch.logspace(-6, 2, 200, dtype=torch.float64), torch.logspace(-6, 2, 200, dtype=torch.float64)])
    everywhere = difference(op, side[:, None].expand(400, 400), side.expand(400, 400)).abs()
    assert everywhere.max() <= closed_form + 1e-9
    assert everywhere.max() > closed_form - 1e-5


@pytest.mark.parametrize("op", OPS)
def test_gradients_are_slopes_of_the_functions(op: str) -> None:
    il_x, il_y, ail_x, ail_y = images(drawn(f"gradient-{op}"))[:4]
    x, y = plane()
    step = 1e-6
    by_difference = (combine(op, x + step, y) - combine(op, x - step, y)) / (2 * step)
    np.testing.assert_allclose(il_x, by_difference, atol=1e-7)
    np.testing.assert_allclose(il_y, il_x.T, atol=1e-12)  # the gates are symmetric
    assert set(np.unique(ail_x)) <= {-1.0, 0.0, 1.0}
    assert (np.abs(ail_x) + np.abs(ail_y) >= 1).all()  # never both dead


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_written_with_its_caption_inside(name: str, tmp_path: Path) -> None:
    save(drawn(name), tmp_path / "figure.png", FIGURES[name].caption)
    data = (tmp_path / "figure.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert FIGURES[name].caption.split(":")[0].encode() in data


@pytest.mark.parametrize(("format_", "magic"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_a_figure_is_the_same_bytes_each_time(format_: str, magic: bytes, tmp_path: Path) -> None:
    first, second = (draw(["parity-weights"], tmp_path / folder, format_)[0].read_bytes() for folder in "ab")
    assert first.startswith(magic)
    assert first == second


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gate_and", "gate-and"),
        ("and", "gate-and, difference-and, gradient-and"),
        ("pathway", "pathways"),
        ("?", "choose from"),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(name: str, near: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(f"unknown figure {name!r}")) as caught:
        draw(["pathways", name], tmp_path, "png")
    assert near in str(caught.value)
    assert not list(tmp_path.iterdir())  # nothing is drawn before every name is known


def test_an_unknown_format_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown format 'gif'; choose one of png, svg, pdf"):
        draw(["pathways"], tmp_path, "gif")


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


def weight_lines(figure: Figure) -> set[tuple[str, float, float, float]]:
    lines = [line for line in figure.axes[0].lines if line.get_color() in (POSITIVE, NEGATIVE)]
    return {(line.get_color(), round(line.get_linewidth(), 6), *map(float, line.get_ydata())) for line in lines}


def test_lines_show_the_weights() -> None:
    first, last = torch.tensor([[2.0, -1.0], [0.0, 0.5]]), torch.tensor([[-4.0]])
    orange, blue = POSITIVE, NEGATIVE
    assert weight_lines(learned_weights(MLPWeights("xnor_ail", [first, last]))) == {
        (orange, 2.5, 0.5, 0.5),
        (blue, 1.25, -0.5, 0.5),
        (orange, 0.625, -0.5, -0.5),
        (blue, 5.0, 0.0, 0.0),
    }


def test_similarities_are_cosines_and_every_pair_counts_once() -> None:
    weights = torch.randn(3, 6, 9)
    paired, others = row_similarities(weights, channels_read_together("or_ail", 6))
    assert (len(paired), len(others)) == (3 * 3, 3 * (15 - 3))
    expected = torch.nn.functional.cosine_similarity(weights[:, ::2], weights[:, 1::2], dim=-1)
    assert torch.allclose(paired.sort().values, expected.flatten().sort().values, atol=1e-6)


def test_correlations_are_measured_at_the_largest_size_over_all_seeds(tmp_path: Path, make_result) -> None:
    store = Store(tmp_path)
    results = [make_result(a, s, widths=(w,), parameters=w) for s in range(3) for a in ("relu", "or_ail") for w in (4, 8)]
    store.record(results)
    with pytest.raises(UserError, match="keeps no weights"):
        measure_correlations(store)
    store.weights("key").parent.mkdir()
    for each in results:
        half = torch.randn(each.config.widths[0] // 2, 7)
        opposed = torch.stack([half, -half], 1).flatten(0, 1)  # every pair points in opposite directions
        save_file({"linear.0.weight": opposed}, store.weights(each.key))
    measured = {each.activation: each for each in measure_correlations(store)}
    assert set(measured) == {"relu", "or_ail"}
    assert (measured["or_ail"].width, measured["or_ail"].runs, len(measured["or_ail"].paired)) == (8, 3, 12)
    assert measured["or_ail"].metrics()["paired_mean"] == pytest.approx(-1)
    with pytest.raises(UserError, match=r"layer is 2; .* 1 hidden"):
        measure_correlations(store, layer=2)
    assert [path.name for path in draw_correlations(tmp_path, tmp_path / "figures", "svg")] == ["correlations-1.svg"]
    store.weights(results[-1].key).write_bytes(b"no weights")
    with pytest.raises(UserError, match="does not hold the weights of layer 1"):
        measure_correlations(store)


def test_pictures_of_trained_networks_follow_the_order_of_the_table(tmp_path: Path) -> None:
    sets = ["data.train=32", "data.test=32", "training.epochs=1", "sweep.activation=['relu', 'xnor_ail', 'max']"]
    planned, metric = plan(load_study("xor"), seeds=2, sets=sets), Metric(name="accuracy")
    with Store(tmp_path) as store, store.writing():
        execute(planned, store, progress=False)
        frame = store.frame()
        assert choose_by(frame, metric).split == "train"
        drawn = {picture.name: picture for picture in pictures(store, frame, metric, ["max", "relu", "xnor_ail"])}
    assert set(drawn) == {"weights", "decisions"}
    assert all(picture.png.startswith(b"\x89PNG") for picture in drawn.values())
