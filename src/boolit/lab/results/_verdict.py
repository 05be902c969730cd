"""A comparison in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from boolit.lab.results._comparison import Comparison, Method
from boolit.lab.results._contrasts import Contrast
from boolit.lab.results._scores import Summary
from boolit.lab.results.notation import notation, p_text

_BASELINE = "relu"
_NAMED = 3


def verdict(comparison: Comparison) -> str:
    """Who is best, better than whom, not distinguishable from whom, and who diverged.

    Example:
        >>> from boolit.lab.results.statistics import Metric, Score, compare
        >>> values = {"relu": (0.5, 0.6, 0.55), "xnor_ail": (0.9, 1.0, 0.95), "tanh": (0.9, 0.95, 0.91)}
        >>> print(verdict(compare([Score(name, 36, v) for name, v in values.items()], Metric("test_accuracy"))))
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
