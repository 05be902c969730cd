"""How scores and p-values are written: as many figures as the standard error supports, accuracies in percent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from boolit.lab.results._scores import Metric, Summary

_MOST_DECIMALS = 6


@dataclass(frozen=True)
class Notation:
    """A way to write the scores of one column: in percent or not, with so many figures after the point."""

    percent: bool
    decimals: int

    @property
    def resolution(self) -> float:
        """The smallest difference that is shown, in the score's own unit."""
        return 10.0**-self.decimals / self._scale

    @property
    def unit(self) -> str:
        """What follows a number, with its space."""
        return " %" if self.percent else ""

    @property
    def _scale(self) -> int:
        return 100 if self.percent else 1

    def number(self, value: float) -> str:
        """A score, without its unit.

        Example:
            >>> Notation(percent=True, decimals=1).number(0.93249)
            '93.2'
        """
        return "–" if math.isnan(value) else f"{value * self._scale:.{self.decimals}f}"

    def score(self, summary: Summary) -> str:
        """Mean ± standard error and the unit.

        Example:
            >>> Notation(percent=True, decimals=1).score(Summary.printed("relu", 0.932, 0.004, n=32))
            '93.2 ± 0.4 %'
        """
        spread = "" if math.isnan(summary.standard_error) else f" ± {self.number(summary.standard_error)}"
        return f"{self.number(summary.mean)}{spread}{self.unit}"


def notation(metric: Metric, summaries: Iterable[Summary]) -> Notation:
    """The notation in which these summaries' typical standard error has one figure, or two if the first is a 1.

    Example:
        >>> notation(Metric("rmse", "min"), [Summary.printed("relu", 0.27123, 0.0042, n=9)]).decimals
        3
    """
    return notation_for(metric, (summary.standard_error for summary in summaries))


def notation_for(metric: Metric, errors: Iterable[float]) -> Notation:
    """The notation in which the typical one of some standard errors has one figure, or two if the first is a 1."""
    scale = 100 if metric.percent else 1
    errors = [error * scale for error in errors if error > 0]
    if not errors:
        return Notation(metric.percent, 2 if metric.percent else 4)
    digit, _, exponent = f"{statistics.median(errors):.0e}".partition("e")
    decimals = (digit == "1") - int(exponent)
    return Notation(metric.percent, min(max(decimals, 0), _MOST_DECIMALS))


def p_number(p: float) -> str:
    """A p-value with two figures (one below 0.001, three where two could be read as the other side of 0.05).

    Example:
        >>> p_number(0.2104), p_number(1.234e-9), p_number(0.0498), p_number(0.0), p_number(float("nan"))
        ('0.21', '1e-9', '0.0498', '< 1e-300', 'no test')
    """
    if math.isnan(p):
        return "no test"
    if p < 1e-300:
        return "< 1e-300"
    if p < 1e-3:
        return f"{p:.0e}".replace("e-0", "e-")
    return f"{p:.3g}" if 0.045 < p < 0.055 else f"{p:.2g}"


def p_text(p: float) -> str:
    """A p-value for a sentence.

    Example:
        >>> p_text(0.21), p_text(0.0)
        ('p = 0.21', 'p < 1e-300')
    """
    number = p_number(p)
    return number if math.isnan(p) else f"p {number}" if number.startswith("<") else f"p = {number}"
