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
from itertools import combinations, permutations
from statistics import fmean, stdev

from scipy import stats

from boolit.lab.results.names import describe_p, join_words, paper_name
from boolit.lab.results.statistics import ALPHA, ScoreFormat, score_format
from boolit.lab.runs import Metric

MAX_PAIRS = 4  # pairs listed in a verdict
ONE_SPLIT = (
    "All runs were tested on the same, latest rows and differ by their seed only. Neither an interval for new rows nor a test "
    "of significance applies: a difference between activations may be due to these rows."
)


@dataclass(frozen=True)
class ResampledSplits:
    """Number of splits, and the numbers of rows that each split tests and does not test."""

    number: int
    tested: int
    others: int

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

    def reversed(self) -> PairedDifference:
        """Return the difference ``second`` − ``first``."""
        same = self.difference
        difference = Estimate(-same.mean, same.error, -same.high, -same.low)
        return replace(self, first=self.second, second=self.first, difference=difference)


def estimate(values: Sequence[float], splits: ResampledSplits, share: bool) -> Estimate:
    """Return the mean of one value per split with its interval; ``share``: the values are accuracies or differences of them.

    Example:
        >>> result = estimate([0.8, 0.9, 0.7, 0.8], ResampledSplits(4, 20, 80), share=True)
        >>> round(result.mean, 3), round(result.low, 3), round(result.high, 3)
        (0.8, 0.616, 0.984)
    """
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


@dataclass(frozen=True)
class SplitVerdict:
    """Activations and baselines on the same splits of a table: their scores, all pairs of them, and a verdict (`str`).

    An activation is called better only if it is significantly better than another activation *and* than guessing: of two
    networks that learned nothing, one may be less wrong, but that is not a reason to choose it.

    Args:
        metric: the metric of the scores.
        splits: the number of splits and of their rows.
        scores: one score per split by activation or baseline, all in the same order of splits.
        reference: the activation that others are described against.
        guess: the baseline that ignores the inputs, such as always predicting the majority class.
        guess_text: what it does, such as "guessing the majority class".
        baselines: other models that are not activations, such as gradient boosting.
        diverged: number of splits on which each activation diverged.
        one_split: whether all runs have the same rows, as in a split by time. Then nothing is significant.
    """

    metric: Metric
    splits: ResampledSplits
    scores: Mapping[str, Sequence[float]]
    reference: str
    guess: str
    guess_text: str
    baselines: Sequence[str] = ()
    diverged: dict[str, int] = field(default_factory=dict)
    one_split: bool = False

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The mean of each activation and baseline."""
        return {name: estimate(values, self.splits, self.metric.percent) for name, values in self.scores.items()}

    @cached_property
    def pairs(self) -> list[PairedDifference]:
        """All pairs of activations and baselines, with their tests."""
        pairs = []
        for first, second in combinations(self.scores, 2):
            differences = [a - b for a, b in zip(self.scores[first], self.scores[second], strict=True)]
            difference = estimate(differences, self.splits, self.metric.percent)
            differs = difference.mean != 0 and difference.error != 0
            p = 2 * float(stats.t.sf(abs(difference.mean) / difference.error, self.splits.number - 1)) if differs else 1.0
            pairs.append(PairedDifference(first, second, difference, p, p))
        corrected = holm([pair.p for pair in pairs])
        return [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]

    def pair(self, first: str, second: str) -> PairedDifference:
        """Return a pair in this order."""
        pair = next(pair for pair in self.pairs if {pair.first, pair.second} == {first, second})
        return pair if pair.first == first else pair.reversed()

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
        """The activations that each activation is significantly better than; the reference comes first."""
        if self.one_split:
            return {}
        better = {a: [b for b in self.activations if a != b and self.is_better(a, b)] for a in self.learned}
        return {a: sorted(worse, key=lambda b: b != self.reference) for a, worse in better.items() if worse}

    @cached_property
    def score_format(self) -> ScoreFormat:
        """Format of scores. Differences are paired and finer than the scores, so there is one decimal more."""
        form = score_format(self.metric, [score.error for score in self.estimates.values()])
        return replace(form, decimals=form.decimals + 1)

    def score(self, name: str) -> str:
        """Return a mean with its unit."""
        return f"{self.score_format.number(self.estimates[name].mean)}{self.score_format.unit}"

    def __str__(self) -> str:
        if self.one_split:
            best = f"The {self.metric.extreme} mean of a network is {paper_name(self.leader)}'s ({self.score(self.leader)})"
            return f"{best}. {ONE_SPLIT}"
        sentences = [] if self.learned else [self._nothing_learned()]
        sentences += self._win_sentences() if self.wins else self._other_sentences()
        return " ".join([*sentences, *map(self._baseline_sentence, self.baselines)])

    def _nothing_learned(self) -> str:
        best = f"the {self.metric.extreme} mean of a network is {self.score(self.leader)} ({paper_name(self.leader)})"
        return f"No network is significantly better than {self.guess_text} ({self.score(self.guess)}): {best}."

    def _win_sentences(self) -> list[str]:
        sentences = [
            f"{paper_name(winner)} is significantly better than {self._losers(winner)}."
            for winner in list(self.wins)[:MAX_PAIRS]
        ]
        if len(self.wins) > MAX_PAIRS:
            sentences.append("Further pairs are in the table.")
        rest = [paper_name(name) for name in self.activations[1:] if name not in self.wins.get(self.leader, [])]
        if rest:
            sentences.append(
                f"The {self.metric.extreme} mean is {paper_name(self.leader)}'s ({self.score(self.leader)}), "
                f"with no evidence of a difference from {join_words(rest)}."
            )
        return sentences

    def _other_sentences(self) -> list[str]:
        if len(self.activations) == 1:
            return [f"{paper_name(self.leader)}: {self.score(self.leader)}. There is no other activation to compare it with."]
        if any(self.is_better(a, b) for a, b in permutations(self.activations, 2)):
            return ["That one of them does less harm than another (see the table) is not a reason to choose it."]
        other = self.reference if self.leader != self.reference else self.activations[1]
        named = [f"{paper_name(name)}{' (reference)' * (name == self.reference)}" for name in (self.leader, other)]
        p = describe_p(self.pair(self.leader, other).p_holm)
        return [
            f"No evidence of a difference between {join_words([paper_name(name) for name in self.activations])}: {named[0]} "
            f"has the {self.metric.extreme} mean; the difference from {named[1]} is {self._distance(self.leader, other)} ({p})."
        ]

    def _baseline_sentence(self, name: str) -> str:
        """Say how another model compares with the best activation."""
        outcome = "not distinguishable from"
        if self.pair(name, self.leader).p_holm <= ALPHA:
            outcome = f"significantly {'better' if self.is_better(name, self.leader) else 'worse'} than"
        p = describe_p(self.pair(name, self.leader).p_holm)
        return f"{name[:1].upper()}{name[1:]} ({self.score(name)}) is {outcome} {paper_name(self.leader)} ({p})."

    def _losers(self, winner: str) -> str:
        names = [
            f"{paper_name(name)} ({'reference, ' * (name == self.reference)}by {self._distance(winner, name)}, "
            f"{describe_p(self.pair(winner, name).p_holm)})"
            for name in self.wins[winner]
        ]
        return join_words(names, MAX_PAIRS)

    def _distance(self, first: str, second: str) -> str:
        size = self.score_format.number(abs(self.pair(first, second).difference.mean))
        return f"{size} points" if self.score_format.percent else size
