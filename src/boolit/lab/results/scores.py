"""From records to scores (one value per seed) to summaries (mean, sd, n), and how scores and p-values are formatted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from boolit.errors import UserError
from boolit.lab.results.run_table import Array, RunTable
from boolit.lab.runs import Metric, Record, RunConfig


@dataclass(frozen=True)
class Score:
    """The scores of one ``activation`` at one ``size``: ``values``, one per seed that finished, and how many ``diverged``.

    Runs of different ``depth`` are different scores, even where their sizes agree. `scores` makes them from records.

    Example:
        >>> from boolit.lab import Score
        >>> Score("relu", 36, (0.5, 0.6, 0.55), diverged=1)
        Score(activation='relu', size=36, values=(0.5, 0.6, 0.55), diverged=1, depth=0)
    """

    activation: str
    size: int
    values: tuple[float, ...]
    diverged: int = 0
    depth: int = 0


@dataclass(frozen=True)
class ScoreSummary:
    """``mean`` and sample standard deviation ``sd`` of ``n`` values, from ``runs`` runs of which ``diverged`` diverged.

    They are of one ``activation``, ``size`` and ``depth``. ``solved`` is how many runs reached a threshold, if one was given.

    Example:
        >>> from boolit.lab import ScoreSummary
        >>> printed = ScoreSummary.from_standard_error("relu", 92.06, 0.07, n=5)
        >>> printed.mean, round(printed.sd, 3), printed.standard_error
        (92.06, 0.157, 0.07)
    """

    activation: str
    size: int
    n: int
    mean: float
    sd: float
    runs: int
    diverged: int = 0
    solved: int | None = None
    depth: int = 0

    @property
    def standard_error(self) -> float:
        """The standard error of the mean."""
        return self.sd / math.sqrt(self.n) if self.n else math.nan

    @classmethod
    def from_standard_error(cls, activation: str, mean: float, standard_error: float, n: int, size: int = 0) -> ScoreSummary:
        """A summary from a printed mean ± standard error.

        Example:
            >>> ScoreSummary.from_standard_error("relu", 92.06, 0.07, n=5).standard_error
            0.07
        """
        return cls(activation, size, n, mean, standard_error * math.sqrt(n), runs=n)


def metric_of(records: Sequence[Record]) -> Metric:
    """The metric of these records; an error if there are several, or no records."""
    table = RunTable.of(records)
    metrics = {(metric.key, metric.goal) for metric in map(_metric, table.shared_configs())}
    if len(metrics) != 1:
        found = ", ".join(sorted(key for key, _ in metrics)) or "none: there are no runs"
        raise UserError(f"runs are compared by one metric, but these have {found}; choose the runs of one study")
    return _metric(table[-1].config)


def size_of(config: RunConfig) -> int:
    """The size a run counts as: its parameter budget, so that activations of one budget are compared, or its own count."""
    return config.parameters if config.budget is None else config.budget


def scores(records: Sequence[Record], metric: str) -> list[Score]:
    """The records' values of a metric, by activation, size and depth, each ordered by seed.

    A run counts as diverged if it says so or if its value is not finite. Two runs with one seed are an error: they differ in
    something else, and pooling them would look like more seeds.

    Args:
        records: of one study, as `Store.records` returns them.
        metric: the name of a metric of theirs, such as ``test_accuracy``: `Metric.key`.

    Example:
        >>> from boolit.lab import Record, Run, scores
        >>> runs = [Run.from_dict({"activation": "relu", "parameters": 36, "seed": seed}) for seed in range(3)]
        >>> records = [Record(run.key, run.config, "finished", {"test_accuracy": 0.5 + run.config.seed / 10}) for run in runs]
        >>> scores(records, "test_accuracy")
        [Score(activation='relu', size=36, values=(0.5, 0.6, 0.7), diverged=0, depth=0)]
    """
    table = RunTable.of(records)
    lacking = np.flatnonzero(table.columns["finished"] & ~table.has_metric(metric))
    if len(lacking):
        first = table[lacking[0]]
        known = ", ".join(sorted(first.metrics)) or "none"
        raise UserError(f"run {first.key} has no metric {metric!r}; it has {known}")
    groups = table.rows_by(lambda config: (config.activation, size_of(config), config.depth))
    return [_score(*labels, table, rows, metric) for labels, rows in sorted(groups.items())]


def summarise(score: Score, metric: Metric, instead: float | None = None, solved: float | None = None) -> ScoreSummary:
    """A score's mean and standard deviation, with ``instead``, if given, as the value of each diverged run.

    Example:
        >>> summarise(Score("relu", 36, (0.5, 0.7), diverged=1), Metric(name="accuracy")).mean
        0.6
    """
    values = score.values if instead is None else (*score.values, *[instead] * score.diverged)
    mean, sd = _mean_and_sd(values)
    return ScoreSummary(
        activation=score.activation,
        size=score.size,
        n=len(values),
        mean=mean,
        sd=sd,
        runs=len(score.values) + score.diverged,
        diverged=score.diverged,
        solved=None if solved is None else _count_solved(score.values, metric, solved),
        depth=score.depth,
    )


@lru_cache(maxsize=256)  # a report summarises the same values for the verdict, its tables and its figures
def _mean_and_sd(values: tuple[float, ...]) -> tuple[float, float]:
    sd = statistics.stdev(values) if len(values) > 1 else math.nan
    return statistics.fmean(values) if values else math.nan, sd


def _count_solved(values: tuple[float, ...], metric: Metric, solved: float) -> int:
    found = np.array(values, float)
    return int(np.count_nonzero(found >= solved if metric.goal == "max" else found <= solved))


def _score(activation: str, size: int, depth: int, table: RunTable, rows: Array, metric: str) -> Score:
    rows = rows[np.argsort(table.columns["seed"][rows], kind="stable")]
    seeds = table.columns["seed"][rows]
    if (seeds[1:] == seeds[:-1]).any():
        repeated = seeds[1:][seeds[1:] == seeds[:-1]][0]
        raise UserError(
            f"seed {repeated} of {activation} with {size} parameters is there more than once, in runs of different settings; "
            "compare runs of one setting, or give each setting its own folder"
        )
    finite = rows[table.finite_scores(metric)[rows]]
    return Score(activation, size, tuple(table.metric(metric)[finite].tolist()), len(rows) - len(finite), depth)


def _metric(config: RunConfig) -> Metric:
    if config.metric is None:
        raise UserError("a run's configuration has no metric; it is a table with name, split and goal")
    return config.metric


_MAX_DECIMALS = 6


@dataclass(frozen=True)
class ScoreFormat:
    """How the scores of one column are formatted: in percent or not, and the digits after the decimal point."""

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
            >>> ScoreFormat(percent=True, decimals=1).number(0.93249)
            '93.2'
        """
        return "–" if math.isnan(value) else f"{value * self._scale:.{self.decimals}f}"

    def score(self, summary: ScoreSummary) -> str:
        """Mean ± standard error and the unit.

        Example:
            >>> ScoreFormat(percent=True, decimals=1).score(ScoreSummary.from_standard_error("relu", 0.932, 0.004, n=32))
            '93.2 ± 0.4 %'
        """
        spread = "" if math.isnan(summary.standard_error) else f" ± {self.number(summary.standard_error)}"
        return f"{self.number(summary.mean)}{spread}{self.unit}"


def score_format(metric: Metric, errors: Iterable[float]) -> ScoreFormat:
    """The format in which the median of these standard errors has one digit, or two if the first is a 1.

    Example:
        >>> score_format(Metric(name="rmse"), [0.0042]).decimals
        3
    """
    scale = 100 if metric.percent else 1
    errors = [error * scale for error in errors if error > 0]
    if not errors:
        return ScoreFormat(metric.percent, 2 if metric.percent else 4)
    digit, _, exponent = f"{statistics.median(errors):.0e}".partition("e")
    decimals = (digit == "1") - int(exponent)
    return ScoreFormat(metric.percent, min(max(decimals, 0), _MAX_DECIMALS))


def format_p(p: float) -> str:
    """A p-value with two digits (one below 0.001, three where two could be read as the other side of 0.05).

    Example:
        >>> format_p(0.2104), format_p(1.234e-9), format_p(0.0498), format_p(0.0), format_p(float("nan"))
        ('0.21', '1e-9', '0.0498', '< 1e-300', 'no test')
    """
    if math.isnan(p):
        return "no test"
    if p < 1e-300:
        return "< 1e-300"
    if p < 1e-3:
        return f"{p:.0e}".replace("e-0", "e-")
    return f"{p:.3g}" if 0.045 < p < 0.055 else f"{p:.2g}"


def describe_p(p: float) -> str:
    """A p-value for a sentence.

    Example:
        >>> describe_p(0.21), describe_p(0.0)
        ('p = 0.21', 'p < 1e-300')
    """
    number = format_p(p)
    return number if math.isnan(p) else f"p {number}" if number.startswith("<") else f"p = {number}"
