"""One look: the same activation always looks the same, and no two of the paper do."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D
from PIL import Image

from boolit.lab.reports.figures import style as _style
from boolit.lab.reports.figures.networks import MLPWeights, learnt_weights
from boolit.lab.reports.figures.style import style
from boolit.lab.results.names import label
from boolit.lab.studies import load_study
from boolit.lab.studies.files import SHIPPED
from boolit.nn import known_specs

PAPER_FIGURE = [
    "relu",
    "silu",
    "max",
    "max_min_d",
    "signed_geomean",
    "and_ail",
    "xnor_ail",
    "or_ail",
    "or_and_ail_d",
    "or_xnor_ail_p",
    "or_xnor_ail_d",
    "or_and_xnor_ail_p",
    "or_and_xnor_ail_d",
]
# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as the three kinds of dichromats see it.
VISION = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def cielab(colour: str, matrix: object) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(matrix) @ linear, 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = np.array(to_xyz) @ seen / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_activations_of_the_papers_figures_are_told_apart_by_colour(vision: str) -> None:
    seen = {spec: cielab(style(spec).colour, VISION[vision]) for spec in PAPER_FIGURE}
    distance = min(np.linalg.norm(seen[a] - seen[b]) for a, b in itertools.combinations(seen, 2))
    assert distance > 15


def shown_together() -> set[frozenset[str]]:
    """Pairs of activations that one study compares."""
    studies = [load_study(path.stem) for path in sorted(SHIPPED.glob("*.toml"))]
    compared = [study.resolve(profile).study.sweep.activation for study in studies for profile in study.profiles or [None]]
    return {frozenset(pair) for specs in compared for pair in itertools.combinations(sorted(specs), 2)}


def test_activations_of_a_study_are_told_apart_by_colour_or_by_line_and_marker() -> None:
    @lru_cache
    def seen(colour: str) -> list[np.ndarray]:
        return [cielab(colour, matrix) for matrix in VISION.values()]

    pairs = shown_together()
    assert len(pairs) > 900
    for one, other in pairs:
        a, b = style(one), style(other)
        distance = min(np.linalg.norm(x - y) for x, y in zip(seen(a.colour), seen(b.colour), strict=True))
        lines, markers = (a.line, a.dashes) != (b.line, b.dashes), (a.marker, a.filling) != (b.marker, b.filling)
        assert distance > 15 or (lines and markers), (one, other, distance)


def test_lines_have_contrast_on_white() -> None:
    others = ["or_ail_k3", "nand_il", "my_activation", "max+xnor_ail_d", "foo"]
    for spec in [*known_specs(), *others]:
        assert _style.contrast_on_white(style(spec).colour) >= 3, spec
    assert min(map(_style.contrast_on_white, (_style.POSITIVE, _style.NEGATIVE))) >= 3


def test_no_two_activations_of_the_paper_look_the_same() -> None:
    beyond = {"nand", "nor", "xor", "implies", "nimplies", "implied"}
    paper = [spec for spec in known_specs() if spec.split("_")[0] not in beyond]
    assert len({style(spec) for spec in paper}) == len(paper) > 50


def test_forms_share_the_hue_and_differ_in_line_and_filling() -> None:
    styles = [style(f"or_xnor_{form}_d") for form in ("il", "ail", "nil", "nail")]
    assert len({(look.colour, look.marker) for look in styles}) == 1
    assert len({look.line for look in styles}) == len({look.filling for look in styles}) == 4


def test_the_style_of_any_spec_depends_on_its_name_alone_and_pyplot_is_left_alone() -> None:
    """Compared with another process, whose string hashes are seeded differently."""
    specs = ["or_ail_k3", "nand_il", "my_activation", "max+xnor_ail_d"]
    code = f"""
import sys
from boolit.lab.reports.figures import FIGURES
from boolit.lab.reports.figures.style import style
FIGURES["parity-weights"].draw()
assert "matplotlib.pyplot" not in sys.modules
print([tuple(style(spec)) for spec in {specs}])
"""
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert elsewhere.strip() == str([tuple(style(spec)) for spec in specs])


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789_+", min_size=1, max_size=30))
def test_every_name_has_a_style_matplotlib_takes(name: str) -> None:
    Line2D([0, 1], [0, 1], **style(name).plot_arguments())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("or_ail", r"OR$_{\mathrm{AIL}}$"),
        ("or_and_xnor_nail_d", r"OR, AND, XNOR$_{\mathrm{NAIL}}$ (d)"),
        ("max_min_d", "Max, Min (d)"),
        ("or_ail_k3", r"OR$_{\mathrm{AIL}}$ k=3"),
        ("signed_geomean", "SignedGeomean"),
        ("leaky_relu", "LeakyReLU"),
        ("tanh", "Tanh"),
        ("no such $", r"no such \$"),
    ],
)
def test_labels_are_the_papers(spec: str, expected: str) -> None:
    assert label(spec) == expected


def test_labels_are_as_distinct_as_specs() -> None:
    assert len({label(spec) for spec in known_specs()}) == len(known_specs())


def test_the_users_settings_neither_change_the_look_nor_are_changed() -> None:
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9}):
        figure = learnt_weights(MLPWeights("relu", [torch.ones(1, 1)]))
        assert matplotlib.rcParams["font.size"] == 30
    assert figure.axes[0].texts[0].get_size() == 9


@pytest.mark.parametrize("vision", VISION)
def test_the_two_ends_of_a_map_are_told_apart(vision: str) -> None:
    for colours in (_style.DIVERGING, _style.PROBABILITY):
        low, high = (cielab(to_hex(colours(end)), VISION[vision]) for end in (0.0, 1.0))
        assert np.linalg.norm(low - high) > 40


def test_a_small_png_has_few_colours_and_those_of_the_drawing(tmp_path: Path) -> None:
    figure = learnt_weights(MLPWeights("relu", [torch.ones(1, 1)]))
    _style.save(figure, tmp_path / "small.png", "A caption – of its own", small=True)
    with _style.look():
        figure.savefig(tmp_path / "full.png")
    with Image.open(tmp_path / "small.png") as small, Image.open(tmp_path / "full.png") as full:
        assert (small.mode, small.size, small.info["Description"]) == ("P", full.size, "A caption – of its own")
        apart = np.asarray(small.convert("RGB")).astype(int) - np.asarray(full.convert("RGB"))
        assert np.abs(apart).max() <= 24


def test_zero_is_exactly_white() -> None:
    assert _style.PROBABILITY(0.5) == (1.0, 1.0, 1.0, 1.0)
    assert _style.DIVERGING(0.5) == (1.0, 1.0, 1.0, 1.0) == _style.SEQUENTIAL(0.0)
