"""Statistics of a comparison on resampled splits of a table: intervals, paired differences and a verdict in words.

The splits overlap, so the scores of K splits are not independent and their variance over K is too small. Nadeau and Bengio
(Inference for the Generalization Error, 2003) correct it: the mean of K scores has the variance (1/K + tested/others)·s², with
s² the variance over the splits and the numbers of rows that are tested and that are not. Every split has its own seed, so s²
contains the noise of the split, the seed and the test rows. Differences are taken split by split. The p-values of all pairs are
corrected together by Holm's method, which is valid for dependent tests: the probability of any false difference is at most 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from statistics import fmean, stdev

import numpy as np
from scipy import stats

from boolit.lab.results.names import REFERENCE, describe_p, join_words, paper_name
from boolit.lab.results.statistics import ALPHA, BETTER, MAX_NAMES, SAME, ScoreFormat, outcomes, score_format
from boolit.lab.runs import Metric

ONE_SPLIT = (
    "All runs were tested on the same, latest rows and differ by their seed only. Neither an interval for new rows nor a test "
    "of significance applies: a difference between activations may be due to these rows."
)


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


def estimate(values: Sequence[float], tested: int, others: int, share: bool) -> Estimate:
    """Return the mean of one value per split with its interval.

    Args:
        values: one value per split.
        tested: rows that each split tests.
        others: rows that each split does not test.
        share: whether the values are shares of rows, such as accuracies, or differences of shares.

    Example:
        >>> result = estimate([0.8, 0.9, 0.7, 0.8], tested=20, others=80, share=True)
        >>> round(result.mean, 3), round(result.low, 3), round(result.high, 3)
        (0.8, 0.616, 0.984)
    """
    mean, number = fmean(values), len(values)
    corrected = math.sqrt(1 / number + tested / others) * stdev(values)
    error = max(corrected, _least_error(mean, min(number * tested, tested + others), share))
    reach = float(stats.t.ppf(1 - ALPHA / 2, number - 1)) * error
    return Estimate(mean, error, mean - reach, mean + reach)


def _least_error(mean: float, n: int, share: bool) -> float:
    """Return a lower bound of the standard error of a mean over n different rows.

    A share m of n rows has the binomial variance m(1 − m)/n. A difference of two shares has at least this variance, which it
    reaches if one competitor never loses a row to the other. To avoid 0 at m = 0 and 1, m becomes (n·|m| + 1)/(n + 2), as if
    one more row had been right and one more wrong. For other quantities, one row of n + 2 might have been 0 instead of m.
    """
    right = (n * min(abs(mean), 1.0) + 1) / (n + 2) if share else (n + 1) / (n + 2)
    return math.sqrt(right * (1 - right) / n) * (1.0 if share else abs(mean))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down method.

    Example:
        >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    p, order = np.array(p_values), np.argsort(p_values)
    p[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1)
    return [float(each) for each in p]


@dataclass(frozen=True)
class SplitVerdict:
    """Activations and baselines on the same splits of a table: their scores, all pairs of them, and a verdict (`str`).

    An activation is called better only if it is significantly better than another activation *and* than guessing: of two
    networks that learned nothing, one may be less wrong, but that is not a reason to choose it.

    Args:
        metric: the metric of the scores.
        tested: rows that each split tests.
        others: rows that each split does not test.
        scores: one score per split by activation or baseline, all in the same order of splits.
        guess: the baseline that ignores the inputs, such as always predicting the majority class.
        guess_text: what it does, such as "guessing the majority class".
        baselines: other models that are not activations, such as gradient boosting.
        diverged: number of splits on which each activation diverged.
        one_split: whether all runs have the same rows, as in a split by time. Then nothing is significant.
    """

    metric: Metric
    tested: int
    others: int
    scores: Mapping[str, Sequence[float]]
    guess: str
    guess_text: str
    baselines: Sequence[str] = ()
    diverged: dict[str, int] = field(default_factory=dict)
    one_split: bool = False

    @property
    def splits(self) -> int:
        """Number of splits."""
        return len(self.scores[self.guess])

    @property
    def reference(self) -> str:
        """The activation that others are described against: ReLU, or the first."""
        return REFERENCE if REFERENCE in self.scores else next(iter(self.scores))

    def _estimate(self, values: Sequence[float]) -> Estimate:
        return estimate(values, self.tested, self.others, self.metric.percent)

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The mean of each activation and baseline."""
        return {name: self._estimate(values) for name, values in self.scores.items()}

    @cached_property
    def pairs(self) -> list[PairedDifference]:
        """All pairs of activations and baselines, the better mean first, with their tests."""
        pairs = [self._difference(*names) for names in combinations(self.ranking, 2)]
        corrected = holm([pair.p for pair in pairs])
        return [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]

    def pair(self, first: str, second: str) -> PairedDifference:
        """Return a pair in this order."""
        pair = next(pair for pair in self.pairs if {pair.first, pair.second} == {first, second})
        return replace(self._difference(first, second), p_holm=pair.p_holm)

    def _difference(self, first: str, second: str) -> PairedDifference:
        """Return a pair before the correction."""
        mean = self._estimate([a - b for a, b in zip(self.scores[first], self.scores[second], strict=True)])
        differs = mean.mean != 0 and mean.error != 0
        p = 2 * float(stats.t.sf(abs(mean.mean) / mean.error, self.splits - 1)) if differs else 1.0
        return PairedDifference(first, second, mean, p, p)

    def is_better(self, first: str, second: str) -> bool:
        """Return whether the first is significantly better than the second."""
        pair = self.pair(first, second)
        return pair.p_holm <= ALPHA and self.metric.sign * pair.difference.mean > 0

    @cached_property
    def ranking(self) -> list[str]:
        """The activations and baselines, the best mean first."""
        return sorted(self.scores, key=lambda name: -self.metric.sign * self.estimates[name].mean)

    @cached_property
    def activations(self) -> list[str]:
        """The activations, the best mean first."""
        return [name for name in self.ranking if name not in (self.guess, *self.baselines)]

    @property
    def leader(self) -> str:
        """The activation with the best mean."""
        return self.activations[0]

    @cached_property
    def learned(self) -> list[str]:
        """The activations that are significantly better than guessing."""
        return [name for name in self.activations if self.is_better(name, self.guess)]

    @cached_property
    def wins(self) -> dict[str, list[str]]:
        """The activations that are significantly better than others, with those others."""
        better = {a: [b for b in self.activations if a != b and self.is_better(a, b)] for a in self.learned}
        return {} if self.one_split else {a: worse for a, worse in better.items() if worse}

    @cached_property
    def score_format(self) -> ScoreFormat:
        """Format of scores. Differences are paired and finer than the scores, so there is one decimal more."""
        form = score_format(self.metric, [score.error for score in self.estimates.values()])
        return replace(form, decimals=form.decimals + 1)

    def score(self, name: str) -> str:
        """Return a mean with its unit."""
        return f"{self.score_format.number(self.estimates[name].mean)}{self.score_format.unit}"

    def __str__(self) -> str:
        name, score = paper_name(self.leader), self.score(self.leader)
        mean = f"{self.metric.extreme} mean {self.metric.name.replace('_', ' ')} of a network"
        sentences = [f"{name} has the {mean} ({score})."]
        if self.one_split:
            return " ".join([*sentences, ONE_SPLIT])
        same = [name for name in self.activations[1:] if self.pair(self.leader, name).p_holm > ALPHA]
        sentences += outcomes("It", {BETTER: self._described(self.wins.get(self.leader, [])), SAME: self._described(same)})
        if not self.learned:
            sentences.append(f"No network is significantly better than {self.guess_text} ({self.score(self.guess)}).")
        if set(self.wins) - {self.leader}:
            sentences.append("Other significant pairs are in the table.")
        return " ".join([*sentences, *map(self._baseline_sentence, self.baselines)])

    def _described(self, others: Sequence[str]) -> str:
        """Name activations that the leader is compared with, with the size of the difference and its p-value."""
        unit = " points" if self.score_format.percent else ""
        words = []
        for name in sorted(others, key=lambda name: name != self.reference):
            pair = self.pair(self.leader, name)
            size = self.score_format.number(abs(pair.difference.mean))
            words.append(f"{paper_name(name)} (difference {size}{unit}, {describe_p(pair.p_holm)})")
        return join_words(words, MAX_NAMES)

    def _baseline_sentence(self, name: str) -> str:
        """Say how another model compares with the best activation."""
        pair, outcome = self.pair(name, self.leader), SAME
        if pair.p_holm <= ALPHA:
            outcome = BETTER if self.is_better(name, self.leader) else "significantly worse than"
        return f"{name.capitalize()} ({self.score(name)}) is {outcome} {paper_name(self.leader)} ({describe_p(pair.p_holm)})."
