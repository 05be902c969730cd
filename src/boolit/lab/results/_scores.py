"""From records to scores (one activation at one size, a value a seed) to summaries (mean, sd, n)."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from boolit.lab.errors import UserError
from boolit.lab.runs import JSON, Record

Goal: TypeAlias = Literal["max", "min"]

NO_SHARES = ("loss", "rmse")  # how the names of metrics end that are not between 0 and 1


@dataclass(frozen=True)
class Metric:
    """What runs are judged by: a name among their metrics, and whether more or less of it is better."""

    name: str
    goal: Goal = "max"

    @property
    def percent(self) -> bool:
        """Whether it is shown in percent: accuracies and other shares are, losses and errors are not."""
        return not self.name.endswith(NO_SHARES)

    def merit(self, value: float) -> float:
        """A number that is larger the better ``value`` is; that of no number is the worst."""
        return -math.inf if math.isnan(value) else value if self.goal == "max" else -value


@dataclass(frozen=True)
class Score:
    """How one activation did at one size: a value for each seed that finished, and how many diverged.

    Runs of different depths are different scores, even where their sizes agree.
    """

    activation: str
    size: int
    values: tuple[float, ...]
    diverged: int = 0
    depth: int = 0


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of ``n`` values; ``runs`` of which ``diverged`` were behind them.

    ``solved`` is how many runs reached a threshold, if one was given.
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
    def printed(cls, activation: str, mean: float, standard_error: float, n: int, size: int = 0) -> Summary:
        """A summary from what a paper prints.

        Example:
            >>> Summary.printed("relu", 92.06, 0.07, n=5).standard_error
            0.07
        """
        return cls(activation, size, n, mean, standard_error * math.sqrt(n), runs=n)


def metric_of(records: Sequence[Record]) -> Metric:
    """The metric these records were trained for; an error if there are several, or no records."""
    metrics = {_metric(record.config) for record in records}
    if len(metrics) != 1:
        found = ", ".join(sorted(metric.name for metric in metrics)) or "none: there are no runs"
        raise UserError(f"runs are compared by one metric, but these have {found}; choose the runs of one study")
    return metrics.pop()


def size_of(record: Record) -> int:
    """The size a run counts as: its parameter budget, so that activations of one budget stand together, or its own count."""
    budget = record.config.get("budget")
    size = record.config.get("parameters") if budget is None else budget
    return int(size) if isinstance(size, (int, float)) else 0


def scores(records: Sequence[Record], metric: str) -> list[Score]:
    """The records' values of a metric, by activation, size and depth, each ordered by seed.

    A run counts as diverged if it says so or if its value is not finite. Two runs with one seed are an error: they differ in
    something else, and pooling them would pass for more seeds.
    """
    groups: dict[tuple[str, int, int], list[Record]] = defaultdict(list)
    for record in records:
        if metric not in record.metrics and record.state == "finished":
            known = ", ".join(sorted(record.metrics)) or "none"
            raise UserError(f"run {record.key} has no metric {metric!r}; it has {known}")
        groups[str(record.config["activation"]), size_of(record), _whole(record, "depth")].append(record)
    return [_score(*labels, group, metric) for labels, group in sorted(groups.items())]


def summarise(score: Score, metric: Metric, instead: float | None = None, solved: float | None = None) -> Summary:
    """A score's mean and standard deviation, with ``instead`` as the value of each diverged run if given.

    Example:
        >>> summarise(Score("relu", 36, (0.5, 0.7), diverged=1), Metric("test_accuracy")).mean
        0.6
    """
    values = [*score.values, *([] if instead is None else [instead] * score.diverged)]
    return Summary(
        activation=score.activation,
        size=score.size,
        n=len(values),
        mean=statistics.fmean(values) if values else math.nan,
        sd=statistics.stdev(values) if len(values) > 1 else math.nan,
        runs=len(score.values) + score.diverged,
        diverged=score.diverged,
        solved=None if solved is None else sum(metric.merit(v) >= metric.merit(solved) for v in score.values),
        depth=score.depth,
    )


def _score(activation: str, size: int, depth: int, records: list[Record], metric: str) -> Score:
    seeds = [_whole(record, "seed") for record in records]
    if len(set(seeds)) < len(seeds):
        repeated = next(seed for seed in seeds if seeds.count(seed) > 1)
        raise UserError(
            f"seed {repeated} of {activation} with {size} parameters is there more than once, in runs of different settings; "
            "compare runs of one setting, or give each setting its own folder"
        )
    finished = [r for r in records if r.state == "finished" and math.isfinite(r.metrics[metric])]
    values = tuple(r.metrics[metric] for r in sorted(finished, key=lambda r: _whole(r, "seed")))
    return Score(activation, size, values, len(records) - len(finished), depth)


def _whole(record: Record, name: str) -> int:
    value = record.config.get(name)
    return value if isinstance(value, int) else 0


def _metric(config: Mapping[str, JSON]) -> Metric:
    entry = config.get("metric")
    if not isinstance(entry, Mapping):
        raise UserError(f"a run's metric is a table with name, split and goal, not {entry!r}")
    name = "_".join(str(entry[part]) for part in ("split", "name") if entry.get(part))
    return Metric(name, "min" if entry.get("goal") == "min" else "max")
