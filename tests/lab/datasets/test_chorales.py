"""The chorales' excerpts, and how they are transposed and changed."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import keys
from boolit.lab.datasets import source
from boolit.lab.datasets.chorales import (
    CELLS,
    LOWEST,
    PITCHES,
    SILENCE,
    TOKENS,
    change_notes,
    draw,
    draw_cells,
    excerpts,
    one_hot,
    tokens,
)

UNLIKELY = 1e-3  # the draws are the same at every time, so no test fails by chance
# Every voice has four different pitches, of the middle octaves, so that every operation is possible and nothing is folded.
SCALE = torch.tensor([[12, 14, 16, 17], [14, 16, 17, 19], [19, 17, 14, 12], [21, 12, 19, 14]], dtype=torch.uint8)


def chorale(steps: int, seed: int) -> list[list[int]]:
    drawn = np.random.default_rng(seed)
    return [[int(low) + 10 + int(drawn.integers(0, 12)) for low in LOWEST] for _ in range(steps)]


@pytest.fixture
def file(publish: Callable[..., None]) -> dict[str, list[list[list[int]]]]:
    parts = {"test": [chorale(33, 0)], "train": [chorale(40, 1), chorale(17, 2)], "valid": [chorale(160, 3)]}
    parts["train"][0][4][2] = -1
    publish("chorales", {"Jsb16thSeparated.json": json.dumps(parts).encode()})
    return parts


def drawn(x: Tensor, runs: int, batch: int, step: int = 0) -> tuple[Tensor, Tensor]:
    """Many draws of one excerpt."""
    batches = x.expand(runs, batch, 4, 4)
    return draw(batches, torch.ones(runs, batch, 1), keys(range(runs), "draw"), step)


def test_excerpts_are_four_quarters_of_one_chorale(file: dict[str, list[list[list[int]]]]) -> None:
    data = source({"name": "chorales"}).load()
    stored = data.splits["train"]
    assert (stored.x.shape, stored.y.shape, stored.x.dtype) == ((9, 4, 4), (9, 1), torch.uint8)
    pitches = np.array(file["train"][0])
    expected = [pitches[first + 4 * np.arange(4)] for first in range(0, 28, 4)]
    lowest = LOWEST.numpy()
    for window, excerpt in zip(expected, stored.x.numpy(), strict=False):
        assert np.array_equal(np.where(window < 0, SILENCE, window - lowest), excerpt)
    assert (data.task, data.outputs, data.inputs) == ("binary", 1, (592,))


@pytest.mark.usefixtures("file")
def test_validation_and_test_are_drawn_once() -> None:
    one, again = source({"name": "chorales"}).load(), source({"name": "chorales"}).load()
    other = source({"name": "chorales", "seed": 1}).load()
    for split, samples in (("valid", 37), ("test", 6)):
        assert len(one.splits[split]) == samples
        assert torch.equal(one.splits[split].x, again.splits[split].x)
        assert torch.equal(one.splits[split].y, again.splits[split].y)
    assert 8 < int(one.splits["valid"].y.sum()) < 29
    assert not torch.equal(one.splits["valid"].x, other.splits["valid"].x)
    assert torch.equal(one.splits["train"].x, other.splits["train"].x)


def test_a_pitch_that_no_window_holds_is_told() -> None:
    with pytest.raises(UserError, match="outside its voice's three octaves"):
        tokens([[60, 60, 60, 20]])
    with pytest.raises(UserError, match="three octaves"):
        tokens([[90, 60, 60, 50]])


def test_one_hot_has_a_one_in_the_place_of_each_note() -> None:
    x = torch.randint(0, TOKENS, (2, 3, 4, 4), dtype=torch.uint8)
    expected = torch.nn.functional.one_hot(x.long(), TOKENS).float().flatten(2)
    assert torch.equal(one_hot(x), expected)


def test_an_excerpt_shorter_than_four_steps_is_none() -> None:
    assert len(excerpts(torch.zeros(16, 4))) == 1


def test_the_label_says_whether_two_or_three_notes_were_changed() -> None:
    x, y = drawn(SCALE, 4, 4000)
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((4, 4000, 4, 4), torch.uint8, (4, 4000, 1), torch.float32)
    moved = x.view(-1, CELLS).long() - SCALE.view(-1).long()
    shift = moved.mode(1, keepdim=True).values
    differing = (moved != shift).sum(1)
    assert torch.equal(differing == 0, y.view(-1) == 1)
    assert set(differing.tolist()) == {0, 2, 3}
    counts = differing.bincount(minlength=4)
    assert stats.chisquare(counts[[0, 2, 3]], 16_000 * np.array([0.5, 0.25, 0.25])).pvalue > UNLIKELY
    assert sorted(set(shift.flatten().tolist())) == list(range(-5, 7))
    assert stats.chisquare((shift.flatten() + 5).bincount()).pvalue > UNLIKELY
    assert stats.chisquare((moved != shift).sum(0)).pvalue > UNLIKELY


def test_genuine_excerpts_are_transposed_only_and_silence_stays() -> None:
    rest = SCALE.clone()
    rest[1, 2] = SILENCE
    x, y = drawn(rest, 1, 500)
    genuine = x[y.view(1, -1) == 1].long()
    moved = genuine - rest.long()
    assert bool((genuine[:, 1, 2] == SILENCE).all())
    moved[:, 1, 2] = moved[:, 0, 0]
    assert bool((moved == moved[:, :1, :1]).all())


def test_what_leaves_the_three_octaves_comes_back_by_an_octave() -> None:
    x, y = drawn(torch.tensor([0, 35]).repeat(8).view(4, 4).to(torch.uint8), 1, 400)
    genuine = x[y.view(1, -1) == 1].view(-1, CELLS)[:, :2].long()
    shifts = {(low if low <= 6 else low - 12, high if high >= 30 else high + 12) for low, high in genuine.tolist()}
    assert shifts == {(shift, 35 + shift) for shift in range(-5, 7)}


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1, exclude_max=True, width=32), min_size=3, max_size=3))
def test_cells_are_distinct(where: list[float]) -> None:
    cells = draw_cells(torch.tensor([where])).tolist()[0]
    assert len(set(cells)) == 3
    assert set(cells) <= set(range(CELLS))


def test_every_triple_of_cells_is_as_likely() -> None:
    middles = [(torch.arange(count) + 0.5) / count for count in (16, 15, 14)]
    cells = draw_cells(torch.cartesian_prod(*middles))
    assert len({tuple(row) for row in cells.tolist()}) == 16 * 15 * 14


def gaussian(note: int) -> np.ndarray:
    """Another pitch around a note, in the words of a:jsb."""
    pitch = np.arange(PITCHES)
    if note == SILENCE:
        return np.append(np.full(PITCHES, 1 / PITCHES), 0)
    weight = stats.norm.cdf(pitch + 0.5, note, 3) - stats.norm.cdf(pitch - 0.5, note, 3)
    weight[note] = 0
    return np.append(weight / weight.sum(), 0)


def mixture(line: list[int], time: int) -> np.ndarray:
    """What becomes of a note, told slowly."""
    note, certain = line[time], np.eye(TOKENS)
    others = [other for other in line if other not in (note, SILENCE)]
    copied = np.mean([certain[other] for other in others], axis=0) if others else gaussian(note)
    extended = certain[line[time - 1]] if time and line[time - 1] != note else gaussian(note)
    uniform = (1 - certain[note]) / (TOKENS - 1)
    return (6 * gaussian(note) + 2 * copied + 2 * extended + uniform) / 11


@pytest.mark.parametrize(
    "line",
    [[12, 14, 19, 21], [12, 12, 14, 14], [9, 9, 9, 9], [1, 34, 1, 2], [SILENCE, 20, 20, SILENCE], [SILENCE] * 4],
    ids=str,
)
@pytest.mark.parametrize("time", [0, 2])
def test_a_note_is_changed_by_the_mixture_of_the_paper(line: list[int], time: int) -> None:
    n, voice = 40_000, 2
    excerpt = torch.zeros(4, 4, dtype=torch.int64)
    excerpt[:, voice] = torch.tensor(line)
    chances = torch.rand(2, n, 1)
    cells = torch.full((n, 1), 4 * time + voice)
    counts = change_notes(excerpt.view(1, CELLS).repeat(n, 1), cells, *chances).flatten().bincount(minlength=TOKENS).numpy()
    expected = mixture(line, time) * n
    assert counts[line[time]] == 0
    assert counts[expected == 0].sum() == 0
    often = expected > 5
    pooled = [np.append(each[often], each[~often].sum()) for each in (counts, expected)]
    kept = pooled[1] > 0
    assert stats.chisquare(pooled[0][kept], pooled[1][kept]).pvalue > UNLIKELY


def test_a_runs_draws_are_its_own_and_new_in_every_step() -> None:
    x, y = drawn(SCALE, 3, 50)
    alone = draw(SCALE.expand(1, 50, 4, 4), torch.ones(1, 50, 1), keys([2], "draw"), 0)
    assert torch.equal(alone[0], x[2:])
    assert torch.equal(alone[1], y[2:])
    assert not torch.equal(x[0], x[1])
    assert not torch.equal(drawn(SCALE, 3, 50, step=1)[0], x)


def test_drawing_leaves_the_stored_samples() -> None:
    stored, targets = SCALE.repeat(1, 20, 1, 1).view(1, 20, 4, 4), torch.ones(1, 20, 1)
    before = stored.clone()
    draw(stored, targets, keys([0], "draw"), 0)
    assert torch.equal(stored, before)
    assert bool((targets == 1).all())
