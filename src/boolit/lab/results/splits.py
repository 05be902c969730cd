"""Statistics of a comparison on resampled splits of a table: intervals and paired differences.

The splits overlap, so the scores of K splits are not independent and their variance over K is too small. Nadeau and Bengio
(Inference for the Generalization Error, 2003) correct it: the mean of K scores has the variance (1/K + tested/others)·s², with
s² the variance over the splits and the numbers of rows that are tested and that are not. Every split has its own seed, so s²
contains the noise of the split, the seed and the test rows. Differences are taken split by split. The p-values of all pairs are
corrected together by Holm's method, which is valid for dependent tests: the probability of any false difference is at most 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean, stdev

from scipy import stats

from boolit.errors import UserError
from boolit.lab.results.statistics import ALPHA
from boolit.lab.runs import Metric


@dataclass(frozen=True)
class ResampledSplits:
    """Number of splits, and the numbers of rows that each split tests and does not test."""

    number: int
    tested: int
    others: int

    def __post_init__(self) -> None:
        if self.number < 2:
            raise UserError(f"a comparison needs at least 2 splits, not {self.number}")

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.tested + self.others

    @property
    def distinct(self) -> int:
        """The most different rows that all splits together can have tested."""
        return min(self.number * self.tested, self.rows)


@dataclass(frozen=True)
class Estimate:
    """A mean over the splits with its standard error and 95 % confidence interval."""

    mean: float
    error: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """The difference ``first`` − ``second``; ``p_holm`` is corrected for all pairs."""

    first: str
    second: str
    difference: Estimate
    p: float
    p_holm: float


def estimate(values: Sequence[float], splits: ResampledSplits, share: bool) -> Estimate:
    """Return the mean of one value per split with its interval; ``share``: the values are accuracies or differences of them.

    Example:
        >>> result = estimate([0.8, 0.9, 0.7, 0.8], ResampledSplits(4, 20, 80), share=True)
        >>> round(result.mean, 3), round(result.low, 3), round(result.high, 3)
        (0.8, 0.616, 0.984)
    """
    if len(values) != splits.number:
        raise ValueError(f"expected one value for each of {splits.number} splits, got {len(values)}")
    mean = fmean(values)
    corrected = math.sqrt(1 / splits.number + splits.tested / splits.others) * stdev(values)
    error = max(corrected, _least_error(mean, splits, share))
    reach = float(stats.t.ppf(1 - ALPHA / 2, splits.number - 1)) * error
    return Estimate(mean, error, mean - reach, mean + reach)


def _least_error(mean: float, splits: ResampledSplits, share: bool) -> float:
    """Return a lower bound of the standard error of a mean over this many different rows.

    A share m of n rows has the binomial variance m(1 − m)/n. A difference of two shares has at least this variance, which it
    reaches if one competitor never loses a row to the other. To avoid 0 at m = 0 and 1, m becomes (n·|m| + 1)/(n + 2), as if
    one more row had been right and one more wrong. For other quantities, one row of n + 2 might have been 0 instead of m.
    """
    n = splits.distinct
    right = (n * min(abs(mean), 1.0) + 1) / (n + 2) if share else (n + 1) / (n + 2)
    return math.sqrt(right * (1 - right) / n) * (1.0 if share else abs(mean))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down method.

    Example:
        >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def compare_splits(scores: Mapping[str, Sequence[float]], metric: Metric, splits: ResampledSplits) -> SplitComparison:
    """Compare activations and baselines by name, each with one score per split in the same order of splits."""
    estimates = {name: estimate(values, splits, metric.percent) for name, values in scores.items()}
    pairs = []
    for first, second in combinations(scores, 2):
        difference = estimate([a - b for a, b in zip(scores[first], scores[second], strict=True)], splits, metric.percent)
        differs = difference.mean != 0 and difference.error != 0
        p = 2 * float(stats.t.sf(abs(difference.mean) / difference.error, splits.number - 1)) if differs else 1.0
        pairs.append(PairedDifference(first, second, difference, p, p))
    corrected = holm([pair.p for pair in pairs])
    pairs = [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]
    return SplitComparison(metric, splits, {name: tuple(values) for name, values in scores.items()}, estimates, tuple(pairs))


@dataclass(frozen=True)
class SplitComparison:
    """Estimates of activations and baselines, and all pairs of them."""

    metric: Metric
    splits: ResampledSplits
    scores: Mapping[str, tuple[float, ...]]
    estimates: Mapping[str, Estimate]
    pairs: tuple[PairedDifference, ...]

    @cached_property
    def ranking(self) -> list[str]:
        """The names, the best mean first."""
        return sorted(self.estimates, key=lambda name: -self.metric.sign * self.estimates[name].mean)

    def pair(self, first: str, second: str) -> PairedDifference:
        """Return a pair in this order."""
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair
            if (pair.first, pair.second) == (second, first):
                same = pair.difference
                reverse = Estimate(-same.mean, same.error, -same.high, -same.low)
                return PairedDifference(first, second, reverse, pair.p, pair.p_holm)
        raise KeyError(f"{first!r} and {second!r} are not a pair of {', '.join(self.estimates)}")

    def is_better(self, first: str, second: str) -> bool:
        """Return whether the first is significantly better than the second."""
        pair = self.pair(first, second)
        return pair.p_holm <= ALPHA and self.metric.sign * pair.difference.mean > 0
