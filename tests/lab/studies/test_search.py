"""The rules of the random search."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.lab.studies.search import RANGES, Bounds, Trial, best_first, hparams_to_toml, searched_hparams
from boolit.lab.training import Recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ALL = tuple(RANGES)


def recipe(**changes: object) -> Recipe:
    return Recipe.model_validate({"epochs": 1, "batch": 1} | changes)


def test_the_ranges_are_the_papers() -> None:
    ends = {name: (own.value(own.low), own.value(own.high)) for name, own in RANGES.items()}
    assert ends["beta1"] == pytest.approx((1 - 1e-3, 1 - 10**-0.5))
    assert ends["beta2"] == pytest.approx((1 - 1e-5, 0.9))
    assert ends["eps"] == pytest.approx((1e-10, 1e-6))
    assert ends["weight_decay"] == pytest.approx((1e-7, 1e-3))
    assert ends["learning_rate"] == pytest.approx((1e-4, 1))
    assert ends["peak"] == pytest.approx((0.1, 0.5))


def test_only_what_the_recipe_uses_is_searched() -> None:
    assert searched_hparams(recipe()) == list(ALL)
    assert searched_hparams(recipe(optimiser="sgd", schedule="cosine")) == ["weight_decay", "learning_rate"]


def test_settings_lie_within_the_bounds_and_fill_them() -> None:
    bounds = Bounds.initial(ALL)
    drawn = bounds.draw(2000, "parity", "relu", 0)
    assert bool(((drawn >= bounds.low) & (drawn <= bounds.high)).all())
    spread = (drawn.amax(0) - drawn.amin(0)) / (bounds.high - bounds.low)
    assert float(spread.min()) > 0.99


def test_more_trials_begin_with_the_same_ones_and_rounds_differ() -> None:
    bounds = Bounds.initial(ALL)
    assert torch.equal(bounds.draw(40, "a", 1), bounds.draw(120, "a", 1)[:40])
    assert not torch.equal(bounds.draw(40, "a", 1), bounds.draw(40, "a", 2))


def best_to_worst(xs: torch.Tensor) -> list[Trial]:
    return [Trial(x, {}, merit=-place) for place, x in enumerate(xs)]


def test_bounds_close_in_on_mean_and_weighted_deviation() -> None:
    bounds = Bounds.initial(["learning_rate"])
    best = torch.tensor([[-2.0], [-2.5], [-1.5], [-3.0], [-1.0]], dtype=torch.float64)
    tightened = bounds.tighten(best_to_worst(best))
    variance = (5 * 0 + 4 * 0.25 + 3 * 0.25 + 2 * 1 + 1 * 1) / 15
    assert float(tightened.low) == pytest.approx(-2 - 1.5 * variance**0.5)
    assert float(tightened.high) == pytest.approx(-2 + 1.5 * variance**0.5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 3))
def test_every_setting_of_any_round_is_a_valid_recipe(seed: int, width: float) -> None:
    bounds = Bounds.initial(ALL)
    middle = (bounds.low + bounds.high) / 2
    far = middle + width * torch.randn(5, len(ALL), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    tightened = bounds.tighten(best_to_worst(far))
    for x in (*tightened.draw(5, seed), tightened.low, tightened.high):
        recipe(**tightened.setting(x))


def test_the_best_five_decide() -> None:
    bounds = Bounds.initial(["peak"])
    trials = [Trial(torch.tensor([i / 10], dtype=torch.float64), {}, merit=-abs(i - 3)) for i in range(10)]
    assert [float(trial.x) for trial in best_first(trials)[:3]] == pytest.approx([0.3, 0.2, 0.4])
    wanted = bounds.tighten(best_to_worst(torch.tensor([[0.3], [0.2], [0.4], [0.1], [0.5]], dtype=torch.float64)))
    assert float(bounds.tighten(trials).high) == pytest.approx(float(wanted.high))


def test_the_written_file_is_read_as_it_was_found() -> None:
    found = {"or_ail": {"eps": 1.234e-09, "peak": 0.3}, "max+xnor_ail_d": {"beta1": 0.9876}}
    assert tomllib.loads(hparams_to_toml(found, "found for parity"))["hparams"] == found
