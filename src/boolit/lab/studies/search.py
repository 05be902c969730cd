"""The paper's random search for hyper-parameters (a:mnist).

Each round draws settings within bounds and trains each once; then the bounds close in on the round's best settings. The best
settings of all rounds are trained with many seeds, and the one with the best mean wins. The runs of a search never read test
rows (`boolit.lab.datasets.holdout`), and no seed of a study takes part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, TypeAlias

import torch
from torch import Tensor

from boolit.lab.common.errors import UserError
from boolit.lab.common.random import generator
from boolit.lab.datasets import describe
from boolit.lab.datasets.holdout import for_choosing
from boolit.lab.runs import Metric, Result, RunConfig
from boolit.lab.studies.planner import Plan, plan
from boolit.lab.studies.study import StudyFile
from boolit.lab.training import Recipe
from boolit.lab.training.metrics import METRIC_OF_TASK

ROUNDS, TRIALS, SEEDS, FINALISTS = 4, 120, 120, 10  # a:mnist
BEST_OF_ROUND, SPREAD = 5, 1.5
ROUND_SEEDS, FINAL_SEEDS = 2_000_000, 3_000_000  # the first seeds of rounds and finals; studies count from 0

Setting: TypeAlias = dict[str, float]
Train: TypeAlias = Callable[[Sequence[RunConfig]], "list[Result] | None"]  # None if interrupted


@dataclass(frozen=True)
class Range:
    """The initial bounds of x, the hyper-parameter that x stands for, and the limits of its domain."""

    low: float
    high: float
    value: Callable[[float], float]
    least: float = -math.inf
    most: float = math.inf


def _power(x: float) -> float:
    return float(f"{10**x:.4g}")


def _below_one(x: float) -> float:
    return float(f"{1 - 10**x:.8g}")


def _plain(x: float) -> float:
    return float(f"{x:.4g}")


# tab:hparam-search
RANGES: dict[str, Range] = {
    "beta1": Range(-3.0, -0.5, _below_one, least=-7.0, most=0.0),
    "beta2": Range(-5.0, -1.0, _below_one, least=-7.0, most=0.0),
    "eps": Range(-10.0, -6.0, _power),
    "weight_decay": Range(-7.0, -3.0, _power),
    "learning_rate": Range(-4.0, 0.0, _power),
    "peak": Range(0.1, 0.5, _plain, least=0.01, most=0.99),
}


def searched_hparams(recipe: Recipe) -> list[str]:
    """Return the hyper-parameters that a recipe uses."""
    unused = {"beta1", "beta2", "eps"} if recipe.optimizer == "sgd" else set()
    unused |= set() if recipe.schedule in ("one-cycle", "triangular") else {"peak"}
    return [name for name in RANGES if name not in unused]


@dataclass(frozen=True)
class Trial:
    """A point of the search space and its merit; a larger merit is better."""

    x: Tensor
    merit: float


def best_first(trials: Sequence[Trial]) -> list[Trial]:
    """Sort trials by merit; equal ones keep their order."""
    return sorted(trials, key=lambda trial: -trial.merit)


@dataclass(frozen=True)
class Bounds:
    """The bounds of a round; ``low`` and ``high`` have shape ``(hyper-parameters,)`` and type float64."""

    names: tuple[str, ...]
    low: Tensor
    high: Tensor

    @staticmethod
    def initial(names: Sequence[str]) -> Bounds:
        """Return the bounds of the first round."""
        ends = torch.tensor([[RANGES[name].low, RANGES[name].high] for name in names], dtype=torch.float64)
        return Bounds(tuple(names), ends[:, 0], ends[:, 1])

    def draw(self, trials: int, *words: str | int) -> Tensor:
        """Draw points uniformly, shape ``(trials, hyper-parameters)``; the words (study, activation, round) seed it."""
        shares = torch.rand(trials, len(self.names), generator=generator(0, "search", *words), dtype=torch.float64)
        return self.low + shares * (self.high - self.low)

    def tighten(self, trials: Sequence[Trial]) -> Bounds:
        """Return mean ± 1.5 weighted standard deviations of the best trials.

        NOTE[paper]: the weights are not given; here the n best weigh n, n-1, …, 1. Bounds may leave the initial ones, as the
        authors' published values do, but not the domain of the hyper-parameter.
        """
        best = torch.stack([trial.x for trial in best_first(trials)[:BEST_OF_ROUND]])
        weights = torch.arange(len(best), 0, -1, dtype=torch.float64)
        mean = best.mean(0)
        spread = SPREAD * ((best - mean).square() * weights.unsqueeze(1)).sum(0).div(weights.sum()).sqrt()
        least = torch.tensor([RANGES[name].least for name in self.names], dtype=torch.float64)
        most = torch.tensor([RANGES[name].most for name in self.names], dtype=torch.float64)
        return Bounds(self.names, (mean - spread).clamp(least, most), (mean + spread).clamp(least, most))

    def setting(self, x: Tensor) -> Setting:
        """Return the hyper-parameters that a point stands for."""
        return {name: RANGES[name].value(value) for name, value in zip(self.names, x.tolist(), strict=True)}


@dataclass(frozen=True)
class Finalist:
    """A setting that was trained with many seeds: mean of the metric, share of solved runs, number of diverged runs."""

    setting: Setting
    mean: float
    solved: float
    diverged: int


@dataclass(frozen=True)
class SearchResult:
    """The finalists of an activation, best first, the best value of each round, and a sentence on the rows used."""

    activation: str
    finalists: tuple[Finalist, ...]
    rounds: tuple[float, ...]
    rows: str

    @property
    def setting(self) -> Setting:
        """The hyper-parameters of the winner."""
        return self.finalists[0].setting

    def to_json(self) -> dict[str, Any]:
        """Return the winner as JSON values."""
        winner = asdict(self.finalists[0])
        return {"activation": self.activation, **winner, "best_of_each_round": list(self.rounds), "covers": self.rows}


def plan_search(file: StudyFile, profile: str | None = None, sets: Sequence[str] = ()) -> Plan:
    """Plan a study with one run per activation: what a search varies."""
    planned = plan(file, profile, seeds=1, sets=sets)
    if len({run.activation for run in planned.runs}) < len(planned.runs):
        example = "--set 'sweep.width=[32]'"
        raise UserError(f"a search tunes one size, but {planned.name} has several; choose one, such as {example}")
    return planned


def search(
    planned: Plan,
    train: Train,
    rounds: int = ROUNDS,
    trials: int = TRIALS,
    seeds: int = SEEDS,
    finalists: int = FINALISTS,
) -> list[SearchResult] | None:
    """Search hyper-parameters for every activation of a plan from `plan_search`.

    Args:
        planned: one run per activation.
        train: trains runs, or reads those that were trained before, and returns their results in order.
        rounds: rounds of random settings.
        trials: settings per round.
        seeds: runs per finalist.
        finalists: settings that reach the final.

    Returns:
        The results by activation, or None if training was interrupted.
    """
    results = []
    for run in planned.runs:
        result = _search(_search_run(run, planned.name), train, rounds, trials, seeds, finalists)
        if result is None:
            return None
        results.append(result)
    return results


def _search_run(run: RunConfig, name: str) -> RunConfig:
    data, metric = for_choosing(run.data), run.metric.model_copy(update={"split": "valid"})
    described = describe(data)
    known = [METRIC_OF_TASK[described.task], "loss", *described.extra_metrics]
    if metric.name not in known:
        raise UserError(f"a search cannot choose by {metric.name!r}: the split valid has {', '.join(known)}")
    return run.replace(study=f"{name}-search", data=data, metric=metric, trial=True)


def _search(run: RunConfig, train: Train, rounds: int, trials: int, seeds: int, finalists: int) -> SearchResult | None:
    bounds = Bounds.initial(searched_hparams(run.training))
    tried: list[Trial] = []
    best: list[float] = []
    for number in range(rounds):
        xs = bounds.draw(trials, run.study.removesuffix("-search"), run.activation, number)
        settings = [bounds.setting(x) for x in xs]
        results = train(
            [run.replace(seed=ROUND_SEEDS + i, stage=f"round {number}", training=s) for i, s in enumerate(settings)]
        )
        if results is None:
            return None
        this_round = [Trial(x, _merit(run.metric, result)) for x, result in zip(xs, results, strict=True)]
        tried += this_round
        best.append(run.metric.sign * best_first(this_round)[0].merit)
        bounds = bounds.tighten(this_round)
    settings = [bounds.setting(trial.x) for trial in best_first(tried)[:finalists]]
    final = [run.replace(stage="final", training=setting) for setting in settings]
    results = train([each for config in final for each in config.with_seeds(range(FINAL_SEEDS, FINAL_SEEDS + seeds))])
    if results is None:
        return None
    merits = [_merit(run.metric, result) for result in results]
    worst = min(filter(math.isfinite, merits), default=0.0)
    groups = [slice(i * seeds, (i + 1) * seeds) for i in range(len(settings))]
    ranked = [
        _finalist(run.metric, setting, results[group], merits[group], worst)
        for setting, group in zip(settings, groups, strict=True)
    ]
    ranked.sort(key=lambda finalist: -run.metric.sign * finalist.mean)
    return SearchResult(run.activation, tuple(ranked), tuple(best), _describe_rows(run, seeds))


def _finalist(metric: Metric, setting: Setting, results: Sequence[Result], merits: Sequence[float], worst: float) -> Finalist:
    # A diverged run counts as the worst run of all finalists that did not diverge.
    mean = metric.sign * fmean(merit if math.isfinite(merit) else worst for merit in merits)
    solved = fmean(metric.solves(result.metrics.get(metric.key, math.nan)) for result in results)
    return Finalist(setting, mean, solved, sum(result.state == "diverged" for result in results))


def _merit(metric: Metric, result: Result) -> float:
    value = result.metrics.get(metric.key, math.nan)
    return metric.sign * value if result.state == "finished" and math.isfinite(value) else -math.inf


def _describe_rows(run: RunConfig, seeds: int) -> str:
    share = run.data.model_dump()["share"]
    rows = "the split valid" if share is None else f"{share:.0%} of the training rows, held out"
    count = describe(run.data).samples["valid"]
    return (
        f"Means of {run.metric.name} over {seeds} seeds on {count} rows ({rows}). These rows chose the settings, so the means "
        "say nothing about new rows. No test row and no seed of the study took part."
    )


def hparams_to_toml(settings: Mapping[str, Setting], heading: str) -> str:
    """Format settings by activation as a TOML file for ``boolit run --hparams``.

    Example:
        >>> print(hparams_to_toml({"or_ail": {"learning_rate": 0.01}}, "by hand"))
        # by hand
        <BLANKLINE>
        [hparams."or_ail"]
        learning_rate = 0.01
        <BLANKLINE>
    """
    tables = [f"# {heading}\n"]
    for spec, setting in settings.items():
        tables.append(f'[hparams."{spec}"]\n' + "".join(f"{name} = {value!r}\n" for name, value in setting.items()))
    return "\n".join(tables)
