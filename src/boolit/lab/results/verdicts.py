"""Comparisons in sentences that claim no more than their tests support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

from boolit.lab.results.resampled import SplitComparison
from boolit.lab.results.scores import Notation, Summary, notation, notation_for, p_text
from boolit.lab.results.statistics import Comparison, Contrast, Method

# A comparison in one sentence.

_BASELINE = "relu"
_NAMED = 3


def verdict(comparison: Comparison) -> str:
    """Who is best, better than whom, not distinguishable from whom, and who diverged.

    Example:
        >>> from boolit.lab.results.statistics import Score, compare
        >>> from boolit.lab.runs import Metric
        >>> values = {"relu": (0.5, 0.6, 0.55), "xnor_ail": (0.9, 1.0, 0.95), "tanh": (0.9, 0.95, 0.91)}
        >>> print(verdict(compare([Score(name, 36, v) for name, v in values.items()], Metric(name="accuracy"))))
        xnor_ail is best (95 ± 3 %, n = 3); significantly better than relu (p = 6e-4), not distinguishable from tanh (p = 0.41).
    """
    best = comparison.best
    if best.n == 0:
        return f"No run finished ({_diverged(comparison.ranking)}); there is nothing to compare."
    score = f"{notation(comparison.metric, comparison.ranking).score(best)}, n = {best.n}"
    clauses = [*_worse(comparison), *_indistinguishable(comparison), *_untested(comparison)]
    parts = [f"{best.activation} is best ({score})", ", ".join(clauses) or "there is no other to compare it with"]
    if any(summary.diverged for summary in comparison.ranking):
        parts.append(_diverged(comparison.ranking))
    if clauses and comparison.method != Method(alpha=comparison.method.alpha):
        parts.append(str(comparison.method))
    return "; ".join(parts) + "."


def _worse(comparison: Comparison) -> list[str]:
    """The baseline stands for all that are worse; without it, the one that came closest."""
    worse = sorted(comparison.worse, key=lambda contrast: contrast.other.activation != _BASELINE)
    if not worse:
        return []
    return [f"significantly better than {_named(comparison, worse, 1)}"]


def _indistinguishable(comparison: Comparison) -> list[str]:
    same = comparison.indistinguishable
    if not same:
        return []
    return [f"not distinguishable from {_named(comparison, same, _NAMED)}"]


def _untested(comparison: Comparison) -> list[str]:
    untested = [contrast.other for contrast in comparison.contrasts if math.isnan(contrast.p)]
    if not untested:
        return []
    if comparison.best.n < 2:
        return [f"not tested against the others, for it has {comparison.best.n} value"]
    return [f"not tested against {_listed([f'{other.activation} (n = {other.n})' for other in untested], _NAMED)}"]


def _diverged(summaries: Sequence[Summary]) -> str:
    return "diverged: " + ", ".join(f"{s.activation} {s.diverged} of {s.runs}" for s in summaries if s.diverged)


def _named(comparison: Comparison, contrasts: Sequence[Contrast], most: int) -> str:
    return _listed([f"{c.other.activation} ({p_text(comparison.p(c))})" for c in contrasts], most)


def _listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many there are beyond them."""
    hidden = len(names) - most
    shown = [*names[:most], *([f"{hidden} other{'s' if hidden > 1 else ''}"] if hidden > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# What resampled splits say, in a few sentences that claim no more than the corrected tests do.

NAMED = 4
MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class SplitVerdict:
    """The verdict on a comparison whose competitors are activations and the baseline, which guesses.

    An activation is said to be better only if it is significantly better than another *and* than guessing: of two networks
    that have learnt nothing, one may well do less harm, but that is no reason to choose it.
    """

    comparison: SplitComparison
    reference: str
    baseline: str
    guess: str

    @property
    def activations(self) -> list[str]:
        """The activations, the highest mean merit first."""
        return [name for name in self.comparison.ranking if name != self.baseline]

    @property
    def leader(self) -> str:
        """The activation whose mean is highest, which may not mean anything."""
        return self.activations[0]

    @property
    def first(self) -> str:
        """Which mean is the leader's: the highest accuracy, or the lowest error."""
        return "highest" if self.comparison.metric.goal == "max" else "lowest"

    @cached_property
    def learnt(self) -> list[str]:
        """The activations that are significantly better than guessing."""
        return [name for name in self.activations if self.comparison.better(name, self.baseline)]

    @cached_property
    def claims(self) -> dict[str, list[str]]:
        """Who is said to be significantly better than whom; of whom, the reference first."""
        found = {a: [b for b in self.activations if a != b and self.comparison.better(a, b)] for a in self.learnt}
        return {a: sorted(worse, key=lambda b: b != self.reference) for a, worse in found.items() if worse}

    @property
    def notation(self) -> Notation:
        """How scores are written."""
        found = notation_for(self.comparison.metric, (own.error for own in self.comparison.estimates.values()))
        return replace(found, decimals=found.decimals + 1)  # differences are paired, and so finer than the scores

    def score(self, name: str) -> str:
        """A competitor's mean, with its unit."""
        return f"{self.notation.number(self.comparison.estimates[name].mean)}{self.notation.unit}"

    def __str__(self) -> str:
        return " ".join([*self._guessing(), *(self._claimed() if self.claims else self._nothing())])

    def _guessing(self) -> list[str]:
        if self.learnt:
            return []
        return [
            f"Nothing here beats {self.guess} ({self.score(self.baseline)}): "
            f"the {self.first} mean of a network is {self.score(self.leader)} ({self.leader})."
        ]

    def _claimed(self) -> list[str]:
        claims = [f"{winner} is significantly better than {self._losers(winner)}." for winner in list(self.claims)[:NAMED]]
        if len(self.claims) > NAMED:
            claims.append("Further pairs are in the table.")
        rest = [name for name in self.activations[1:] if name not in self.claims.get(self.leader, [])]
        if rest:
            claims.append(
                f"The {self.first} mean is {self.leader}'s ({self.score(self.leader)}), "
                f"with no evidence of a difference from {_joined(rest)}."
            )
        return claims

    def _nothing(self) -> list[str]:
        if len(self.activations) == 1:
            return [f"{self.leader}: {self.score(self.leader)}. There is no other activation to compare it with."]
        if any(self.comparison.better(a, b) for a, b in permutations(self.activations, 2)):
            return ["That some do less harm than others (see the table) is no reason to choose one of them."]
        other = self.reference if self.leader != self.reference else self.activations[1]
        named = [f"{name} (reference)" if name == self.reference else name for name in (self.leader, other)]
        seen = f"{named[0]} has the {self.first} mean, {self._distance(self.leader, other)} from {named[1]}'s"
        return [
            f"No evidence of a difference between {_joined(self.activations)}: {seen} "
            f"({p_text(self.comparison.pair(self.leader, other).p_holm)}). To detect a difference as large as the one seen, "
            f"{rows_text(self.comparison.rows_needed(self.leader, other))} rows would be needed."
        ]

    def _losers(self, winner: str) -> str:
        worse = self.claims[winner]
        named = [
            f"{name} ({'reference, ' * (name == self.reference)}by {self._distance(winner, name)}, "
            f"{p_text(self.comparison.pair(winner, name).p_holm)})"
            for name in worse[:NAMED]
        ]
        hidden = len(worse) - NAMED
        return _joined([*named, *([f"{hidden} other{'s' * (hidden > 1)}"] if hidden > 0 else [])])

    def _distance(self, first: str, second: str) -> str:
        size = self.notation.number(abs(self.comparison.pair(first, second).difference.mean))
        return f"{size} points" if self.notation.percent else size


def rows_text(rows: float) -> str:
    """A number of rows in words, of two figures.

    Example:
        >>> rows_text(12345.6), rows_text(float("inf"))
        ('about 12,000', 'more than 1,000,000')
    """
    return f"more than {MOST_ROWS:,}" if rows > MOST_ROWS else f"about {int(float(f'{rows:.1e}')):,}"


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
