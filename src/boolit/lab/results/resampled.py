"""Scores of several activations and a baseline on the same resampled splits of a table: intervals and paired differences.

The splits overlap, so K scores are not K independent ones and their variance over K is too small. Nadeau and Bengio
(Inference for the Generalization Error, 2003) correct it: the mean of K has the variance (1/K + tested/others)·s², with s² the
variance over the splits and the numbers of rows that are tested and that are not. Every split has a seed of its own, so s²
contains the noise of the split, of the seed and of the test rows. Differences are taken split by split, where both have the
same rows. The p-values of all pairs are one family, corrected by Holm's method, which is valid however the tests depend on each
other: the probability that any of the significant differences is a false positive is at most ``ALPHA``.
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
from boolit.lab.results.statistics import holm
from boolit.lab.runs import Metric

ALPHA, POWER = 0.05, 0.8


@dataclass(frozen=True)
class ResampledSplits:
    """How many splits there are, and on how many rows each tests and does not."""

    number: int
    tested: int
    others: int

    def __post_init__(self) -> None:
        if self.number < 2:
            raise UserError(f"a spread needs at least 2 splits, not {self.number}; ask for more")

    @property
    def rows(self) -> int:
        """The rows of the table."""
        return self.tested + self.others

    @property
    def distinct(self) -> int:
        """The most different rows that can have been tested in all splits together."""
        return min(self.number * self.tested, self.rows)


@dataclass(frozen=True)
class Estimate:
    """A mean over the splits, its standard error, and its 95 % confidence interval."""

    mean: float
    error: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """``first`` − ``second`` in the metric's own unit; ``p_holm`` is corrected for all pairs."""

    first: str
    second: str
    difference: Estimate
    p: float
    p_holm: float


def estimate(values: Sequence[float], splits: ResampledSplits, share: bool) -> Estimate:
    """The mean of one value per split, with its interval; ``share``: of an accuracy, or a difference of two.

    Example:
        >>> found = estimate([0.8, 0.9, 0.7, 0.8], ResampledSplits(4, 20, 80), share=True)
        >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
        (0.8, 0.616, 0.984)
    """
    if len(values) != splits.number:
        raise ValueError(f"{len(values)} values of {splits.number} splits; there is one per split")
    mean = fmean(values)
    corrected = math.sqrt(1 / splits.number + splits.tested / splits.others) * stdev(values)
    error = max(corrected, _least_error(mean, splits, share))
    reach = float(stats.t.ppf(1 - ALPHA / 2, splits.number - 1)) * error
    return Estimate(mean, error, mean - reach, mean + reach)


def _least_error(mean: float, splits: ResampledSplits, share: bool) -> float:
    """A lower bound of the standard error of a mean over this many different rows, whatever its spread over the splits.

    A share ``m`` of ``n`` different rows has the binomial variance m(1 − m)/n; so has a difference of two shares at least, as
    it is least where one competitor never loses a row to the other. Of 0 and 1 that would be 0: with the rule of succession,
    m becomes (n·|m| + 1)/(n + 2), as if one more row had been right and one more wrong. Of another quantity only that row is
    left: one of n + 2 might have been 0 instead of the mean.
    """
    n = splits.distinct
    right = (n * min(abs(mean), 1.0) + 1) / (n + 2) if share else (n + 1) / (n + 2)
    return math.sqrt(right * (1 - right) / n) * (1.0 if share else abs(mean))


def compare_splits(scores: Mapping[str, Sequence[float]], metric: Metric, splits: ResampledSplits) -> SplitComparison:
    """Compares all scores with each other: by name, one per split, in the same order of splits.

    Example:
        >>> scores = {"relu": [0.5, 0.52, 0.47, 0.5, 0.51], "xnor_ail": [0.97, 0.98, 0.97, 1.0, 0.95]}
        >>> pair = compare_splits(scores, Metric(name="accuracy"), ResampledSplits(5, 100, 400)).pairs[0]
        >>> pair.first, pair.second, round(pair.difference.mean, 3), pair.p_holm < 0.001
        ('relu', 'xnor_ail', -0.474, True)
    """
    estimates = {name: estimate(values, splits, metric.percent) for name, values in scores.items()}
    pairs = [_pair(first, second, scores, splits, metric.percent) for first, second in combinations(scores, 2)]
    corrected = holm([pair.p for pair in pairs])
    pairs = [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]
    return SplitComparison(metric, splits, {name: tuple(own) for name, own in scores.items()}, estimates, tuple(pairs))


def _pair(
    first: str, second: str, scores: Mapping[str, Sequence[float]], splits: ResampledSplits, share: bool
) -> PairedDifference:
    difference = estimate([a - b for a, b in zip(scores[first], scores[second], strict=True)], splits, share)
    differs = difference.mean != 0 and difference.error != 0
    p = 2 * float(stats.t.sf(abs(difference.mean) / difference.error, splits.number - 1)) if differs else 1.0
    return PairedDifference(first, second, difference, p, p)


@dataclass(frozen=True)
class SplitComparison:
    """An estimate of each activation and the baseline, and every pair of them."""

    metric: Metric
    splits: ResampledSplits
    scores: Mapping[str, tuple[float, ...]]
    estimates: Mapping[str, Estimate]
    pairs: tuple[PairedDifference, ...]

    @cached_property
    def ranking(self) -> list[str]:
        """The names, the best mean first; of equals the one that was given first."""
        return sorted(self.estimates, key=lambda name: -self.metric.merit(self.estimates[name].mean))

    def pair(self, first: str, second: str) -> PairedDifference:
        """The pair in this order."""
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair
            if (pair.first, pair.second) == (second, first):
                own = pair.difference
                reverse = Estimate(-own.mean, own.error, -own.high, -own.low)
                return PairedDifference(first, second, reverse, pair.p, pair.p_holm)
        raise KeyError(f"{first!r} and {second!r} are no pair of {', '.join(self.estimates)}")

    def is_better(self, first: str, second: str) -> bool:
        """Whether the first is significantly better than the second."""
        pair = self.pair(first, second)
        return pair.p_holm <= ALPHA and self.metric.merit(pair.difference.mean) > 0

    def rows_needed(self, first: str, second: str) -> float:
        """About how many rows are needed to detect a difference as large as the observed one with probability `POWER`.

        The error falls with the square root of the rows; the difference must exceed it by what the first step of Holm's method
        and the power require. Infinite if there is no difference.
        """
        difference = self.pair(first, second).difference
        if difference.mean == 0:
            return math.inf
        df = self.splits.number - 1
        wanted = float(stats.t.ppf(1 - ALPHA / (2 * len(self.pairs)), df) + stats.t.ppf(POWER, df))
        return max(self.splits.rows, self.splits.rows * (wanted * difference.error / difference.mean) ** 2)
