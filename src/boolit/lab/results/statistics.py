"""The paper's statistics (s:stats): t-tests, intervals and effect sizes, each activation at its best size against the best.

What it is and is not: an activation is shown at the size where its mean is best, and sizes are chosen on the same runs
that are then tested, as the paper does; with many sizes this flatters whoever has the most noise. The tests are not paired
and, unless Holm's correction is asked for, not corrected for their number. All seeds share their training and test rows, so
neither ± nor p knows what other rows would have given. `COVERAGE` and `BEST_SIZES` say so wherever the numbers are shown.
NOTE[paper]: the choice of sizes by test rows is the paper's own, and the only choice here that test rows make.

A diverged run has no value. ``diverged="exclude"`` leaves it out of the mean, which is kind to an activation that is good
only when it converges, so its number is always shown beside the mean; ``diverged="worst"`` counts it as the worst value
any run of the comparison ended with, which is fair between activations that diverge differently often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scipy import special, stats

from boolit.lab.common.errors import UserError
from boolit.lab.results.scores import Score, Summary, metric_of, scores, size_of, summarise
from boolit.lab.runs import Metric

__all__ = [
    "BEST_SIZES",
    "COVERAGE",
    "Comparison",
    "Contrast",
    "Method",
    "Score",
    "Summary",
    "compare",
    "compare_summaries",
    "contrast",
    "holm",
    "metric_of",
    "scores",
    "size_of",
    "summarise",
]

# Two summaries against each other: t-test, confidence interval, effect size.

Interval = tuple[float, float]
_NO_INTERVAL = (math.nan, math.nan)


@dataclass(frozen=True)
class Contrast:
    """How the best activation differs from another: differences and effects are best − other, each with an interval.

    ``p`` is nan where there is no test: a group of fewer than two values has no variance.
    """

    other: Summary
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
    """What the test needs of the two variances: error of the difference, degrees of freedom, the unit of the effect."""

    error: float
    df: float
    unit: float


def contrast(best: Summary, other: Summary, welch: bool = False, confidence: float = 0.95) -> Contrast:
    """Tests a best activation against another, by a two-sided unpaired Student's t-test, or Welch's.

    Where both variances are 0 the test's limit is taken: p is 1 if the means agree and 0 if they do not.

    Example:
        >>> a, b = Summary.printed("tanh", 96.9701, 0.02, n=5), Summary.printed("xnor_ail", 96.9021, 0.02, n=5)
        >>> round(contrast(a, b).p, 4)
        0.0429
    """
    difference = best.mean - other.mean
    if min(best.n, other.n) < 2:
        nan = math.nan
        return Contrast(other, difference, _NO_INTERVAL, nan, nan, nan, nan, nan, _NO_INTERVAL)
    spread = _welch(best, other) if welch else _student(best, other)
    statistic, p = _test(best, other, spread, welch)
    reach = float(stats.t.ppf((1 + confidence) / 2, spread.df)) * spread.error
    effect, effect_interval = _effect(statistic, spread, confidence)
    interval = (difference - reach, difference + reach)
    return Contrast(other, difference, interval, statistic, spread.df, p, p, effect, effect_interval)


def with_holm(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The same contrasts with their p-values corrected for how many there are."""
    corrected = holm([contrast.p for contrast in contrasts])
    return [replace(contrast, p_holm=p) for contrast, p in zip(contrasts, corrected, strict=True)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for several tests; a test that was not made (nan) does not count.

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


def _student(a: Summary, b: Summary) -> _Spread:
    df = a.n + b.n - 2
    pooled = math.sqrt(((a.n - 1) * a.sd**2 + (b.n - 1) * b.sd**2) / df)
    return _Spread(pooled * math.sqrt(1 / a.n + 1 / b.n), df, pooled)


def _welch(a: Summary, b: Summary) -> _Spread:
    shares = a.sd**2 / a.n, b.sd**2 / b.n
    total = sum(shares)
    # Satterthwaite's degrees of freedom, from the shares' ratio so that tiny variances do not underflow.
    df = (
        1 / sum((share / total) ** 2 / (n - 1) for share, n in zip(shares, (a.n, b.n), strict=True)) if total else a.n + b.n - 2
    )
    return _Spread(math.sqrt(total), df, math.sqrt((a.sd**2 + b.sd**2) / 2))


def _test(a: Summary, b: Summary, spread: _Spread, welch: bool) -> tuple[float, float]:
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


# What a comparison of activations is: how it was made, who is best, and how the others stand to it.


@dataclass(frozen=True)
class Method:
    """How to compare: Student's t-test or Welch's, Holm's correction or none, the level, and what a diverged run counts."""

    welch: bool = False
    holm: bool = False
    alpha: float = 0.05
    diverged: Literal["exclude", "worst"] = "exclude"

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UserError(f"the level of significance lies between 0 and 1, not {self.alpha!r}; 0.05 is usual")
        if self.diverged not in ("exclude", "worst"):
            raise UserError(f"diverged runs are counted by 'exclude' or 'worst', not {self.diverged!r}")

    def __str__(self) -> str:
        test = "Welch's t-test" if self.welch else "Student's t-test"
        corrected = ", Holm-corrected" if self.holm else ""
        counted = ", diverged runs counted as the worst" if self.diverged == "worst" else ""
        return f"two-sided {test}{corrected}{counted}"


@dataclass(frozen=True)
class Comparison:
    """The best activation, and a contrast of it with each other one, the next best first.

    ``solved`` is the value from which on a run counted as solved, if one was asked for.
    """

    metric: Metric
    best: Summary
    contrasts: tuple[Contrast, ...]
    method: Method
    solved: float | None = None

    @property
    def ranking(self) -> tuple[Summary, ...]:
        """Every activation at its best size, the best first."""
        return (self.best, *(contrast.other for contrast in self.contrasts))

    def p(self, contrast: Contrast) -> float:
        """The p-value that decides: Holm's if the method says so."""
        return contrast.p_holm if self.method.holm else contrast.p

    @property
    def worse(self) -> tuple[Contrast, ...]:
        """The contrasts that are significant."""
        return tuple(contrast for contrast in self.contrasts if self.p(contrast) <= self.method.alpha)

    @property
    def indistinguishable(self) -> tuple[Contrast, ...]:
        """The contrasts that are not significant."""
        return tuple(contrast for contrast in self.contrasts if self.p(contrast) > self.method.alpha)


# The paper's procedure (its section s:stats): each activation at its best size, tested against the best of them all.

COVERAGE = "± and p cover seeds, on one set of training and test rows: not what other rows would have given."
BEST_SIZES = (
    "Each activation has the size with its best mean on these same test rows, as in the paper: who has more noise gains."
)


def compare(scores: Sequence[Score], metric: Metric, method: Method | None = None, solved: float | None = None) -> Comparison:
    """The paper's comparison of scores: several sizes an activation, of which its best one counts.

    ``solved`` is a threshold; how many runs reach it is then counted.

    Example:
        >>> relu, small = Score("relu", 36, (0.5, 0.6, 0.55)), Score("xnor_ail", 16, (0.6, 0.5, 0.5))
        >>> result = compare([relu, small, Score("xnor_ail", 36, (0.9, 1.0, 0.95))], Metric(name="accuracy"))
        >>> result.best.activation, result.best.size, [c.other.activation for c in result.worse]
        ('xnor_ail', 36, ['relu'])
    """
    method = method or Method()
    instead = _worst(scores, metric) if method.diverged == "worst" else None
    summaries = [summarise(score, metric, instead, solved) for score in scores]
    return replace(compare_summaries(_best_sizes(summaries, metric), metric, method), solved=solved)


def compare_summaries(summaries: Sequence[Summary], metric: Metric, method: Method | None = None) -> Comparison:
    """The same comparison from means, standard deviations and numbers, one summary an activation.

    It needs no runs: a printed table will do.
    """
    method = method or Method()
    if not summaries:
        raise UserError("there is nothing to compare: no runs; train some first")
    best, *others = _ranked(summaries, metric)
    contrasts = with_holm([contrast(best, other, method.welch, 1 - method.alpha) for other in others])
    return Comparison(metric, best, tuple(contrasts), method)


def _worst(scores: Sequence[Score], metric: Metric) -> float | None:
    return min((value for score in scores for value in score.values), key=metric.merit, default=None)


def _best_sizes(summaries: Sequence[Summary], metric: Metric) -> list[Summary]:
    best: dict[str, Summary] = {}
    for summary in _ranked(summaries, metric):
        best.setdefault(summary.activation, summary)
    return list(best.values())


def _ranked(summaries: Sequence[Summary], metric: Metric) -> list[Summary]:
    """The best first; of equals the smaller, then by name, so that the order does not hang on the input's."""
    return sorted(summaries, key=lambda s: (-metric.merit(s.mean), s.size, s.activation))
