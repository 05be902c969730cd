"""Statistics of studies against scipy, and the verdicts that must not be given."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from boolit.errors import UserError
from boolit.lab.results.names import format_p
from boolit.lab.results.statistics import Summary, compare, hedges_g, sidak, student_p, verdict, welch_p
from boolit.lab.runs import Metric

ACCURACY, RMSE = Metric(name="accuracy"), Metric(name="rmse")
SAMPLES = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=3, max_size=9).filter(lambda v: len(set(v)) > 1)


def frame_of(values, metric=ACCURACY, diverged=None, **columns) -> pd.DataFrame:
    finished = [(name, "finished", value) for name, group in values.items() for value in group]
    rows = finished + [(name, "diverged", math.nan) for name, count in (diverged or {}).items() for _ in range(count)]
    defaults = {"depth": 1, "size": 36, "parameters": 36, "widths": "4", "trial": False, "settings": "a"}
    return pd.DataFrame(rows, columns=["activation", "state", metric.key]).assign(
        **{name: value for name, value in defaults.items() if name not in columns}, **columns
    )


@given(st.lists(SAMPLES, min_size=2, max_size=5), st.sampled_from([ACCURACY, RMSE]))
def test_all_pairs_are_welch_tests_with_sidaks_correction(samples, metric) -> None:
    values = {f"a{i}": v for i, v in enumerate(samples)}
    [comparison] = compare(frame_of(values, metric), metric)
    means = [metric.sign * s.mean for s in comparison.summaries]
    assert means == sorted(means, reverse=True)
    tests = len(samples) * (len(samples) - 1) // 2
    for a, b in combinations(comparison.summaries, 2):
        scipy = stats.ttest_ind(values[a.activation], values[b.activation], equal_var=False)
        df = math.floor(scipy.df + 1e-9)  # rounded down
        by_hand = 1 - (1 - 2 * stats.t.sf(abs(scipy.statistic), df)) ** tests
        assert comparison.p(a, b) == pytest.approx(by_hand, rel=1e-6, abs=1e-12)
        assert comparison.p(a, b) == comparison.p(b, a)
        pair = comparison.pair(a, b)
        assert pair.difference == pytest.approx(np.mean(values[a.activation]) - np.mean(values[b.activation]))
        excludes_zero = pair.interval[0] > 0 or pair.interval[1] < 0
        assert excludes_zero == (pair.p <= 0.05) or pair.p == pytest.approx(0.05, abs=1e-6)
        paper = stats.ttest_ind(values[a.activation], values[b.activation])
        assert student_p(a, b) == pytest.approx(paper.pvalue, rel=1e-6, abs=1e-12)


def test_equal_activations_rarely_get_a_winner() -> None:
    generator, winners = np.random.default_rng(0), 0
    for _ in range(300):
        values = {f"a{i}": generator.normal(size=40) for i in range(8)}
        winners += "significantly" in verdict(compare(frame_of(values), ACCURACY)[0])
    assert winners <= 0.08 * 300  # the paper's rule: about half of them


def test_shares_of_false_differences_stay_at_the_level() -> None:
    generator = np.random.default_rng(0)
    for k, n, ratio in ((2, 3, 10), (8, 3, 10), (8, 10, 1)):
        values = generator.normal(0, np.geomspace(1, ratio, k)[:, None], (2000, k, n))
        p = sidak(welch_p(values.mean(-1), values.std(-1, ddof=1), np.full(k, n)), k * (k - 1) // 2)
        first, second = np.triu_indices(k, 1)
        assert (p[:, first, second] <= 0.05).any(-1).mean() <= 0.06


def test_an_activation_with_diverged_runs_is_never_better() -> None:
    frame = frame_of(
        {"wild": [0.955, 0.956, 0.957], "steady": [0.8, 0.81, 0.8, 0.79], "relu": [0.5, 0.51, 0.5]}, diverged={"wild": 7}
    )
    [comparison] = compare(frame, ACCURACY)
    wild, steady, relu = comparison.summaries
    assert (wild.activation, wild.n, wild.runs, wild.diverged) == ("wild", 3, 10, 7)
    assert comparison.p(wild, steady) < 0.05
    assert not comparison.is_better(wild, steady)
    assert comparison.is_better(steady, relu)
    text = verdict(comparison)
    assert "7 of its 10 runs diverged" in text
    assert "steady is significantly better than ReLU" in text
    assert "wild is significantly" not in text


@pytest.mark.parametrize(
    "values",
    [
        {"a": [1.0, 1.0], "b": [0.5, 0.5]},
        {"a": [0.9, 0.95], "b": [0.1, 0.11]},
        {"a": [0.9, 0.9, 0.9], "b": [0.1, 0.1, 0.1]},
        {"a": [0.9], "b": [0.1, 0.2, 0.3]},
    ],
)
def test_no_verdict_without_runs_or_variance(values) -> None:
    [comparison] = compare(frame_of(values), ACCURACY)
    pair = comparison.pair(*comparison.summaries)
    assert math.isnan(pair.p)
    assert math.isnan(pair.effect)
    assert "significantly" not in verdict(comparison)
    assert "not tested against b" in verdict(comparison)


def test_depths_and_sizes_are_compared_apart_and_corrected_together() -> None:
    shallow = frame_of({"a": [0.9, 0.91, 0.92], "b": [0.5, 0.52, 0.51]}, depth=1)
    deep = frame_of({"a": [0.2, 0.21, 0.22], "b": [0.7, 0.72, 0.71]}, depth=2)
    first, second = compare(pd.concat([deep, shallow], ignore_index=True), ACCURACY)
    assert (first.label, first.leader.activation) == ("depth 1", "a")
    assert (second.label, second.leader.activation) == ("depth 2", "b")
    assert first.pairs == second.pairs == 2
    assert first.p(*first.summaries) > compare(shallow, ACCURACY)[0].p(*first.summaries)
    assert verdict(second).startswith("Depth 2: b has the highest mean")


def test_sizes_are_budgets_or_the_same_place_in_every_activations_widths() -> None:
    budgets = [frame_of({"a": [1, 2, 3], "b": [1, 2, 4]}, budget=b, size=b) for b in (65536, 1000)]
    assert [c.label for c in compare(pd.concat(budgets, ignore_index=True), RMSE.model_copy(update={"name": "accuracy"}))] == [
        "1k parameters",
        "65.5k parameters",
    ]
    rounded = [
        frame_of({"a": [1, 2, 3]}, widths="8-8", size=100),
        frame_of({"c": [1, 2, 3]}, widths="8-8", size=100),
        frame_of({"b": [1, 2, 3]}, widths="6-6", size=80),
        *(frame_of({name: [1, 2, 3]}, widths="16-16", size=300 + i) for i, name in enumerate("abc")),
    ]
    comparisons = compare(pd.concat(rounded, ignore_index=True), ACCURACY)
    assert [(c.label, len(c.summaries)) for c in comparisons] == [("width 8-8", 3), ("width 16-16", 3)]


def test_a_network_without_hidden_layers_is_compared_at_every_depth() -> None:
    parts = [
        frame_of({"identity": [1, 2, 3]}, depth=0),
        frame_of({"a": [1, 2, 3]}, depth=1),
        frame_of({"a": [1, 2, 3]}, depth=2),
    ]
    comparisons = compare(pd.concat(parts, ignore_index=True), ACCURACY)
    assert [{s.activation for s in c.summaries} for c in comparisons] == [{"identity", "a"}] * 2


def test_runs_of_different_settings_are_not_pooled() -> None:
    frame = pd.concat([frame_of({"relu": [0.1, 0.2]}), frame_of({"relu": [0.3]}, settings="b")], ignore_index=True)
    with pytest.raises(UserError, match="relu with 36 parameters was trained with 2 different settings"):
        compare(frame, ACCURACY)


def test_trials_are_left_out_and_missing_metrics_named() -> None:
    frame = pd.concat([frame_of({"relu": [0.1, 0.2]}), frame_of({"relu": [0.9]}, trial=True, settings="b")], ignore_index=True)
    [comparison] = compare(frame, ACCURACY)
    assert comparison.leader.n == 2
    with pytest.raises(UserError, match="no metric 'test_rmse'; on the split 'test' they have: test_accuracy"):
        compare(frame, RMSE)
    with pytest.raises(UserError, match="no runs to compare"):
        compare(frame[:0], ACCURACY)


def test_the_direction_is_the_metrics_own() -> None:
    mae = Metric(name="mae", goal="min", percent=False)
    [comparison] = compare(frame_of({"a": [0.1, 0.11, 0.12], "b": [5.0, 5.1, 5.2]}, mae), mae)
    assert comparison.leader.activation == "a"
    assert verdict(comparison).startswith(
        "a has the lowest mean test mae (0.11 ± 0.01, n = 3). It is significantly better than b"
    )


def test_a_highest_mean_is_not_called_best() -> None:
    [comparison] = compare(frame_of({"relu": [0.5, 0.6, 0.4], "tanh": [0.5, 0.62, 0.42]}), ACCURACY)
    assert verdict(comparison).startswith("Tanh has the highest mean test accuracy")
    assert "best" not in verdict(comparison)
    assert "not distinguishable from ReLU" in verdict(comparison)


def test_every_run_diverged() -> None:
    [comparison] = compare(frame_of({"a": []}, diverged={"a": 3, "b": 2}), ACCURACY)
    assert verdict(comparison) == "Every run diverged; there is nothing to compare."


def test_solved_runs_are_those_that_reach_the_threshold() -> None:
    metric = Metric(name="accuracy", solved=0.99)
    [comparison] = compare(frame_of({"a": [0.5, 0.99, 1.0]}, diverged={"a": 1}), metric)
    assert (comparison.leader.solved, comparison.leader.runs) == (2, 4)
    [comparison] = compare(frame_of({"a": [0.5, 0.99, 1.0]}, RMSE), Metric(name="rmse", solved=0.99))
    assert comparison.leader.solved == 2


def test_the_effect_is_hedges_g() -> None:
    effect = hedges_g(Summary("a", 5, 1.0, 0.5), Summary("b", 7, 0.4, 0.7))
    pooled = math.sqrt((4 * 0.25 + 6 * 0.49) / 10)
    assert effect == pytest.approx(0.6 / pooled * (1 - 3 / (4 * 10 - 1)), rel=1e-3)
    assert hedges_g(Summary("a", 2, 1.0, 0.5), Summary("b", 2, 0.1, 0.5)) == pytest.approx(1.8 * math.sqrt(1 / math.pi))


@given(st.floats(1e-300, 1))
def test_a_written_p_value_is_on_its_own_side_of_the_level(p: float) -> None:
    written = float(format_p(p))
    assert (written <= 0.05) == (p <= 0.05) or abs(p - 0.05) < 5e-5
    assert written == pytest.approx(p, rel=0.5)
