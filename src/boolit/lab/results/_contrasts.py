"""Two summaries against each other: t-test, confidence interval, effect size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy import special, stats

from boolit.lab.results._scores import Summary

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
