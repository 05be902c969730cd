"""Statistics of resampled splits, against hand computations, brute force and simulated splits."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from boolit.errors import UserError
from boolit.lab.results.resampled import ResampledSplits, SplitComparison, compare_splits, estimate
from boolit.lab.results.statistics import holm
from boolit.lab.results.verdicts import SplitVerdict, rows_text
from boolit.lab.runs import Metric

ACCURACY, RMSE = Metric(name="accuracy"), Metric(name="rmse")
TEN = ResampledSplits(10, 20, 80)


def verdict(scores: dict[str, list[float]], metric: Metric = ACCURACY, splits: ResampledSplits = TEN) -> SplitVerdict:
    return SplitVerdict(compare_splits(scores, metric, splits), "relu", "majority class", "guessing the majority class")


def around(mean: float, spread: float = 0.01, number: int = 10, turn: int = 0) -> list[float]:
    return [mean + spread * math.sin(3 * i + turn) for i in range(number)]


def test_the_variance_is_nadeau_and_bengio_s() -> None:
    values = [3.0, 5.0, 4.0, 8.0]
    found = estimate(values, ResampledSplits(4, 25, 75), share=False)
    error = math.sqrt((1 / 4 + 25 / 75) * (4 + 0 + 1 + 9) / 3)
    assert found.mean == 5
    assert found.error == pytest.approx(error)
    assert found.high - 5 == pytest.approx(stats.t.ppf(0.975, 3) * error) == pytest.approx(5 - found.low)


def test_without_overlap_it_would_be_the_paired_t_test() -> None:
    """As the tested rows become few, the correction vanishes."""
    a, b = [3.0, 5.0, 4.0, 8.0, 2.0], [2.0, 4.5, 4.4, 6.0, 2.5]
    pair = compare_splits({"a": a, "b": b}, RMSE, ResampledSplits(5, 1, 10**12)).pairs[0]
    assert pair.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(p_values: list[float]) -> None:
    """Its corrected p is the largest Bonferroni p of any set of the hypotheses that this one is in."""
    places = range(len(p_values))
    sets = [each for size in places for each in combinations(places, size + 1)]
    expected = [max(min(1, len(s) * min(p_values[j] for j in s)) for s in sets if i in s) for i in places]
    assert holm(p_values) == pytest.approx(expected)


def test_all_pairs_are_one_family() -> None:
    scores = {name: around(0.7 + 0.1 * place, turn=place) for place, name in enumerate("abcd")}
    found = compare_splits(scores, ACCURACY, TEN)
    assert {(pair.first, pair.second) for pair in found.pairs} == set(combinations("abcd", 2))
    assert [pair.p_holm for pair in found.pairs] == holm([pair.p for pair in found.pairs])
    assert found.pair("d", "a").difference.mean == -found.pair("a", "d").difference.mean
    assert found.pair("d", "a").difference.low == -found.pair("a", "d").difference.high


@given(st.integers(2, 30), st.integers(1, 500), st.floats(-1, 1, allow_subnormal=False), st.booleans())
def test_equal_scores_are_no_certainty(number: int, tested: int, difference: float, share: bool) -> None:
    """Ten times the same difference has no spread, which must not become p = 0 nor an interval without a width."""
    scores = {"a": [difference] * number, "b": [0.0] * number}
    metric = ACCURACY if share else RMSE
    pair = compare_splits(scores, metric, ResampledSplits(number, tested, 4 * tested)).pairs[0]
    assert pair.p > 0
    assert pair.p == 1 or difference != 0
    if share:
        assert pair.difference.low < pair.difference.mean < pair.difference.high


def test_a_perfect_score_on_few_rows_is_not_certain() -> None:
    few, many = (estimate([1.0] * 10, ResampledSplits(10, rows, 4 * rows), share=True) for rows in (10, 1000))
    assert 0 < many.error < few.error
    # The variance of 51 right of 52 rows, of which one was made up.
    assert few.error == pytest.approx(math.sqrt(51 / 52 * (1 / 52) / 50))


def test_the_spread_is_never_less_than_the_rows_allow() -> None:
    """Scores of nearly no spread over the splits: what is left is the binomial noise of the different rows tested."""
    found = estimate([0.5 + 1e-9 * (i % 2) for i in range(10)], TEN, share=True)
    assert found.error == pytest.approx(math.sqrt(0.25 / 100), rel=1e-3)


def test_resampled_scores_of_guesses_are_covered() -> None:
    """Coin throws on rows that overlap as splits do: the interval holds the truth about as often as it says."""
    drawn = np.random.default_rng(0)
    held, rows = 0, 100
    for _ in range(400):
        right = drawn.random(rows) < 0.7  # which rows a fixed network gets right: the truth is 0.7
        values = [float(right[drawn.permutation(rows)[:20]].mean()) for _ in range(10)]
        found = estimate(values, TEN, share=True)
        held += found.low <= 0.7 <= found.high
    # 95 % of 400 with four standard deviations of a binomial number; more is allowed, as the correction is a cautious one.
    assert held >= 380 - 4 * math.sqrt(400 * 0.05 * 0.95)


def test_one_split_has_no_spread() -> None:
    with pytest.raises(UserError, match="at least 2 splits"):
        ResampledSplits(1, 20, 80)


def test_no_difference_is_told_with_the_rows_it_would_take() -> None:
    found = verdict({"relu": around(0.8), "max": around(0.802, turn=1), "majority class": around(0.5, turn=2)})
    assert found.wins == {}
    assert str(found).startswith("No evidence of a difference between Max and ReLU: Max has the highest mean,")
    assert "rows would be needed" in str(found)
    assert "significantly" not in str(found)
    assert "best" not in str(found)


def test_a_difference_is_told_with_its_size() -> None:
    found = verdict({"relu": around(0.6), "max": around(0.61, turn=1), "xnor_ail": around(0.9), "majority class": around(0.5)})
    assert found.wins["xnor_ail"] == ["relu", "max"]
    assert "XNORₐᵢₗ is significantly better than ReLU (reference, by 30.0 points, p = " in str(found)


def test_of_errors_the_lowest_leads() -> None:
    found = verdict({"relu": around(6.0), "max": around(5.0, turn=1), "majority class": around(9.0)}, RMSE)
    assert found.wins == {"max": ["relu"]}
    assert found.leader == "max"


def test_a_network_no_better_than_guessing_is_not_called_better() -> None:
    """One may do less harm than another, and significantly so."""
    found = verdict({"relu": around(0.3), "max": around(0.5, turn=1), "majority class": around(0.5)})
    assert found.comparison.is_better("max", "relu")
    assert found.wins == {}
    assert str(found).startswith("Nothing here beats guessing the majority class (50.1 %)")
    assert "no reason to choose" in str(found)
    assert "significantly" not in str(found)


def test_the_rows_needed_would_indeed_be_enough() -> None:
    """With the error at so many rows, the difference exceeds it by the critical value and the quantile of the power."""

    def compared(splits: ResampledSplits) -> SplitComparison:
        return compare_splits({"a": around(0.8, 0.05), "b": around(0.79, 0.05, turn=1)}, ACCURACY, splits)

    found = compared(TEN)
    rows = found.rows_needed("a", "b")
    difference = found.pair("a", "b").difference
    error = difference.error * math.sqrt(100 / rows)
    power = stats.t.cdf(abs(difference.mean) / error - stats.t.ppf(0.975, 9), 9)
    assert power == pytest.approx(0.8)
    assert compare_splits({"a": [0.5] * 10, "b": [0.5] * 10}, ACCURACY, TEN).rows_needed("a", "b") == math.inf
    assert rows_text(2e6) == "more than 1,000,000"
