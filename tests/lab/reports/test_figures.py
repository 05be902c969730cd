"""The figures show what their captions say: drawn data against the functions; and they become files."""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from pytorch_logit_logic import IL_AND, IL_OR, IL_XNOR
from torch import nn

from boolit import combine
from boolit.errors import UserError
from boolit.lab.reports.figures import FIGURES, draw
from boolit.lab.reports.figures.approximation import EDGES, clamped_gate, density, difference, normal_pairs
from boolit.lab.reports.figures.gates import plane
from boolit.lab.reports.figures.style import save
from boolit.lab.results.names import label
from boolit.logic import moments

OPS = ("and", "or", "xnor")


@lru_cache
def drawn(name: str) -> Figure:
    """A figure of the catalogue, drawn once for all tests."""
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


def test_rows_of_a_heatmap_are_y_and_columns_x() -> None:
    figure = drawn("relu-approximation")
    right, up, *_ = images(figure)
    assert set(right[:, 0]) == {0} and set(right[:, -1]) == {5}  # noqa: PT018
    assert set(up[0]) == {0} and set(up[-1]) == {5}  # noqa: PT018
    assert all(axes.images[0].origin == "lower" for axes in figure.axes[:4])


def test_two_relus_are_dead_where_or_is_negative() -> None:
    *_, total, exact = images(drawn("relu-approximation"))[:4]
    half = len(total) // 2
    assert (total[:half, :half] == 0).all()
    assert (total[half:] > 0).all()
    assert exact.min() < -4


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
def test_difference_panels_are_what_they_say(op: str) -> None:
    exact, approximate, gap, relative = images(drawn(f"difference-{op}"))[:4]
    np.testing.assert_allclose(gap, approximate - exact, atol=1e-15)
    np.testing.assert_allclose(relative, np.abs(approximate - exact) / np.abs(exact))
    assert np.isfinite(relative).all()


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


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("form", ["il", "ail", "nil", "nail"])
def test_densities_have_the_moments_they_are_labelled_with(op: str, form: str) -> None:
    found = density(f"{op}_{form}", normal_pairs(2**14))
    centres, width = (EDGES[1:] + EDGES[:-1]) / 2, np.diff(EDGES)
    mean = (centres * found * width).sum()
    sd = math.sqrt(((centres - mean) ** 2 * found * width).sum())
    assert (found * width).sum() == pytest.approx(1, abs=2e-3)
    assert (mean, sd) == pytest.approx(moments(op, form), abs=0.01)


@pytest.mark.parametrize(("op", "published"), [("and", IL_AND), ("or", IL_OR), ("xnor", IL_XNOR)])
def test_the_clamped_formula_saturates_as_the_published_package(op: str, published: type[nn.Module]) -> None:
    t = torch.linspace(-40, 40, 81)
    theirs = published()(torch.stack([t, t], -1)).squeeze(-1)
    ours = clamped_gate(op, t, t)
    far = t.abs() > 20
    torch.testing.assert_close(ours[far], theirs[far])
    torch.testing.assert_close(ours, theirs, atol=0.2, rtol=0)  # where float32 leaves few digits of 1 - p


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_written_with_its_caption_inside(name: str, tmp_path: Path) -> None:
    save(drawn(name), tmp_path / "figure.png", FIGURES[name].caption)
    data = (tmp_path / "figure.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert FIGURES[name].caption.split(":")[0].encode() in data


def test_draw_makes_the_folder_and_tells_each_file(tmp_path: Path) -> None:
    seen: list[Path] = []
    assert draw(["parity-weights"], tmp_path / "new" / "folder", "png", seen.append) == seen
    assert seen == [tmp_path / "new" / "folder" / "parity-weights.png"]
    assert seen[0].stat().st_size > 1000


@pytest.mark.parametrize(("format_", "magic"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_a_figure_is_the_same_bytes_each_time(format_: str, magic: bytes, tmp_path: Path) -> None:
    first, second = (draw(["parity-weights"], tmp_path / folder, format_)[0].read_bytes() for folder in "ab")
    assert first.startswith(magic)
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gate_and", "gate-and"),
        ("and", "gate-and or difference-and or gradient-and"),
        ("pathway", "pathways"),
        ("?", "choose from"),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(name: str, near: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(f"unknown figure {name!r}")) as caught:
        draw(["pathways", name], tmp_path, "png")
    assert near in str(caught.value)
    assert not list(tmp_path.iterdir())  # nothing is drawn before every name is known


def test_an_unknown_format_and_a_file_in_the_way_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown format 'gif'; choose one of png, svg, pdf"):
        draw(["pathways"], tmp_path, "gif")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*choose a folder"):
        draw(["parity-weights"], tmp_path / "file", "png")


def test_a_name_given_twice_is_drawn_once(tmp_path: Path) -> None:
    assert len(draw(["parity-weights", "parity-weights"], tmp_path, "svg")) == 1


def test_the_page_has_every_figure_and_its_caption() -> None:
    page = (Path(__file__).parents[3] / "docs" / "figures.md").read_text(encoding="utf-8")
    words = " ".join(page.split())
    for name, entry in FIGURES.items():
        assert f"boolit figures {name}" in words
        assert entry.caption in words, name
        assert entry.label is None or f"`{entry.label}`" in words


def test_the_page_shows_every_figure_in_a_small_file() -> None:
    docs = Path(__file__).parents[3] / "docs"
    shown = re.findall(r"!\[([a-z-]+)\]\(figures/([a-z-]+)\.png\)", (docs / "figures.md").read_text(encoding="utf-8"))
    assert {name for _, name in shown} == {name for name, _ in shown} == set(FIGURES)
    sizes = {path.stem: path.stat().st_size for path in (docs / "figures").glob("*.png")}
    assert set(sizes) >= set(FIGURES)
    assert max(sizes[name] for name in FIGURES) <= 150_000
    assert sizes["overview"] <= 120_000


def test_the_overview_shows_what_each_gate_reads_and_answers() -> None:
    figure = drawn("overview")
    wide, high = figure.get_size_inches()
    assert wide / high > 2.5
    wires, maps = figure.axes[:8:2], figure.axes[1:8:2]
    x, y = plane(points=200)
    expected = [combine(op, x, y, form="ail") for op in ("or", "and", "xnor")] + [torch.relu(x)]
    for axes, values in zip(maps, expected, strict=True):
        np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), values, atol=1e-12)
        signs = {text.get_position(): text.get_text() for text in axes.texts if text.get_text() in "+−0"}
        assert signs
        for (right, up), sign in signs.items():
            column, row = (int((place + 5) / 10 * 199) for place in (right, up))
            assert sign == {1: "+", -1: "−", 0: "0"}[int(values[row, column].sign())]
    read = [[text.get_text() for text in axes.texts] for axes in wires]
    assert [len(set(texts) & {"x", "y"}) for texts in read] == [2, 2, 2, 1]
    assert [texts[0] for texts in read] == [label(spec) for spec in ("or_ail", "and_ail", "xnor_ail", "relu")]
    words = [text for axes in (*wires, *maps) for text in (*axes.texts, axes.title) if text.get_text()]
    assert min(text.get_fontsize() for text in words) >= 16  # on a telephone, the picture is 390 of 1000 pixels wide


def test_a_file_of_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write 'figure.gif'.*png, svg, pdf"):
        save(Figure(), tmp_path / "figure.gif")


def test_only_what_is_drawn_is_imported() -> None:
    """The catalogue needs no matplotlib, and a report only the modules of its own figures."""
    code = """
import sys
import boolit.lab.reports.figures
assert "matplotlib" not in sys.modules
import boolit.lab.reports.page
found = [name for name in sys.modules if name.startswith("boolit.lab.reports.figures.")]
print(*sorted(name.rpartition(".")[2] for name in found))
assert "boolit.lab.datasets.czsl" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.split() == ["results", "study", "style"]
