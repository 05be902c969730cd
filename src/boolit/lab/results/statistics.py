"""The paper's procedure (its section s:stats): each activation at its best size, tested against the best of them all.

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

from collections.abc import Sequence
from dataclasses import replace

from boolit.lab.errors import UserError
from boolit.lab.results._comparison import Comparison, Method
from boolit.lab.results._contrasts import Contrast, contrast, holm, with_holm
from boolit.lab.results._scores import Goal, Metric, Score, Summary, metric_of, scores, size_of, summarise
from boolit.lab.results._verdict import verdict

__all__ = [
    "BEST_SIZES",
    "COVERAGE",
    "Comparison",
    "Contrast",
    "Goal",
    "Method",
    "Metric",
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
    "verdict",
]


COVERAGE = "± and p cover seeds, on one set of training and test rows: not what other rows would have given."
BEST_SIZES = (
    "Each activation has the size with its best mean on these same test rows, as in the paper: who has more noise gains."
)


def compare(scores: Sequence[Score], metric: Metric, method: Method | None = None, solved: float | None = None) -> Comparison:
    """The paper's comparison of scores: several sizes an activation, of which its best one counts.

    ``solved`` is a threshold; how many runs reach it is then counted.

    Example:
        >>> relu, small = Score("relu", 36, (0.5, 0.6, 0.55)), Score("xnor_ail", 16, (0.6, 0.5, 0.5))
        >>> result = compare([relu, small, Score("xnor_ail", 36, (0.9, 1.0, 0.95))], Metric("test_accuracy"))
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
