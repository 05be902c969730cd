"""The paper's random search for hyper-parameters (a:mnist).

Each round draws settings within bounds and trains each once; then the bounds close in on the round's best settings. The best
settings of all rounds are trained with many seeds, and the one with the best mean wins. The runs of a search never read test
rows (`boolit.lab.datasets`), and their seeds are not those of any study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import torch

from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.lab.datasets import describe, for_choosing
from boolit.lab.runs import Metric, Result, RunConfig
from boolit.lab.studies.planner import Plan, known_metrics, plan
from boolit.lab.studies.study import Study, StudyFile, sort_setting
from boolit.lab.training import Recipe
from boolit.lab.training.recipe import OPTIMIZERS
from boolit.nn import activation
from boolit.nn.width import round_width

ROUNDS, TRIALS, SEEDS, FINALISTS = 4, 120, 120, 10  # a:mnist
BEST_OF_ROUND, SPREAD = 5, 1.5
ROUND_SEEDS, FINAL_SEEDS = 2_000_000, 3_000_000  # the first seeds of rounds and finals; studies count from 0

Point: TypeAlias = dict[str, float]  # coordinates by hyper-parameter, such as the logarithm of the learning rate
Setting: TypeAlias = dict[str, float]  # hyper-parameters as a recipe takes them
Bounds: TypeAlias = dict[str, tuple[float, float]]
Scale: TypeAlias = tuple[Callable[[float], float], Callable[[float], float]]  # value at a coordinate, coordinate of a value
Train: TypeAlias = Callable[[Sequence[RunConfig]], "list[Result] | None"]  # None if interrupted


class Range(NamedTuple):
    """A hyper-parameter of a search: its value at a coordinate, the coordinate of a value, and bounds of coordinates.

    ``bounds`` are those of the first round, ``limits`` those of all rounds.
    """

    value: Callable[[float], float]
    coordinate: Callable[[float], float]
    bounds: tuple[float, float]
    limits: tuple[float, float] = (-math.inf, math.inf)


LINEAR: Scale = (lambda x: float(f"{x:.4g}"), float)
POWER: Scale = (lambda x: float(f"{10**x:.4g}"), math.log10)
WHOLE: Scale = (lambda x: max(1, round(10**x)), math.log10)
BELOW_ONE: Scale = (lambda x: float(f"{1 - 10**x:.8g}"), lambda value: math.log10(1 - value))
RANGES = {  # tab:hparam-search
    "beta1": Range(*BELOW_ONE, (-3.0, -0.5), (-7.0, 0.0)),
    "beta2": Range(*BELOW_ONE, (-5.0, -1.0), (-7.0, 0.0)),
    "eps": Range(*POWER, (-10.0, -6.0), (-30.0, 10.0)),
    "weight_decay": Range(*POWER, (-7.0, -3.0), (-30.0, 10.0)),
    "learning_rate": Range(*POWER, (-4.0, 0.0), (-30.0, 10.0)),
    "peak": Range(*LINEAR, (0.1, 0.5), (0.01, 0.99)),
}
OTHERS = {  # what a study may name in [search] besides, as it may the options of a registered optimizer
    "momentum": Range(*LINEAR, (0.0, 0.99), (0.0, 0.999)),
    "dropout": Range(*LINEAR, (0.0, 0.5), (0.0, 0.99)),
    "batch": Range(*WHOLE, (1.0, 3.0), (0.0, 7.0)),
    "width": Range(*WHOLE, (1.0, 3.0), (0.0, 7.0)),
}


def range_of(name: str) -> Range:
    """Return the range of a hyper-parameter; options of registered optimizers are drawn uniformly."""
    return {**RANGES, **OTHERS}.get(name, Range(*LINEAR, (0.0, 1.0)))


def initial_bounds(study: Study, recipe: Recipe) -> Bounds:
    """Return the bounds of the first round: those of ``[search]``, or the paper's for what a recipe uses.

    Raises:
        UserError: ``[search]`` names something that cannot be searched, or bounds that do not fit.
    """
    optimizer = OPTIMIZERS.get(recipe.optimizer)
    if not study.search:
        unused = {"beta1", "beta2", "eps"} - set(optimizer.searched)
        unused |= set() if recipe.schedule in ("one-cycle", "triangular") else {"peak"}
        return {name: each.bounds for name, each in RANGES.items() if name not in unused}
    others = [name for name in OTHERS if name != "dropout" or name in type(study.model).model_fields]
    known, bounds = [*RANGES, *others, *optimizer.options], {}
    for name, (low, high) in study.search.items():
        if name not in known:
            raise UserError(f"search.{name} is not a hyper-parameter of this study; choose among {', '.join(known)}")
        scale = range_of(name)
        first, last = sorted(map(scale.value, scale.limits))
        if not first <= low < high <= last:
            rule = f"{first:.8g} ≤ low < high ≤ {last:.8g}"
            raise UserError(f"search.{name} is [{low:g}, {high:g}]; it must be [low, high] with {rule}")
        start, end = sorted(map(scale.coordinate, (low, high)))
        bounds[name] = (start, end)
    return bounds


def with_setting(run: RunConfig, setting: Setting) -> RunConfig:
    """Return a run with other hyper-parameters."""
    training, of_model, width = sort_setting(setting, run.model, run.training)
    model, gate, widths = run.model.model_copy(update=of_model), activation(run.activation), run.widths
    if width is not None:
        widths = tuple(round_width(each, gate.width_multiple) for each in model.widths(int(width), run.depth))
    parameters = model.parameters(run.inputs, run.outputs, widths, gate)
    return run.replace(training=training, model=model, widths=widths, parameters=parameters)


def value_of(run: RunConfig, name: str) -> float:
    """Return a hyper-parameter of a run."""
    if name == "width":
        return run.widths[0]
    options = {**OPTIMIZERS.get(run.training.optimizer).options, **run.training.options}
    section = run.model if name in type(run.model).model_fields else run.training
    return float(options[name] if name in options else getattr(section, name))


def draw(bounds: Bounds, trials: int, *words: str | int) -> list[Point]:
    """Draw points uniformly within bounds; the words (study, activation, round) seed the generator."""
    shares = torch.rand(trials, len(bounds), generator=generator(0, "search", *words), dtype=torch.float64).tolist()
    ends = list(bounds.items())
    return [{name: low + share * (high - low) for share, (name, (low, high)) in zip(row, ends, strict=True)} for row in shares]


def tighten(best: Sequence[Point], within: Bounds | None = None) -> Bounds:
    """Return mean ± 1.5 weighted standard deviations of the best points of a round, best first, inside the bounds ``within``.

    NOTE[paper]: the weights are not given; here the n best weigh n, n-1, …, 1. Bounds may leave the initial ones, as the
    authors' published values do, but not the domain of the hyper-parameter.
    """
    weights, bounds = range(len(best), 0, -1), {}
    for name in best[0]:
        mean, (least, most) = fmean(x[name] for x in best), within[name] if within else range_of(name).limits
        variance = sum(weight * (x[name] - mean) ** 2 for weight, x in zip(weights, best, strict=True)) / sum(weights)
        low, high = (min(most, max(least, mean + side * SPREAD * variance**0.5)) for side in (-1, 1))
        bounds[name] = (low, high)
    return bounds


def to_setting(x: Point) -> Setting:
    """Return the hyper-parameters that a point stands for."""
    return {name: range_of(name).value(value) for name, value in x.items()}


@dataclass(frozen=True)
class Finalist:
    """A setting that was trained with many seeds: mean of the metric, share of solved runs, number of diverged runs."""

    setting: Setting
    mean: float
    solved: float
    diverged: int


@dataclass(frozen=True)
class SearchResult:
    """The finalists of an activation, best first, and a sentence on the rows used."""

    activation: str
    finalists: tuple[Finalist, ...]
    rows: str

    @property
    def setting(self) -> Setting:
        """The hyper-parameters of the winner."""
        return self.finalists[0].setting

    def to_json(self) -> dict[str, Any]:
        """Return the winner as JSON values."""
        return {"activation": self.activation, **asdict(self.finalists[0]), "covers": self.rows}


def plan_search(file: StudyFile, profile: str | None = None, sets: Sequence[str] = ()) -> Plan:
    """Plan a study with one run per activation, whose hyper-parameters a search varies."""
    planned = plan(file, profile, seeds=1, sets=sets)
    initial_bounds(planned.study, planned.study.training)  # report bounds that do not fit
    if len({run.activation for run in planned.runs}) < len(planned.runs):
        example = "--set 'sweep.width=[32]'"
        raise UserError(f"a search tunes one size, but {planned.name} has several; choose one, such as {example}")
    return planned


def search(
    planned: Plan, train: Train, rounds: int = ROUNDS, trials: int = TRIALS, seeds: int = SEEDS, finalists: int = FINALISTS
) -> list[SearchResult] | None:
    """Search hyper-parameters for every activation of a plan from `plan_search`; return None if interrupted.

    Args:
        planned: one run per activation.
        train: trains runs, or reads those that were trained before, and returns their results in order.
        rounds: rounds of random settings.
        trials: settings per round.
        seeds: runs per finalist.
        finalists: settings that reach the final.
    """
    results = []
    for planned_run in planned.runs:
        run = _without_test_rows(planned_run)
        tried = _rounds(run, train, rounds, trials, planned.study)
        if tried is None:
            return None
        ranked = _final(run, train, [to_setting(x) for _, x in _best_first(tried)[:finalists]], seeds)
        if ranked is None:
            return None
        results.append(SearchResult(run.activation, tuple(ranked), _describe_rows(planned_run, seeds)))
    return results


def _without_test_rows(run: RunConfig) -> RunConfig:
    data, metric = for_choosing(run.data), run.metric.model_copy(update={"split": "valid"})
    if metric.name not in (known := known_metrics(describe(data), "valid")):
        raise UserError(f"a search cannot choose by {metric.name!r}: the split valid has {', '.join(known)}")
    return run.replace(study=f"{run.study}-search", data=data, metric=metric, trial=True)


def _rounds(run: RunConfig, train: Train, rounds: int, trials: int, study: Study) -> list[tuple[float, Point]] | None:
    """Train the settings of all rounds and return each with its merit, or None if interrupted."""
    bounds, tried = initial_bounds(study, run.training), list[tuple[float, Point]]()
    within = bounds if study.search else None
    for number in range(rounds):
        points = draw(bounds, trials, run.study.removesuffix("-search"), run.activation, number)
        settings, stage = enumerate(map(to_setting, points)), f"round {number}"
        results = train([with_setting(run, setting).replace(seed=ROUND_SEEDS + i, stage=stage) for i, setting in settings])
        if results is None:
            return None
        tried += [(_merit(run.metric, result), x) for x, result in zip(points, results, strict=True)]
        bounds = tighten([x for _, x in _best_first(tried[-trials:])[:BEST_OF_ROUND]], within)
    return tried


def _final(run: RunConfig, train: Train, settings: Sequence[Setting], seeds: int) -> list[Finalist] | None:
    numbers, metric = range(FINAL_SEEDS, FINAL_SEEDS + seeds), run.metric
    finals = [with_setting(run, setting).replace(stage="final") for setting in settings]
    results = train([each for final in finals for each in final.with_seeds(numbers)])
    if results is None:
        return None
    # A diverged run counts as the worst run of all finalists that did not diverge.
    worst = min((merit for result in results if math.isfinite(merit := _merit(metric, result))), default=0.0)
    finalists = []
    for place, setting in enumerate(settings):
        group = results[place * seeds : (place + 1) * seeds]
        mean = metric.sign * fmean(max(_merit(metric, result), worst) for result in group)
        solved = fmean(metric.solves(result.metrics.get(metric.key, math.nan)) for result in group)
        finalists.append(Finalist(setting, mean, solved, sum(result.state == "diverged" for result in group)))
    return sorted(finalists, key=lambda finalist: -metric.sign * finalist.mean)


def _merit(metric: Metric, result: Result) -> float:
    value = result.metrics.get(metric.key, math.nan)
    return metric.sign * value if result.state == "finished" and math.isfinite(value) else -math.inf


def _best_first(trials: Sequence[tuple[float, Point]]) -> list[tuple[float, Point]]:
    return sorted(trials, key=lambda trial: -trial[0])  # stable: equal merits keep their order


def _describe_rows(run: RunConfig, seeds: int) -> str:
    data = for_choosing(run.data)
    rows = "the split valid" if data.share is None else f"{data.share:.0%} of the training rows, held out"
    return (
        f"Means of {run.metric.name} over {seeds} seeds on {describe(data).samples['valid']} rows ({rows}). These rows chose "
        "the settings, so the means say nothing about new rows. No test row and no seed of the study took part."
    )


def hparams_to_toml(settings: Mapping[str, Setting], heading: str) -> str:
    """Format settings by activation as a TOML file for ``boolit run --hparams``."""
    tables = [
        f'[hparams."{spec}"]\n' + "".join(f"{name} = {value!r}\n" for name, value in setting.items())
        for spec, setting in settings.items()
    ]
    return "\n".join([f"# {heading}\n", *tables])
