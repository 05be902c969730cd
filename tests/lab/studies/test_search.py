"""The random search: its rules, and a small search end to end with a made-up training."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.runs import Result, RunConfig
from boolit.lab.studies import Plan, load_study, plan
from boolit.lab.studies.search import (
    RANGES,
    Bounds,
    draw,
    hparams_to_toml,
    initial_bounds,
    plan_search,
    search,
    tighten,
    to_setting,
)
from boolit.lab.training import Recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def recipe(**changes: object) -> Recipe:
    return Recipe.model_validate({"epochs": 1, "batch": 1} | changes)


def paper_bounds(of: Recipe) -> Bounds:
    return initial_bounds(plan(load_study("parity")).study, of)


def test_the_first_bounds_are_the_papers() -> None:
    ends = {name: tuple(map(each.value, each.bounds)) for name, each in RANGES.items()}
    assert ends["beta1"] == pytest.approx((1 - 1e-3, 1 - 10**-0.5))
    assert ends["beta2"] == pytest.approx((1 - 1e-5, 0.9))
    assert ends["eps"] == pytest.approx((1e-10, 1e-6))
    assert ends["weight_decay"] == pytest.approx((1e-7, 1e-3))
    assert ends["learning_rate"] == pytest.approx((1e-4, 1))
    assert ends["peak"] == pytest.approx((0.1, 0.5))
    assert list(paper_bounds(recipe())) == list(RANGES)
    assert list(paper_bounds(recipe(optimizer="sgd", schedule="cosine"))) == ["weight_decay", "learning_rate"]


def test_draws_fill_the_bounds_and_more_trials_begin_with_the_same_ones() -> None:
    bounds = paper_bounds(recipe())
    points = draw(bounds, 2000, "parity", "relu", 0)
    for name, (low, high) in bounds.items():
        values = [x[name] for x in points]
        assert low <= min(values) < low + 0.01 * (high - low)
        assert high >= max(values) > high - 0.01 * (high - low)
    assert draw(bounds, 40, "parity", "relu", 0) == points[:40]
    assert draw(bounds, 40, "parity", "relu", 1) != points[:40]


def test_bounds_close_in_on_mean_and_weighted_deviation() -> None:
    best = [{"learning_rate": x} for x in (-2.0, -2.5, -1.5, -3.0, -1.0)]
    deviation = ((5 * 0 + 4 * 0.25 + 3 * 0.25 + 2 * 1 + 1 * 1) / 15) ** 0.5
    assert tighten(best)["learning_rate"] == pytest.approx((-2 - 1.5 * deviation, -2 + 1.5 * deviation))


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.lists(st.floats(-1, 2), min_size=5, max_size=5))
def test_every_setting_of_any_round_is_a_valid_recipe(seed: int, shares: list[float]) -> None:
    bounds = paper_bounds(recipe())
    far = [{name: low + share * (high - low) for name, (low, high) in bounds.items()} for share in shares]
    for x in draw(tighten(far), 5, seed):
        recipe(**to_setting(x))


class Fake:
    """A training whose metric is best at a learning rate of 0.01, and which counts what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[RunConfig] = []

    def __call__(self, configs: Sequence[RunConfig]) -> list[Result]:
        self.asked += configs
        return [self.result(config) for config in configs]

    def result(self, config: RunConfig) -> Result:
        error = abs(math.log10(float(config.training.learning_rate)) + 2)
        if error > 1.9:
            return Result(config, "diverged", {config.metric.key: math.nan})
        value = 1 - error / 4 if config.metric.goal == "max" else error
        return Result(config, "finished", {config.metric.key: value + (config.seed % 7) / 1000})


SHORT = {"rounds": 3, "trials": 30, "seeds": 4, "finalists": 5}


def planned(study: str = "parity", *sets: str) -> Plan:
    return plan_search(load_study(study), sets=["sweep.activation=['relu', 'xnor_ail']", *sets])


@pytest.mark.parametrize("sets", [(), ("data.name=parity8", "metric.name=rmse")])
def test_a_search_finds_the_best_setting_without_test_rows_or_the_studys_seeds(sets: tuple[str, ...]) -> None:
    train = Fake()
    results = search(planned("parity", *sets), train, **SHORT)
    assert results is not None
    assert [result.activation for result in results] == ["relu", "xnor_ail"]
    for result in results:
        assert 0.004 < result.setting["learning_rate"] < 0.025
        means = [finalist.mean for finalist in result.finalists]
        assert means == sorted(means, reverse=not sets)
    assert len(train.asked) == 2 * (3 * 30 + 5 * 4)
    assert all(run.trial and run.data.name == "holdout" and run.metric.split == "valid" for run in train.asked)
    seeds = {stage: {run.seed for run in train.asked if run.stage == stage} for stage in ("round 0", "round 1", "final")}
    assert not seeds["round 0"] & seeds["final"]
    assert min(seeds["round 0"] | seeds["final"]) > max(run.seed for run in plan(load_study("parity"), "paper").runs)
    again = search(planned("parity", *sets), Fake(), **SHORT)
    assert again == results


def test_diverged_finalists_count_as_the_worst() -> None:
    class Diverging(Fake):
        def result(self, config: RunConfig) -> Result:
            result = super().result(config)
            if config.stage == "final" and config.seed % 2:
                return Result(config, "diverged", {config.metric.key: math.nan})
            return result

    results = search(planned(), Diverging(), **SHORT)
    assert results is not None
    assert all(finalist.diverged == 2 for finalist in results[0].finalists)
    assert all(math.isfinite(finalist.mean) for finalist in results[0].finalists)


def test_an_interrupted_search_has_no_result() -> None:
    assert search(planned(), lambda _: None, **SHORT) is None


def test_a_search_needs_one_size_and_rows_to_choose_by() -> None:
    with pytest.raises(UserError, match="a search tunes one size"):
        plan_search(load_study("parity8"))
    train = Fake()
    search(plan_search(load_study("chorales"), sets=["sweep.activation='relu'"]), train, **SHORT)
    assert train.asked[0].data.model_dump()["share"] is None  # the data has a split valid


def test_the_written_file_is_read_as_it_was_found(tmp_path: Path) -> None:
    settings = {"xnor_ail": {"eps": 1.234e-09, "peak": 0.3}, "max+xnor_ail_d": {"beta1": 0.9876}}
    path = tmp_path / "found.toml"
    path.write_text(hparams_to_toml(settings, "found for parity"))
    assert tomllib.loads(path.read_text())["hparams"] == settings
    assert load_study("parity").resolve("quick", hparams=path)[0].tuned("xnor_ail").training.eps == 1.234e-09
