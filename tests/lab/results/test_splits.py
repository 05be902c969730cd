"""Statistics of resampled splits against hand computations, brute force and simulated splits."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from boolit.lab.results.splits import SplitVerdict, estimate, holm
from boolit.lab.runs import Metric

ACCURACY, RMSE = Metric(name="accuracy"), Metric(name="rmse")


def verdict(
    scores: dict[str, list[float]],
    metric: Metric = ACCURACY,
    tested: int = 20,
    others: int = 80,
    baselines: tuple[str, ...] = (),
) -> SplitVerdict:
    scores = scores | {"majority class": scores.get("majority class", [0.0] * len(scores[next(iter(scores))]))}
    return SplitVerdict(metric, tested, others, scores, "majority class", "guessing the majority class", baselines)


def around(mean: float, spread: float = 0.01, number: int = 10, turn: int = 0) -> list[float]:
    return [mean + spread * math.sin(3 * i + turn) for i in range(number)]


def test_the_variance_is_nadeau_and_bengio_s() -> None:
    values = [3.0, 5.0, 4.0, 8.0]
    result = estimate(values, 25, 75, share=False)
    error = math.sqrt((1 / 4 + 25 / 75) * (4 + 0 + 1 + 9) / 3)
    assert result.mean == 5
    assert result.error == pytest.approx(error)
    assert result.high - 5 == pytest.approx(stats.t.ppf(0.975, 3) * error) == pytest.approx(5 - result.low)


def test_without_overlap_it_would_be_the_paired_t_test() -> None:
    a, b = [3.0, 5.0, 4.0, 8.0, 2.0], [2.0, 4.5, 4.4, 6.0, 2.5]
    pair = verdict({"a": a, "b": b}, RMSE, 1, 10**12).pair("a", "b")
    assert pair.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(p_values: list[float]) -> None:
    # The corrected p is the largest Bonferroni p of any set of hypotheses that contains this one.
    places = range(len(p_values))
    sets = [each for size in places for each in combinations(places, size + 1)]
    expected = [max(min(1, len(s) * min(p_values[j] for j in s)) for s in sets if i in s) for i in places]
    assert holm(p_values) == pytest.approx(expected)


def test_all_pairs_are_one_family() -> None:
    names = ("d", "c", "b", "a", "majority class")  # the better mean is the first of a pair
    result = verdict({name: around(0.9 - 0.1 * place, turn=place) for place, name in enumerate(names)})
    assert [(pair.first, pair.second) for pair in result.pairs] == list(combinations(names, 2))
    assert [pair.p_holm for pair in result.pairs] == holm([pair.p for pair in result.pairs])
    assert result.pair("d", "a").difference.mean == -result.pair("a", "d").difference.mean
    assert result.pair("d", "a").difference.low == -result.pair("a", "d").difference.high


@given(st.integers(2, 30), st.integers(1, 500), st.floats(-1, 1, allow_subnormal=False), st.booleans())
def test_equal_scores_are_no_certainty(number: int, tested: int, difference: float, share: bool) -> None:
    scores = {"a": [difference] * number, "b": [0.0] * number}
    metric = ACCURACY if share else RMSE
    pair = verdict(scores, metric, tested, 4 * tested).pair("a", "b")
    assert pair.p > 0
    assert pair.p == 1 or difference != 0
    if share:
        assert pair.difference.low < pair.difference.mean < pair.difference.high


def test_a_perfect_score_on_few_rows_is_not_certain() -> None:
    few, many = (estimate([1.0] * 10, rows, 4 * rows, share=True) for rows in (10, 1000))
    assert 0 < many.error < few.error
    # The variance of 51 right of 52 rows, one of which was added.
    assert few.error == pytest.approx(math.sqrt(51 / 52 * (1 / 52) / 50))


def test_the_spread_is_never_less_than_the_rows_allow() -> None:
    result = estimate([0.5 + 1e-9 * (i % 2) for i in range(10)], 20, 80, share=True)
    assert result.error == pytest.approx(math.sqrt(0.25 / 100), rel=1e-3)


def test_resampled_scores_of_guesses_are_covered() -> None:
    drawn = np.random.default_rng(0)
    held, rows = 0, 100
    for _ in range(400):
        right = drawn.random(rows) < 0.7  # the rows that a fixed network gets right
        values = [float(right[drawn.permutation(rows)[:20]].mean()) for _ in range(10)]
        result = estimate(values, 20, 80, share=True)
        held += result.low <= 0.7 <= result.high
    # At least 95 % of 400, less four standard deviations; the correction is conservative.
    assert held >= 380 - 4 * math.sqrt(400 * 0.05 * 0.95)


def test_no_evidence_of_a_difference() -> None:
    result = verdict({"relu": around(0.8), "max": around(0.802, turn=1), "majority class": around(0.5, turn=2)})
    assert result.wins == {}
    assert str(result).startswith(
        "Max has the highest mean accuracy of a network (80.3 %). It is not distinguishable from ReLU"
    )
    assert "significantly" not in str(result)
    assert "best" not in str(result)


def test_a_difference_is_reported_with_its_size() -> None:
    result = verdict({"relu": around(0.6), "max": around(0.61, turn=1), "xnor_ail": around(0.9), "majority class": around(0.5)})
    assert result.wins["xnor_ail"] == ["max", "relu"]
    assert "It is significantly better than ReLU (difference 30.0 points, p = " in str(result)


def test_of_errors_the_lowest_leads() -> None:
    result = verdict({"relu": around(6.0), "max": around(5.0, turn=1), "majority class": around(9.0)}, RMSE)
    assert result.wins == {"max": ["relu"]}
    assert result.leader == "max"


def test_a_network_no_better_than_guessing_is_not_called_better() -> None:
    result = verdict({"relu": around(0.3), "max": around(0.5, turn=1), "majority class": around(0.5)})
    assert result.is_better("max", "relu")
    assert result.wins == {}
    assert "No network is significantly better than guessing the majority class (50.1 %)." in str(result)
    assert str(result).count("significantly") == 1


def test_baselines_are_compared_with_the_best_activation() -> None:
    scores = {"relu": around(0.6), "max": around(0.61, turn=1), "gradient boosting": around(0.9), "majority class": around(0.5)}
    result = verdict(scores, baselines=("gradient boosting",))
    assert result.activations == ["max", "relu"]
    assert "Gradient boosting (90.1 %) is significantly better than Max (p = " in str(result)
