"""The paper's statistics (s:stats): t-tests, intervals and effect sizes, each activation at its best size against the best.

Limits: an activation is shown at the size where its mean is best, and sizes are chosen on the same runs that are then tested,
as the paper does; with many sizes this favours the activation with the most noise. The tests are not paired and, without Holm's
correction, not corrected for their number. All seeds share their training and test rows, so neither ± nor p covers what other
rows would have given. `COVERAGE` and `BEST_SIZES` say so wherever the numbers are shown.
NOTE[paper]: the choice of sizes by test rows is the paper's own, and the only choice here that test rows make.

A diverged run has no value. ``diverged="exclude"`` leaves it out of the mean, which favours an activation that is good only
when it converges, so the number of diverged runs is always shown beside the mean; ``diverged="worst"`` counts it as the worst
value of any run in the comparison, which is fair between activations that diverge at different rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scipy import special, stats

from boolit.errors import UserError
from boolit.lab.results.scores import Score, ScoreSummary, summarise
from boolit.lab.runs import Metric

COVERAGE = "± and p cover seeds, on one set of training and test rows: not what other rows would have given."
BEST_SIZES = (
    "Each activation has the size with its best mean on these same test rows, as in the paper: who has more noise gains."
)

Interval = tuple[float, float]
_NO_INTERVAL = (math.nan, math.nan)


@dataclass(frozen=True)
class TwoSampleTest:
    """A t-test of the best activation against another: difference and effect are best − other, each with an interval.

    ``p`` is NaN where there is no test: fewer than two values have no variance.
    """

    other: ScoreSummary
    difference: float
    interval: Interval
    statistic: float
    df: float
    p: float
    p_holm: float
    effect: float
    effect_interval: Interval


@dataclass(frozen=True)
class _Spread:
    """From the two variances: standard error of the difference, degrees of freedom, the unit of the effect."""

    error: float
    df: float
    unit: float


def t_test(best: ScoreSummary, other: ScoreSummary, welch: bool = False, confidence: float = 0.95) -> TwoSampleTest:
    """Tests the best activation against another, by a two-sided unpaired Student's t-test, or Welch's.

    Where both variances are 0, p is the limit: 1 if the means agree and 0 if they do not.

    Example:
        >>> tanh = ScoreSummary.from_standard_error("tanh", 96.9701, 0.02, n=5)
        >>> round(t_test(tanh, ScoreSummary.from_standard_error("xnor_ail", 96.9021, 0.02, n=5)).p, 4)
        0.0429
    """
    difference = best.mean - other.mean
    if min(best.n, other.n) < 2:
        nan = math.nan
        return TwoSampleTest(other, difference, _NO_INTERVAL, nan, nan, nan, nan, nan, _NO_INTERVAL)
    spread = _welch(best, other) if welch else _student(best, other)
    statistic, p = _test(best, other, spread, welch)
    reach = float(stats.t.ppf((1 + confidence) / 2, spread.df)) * spread.error
    effect, effect_interval = _effect(statistic, spread, confidence)
    interval = (difference - reach, difference + reach)
    return TwoSampleTest(other, difference, interval, statistic, spread.df, p, p, effect, effect_interval)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values with Holm's step-down correction for their number; NaN (no test) does not count.

    Example:
        >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def _student(a: ScoreSummary, b: ScoreSummary) -> _Spread:
    df = a.n + b.n - 2
    pooled = math.sqrt(((a.n - 1) * a.sd**2 + (b.n - 1) * b.sd**2) / df)
    return _Spread(pooled * math.sqrt(1 / a.n + 1 / b.n), df, pooled)


def _welch(a: ScoreSummary, b: ScoreSummary) -> _Spread:
    shares = a.sd**2 / a.n, b.sd**2 / b.n
    total = sum(shares)
    # Satterthwaite's degrees of freedom, from the shares' ratio so that tiny variances do not underflow.
    df = (
        1 / sum((share / total) ** 2 / (n - 1) for share, n in zip(shares, (a.n, b.n), strict=True)) if total else a.n + b.n - 2
    )
    return _Spread(math.sqrt(total), df, math.sqrt((a.sd**2 + b.sd**2) / 2))


def _test(a: ScoreSummary, b: ScoreSummary, spread: _Spread, welch: bool) -> tuple[float, float]:
    if spread.error == 0:
        return (0.0, 1.0) if a.mean == b.mean else (math.copysign(math.inf, a.mean - b.mean), 0.0)
    result = stats.ttest_ind_from_stats(a.mean, a.sd, a.n, b.mean, b.sd, b.n, equal_var=not welch)
    return float(result.statistic), float(result.pvalue)


def _effect(statistic: float, spread: _Spread, confidence: float) -> tuple[float, Interval]:
    """Hedges' g and its interval: the non-central t distributions in whose tails the statistic lies, in units of g.

    With Welch's test the unit is the root of the mean variance, and the interval an approximation.
    """
    if spread.error == 0:
        return (0.0 if statistic == 0 else statistic), _NO_INTERVAL
    small_sample = math.exp(math.lgamma(spread.df / 2) - math.lgamma((spread.df - 1) / 2)) / math.sqrt(spread.df / 2)
    unit = small_sample * spread.error / spread.unit
    tails = (1 + confidence) / 2, (1 - confidence) / 2
    low, high = (unit * float(special.nctdtrinc(spread.df, tail, statistic)) for tail in tails)
    return unit * statistic, (low, high)


@dataclass(frozen=True)
class ComparisonMethod:
    """How to compare: Student's t-test or Welch's, Holm's correction or none, the level, and how diverged runs count.

    Args:
        welch: whether variances may differ.
        holm: whether p-values are corrected for their number.
        alpha: the level of significance.
        diverged: ``exclude`` leaves such runs out, ``worst`` takes the worst value of any run for them.

    Example:
        >>> from boolit.lab import ComparisonMethod
        >>> print(ComparisonMethod(welch=True, holm=True, diverged="worst"))
        two-sided Welch's t-test, Holm-corrected, diverged runs counted as the worst
    """

    welch: bool = False
    holm: bool = False
    alpha: float = 0.05
    diverged: Literal["exclude", "worst"] = "exclude"

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UserError(f"the level of significance is between 0 and 1, not {self.alpha!r}; 0.05 is usual")
        if self.diverged not in ("exclude", "worst"):
            raise UserError(f"diverged runs are counted by 'exclude' or 'worst', not {self.diverged!r}")

    def __str__(self) -> str:
        test = "Welch's t-test" if self.welch else "Student's t-test"
        corrected = ", Holm-corrected" if self.holm else ""
        counted = ", diverged runs counted as the worst" if self.diverged == "worst" else ""
        return f"two-sided {test}{corrected}{counted}"


@dataclass(frozen=True)
class Comparison:
    """The ``best`` activation by a ``metric``, and its ``tests`` against each other one by a ``method``, the next best first.

    ``solved`` is the threshold for a solved run, if one was given. A test has the ``other`` activation's summary, the
    ``difference`` (best − other) with its ``interval``, ``p``, ``p_holm``, and the ``effect`` (Hedges' g) with its interval.

    Example:
        >>> from boolit.lab import Metric, Score, compare_scores
        >>> values = {"relu": (0.5, 0.6, 0.55), "xnor_ail": (0.9, 1.0, 0.95), "tanh": (0.9, 0.95, 0.91)}
        >>> found = compare_scores([Score(name, 36, own) for name, own in values.items()], Metric(name="accuracy"))
        >>> [summary.activation for summary in found.ranking], round(found.p(found.tests[0]), 2)
        (['xnor_ail', 'tanh', 'relu'], 0.41)
        >>> [test.other.activation for test in found.worse], [test.other.activation for test in found.indistinguishable]
        (['relu'], ['tanh'])
    """

    metric: Metric
    best: ScoreSummary
    tests: tuple[TwoSampleTest, ...]
    method: ComparisonMethod
    solved: float | None = None

    @property
    def ranking(self) -> tuple[ScoreSummary, ...]:
        """Every activation at its best size, the best first."""
        return (self.best, *(test.other for test in self.tests))

    def p(self, test: TwoSampleTest) -> float:
        """The p-value that decides: Holm's if the method says so."""
        return test.p_holm if self.method.holm else test.p

    @property
    def worse(self) -> tuple[TwoSampleTest, ...]:
        """The tests that are significant."""
        return tuple(test for test in self.tests if self.p(test) <= self.method.alpha)

    @property
    def indistinguishable(self) -> tuple[TwoSampleTest, ...]:
        """The tests that are not significant."""
        return tuple(test for test in self.tests if self.p(test) > self.method.alpha)


def compare(
    scores: Sequence[Score], metric: Metric, method: ComparisonMethod | None = None, solved: float | None = None
) -> Comparison:
    """The paper's comparison of scores: of several sizes of an activation, the best one counts.

    Args:
        scores: of all activations and sizes.
        metric: what they are of, and whether higher is better.
        method: the test; Student's without a correction unless given.
        solved: a threshold; the runs that reach it are counted.

    Example:
        >>> from boolit.lab import Metric, Score, compare_scores
        >>> relu, small = Score("relu", 36, (0.5, 0.6, 0.55)), Score("xnor_ail", 16, (0.6, 0.5, 0.5))
        >>> result = compare_scores([relu, small, Score("xnor_ail", 36, (0.9, 1.0, 0.95))], Metric(name="accuracy"))
        >>> result.best.activation, result.best.size, [test.other.activation for test in result.worse]
        ('xnor_ail', 36, ['relu'])
    """
    method = method or ComparisonMethod()
    values = (value for score in scores for value in score.values)
    instead = min(values, key=metric.merit, default=None) if method.diverged == "worst" else None
    summaries = [summarise(score, metric, instead, solved) for score in scores]
    return replace(compare_summaries(_best_sizes(summaries, metric), metric, method), solved=solved)


def compare_summaries(summaries: Sequence[ScoreSummary], metric: Metric, method: ComparisonMethod | None = None) -> Comparison:
    """The same comparison from one summary per activation: no runs are needed, a printed table is enough."""
    method = method or ComparisonMethod()
    if not summaries:
        raise UserError("there is nothing to compare: no runs; train some first")
    best, *others = _rank(summaries, metric)
    tests = [t_test(best, other, method.welch, 1 - method.alpha) for other in others]
    corrected = holm([test.p for test in tests])
    tests = [replace(test, p_holm=p) for test, p in zip(tests, corrected, strict=True)]
    return Comparison(metric, best, tuple(tests), method)


def _best_sizes(summaries: Sequence[ScoreSummary], metric: Metric) -> list[ScoreSummary]:
    best: dict[str, ScoreSummary] = {}
    for summary in _rank(summaries, metric):
        best.setdefault(summary.activation, summary)
    return list(best.values())


def _rank(summaries: Sequence[ScoreSummary], metric: Metric) -> list[ScoreSummary]:
    """The best first; of equals the smaller, then by name, so that the order of the input does not matter."""
    return sorted(summaries, key=lambda s: (-metric.merit(s.mean), s.size, s.activation))
