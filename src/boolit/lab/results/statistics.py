"""Statistics of a study: means of activations at one size and depth, and which of their differences are significant.

Which pairs differ is decided by Welch's t-test of all pairs with Šidák's correction for their number (Tamhane's T2). It keeps
the probability of any false difference in a study at 5 %, also when standard deviations differ (benchmarks/null_studies.py).
The paper's own test, Student's t-test of the best activation against each other one without a correction, is computed beside
it. It decides nothing here: the best is chosen by the data it is then tested on, so with eight equal activations and 40 seeds
it finds a false winner in half of all studies.

All runs of a study share their training and test rows, so neither ± nor p covers what other rows would have given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy import special, stats

from boolit.errors import UserError
from boolit.lab.results.names import REFERENCE, describe_p, join_words, paper_name, shorten_numbers
from boolit.lab.runs import Metric

ALPHA = 0.05
MIN_RUNS = 3  # finished runs that an activation needs to be tested
MAX_NAMES = 3  # activations listed in a sentence
BETTER, SAME = "significantly better than", "not distinguishable from"
COVERAGE = "± and p cover seeds, on one set of training and test rows: not what other rows would have given."

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of the ``n`` finished runs of one activation at one size and depth.

    ``diverged`` runs have no value; ``solved`` counts the runs that reach the metric's threshold, if it has one.
    """

    activation: str
    n: int
    mean: float
    sd: float
    diverged: int = 0
    solved: int | None = None
    parameters: int = 0

    @property
    def runs(self) -> int:
        """Number of runs, diverged ones included."""
        return self.n + self.diverged

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
        return self.sd / math.sqrt(self.n) if self.n else math.nan


@dataclass(frozen=True)
class Pair:
    """The difference between the means of two activations, and its test.

    Args:
        difference: first − second.
        interval: simultaneous 95 % confidence interval of the difference; it excludes 0 exactly if the pair is significant.
        p: p-value of Welch's test with Šidák's correction; NaN if the pair cannot be tested.
        effect: Hedges' g, the difference in pooled standard deviations.
    """

    difference: float
    interval: tuple[float, float]
    p: float
    effect: float


@dataclass(frozen=True)
class Comparison:
    """All activations of one size and depth, the highest (or lowest) mean first.

    Args:
        metric: the metric they are compared by.
        summaries: one per activation, in the order of their means.
        label: the depth and size, such as ``depth 2, 10k parameters``; empty for a study of one size.
        pairs: number of tested pairs of the whole study, for which p-values are corrected.
    """

    metric: Metric
    summaries: tuple[Summary, ...]
    label: str = ""
    pairs: int = 1

    @property
    def leader(self) -> Summary:
        """The activation with the best mean."""
        return self.summaries[0]

    def p(self, first: Summary, second: Summary) -> float:
        """Return the corrected p-value of a pair; NaN if it cannot be tested."""
        mean, sd, n = np.array([(s.mean, s.sd, s.n) for s in (first, second)]).T
        return float(sidak(welch_p(mean, sd, n)[0, 1], self.pairs))

    def is_better(self, first: Summary, second: Summary) -> bool:
        """Return whether the first activation is significantly better; one with diverged runs never is."""
        better = self.metric.sign * (first.mean - second.mean) > 0
        return better and first.diverged == 0 and self.p(first, second) <= ALPHA

    def pair(self, first: Summary, second: Summary) -> Pair:
        """Return the difference between two activations with its test and effect size."""
        difference = first.mean - second.mean
        p = self.p(first, second)
        if math.isnan(p):
            return Pair(difference, (math.nan, math.nan), p, math.nan)
        error, df = _welch_error(*(np.array(value, float) for s in (first, second) for value in (s.sd, s.n)))
        level = -math.expm1(math.log1p(-ALPHA) / self.pairs)
        reach = float(stats.t.isf(level / 2, df) * error)
        return Pair(difference, (difference - reach, difference + reach), p, hedges_g(first, second))


def welch_p(mean: Array, sd: Array, n: Array) -> Array:
    """Return the p-values of Welch's t-test for all pairs of groups, without a correction.

    A pair has no test (NaN) if one group has fewer than `MIN_RUNS` values or both have no variance.

    Shape: ``(…, groups)`` each, to ``(…, groups, groups)``.
    """
    mean, sd, n = np.broadcast_arrays(mean, sd, n)
    rows, columns = (..., slice(None), None), (..., None, slice(None))
    error, df = _welch_error(sd[rows], n[rows], sd[columns], n[columns])
    tested = (np.minimum(n[rows], n[columns]) >= MIN_RUNS) & (error > 0)
    gap = np.abs(mean[rows] - mean[columns])
    statistic = np.divide(gap, error, out=np.full(gap.shape, np.nan), where=tested)
    tail: Array = special.stdtr(np.where(tested, df, np.nan), -statistic)  # the distribution function of Student's t
    return 2 * tail


def _welch_error(sd: Array, n: Array, other_sd: Array, other_n: Array) -> tuple[Array, Array]:
    """Return the standard error of a difference of means and its degrees of freedom, by Satterthwaite's formula.

    The degrees of freedom are rounded down. With their fraction, two groups of three runs and standard deviations of 1 and 10
    are declared different in 5.7 % of null studies; rounded down, in 4.7 %. From ten runs on it makes no difference.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share, other = np.square(sd) / n, np.square(other_sd) / other_n
        total = share + other
        df = 1 / ((share / total) ** 2 / (n - 1) + (other / total) ** 2 / (other_n - 1))
    return np.sqrt(total), np.floor(df + 1e-9)  # 1e-9: the rounding errors of a whole number


def sidak(p: float | Array, tests: int) -> Array:
    """Correct p-values for a number of tests by Šidák's method, exactly also for very small ones."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(tests * np.log1p(-np.asarray(p, float))))


def student_p(first: Summary, second: Summary) -> float:
    """Return the paper's p-value: two-sided Student's t-test, not corrected; NaN without variance or with one value."""
    if min(first.n, second.n) < 2 or not first.sd + second.sd > 0:
        return math.nan
    return float(stats.ttest_ind_from_stats(first.mean, first.sd, first.n, second.mean, second.sd, second.n).pvalue)


def hedges_g(first: Summary, second: Summary) -> float:
    """Return Hedges' g: the difference of two means in pooled standard deviations, without bias."""
    df = first.n + second.n - 2
    pooled = math.sqrt(((first.n - 1) * first.sd**2 + (second.n - 1) * second.sd**2) / df)
    unbiased = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
    return unbiased * ((first.mean - second.mean) / pooled)


def compare(frame: pd.DataFrame, metric: Metric) -> list[Comparison]:
    """Compare the activations of a study at each size and depth.

    Args:
        frame: runs as `boolit.lab.Store.frame` returns them; trials of a search are left out.
        metric: the metric to compare by.

    Returns:
        One comparison per depth and size, the shallowest and smallest first. Networks without hidden layers are compared with
        those of every depth.

    Raises:
        UserError: if runs lack the metric, or if an activation was trained with several settings at one size.

    Example:
        >>> import pandas as pd
        >>> columns = {"activation": ["relu"] * 3 + ["xnor_ail"] * 3, "depth": 1, "size": 36, "state": "finished"}
        >>> frame = pd.DataFrame(columns | {"test_accuracy": [0.5, 0.6, 0.55, 0.9, 1.0, 0.95]})
        >>> [comparison] = compare(frame, Metric(name="accuracy"))
        >>> best, other = comparison.summaries
        >>> best.activation, comparison.is_better(best, other), round(comparison.p(best, other), 4)
        ('xnor_ail', True, 0.0006)
    """
    frame = _measured(frame, metric)
    _check_settings(frame)
    tables = {name: _summarize(frame[rows], metric) for name, rows in size_groups(frame).items()}
    counts = [sum(min(a.n, b.n) >= MIN_RUNS and a.sd + b.sd > 0 for a, b in combinations(t, 2)) for t in tables.values()]
    return [Comparison(metric, table, name, max(1, sum(counts))) for name, table in tables.items()]


def _measured(frame: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Return the runs with their values of the metric in the column ``value``: NaN for diverged runs."""
    if "trial" in frame:
        frame = frame[~frame["trial"].astype(bool)]
    if frame.empty:
        raise UserError("there are no runs to compare; train some first")
    finished = frame["state"] == "finished"
    values = frame.get(metric.key)
    if values is None and finished.any():
        measured = ", ".join(name for name in frame.columns if name.startswith(f"{metric.split}_")) or "none"
        raise UserError(f"these runs have no metric {metric.key!r}; on the split {metric.split!r} they have: {measured}")
    value = np.full(len(frame), np.nan) if values is None else values.where(finished & np.isfinite(values))
    return frame.assign(value=value)


def _check_settings(frame: pd.DataFrame) -> None:
    """Refuse to pool runs of different settings: they would look like more seeds of one."""
    if "settings" not in frame:
        return
    counts = frame.groupby(["activation", "depth", "size"])["settings"].nunique().reset_index()
    for activation, _, size, count in counts[counts["settings"] > 1].itertuples(index=False):
        raise UserError(
            f"{activation} with {size} parameters was trained with {count} different settings; "
            "choose the runs of one of them by the column 'settings'"
        )


def size_groups(frame: pd.DataFrame) -> dict[str, Array]:
    """Return the runs that are compared with each other, as masks by a label of their depth and size.

    Runs with a parameter budget are grouped by it. Without one, an activation's first size is compared with the first size of
    every other one, and so on; if activations have different numbers of sizes, sizes are grouped by their widths.
    """
    depths = sorted(set(frame["depth"]) - {0}) or [0]
    groups: dict[str, Array] = {}
    for depth in depths:
        inside = frame[frame["depth"] == depth]
        labels = _sizes(inside)
        sizes = inside["size"].groupby(labels).min().sort_values().index
        for size in sizes:
            words = [f"depth {depth}"] * (len(depths) > 1) + [size] * (len(sizes) > 1)
            groups[", ".join(words)] = ((frame["depth"] == 0) | frame.index.isin(labels.index[labels == size])).to_numpy()
    return groups


def _sizes(frame: pd.DataFrame) -> pd.Series[str]:
    """Return a label of the size of each run, for runs of one depth."""
    if "budget" in frame and frame["budget"].notna().all():
        budgets = frame["budget"].astype(int)
        return budgets.map(shorten_numbers(budgets)) + " parameters"
    by_activation = frame.groupby("activation")["size"]
    numbers = set(by_activation.nunique())
    if numbers == {1}:
        return pd.Series("", frame.index)
    widths = frame["widths"]
    if len(numbers) == 1:
        place = by_activation.rank(method="dense")
        widths = widths.groupby(place).transform(lambda group: group.mode().iloc[0])
    return "width " + widths


def _summarize(frame: pd.DataFrame, metric: Metric) -> tuple[Summary, ...]:
    grouped = frame.groupby("activation", sort=True)
    table = pd.DataFrame(grouped["value"].agg(n="count", mean="mean", sd="std"))
    table["diverged"] = grouped.size() - table["n"]
    table["parameters"] = grouped["parameters"].first() if "parameters" in frame else 0
    if metric.solved is not None:
        table["solved"] = frame["value"].map(metric.solves).groupby(frame["activation"]).sum()
    # The best mean first. Without a finished run there is no mean; such activations are last.
    table = table.sort_values("mean", ascending=metric.goal == "min", kind="stable").reset_index()
    return tuple(Summary(**record) for record in cast("list[dict[str, Any]]", table.to_dict("records")))


@dataclass(frozen=True)
class ScoreFormat:
    """Format of the scores in one column: in percent or not, and the number of decimals."""

    percent: bool
    decimals: int

    @property
    def unit(self) -> str:
        """Unit after a number, with a space."""
        return " %" if self.percent else ""

    def number(self, value: float) -> str:
        """Format a score without its unit."""
        rounded = round(value * (100 if self.percent else 1), self.decimals) + 0.0  # no −0.0
        return "–" if math.isnan(value) else f"{rounded:.{self.decimals}f}".replace("-", "−")

    def score(self, summary: Summary) -> str:
        """Format mean ± standard error with the unit, such as ``93.2 ± 0.4 %``."""
        error = summary.standard_error
        spread = "" if math.isnan(error) else f" ± {self.number(error)}"
        return f"{self.number(summary.mean)}{spread}{self.unit}"


def score_format(metric: Metric, errors: Sequence[float]) -> ScoreFormat:
    """Return the format in which the median standard error has one digit, or two if the first is a 1."""
    scaled = [error * (100 if metric.percent else 1) for error in errors if error > 0]
    if not scaled:
        return ScoreFormat(metric.percent, 2 if metric.percent else 4)
    digit, _, exponent = f"{np.median(scaled):.0e}".partition("e")
    return ScoreFormat(metric.percent, min(max((digit == "1") - int(exponent), 0), 6))


def verdict(comparison: Comparison) -> str:
    """Return a comparison in words: which mean is best, which differences are significant, which runs diverged.

    Example:
        >>> means = {"xnor_ail": 0.95, "tanh": 0.92, "relu": 0.55}
        >>> summaries = tuple(Summary(name, 5, mean, 0.01 * math.sqrt(5)) for name, mean in means.items())
        >>> print(verdict(Comparison(Metric(name="accuracy"), summaries, pairs=3)))
        XNORₐᵢₗ has the highest mean test accuracy (95.0 ± 1.0 %, n = 5). It is significantly better than ReLU (p = 8e-9), and \
not distinguishable from Tanh (p = 0.19).
    """
    leader, metric = comparison.leader, comparison.metric
    if leader.n == 0:
        return "Every run diverged; there is nothing to compare."
    form = score_format(metric, [summary.standard_error for summary in comparison.summaries])
    mean = f"{metric.extreme} mean {metric.key.replace('_', ' ')}"
    sentences = [f"{paper_name(leader.activation)} has the {mean} ({form.score(leader)}, n = {leader.n})."]
    if leader.diverged:
        sentences.append(f"As {leader.diverged} of its {leader.runs} runs diverged, it is not called better than any other.")
    sentences += _tests(comparison)
    diverged = [f"{paper_name(s.activation)} {s.diverged} of {s.runs}" for s in comparison.summaries if s.diverged]
    if diverged:
        sentences.append(f"Diverged runs: {', '.join(diverged)}.")
    text = " ".join(sentences)
    return f"{comparison.label[0].upper()}{comparison.label[1:]}: {text}" if comparison.label else text


def outcomes(subject: str, names: Mapping[str, str]) -> list[str]:
    """Return a sentence on an activation from the others by outcome, or nothing if there are no others."""
    clauses = [f"{outcome} {text}" for outcome, text in names.items() if text]
    return [f"{subject} is {', and '.join(clauses)}."] if clauses else []


def _tests(comparison: Comparison) -> list[str]:
    """Say how the best activation without diverged runs compares with those below it."""
    first = next((place for place, summary in enumerate(comparison.summaries) if summary.diverged == 0), None)
    if first is None:
        return []
    best, *others = comparison.summaries[first:]
    worse = [s for s in others if comparison.is_better(best, s)]
    untested = [s for s in others if math.isnan(comparison.p(best, s))]
    same = [s for s in others if s not in worse and s not in untested]
    names = {
        BETTER: _described(comparison, best, worse, 1),
        SAME: _described(comparison, best, same),
        "not tested against": join_words([paper_name(s.activation) for s in untested], MAX_NAMES),
    }
    rule = [f"A test needs {MIN_RUNS} finished runs of each activation, and a variance."] if untested else []
    return outcomes("It" if first == 0 else paper_name(best.activation), names) + rule


def _described(comparison: Comparison, first: Summary, others: Sequence[Summary], most: int = MAX_NAMES) -> str:
    """Name activations with their p-values, the reference first."""
    others = sorted(others, key=lambda s: s.activation != REFERENCE)
    return join_words([f"{paper_name(s.activation)} ({describe_p(comparison.p(first, s))})" for s in others], most)
