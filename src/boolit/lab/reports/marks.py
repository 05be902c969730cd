"""Which cells of a column are bold, underlined, italic, and how dark, by the rules of the paper's tables."""

from __future__ import annotations

import math

from boolit.lab.reports._table_model import Marks
from boolit.lab.results.statistics import Comparison, Summary


def marks(comparison: Comparison, resolution: float = 0.0) -> dict[str, Marks]:
    """The marks of each activation.

    Means closer than half of what the table can show (``resolution``) are not told apart: so it is in the paper, where two
    97.12 are both bold although one is 0.001 less.
    """
    finished = [summary for summary in comparison.ranking if summary.n]
    same = {contrast.other.activation for contrast in comparison.indistinguishable}
    if finished and finished[0].n > 1:
        same.add(finished[0].activation)
    return {
        summary.activation: Marks(
            bold=_is_one_of(summary, finished[:1], resolution),
            underlined=_is_one_of(summary, finished[:2], resolution),
            italic=summary.activation in same,
        )
        for summary in comparison.ranking
    }


def shades(comparison: Comparison) -> dict[str, float]:
    """How far each mean lies from the worst (0) to the best (1); nothing if all are equal.

    Example:
        >>> from boolit.lab.results.statistics import Metric, compare_summaries
        >>> means = {"relu": 0.5, "tanh": 0.7, "or_ail": 0.6}
        >>> summaries = [Summary.printed(name, mean, 0.1, n=5) for name, mean in means.items()]
        >>> {name: round(shade, 2) for name, shade in shades(compare_summaries(summaries, Metric("accuracy"))).items()}
        {'tanh': 1.0, 'or_ail': 0.5, 'relu': 0.0}
    """
    means = {summary.activation: summary.mean for summary in comparison.ranking if not math.isnan(summary.mean)}
    ordered = list(means.values())
    if not ordered or ordered[0] == ordered[-1]:
        return {}
    best, worst = ordered[0], ordered[-1]
    return {activation: (mean - worst) / (best - worst) for activation, mean in means.items()}


def _is_one_of(summary: Summary, leaders: list[Summary], resolution: float) -> bool:
    return any(summary is leader or abs(summary.mean - leader.mean) < resolution / 2 for leader in leaders)
