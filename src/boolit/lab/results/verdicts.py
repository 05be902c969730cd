"""Comparisons as sentences that claim no more than their tests support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations

from boolit.lab.results.names import REFERENCE, describe_p, join_words, paper_name
from boolit.lab.results.splits import SplitComparison
from boolit.lab.results.statistics import MIN_RUNS, Comparison, ScoreFormat, Summary, score_format

_MAX_NAMES, _MAX_PAIRS = 3, 4  # listed in a sentence
ONE_SPLIT = (
    "All runs were tested on the same, latest rows and differ by their seed only. Neither an interval for new rows nor a test "
    "of significance applies: a difference between activations may be due to these rows."
)


def verdict(comparison: Comparison) -> str:
    """Return a comparison in words: which mean is best, which differences are significant, which runs diverged.

    Example:
        >>> from boolit.lab.results.statistics import Summary, compare_summaries
        >>> from boolit.lab.runs import Metric
        >>> values = {"relu": 0.55, "xnor_ail": 0.95, "tanh": 0.92}
        >>> summaries = [Summary.from_standard_error(name, mean, 0.01, n=5) for name, mean in values.items()]
        >>> print(verdict(compare_summaries(summaries, Metric(name="accuracy"))))
        XNORₐᵢₗ has the highest mean test accuracy (95.0 ± 1.0 %, n = 5). It is significantly better than ReLU (p = 8e-9), and \
not distinguishable from Tanh (p = 0.19).
    """
    leader, metric = comparison.leader, comparison.metric
    if leader.n == 0:
        return "Every run diverged; there is nothing to compare."
    form = score_format(metric, [summary.standard_error for summary in comparison.summaries])
    extreme = "highest" if metric.goal == "max" else "lowest"
    mean = f"mean {metric.key.replace('_', ' ')}"
    sentences = [f"{paper_name(leader.activation)} has the {extreme} {mean} ({form.score(leader)}, n = {leader.n})."]
    if len(comparison.summaries) > 1:
        sentences += _tests_of_leader(comparison) if leader.diverged == 0 else _tests_of_others(comparison)
    diverged = [f"{paper_name(s.activation)} {s.diverged} of {s.runs}" for s in comparison.summaries if s.diverged]
    if diverged:
        sentences.append(f"Diverged runs: {', '.join(diverged)}.")
    text = " ".join(sentences)
    return f"{comparison.label[0].upper()}{comparison.label[1:]}: {text}" if comparison.label else text


def _tests_of_leader(comparison: Comparison) -> list[str]:
    leader, *others = comparison.summaries
    worse = [s for s in others if comparison.is_better(leader, s)]
    untested = [s for s in others if math.isnan(comparison.p(leader, s))]
    same = [s for s in others if s not in worse and s not in untested]
    clauses = []
    if worse:
        worse.sort(key=lambda s: s.activation != REFERENCE)  # the reference stands for all that are worse
        clauses.append(f"significantly better than {_described(comparison, leader, worse, 1)}")
    if same:
        clauses.append(f"not distinguishable from {_described(comparison, leader, same, _MAX_NAMES)}")
    if untested:
        names = join_words([paper_name(s.activation) for s in untested], _MAX_NAMES)
        clauses.append(f"not tested against {names} (a test needs {MIN_RUNS} finished runs each, and a variance)")
    return [f"It is {', and '.join(clauses)}."]


def _tests_of_others(comparison: Comparison) -> list[str]:
    leader, *others = comparison.summaries
    sentences = [f"As {leader.diverged} of its {leader.runs} runs diverged, it is not called better than any other."]
    for winner in others:
        worse = [s for s in comparison.summaries if comparison.is_better(winner, s)]
        if worse:
            worse.sort(key=lambda s: s.activation != REFERENCE)
            described = _described(comparison, winner, worse, 1)
            return [*sentences, f"{paper_name(winner.activation)} is significantly better than {described}."]
    return sentences


def _described(comparison: Comparison, first: Summary, others: Sequence[Summary], most: int) -> str:
    return join_words([f"{paper_name(s.activation)} ({describe_p(comparison.p(first, s))})" for s in others], most)


@dataclass(frozen=True)
class SplitVerdict:
    """Verdict on activations and baselines on the same splits of a table.

    An activation is called better only if it is significantly better than another activation *and* than guessing: of two
    networks that learned nothing, one may be less wrong, but that is no reason to choose it.

    Args:
        comparison: scores of all activations and baselines.
        reference: the activation that others are described against.
        guess: the baseline that ignores the inputs, such as always predicting the majority class.
        guess_text: what it does, such as "guessing the majority class".
        baselines: other models that are not activations, such as gradient boosting.
        diverged: number of splits on which each activation diverged.
        one_split: whether all runs have the same rows, as in a split by time. Then nothing is significant.
    """

    comparison: SplitComparison
    reference: str
    guess: str
    guess_text: str
    baselines: Sequence[str] = ()
    diverged: dict[str, int] = field(default_factory=dict)
    one_split: bool = False

    @cached_property
    def activations(self) -> list[str]:
        """The activations, the best mean first."""
        others = {self.guess, *self.baselines}
        return [name for name in self.comparison.ranking if name not in others]

    @property
    def leader(self) -> str:
        """The activation with the best mean."""
        return self.activations[0]

    @property
    def extreme(self) -> str:
        """``highest`` or ``lowest``, whichever mean is the best."""
        return "highest" if self.comparison.metric.goal == "max" else "lowest"

    @cached_property
    def learned(self) -> list[str]:
        """The activations that are significantly better than guessing."""
        return [name for name in self.activations if self.comparison.is_better(name, self.guess)]

    @cached_property
    def wins(self) -> dict[str, list[str]]:
        """The activations that are significantly better than others, with those others, the reference first."""
        if self.one_split:
            return {}
        better = {a: [b for b in self.activations if a != b and self.comparison.is_better(a, b)] for a in self.learned}
        return {a: sorted(worse, key=lambda b: b != self.reference) for a, worse in better.items() if worse}

    @cached_property
    def score_format(self) -> ScoreFormat:
        """Format of scores. Differences are paired and finer than the scores, so there is one decimal more."""
        form = score_format(self.comparison.metric, [score.error for score in self.comparison.estimates.values()])
        return replace(form, decimals=form.decimals + 1)

    def score(self, name: str) -> str:
        """Return a mean with its unit."""
        return f"{self.score_format.number(self.comparison.estimates[name].mean)}{self.score_format.unit}"

    def __str__(self) -> str:
        if self.one_split:
            best = f"The {self.extreme} mean of a network is {paper_name(self.leader)}'s ({self.score(self.leader)})"
            return f"{best}. {ONE_SPLIT}"
        sentences = [] if self.learned else [self._nothing_learned()]
        sentences += self._win_sentences() if self.wins else self._other_sentences()
        return " ".join([*sentences, *self._baseline_sentences()])

    def _nothing_learned(self) -> str:
        best = f"the {self.extreme} mean of a network is {self.score(self.leader)} ({paper_name(self.leader)})"
        return f"No network is significantly better than {self.guess_text} ({self.score(self.guess)}): {best}."

    def _win_sentences(self) -> list[str]:
        sentences = [
            f"{paper_name(winner)} is significantly better than {self._losers(winner)}."
            for winner in list(self.wins)[:_MAX_PAIRS]
        ]
        if len(self.wins) > _MAX_PAIRS:
            sentences.append("Further pairs are in the table.")
        rest = [paper_name(name) for name in self.activations[1:] if name not in self.wins.get(self.leader, [])]
        if rest:
            sentences.append(
                f"The {self.extreme} mean is {paper_name(self.leader)}'s ({self.score(self.leader)}), "
                f"with no evidence of a difference from {join_words(rest)}."
            )
        return sentences

    def _other_sentences(self) -> list[str]:
        if len(self.activations) == 1:
            return [f"{paper_name(self.leader)}: {self.score(self.leader)}. There is no other activation to compare it with."]
        if any(self.comparison.is_better(a, b) for a, b in permutations(self.activations, 2)):
            return ["That one of them does less harm than another (see the table) is no reason to choose it."]
        other = self.reference if self.leader != self.reference else self.activations[1]
        named = [f"{paper_name(name)}{' (reference)' * (name == self.reference)}" for name in (self.leader, other)]
        p = describe_p(self.comparison.pair(self.leader, other).p_holm)
        return [
            f"No evidence of a difference between {join_words([paper_name(name) for name in self.activations])}: {named[0]} "
            f"has the {self.extreme} mean; the difference from {named[1]} is {self._distance(self.leader, other)} ({p})."
        ]

    def _baseline_sentences(self) -> list[str]:
        """Say how other models compare with the best activation."""
        sentences = []
        for name in self.baselines:
            pair = self.comparison.pair(name, self.leader)
            if self.comparison.is_better(name, self.leader):
                outcome = f"is significantly better than {paper_name(self.leader)}"
            elif self.comparison.is_better(self.leader, name):
                outcome = f"is significantly worse than {paper_name(self.leader)}"
            else:
                outcome = f"is not distinguishable from {paper_name(self.leader)}"
            sentences.append(f"{name[:1].upper()}{name[1:]} ({self.score(name)}) {outcome} ({describe_p(pair.p_holm)}).")
        return sentences

    def _losers(self, winner: str) -> str:
        names = [
            f"{paper_name(name)} ({'reference, ' * (name == self.reference)}by {self._distance(winner, name)}, "
            f"{describe_p(self.comparison.pair(winner, name).p_holm)})"
            for name in self.wins[winner]
        ]
        return join_words(names, _MAX_PAIRS)

    def _distance(self, first: str, second: str) -> str:
        size = self.score_format.number(abs(self.comparison.pair(first, second).difference.mean))
        return f"{size} points" if self.score_format.percent else size
