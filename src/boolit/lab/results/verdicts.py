"""Comparisons as sentences that claim no more than their tests support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

from boolit.lab.results.names import paper_name
from boolit.lab.results.resampled import SplitComparison
from boolit.lab.results.scores import ScoreFormat, ScoreSummary, describe_p, score_format
from boolit.lab.results.statistics import Comparison, ComparisonMethod, TwoSampleTest

_REFERENCE = "relu"
_MAX_NAMES, _MAX_PAIRS = 3, 4  # that a sentence lists
_MAX_ROWS = 1_000_000


def _named(spec: str) -> str:
    """The paper's name, for a sentence; one with commas in it, which lists would hide, is in braces."""
    name = paper_name(spec)
    return f"{{{name}}}" if ", " in name else name


def verdict(comparison: Comparison) -> str:
    """A ``comparison`` in a sentence: who is best, better than whom, not distinguishable from whom, and who diverged.

    Example:
        >>> from boolit.lab import Metric, Score, verdict
        >>> from boolit.lab import compare_scores as compare
        >>> values = {"relu": (0.5, 0.6, 0.55), "xnor_ail": (0.9, 1.0, 0.95), "tanh": (0.9, 0.95, 0.91)}
        >>> print(verdict(compare([Score(name, 36, v) for name, v in values.items()], Metric(name="accuracy"))))
        XNORₐᵢₗ is best (95 ± 3 %, n = 3); significantly better than ReLU (p = 6e-4), not distinguishable from Tanh (p = 0.41).
    """
    best = comparison.best
    if best.n == 0:
        return f"No run finished ({_diverged(comparison.ranking)}); there is nothing to compare."
    standard_errors = (summary.standard_error for summary in comparison.ranking)
    score = f"{score_format(comparison.metric, standard_errors).score(best)}, n = {best.n}"
    clauses = _clauses(comparison)
    parts = [f"{_named(best.activation)} is best ({score})", ", ".join(clauses) or "there is no other to compare it with"]
    if any(summary.diverged for summary in comparison.ranking):
        parts.append(_diverged(comparison.ranking))
    if clauses and comparison.method != ComparisonMethod(alpha=comparison.method.alpha):
        parts.append(str(comparison.method))
    return "; ".join(parts) + "."


def _clauses(comparison: Comparison) -> list[str]:
    clauses, same = [], comparison.indistinguishable
    # The reference stands for all that are worse; without it, the one that came closest.
    worse = sorted(comparison.worse, key=lambda test: test.other.activation != _REFERENCE)
    untested = [f"{_named(test.other.activation)} (n = {test.other.n})" for test in comparison.tests if math.isnan(test.p)]
    if worse:
        clauses.append(f"significantly better than {_describe_tests(comparison, worse, 1)}")
    if same:
        clauses.append(f"not distinguishable from {_describe_tests(comparison, same, _MAX_NAMES)}")
    if untested and comparison.best.n < 2:
        clauses.append(f"not tested against the others, for it has {comparison.best.n} value")
    elif untested:
        clauses.append(f"not tested against {_join(untested, _MAX_NAMES)}")
    return clauses


def _diverged(summaries: Sequence[ScoreSummary]) -> str:
    return "diverged: " + ", ".join(f"{_named(s.activation)} {s.diverged} of {s.runs}" for s in summaries if s.diverged)


def _describe_tests(comparison: Comparison, tests: Sequence[TwoSampleTest], most: int) -> str:
    return _join([f"{_named(test.other.activation)} ({describe_p(comparison.p(test))})" for test in tests], most)


def _join(names: Sequence[str], most: int | None = None) -> str:
    """The names in a sentence: all, or the first ones and how many others there are."""
    hidden = 0 if most is None else max(0, len(names) - most)
    shown = [*names[: len(names) - hidden], *([f"{hidden} other{'s' * (hidden > 1)}"] if hidden else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


@dataclass(frozen=True)
class SplitVerdict:
    """The verdict on activations and a baseline that learns nothing, such as always predicting the majority class.

    An activation is called better only if it is significantly better than another *and* than the baseline: of two networks
    that have learnt nothing, one may well be less wrong, but that is no reason to choose it.
    """

    comparison: SplitComparison
    reference: str
    baseline: str
    baseline_text: str

    @property
    def activations(self) -> list[str]:
        """The activations, the best mean first."""
        return [name for name in self.comparison.ranking if name != self.baseline]

    @property
    def leader(self) -> str:
        """The activation with the best mean, which need not be significantly better."""
        return self.activations[0]

    @property
    def extreme(self) -> str:
        """Which mean is the best: the highest accuracy, or the lowest error."""
        return "highest" if self.comparison.metric.goal == "max" else "lowest"

    @cached_property
    def learnt(self) -> list[str]:
        """The activations that are significantly better than the baseline."""
        return [name for name in self.activations if self.comparison.is_better(name, self.baseline)]

    @cached_property
    def wins(self) -> dict[str, list[str]]:
        """Which activations are significantly better than which others, of those the reference first."""
        found = {a: [b for b in self.activations if a != b and self.comparison.is_better(a, b)] for a in self.learnt}
        return {a: sorted(worse, key=lambda b: b != self.reference) for a, worse in found.items() if worse}

    @property
    def score_format(self) -> ScoreFormat:
        """How scores are formatted."""
        found = score_format(self.comparison.metric, (own.error for own in self.comparison.estimates.values()))
        return replace(found, decimals=found.decimals + 1)  # differences are paired, and so finer than the scores

    def score(self, name: str) -> str:
        """The mean of an activation or the baseline, with its unit."""
        return f"{self.score_format.number(self.comparison.estimates[name].mean)}{self.score_format.unit}"

    def __str__(self) -> str:
        return " ".join([*self._baseline_sentences(), *(self._win_sentences() if self.wins else self._other_sentences())])

    def _baseline_sentences(self) -> list[str]:
        if self.learnt:
            return []
        return [
            f"Nothing here beats {self.baseline_text} ({self.score(self.baseline)}): "
            f"the {self.extreme} mean of a network is {self.score(self.leader)} ({_named(self.leader)})."
        ]

    def _win_sentences(self) -> list[str]:
        said = [
            f"{_named(winner)} is significantly better than {self._losers(winner)}." for winner in list(self.wins)[:_MAX_PAIRS]
        ]
        if len(self.wins) > _MAX_PAIRS:
            said.append("Further pairs are in the table.")
        rest = [name for name in self.activations[1:] if name not in self.wins.get(self.leader, [])]
        if rest:
            said.append(
                f"The {self.extreme} mean is {_named(self.leader)}'s ({self.score(self.leader)}), "
                f"with no evidence of a difference from {_join([_named(name) for name in rest])}."
            )
        return said

    def _other_sentences(self) -> list[str]:
        if len(self.activations) == 1:
            return [f"{_named(self.leader)}: {self.score(self.leader)}. There is no other activation to compare it with."]
        if any(self.comparison.is_better(a, b) for a, b in permutations(self.activations, 2)):
            return ["That some do less harm than others (see the table) is no reason to choose one of them."]
        other = self.reference if self.leader != self.reference else self.activations[1]
        named = [f"{_named(name)}{' (reference)' * (name == self.reference)}" for name in (self.leader, other)]
        p = describe_p(self.comparison.pair(self.leader, other).p_holm)
        seen = f"{named[0]} has the {self.extreme} mean, {self._distance(self.leader, other)} from {named[1]}'s"
        return [
            f"No evidence of a difference between {_join([_named(name) for name in self.activations])}: {seen} "
            f"({p}). To detect a difference as large as the one seen, "
            f"{rows_text(self.comparison.rows_needed(self.leader, other))} rows would be needed."
        ]

    def _losers(self, winner: str) -> str:
        named = [
            f"{_named(name)} ({'reference, ' * (name == self.reference)}by {self._distance(winner, name)}, "
            f"{describe_p(self.comparison.pair(winner, name).p_holm)})"
            for name in self.wins[winner]
        ]
        return _join(named, _MAX_PAIRS)

    def _distance(self, first: str, second: str) -> str:
        size = self.score_format.number(abs(self.comparison.pair(first, second).difference.mean))
        return f"{size} points" if self.score_format.percent else size


def rows_text(rows: float) -> str:
    """A number of rows, rounded to two digits, for a sentence.

    Example:
        >>> rows_text(12345.6), rows_text(float("inf"))
        ('about 12,000', 'more than 1,000,000')
    """
    return f"more than {_MAX_ROWS:,}" if rows > _MAX_ROWS else f"about {int(float(f'{rows:.1e}')):,}"
