"""The generalised evaluation agrees with one that follows the protocol word by word, and with cases worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import trapezoid
from torch import Tensor

from boolit.lab.datasets.czsl import Curve, Pairs, compute_metrics, curves

PAIRS = Pairs.from_names(
    {
        "train": [("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")],
        "valid": [("b", "z"), ("a", "x")],
        "test": [("b", "y"), ("c", "x"), ("c", "y"), ("a", "y"), ("b", "x")],
    }
)
SEEN, UNSEEN = PAIRS.seen.tolist(), PAIRS.unseen("test").tolist()


def literally(scores: list[list[float]], y: list[int], k: int, split: str = "test") -> list[tuple[float, float, float]]:
    """Bias, seen and unseen accuracy of every point, by loops over images and pairs."""
    candidates = [p for p in range(len(PAIRS.numbers)) if bool(PAIRS.masks["train"][p]) or bool(PAIRS.masks[split][p])]

    def right(row: list[float], true: int, bias: float) -> bool:
        biased = [row[p] + (0.0 if p in SEEN else bias) for p in candidates]
        own = row[true] + (0.0 if true in SEEN else bias)
        return sum(value >= own for value in biased) - 1 < k  # itself is one of them

    def accuracy(bias: float, seen: bool) -> float:
        images = [right(row, true, bias) for row, true in zip(scores, y, strict=True) if (true in SEEN) == seen]
        return sum(images) / len(images) if images else 0.0

    critical = []
    for row, true in zip(scores, y, strict=True):
        if true not in SEEN and right(row, true, 1000.0):
            critical.append(sorted((row[p] for p in SEEN), reverse=True)[k - 1] - row[true] - 1e-4)
    chosen = sorted(critical)[:: max(1, len(critical) // 20)]
    return [(bias, accuracy(bias, True), accuracy(bias, False)) for bias in (*chosen, 1000.0)]


def points(curve: Curve) -> list[tuple[float, ...]]:
    return list(zip(curve.bias.tolist(), curve.seen.tolist(), curve.unseen.tolist(), strict=True))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, list[int]]:
    """Scores of two runs on a coarse grid, with many ties, or on a fine one; images of all pairs, or of one kind alone."""
    images, lift = draw(st.integers(1, 45)), draw(st.sampled_from([0.0, 3.0, 2000.0]))  # by chance, good, perfect
    values: st.SearchStrategy[Any] = draw(st.sampled_from([st.integers(-2, 2), st.integers(-500, 500).map(lambda n: n / 16)]))
    kinds = [SEEN + UNSEEN, SEEN, UNSEEN]
    y = draw(st.lists(st.sampled_from(draw(st.sampled_from(kinds))), min_size=images, max_size=images))
    drawn = draw(arrays(np.float32, (2, images, len(PAIRS.numbers)), elements=values))
    drawn[0, np.arange(images), y] += lift
    return torch.from_numpy(drawn), y


@given(cases(), st.sampled_from([1, 2, 3]))
@settings(max_examples=40)
def test_every_point_of_every_curve_is_the_literal_one(case: tuple[Tensor, list[int]], k: int) -> None:
    scores, y = case
    found = [of_depths[k - 1] for of_depths in curves(scores, torch.tensor(y), PAIRS, "test")]
    for run, curve in zip(scores.double().tolist(), found, strict=True):
        expected = literally(run, y, k)
        assert len(curve.bias) == len(expected)
        assert np.allclose(points(curve), expected, rtol=0, atol=1e-9)
        seen, unseen = ([point[part] for point in expected] for part in (1, 2))
        assert curve.area == pytest.approx(trapezoid(seen, unseen), abs=1e-12)


@given(st.lists(st.floats(-100, 100, width=32), min_size=8 * 45, max_size=8 * 45), st.integers(0, 2**30))
@settings(max_examples=5)
def test_any_scores_have_the_literal_areas(values: list[float], seed: int) -> None:
    y = torch.randint(len(SEEN + UNSEEN), (45,), generator=torch.Generator().manual_seed(seed))
    y = torch.tensor(SEEN + UNSEEN)[y]
    # On a grid, as scores that differ by a rounding error only could turn either way.
    scores = torch.tensor(values, dtype=torch.float64).view(1, 45, 8).mul(2**10).round().div(2**10)
    found = compute_metrics(scores, y, PAIRS, "test")
    for k, name in enumerate(("auc", "auc2", "auc3"), start=1):
        _, seen, unseen = zip(*literally(scores[0].tolist(), y.tolist(), k), strict=True)
        assert float(found[name]) == pytest.approx(trapezoid(seen, unseen), abs=1e-12)


def confident(y: list[int], margin: float, spread: float = 0.0) -> Tensor:
    """Scores of 0, but for the true pairs; these are a margin above, and not all the same."""
    scores = torch.zeros(1, len(y), len(PAIRS.numbers))
    scores[0, torch.arange(len(y)), torch.tensor(y)] = margin + spread * torch.linspace(0, 1, len(y))
    return scores


def test_a_perfect_network_has_the_whole_area() -> None:
    y = (SEEN + UNSEEN) * 10
    found = compute_metrics(confident(y, 5000.0), torch.tensor(y), PAIRS, "test")
    assert {name: float(value) for name, value in found.items()} == dict.fromkeys(found, 1.0)


def test_a_bias_of_1000_drowns_margins_below_it() -> None:
    """The protocol's upper end has no seen image right then, and its last step is a triangle."""
    y = SEEN * 25 + UNSEEN * 40
    (of_depths,) = curves(confident(y, 10.0, spread=5.0), torch.tensor(y), PAIRS, "test")
    curve = of_depths[0]
    assert (float(curve.seen[0]), float(curve.unseen[0])) == (1.0, 0.0)
    assert (float(curve.seen[-1]), float(curve.unseen[-1])) == (0.0, 1.0)
    assert 1 - 1 / 20 <= curve.area < 1
    (same,) = curves(confident(y, 10.0), torch.tensor(y), PAIRS, "test")
    assert same[0].area == 0.5  # all images turn at once


def test_chance_has_next_to_no_area() -> None:
    y = torch.tensor(SEEN + UNSEEN).repeat(300)
    scores = torch.rand(4, len(y), len(PAIRS.numbers), generator=torch.Generator().manual_seed(0))
    found = compute_metrics(scores, y, PAIRS, "test")
    # Of the seven pairs to choose from, four are seen and three not: at each end, one in four and one in three is right.
    assert found["auc"].mean().item() == pytest.approx(0.5 / 12, abs=0.02)
    assert bool((found["auc"] < found["auc2"]).all() & (found["auc2"] < found["auc3"]).all())


def test_a_network_that_knows_seen_pairs_only_needs_the_bias() -> None:
    y = SEEN * 10 + UNSEEN * 10
    scores = confident(y, 3.0, spread=1.0)
    scores[..., SEEN] += 20.0
    (of_depths,) = curves(scores, torch.tensor(y), PAIRS, "test")
    without = literally(scores[0].double().tolist(), y, 1)
    assert all(bias > 10 for bias, _, _ in without)  # at 0, no unseen image is right
    assert np.allclose(points(of_depths[0]), without)
    assert of_depths[0].area > 0.9


def test_if_no_unseen_image_can_be_right_the_area_is_0() -> None:
    y = SEEN * 10 + UNSEEN * 10
    scores = confident(y, 5.0)
    scores[:, len(SEEN * 10) :] *= -1
    found = compute_metrics(scores, torch.tensor(y), PAIRS, "test")
    assert float(found["auc"]) == 0.0


def test_one_score_for_all_pairs_is_never_right() -> None:
    y = torch.tensor(SEEN + UNSEEN)
    found = compute_metrics(torch.zeros(2, len(y), len(PAIRS.numbers)), y, PAIRS, "test")
    assert float(found["auc"].max()) == 0.0


def test_pairs_of_other_splits_are_left_out() -> None:
    y = SEEN + UNSEEN
    scores = confident(y, 5.0)
    other = PAIRS.unseen("valid").tolist()
    scores[..., other] = 1e6
    plain = compute_metrics(confident(y, 5.0), torch.tensor(y), PAIRS, "test")
    assert all(
        torch.equal(value, plain[name]) for name, value in compute_metrics(scores, torch.tensor(y), PAIRS, "test").items()
    )


def test_a_diverged_run_does_not_disturb_the_others() -> None:
    y = torch.tensor(SEEN + UNSEEN)
    scores = torch.cat([confident(y.tolist(), 5.0), torch.full((1, len(y), len(PAIRS.numbers)), torch.nan)])
    found = compute_metrics(scores, y, PAIRS, "test")
    alone = compute_metrics(scores[:1], y, PAIRS, "test")
    assert all(float(found[name][0]) == float(alone[name]) for name in found)


def test_too_few_seen_pairs_are_told() -> None:
    few = Pairs.from_names({"train": [("a", "x"), ("b", "x")], "test": [("a", "y")]})
    with pytest.raises(ValueError, match="the 3 best of 2 seen pairs"):
        curves(torch.zeros(1, 1, 3), torch.tensor([1]), few, "test")
