"""The paper's procedure against scipy called by hand, and the cases where there is little to test."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from boolit.errors import UserError
from boolit.lab.results.scores import Score, ScoreSummary, format_p, metric_of, scores, summarise
from boolit.lab.results.statistics import ComparisonMethod, compare, compare_summaries, holm, t_test
from boolit.lab.results.verdicts import verdict
from boolit.lab.runs import Metric, Record, Run

ACCURACY = Metric(name="accuracy")
LOSS = Metric(name="rmse")
SAMPLES = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=2, max_size=9).filter(lambda v: len(set(v)) > 1)


def close(a, b):
    return np.allclose(a, b, rtol=1e-9, atol=1e-12)


@given(st.lists(SAMPLES, min_size=2, max_size=5), st.booleans(), st.sampled_from([ACCURACY, LOSS]))
def test_each_activation_is_tested_against_the_best_as_scipy_does(samples, welch, metric):
    result = compare([Score(f"a{i}", 10, tuple(v)) for i, v in enumerate(samples)], metric, ComparisonMethod(welch=welch))
    means = [float(np.mean(v)) for v in samples]
    best = samples[int(result.best.activation[1:])]
    assert close(np.mean(best), max(means) if metric.goal == "max" else min(means))
    assert len(result.tests) == len(samples) - 1
    for found in result.tests:
        other = samples[int(found.other.activation[1:])]
        by_hand = stats.ttest_ind(best, other, equal_var=not welch)
        interval = by_hand.confidence_interval(0.95)
        assert close([found.statistic, found.p, found.df], [by_hand.statistic, by_hand.pvalue, by_hand.df])
        assert close(found.interval, [interval.low, interval.high])
        assert close([found.other.mean, found.other.standard_error], [np.mean(other), stats.sem(other)])
        assert (found in result.worse) == (by_hand.pvalue <= 0.05)
        assert (found in result.worse) != (found in result.indistinguishable)


@given(SAMPLES, SAMPLES)
def test_effect_is_hedges_g_and_its_interval_inverts_the_noncentral_t(a, b):
    found = t_test(*(summarise(Score(name, 1, tuple(v)), ACCURACY) for name, v in (("a", a), ("b", b))))
    df = len(a) + len(b) - 2
    pooled = math.sqrt(((len(a) - 1) * np.var(a, ddof=1) + (len(b) - 1) * np.var(b, ddof=1)) / df)
    correction = math.gamma(df / 2) / (math.sqrt(df / 2) * math.gamma((df - 1) / 2))
    assert close(found.effect, correction * (np.mean(a) - np.mean(b)) / pooled)
    low, high = np.array(found.effect_interval) / correction * math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    assert stats.nct.cdf(found.statistic, df, low) == pytest.approx(0.975, abs=1e-4)
    assert stats.nct.cdf(found.statistic, df, high) == pytest.approx(0.025, abs=1e-4)


def test_intervals_cover_the_truth_as_often_as_they_say():
    generator, true, hits = np.random.default_rng(0), 0.8, np.zeros(2)
    for _ in range(400):
        groups = (generator.normal(true, 1, 5), generator.normal(0, 1, 7))
        found = t_test(*(summarise(Score(str(i), 1, tuple(g)), ACCURACY) for i, g in enumerate(groups)))
        correction = math.gamma(5) / (math.sqrt(5) * math.gamma(4.5))
        hits += [
            found.interval[0] <= true <= found.interval[1],
            found.effect_interval[0] <= correction * true <= found.effect_interval[1],
        ]
    assert np.all(hits / 400 >= 0.92)
    assert np.all(hits / 400 <= 0.98)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.01, 0.2))
def test_holm_rejects_what_its_steps_reject(p_values, alpha):
    rejected = set()
    for step, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[i] * (len(p_values) - step) > alpha:
            break
        rejected.add(i)
    corrected = holm(p_values)
    assert {i for i, p in enumerate(corrected) if p <= alpha} == rejected
    assert all(p <= q <= min(1, len(p_values) * p) + 1e-12 for p, q in zip(p_values, corrected, strict=True))


def test_holm_leaves_out_tests_that_were_not_made():
    corrected = holm([0.02, math.nan, 0.03])
    assert corrected[::2] == [0.04, 0.04]
    assert math.isnan(corrected[1])


def test_holm_decides_if_asked():
    summaries = [
        ScoreSummary.from_standard_error(name, mean, 0.1, n=10)
        for name, mean in (("a", 1.0), ("b", 0.65), ("c", 0.64), ("d", 0.63))
    ]
    plain, corrected = (compare_summaries(summaries, LOSS, ComparisonMethod(holm=flag)) for flag in (False, True))
    assert [c.p for c in plain.tests] == [c.p for c in corrected.tests]
    assert [c.p_holm for c in corrected.tests] == holm([c.p for c in plain.tests])
    assert [c.other.activation for c in plain.worse] == ["a"]
    summaries = [
        ScoreSummary.from_standard_error(name, mean, 0.1, n=10)
        for name, mean in (("a", 1.0), ("b", 0.69), ("c", 0.69), ("d", 0.69))
    ]
    plain, corrected = (compare_summaries(summaries, ACCURACY, ComparisonMethod(holm=flag)) for flag in (False, True))
    assert len(plain.worse) == 3
    assert corrected.worse == ()


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_an_activation_is_shown_at_its_best_size_whatever_the_order(order):
    given_scores = [
        Score("relu", 100, (0.5, 0.6)),
        Score("relu", 400, (0.7, 0.8)),
        Score("or_ail", 100, (0.9, 0.8)),
        Score("or_ail", 400, (0.1, 0.2)),
    ]
    result = compare([given_scores[i] for i in order], ACCURACY)
    assert [(s.activation, s.size) for s in result.ranking] == [("or_ail", 100), ("relu", 400)]
    lowest = compare([given_scores[i] for i in order], LOSS)
    assert [(s.activation, s.size) for s in lowest.ranking] == [("or_ail", 400), ("relu", 100)]


def test_of_equal_means_the_smaller_size_counts():
    result = compare([Score("relu", size, (0.5, 0.7)) for size in (400, 100)], ACCURACY)
    assert result.best.size == 100


def test_diverged_runs_are_left_out_and_counted_or_count_as_the_worst():
    given_scores = [Score("steady", 1, (0.7, 0.72, 0.71)), Score("wild", 1, (0.9, 0.2), diverged=2)]
    left_out = compare(given_scores, ACCURACY)
    assert [(s.activation, s.n, s.runs, s.diverged) for s in left_out.ranking] == [("steady", 3, 3, 0), ("wild", 2, 4, 2)]
    counted = compare(given_scores, ACCURACY, ComparisonMethod(diverged="worst")).ranking[1]
    assert (counted.n, counted.runs, counted.diverged) == (4, 4, 2)
    assert counted.mean == pytest.approx((0.9 + 0.2 * 3) / 4)
    counted = compare(given_scores, LOSS, ComparisonMethod(diverged="worst")).ranking[1]
    assert counted.mean == pytest.approx((0.9 * 3 + 0.2) / 4)


def test_solved_runs_are_those_at_or_beyond_the_threshold():
    score = Score("relu", 1, (0.5, 0.99, 1.0), diverged=1)
    assert summarise(score, ACCURACY, solved=0.99).solved == 2
    assert summarise(score, LOSS, solved=0.99).solved == 2
    assert summarise(score, ACCURACY, instead=1.0, solved=0.99).solved == 2
    assert summarise(score, ACCURACY).solved is None


@pytest.mark.parametrize("welch", [False, True])
def test_one_value_is_no_test(welch):
    result = compare(
        [Score("a", 1, (0.9, 0.8)), Score("b", 1, (0.5,)), Score("c", 1, (), 3)], ACCURACY, ComparisonMethod(welch=welch)
    )
    assert all(math.isnan(c.p) and math.isnan(c.effect) for c in result.tests)
    assert result.worse == result.indistinguishable == ()
    assert result.tests[0].difference == pytest.approx(0.35)


@pytest.mark.parametrize("welch", [False, True])
def test_no_variance_at_all_is_the_limit_of_the_test(welch):
    result = compare(
        [Score(n, 1, (v, v, v)) for n, v in (("a", 0.9), ("b", 0.9), ("c", 0.1))], ACCURACY, ComparisonMethod(welch=welch)
    )
    assert [c.p for c in result.tests] == [1.0, 0.0]
    assert [c.effect for c in result.tests] == [0.0, math.inf]
    assert result.tests[1].interval == pytest.approx((0.8, 0.8))


def test_no_variance_in_one_group_is_an_ordinary_test():
    found = t_test(summarise(Score("a", 1, (0.5, 0.5, 0.5)), ACCURACY), summarise(Score("b", 1, (0.1, 0.2, 0.6)), ACCURACY))
    assert found.p == pytest.approx(stats.ttest_ind_from_stats(0.5, 0, 3, 0.3, np.std([0.1, 0.2, 0.6], ddof=1), 3).pvalue)


def test_nothing_to_compare():
    with pytest.raises(UserError, match="nothing to compare"):
        compare([], ACCURACY)
    with pytest.raises(UserError, match="between 0 and 1, not 5"):
        ComparisonMethod(alpha=5)
    with pytest.raises(UserError, match="not 'ignore'"):
        ComparisonMethod(diverged="ignore")  # type: ignore[arg-type]


def record(activation="relu", seed=0, value: float | None = 0.5, state="finished", **rest):
    metric = {"name": "accuracy", "split": "test", "goal": "max"}
    run = Run.from_dict({"activation": activation, "seed": seed, "parameters": 36, "budget": None, "metric": metric} | rest)
    return Record(run.key, run.config, state, {} if value is None else {"test_accuracy": value})


@given(st.permutations(range(4)))
def test_scores_are_by_activation_size_and_depth_and_in_order_of_seed(order):
    records = [record(seed=seed, value=seed / 10) for seed in order]
    records += [record("or_ail", budget=100), record("or_ail", budget=100, parameters=99, seed=1), record(depth=3)]
    assert scores(records, "test_accuracy") == [
        Score("or_ail", 100, (0.5, 0.5)),
        Score("relu", 36, (0.0, 0.1, 0.2, 0.3)),
        Score("relu", 36, (0.5,), depth=3),
    ]


def test_a_run_without_a_finite_value_counts_as_diverged():
    records = [record(seed=0), record(seed=1, value=math.nan), record(seed=2, value=0.9, state="diverged")]
    records += [record(seed=3, value=None, state="diverged"), record(seed=4, value=math.inf)]
    assert scores(records, "test_accuracy") == [Score("relu", 36, (0.5,), diverged=4)]
    with pytest.raises(UserError, match="has no metric 'test_loss'; it has test_accuracy"):
        scores(records, "test_loss")


def test_runs_of_different_settings_are_not_pooled():
    with pytest.raises(UserError, match="seed 1 of relu with 36 parameters is there more than once"):
        scores([record(seed=0), record(seed=1), record(seed=1, epochs=5)], "test_accuracy")


def test_the_metric_is_the_studys():
    assert metric_of([record()]) == Metric(name="accuracy")
    loss = record(metric={"name": "rmse", "split": "validation", "goal": "min"})
    assert metric_of([loss]) == Metric(name="rmse", split="validation")
    with pytest.raises(UserError, match="these have test_accuracy, validation_rmse"):
        metric_of([record(), loss])
    with pytest.raises(UserError, match="no runs"):
        metric_of([])


def summaries(**means: float) -> list[ScoreSummary]:
    return [ScoreSummary.from_standard_error(name, mean, 0.004, n=32) for name, mean in means.items()]


@pytest.mark.parametrize(
    ("given_summaries", "method", "sentence"),
    [
        (
            summaries(xnor_ail=0.932, xnor_nail=0.925, tanh=0.9, relu=0.6, or_ail=0.89),
            ComparisonMethod(),
            "XNORₐᵢₗ is best (93.2 ± 0.4 %, n = 32); significantly better than ReLU (p = 5e-56) and 2 others, "
            "not distinguishable from XNORₙₐᵢₗ (p = 0.22).",
        ),
        (
            summaries(a=0.932, b=0.931, c=0.93, d=0.929, e=0.928),
            ComparisonMethod(welch=True, holm=True),
            "a is best (93.2 ± 0.4 %, n = 32); not distinguishable from b (p = 1), c (p = 1), d (p = 1) and 1 other; "
            "two-sided Welch's t-test, Holm-corrected.",
        ),
        (summaries(relu=0.5), ComparisonMethod(), "ReLU is best (50.0 ± 0.4 %, n = 32); there is no other to compare it with."),
    ],
)
def test_verdict_of_summaries(given_summaries, method, sentence):
    assert verdict(compare_summaries(given_summaries, ACCURACY, method)) == sentence


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"a": ((0.9, 0.8, 0.85), 0), "b": ((0.5,), 2)},
            "a is best (85 ± 3 %, n = 3); not tested against b (n = 1); diverged: b 2 of 3.",
        ),
        (
            {"a": ((0.9,), 0), "b": ((0.5,), 0)},
            "a is best (90.00 %, n = 1); not tested against the others, for it has 1 value.",
        ),
        (
            {"a": ((), 4), "b": ((), 3)},
            "No run finished (diverged: a 4 of 4, b 3 of 3); there is nothing to compare.",
        ),
        (
            {"a": ((1.0, 1.0), 0), "b": ((0.5, 0.5), 0)},
            "a is best (100.00 ± 0.00 %, n = 2); significantly better than b (p < 1e-300).",
        ),
    ],
)
def test_verdict_where_there_is_little_to_test(values, sentence):
    result = compare([Score(name, 1, *given_values) for name, given_values in values.items()], ACCURACY)
    assert verdict(result) == sentence


@given(st.floats(1e-300, 1))
def test_a_written_p_value_is_on_its_own_side_of_the_level(p):
    written = float(format_p(p))
    assert (written <= 0.05) == (p <= 0.05) or abs(p - 0.05) < 5e-5
    assert written == pytest.approx(p, rel=0.5)
