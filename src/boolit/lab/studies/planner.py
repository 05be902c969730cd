"""From a study to its runs, and from runs to cohorts that are trained together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import boolit
from boolit.errors import user_input
from boolit.lab.common.parallel import require_memory
from boolit.lab.datasets import Description, describe, source
from boolit.lab.datasets import check_memory as check_data_memory
from boolit.lab.models import family
from boolit.lab.runs import KEY_DIGITS, Run, RunConfig, canonical
from boolit.lab.studies.files import ResolvedStudy, StudyFile
from boolit.lab.studies.schema import Study
from boolit.lab.training import Job
from boolit.lab.training.job import COPIES_OF_PARAMETERS, FLOAT_BYTES, bytes_per_run, needs_single_network
from boolit.lab.training.metrics import LOSS_OF_TASK, METRIC_OF_TASK, TASKS_OF_LOSS
from boolit.lab.training.recipe import PER_RUN, Recipe
from boolit.nn import Activation
from boolit.nn.width import round_width

MEMORY = 2 * 2**30
BUDGET_TOLERANCE = 0.5
MOST_RUNS = 200_000
# Part of every run's key: raised when the same configuration no longer gives the same numbers, as by another default. 1 at
# first; 2 and 3 for runs with averaged weights, with rates found under some options, with Adam in float16; 4 since optimiser
# steps and batch norms are kernels, which sum in another order; 5 since pixels of augmented images are looked up by whole
# numbers. Runs of before stay in a store, but are trained anew.
ARITHMETIC = 5


@dataclass(frozen=True)
class Cohort:
    """Runs of one shape that are trained as one stacked model."""

    runs: tuple[Run, ...]

    @cached_property
    def key(self) -> str:
        """What its checkpoint is kept under: it follows from the runs and their order."""
        return hashlib.sha256("".join(run.key for run in self.runs).encode()).hexdigest()[:KEY_DIGITS]

    def __str__(self) -> str:
        """A few words for progress and errors."""
        config, runs = self.runs[0].config, len(self.runs)
        return f"{config.activation}, {config.parameters:,} parameters, {runs:,} run{'' if runs == 1 else 's'}"

    def of(self, keys: Sequence[str]) -> Cohort:
        """The cohort of those of its runs whose keys are given."""
        wanted = set(keys)
        return Cohort(tuple(run for run in self.runs if run.key in wanted))

    def job(self) -> Job:
        """What the trainer takes."""
        return Job.of([run.config for run in self.runs])


@dataclass(frozen=True)
class Plan:
    """All runs of a study, in cohorts.

    ``name`` and ``profile`` say whose; ``study`` has its data, model, training and metric; ``cohorts`` are trained one by one.

    Example:
        >>> from boolit.lab import load_study, plan
        >>> planned = plan(load_study("parity"), seeds=2)
        >>> planned.profile, len(planned.cohorts), len(planned.runs), planned.runs[0].config.activation
        ('quick', 8, 16, 'relu')
    """

    name: str
    study: Study
    cohorts: tuple[Cohort, ...]
    profile: str | None = None

    @property
    def runs(self) -> list[Run]:
        """The runs of all cohorts."""
        return [run for cohort in self.cohorts for run in cohort.runs]


class _Size(NamedTuple):
    widths: list[int]
    parameters: int
    budget: int | None


def plan(
    file: StudyFile,
    profile: str | None = None,
    seeds: int | None = None,
    sets: Sequence[str] = (),
    hparams: Path | None = None,
    memory: int = MEMORY,
) -> Plan:
    """The runs of a study with a profile and overrides, in cohorts that fit into memory; nothing is trained yet.

    Args:
        file: what `load_study` returns.
        profile: one of its profiles; its default unless given: ``quick``, or the study as it stands if it has none.
        seeds: how many seeds, instead of the study's.
        sets: changes such as ``"training.epochs=20"``, as ``--set`` of the command takes them.
        hparams: a file of hyper-parameters that ``boolit search`` wrote.
        memory: bytes that a cohort may take.

    Example:
        >>> from boolit.lab import load_study, plan
        >>> planned = plan(load_study("parity"), seeds=2, sets=["sweep.activation=['relu', 'xnor_ail']"])
        >>> [(run.config.activation, run.config.width, run.config.seed) for run in planned.runs]
        [('relu', [4, 2], 0), ('relu', [4, 2], 1), ('xnor_ail', [4, 2], 0), ('xnor_ail', [4, 2], 1)]
    """
    profile = profile if profile is not None else file.default_profile
    resolved = file.resolve(profile, seeds, sets, hparams)
    _check_count(resolved)
    study = resolved.study
    with user_input():
        data = describe(study.data)
    _check(resolved, data)
    sizes = ((spec, size) for spec in study.sweep.activation for size in _sizes(resolved, data, boolit.activation(spec)))
    configs = (_configuration(file.name, profile, study, data, spec, size) for spec, size in sizes)
    runs = [Run(config.replace(seed=seed)) for config in configs for seed in study.sweep.seed_list]
    return Plan(file.name, study, tuple(cohorts(runs, memory)), profile)


def check_memory(planned: Plan) -> None:
    """Refuses data and networks that this machine cannot hold while they are trained."""
    check_data_memory(planned.study.data)
    for cohort in planned.cohorts:
        config = cohort.runs[0].config
        what = f"a network of {config.activation} with {config.parameters:,} parameters"
        require_memory(_bytes_per_run(config), what, "lower sweep.width, sweep.params or training.batch")


def _check_count(resolved: ResolvedStudy) -> None:
    sweep = resolved.study.sweep
    sizes = len(sweep.params or []) * len(sweep.depth) + len(sweep.width or []) * len(sweep.depth)
    runs = len(sweep.activation) * sizes * (sweep.seeds if isinstance(sweep.seeds, int) else len(sweep.seeds))
    if runs > MOST_RUNS:
        rule = f"{len(sweep.activation)} activations, {sizes} sizes and all seeds are {runs:,} runs"
        raise resolved.error(("sweep",), f"sweep: {rule}; a study has at most {MOST_RUNS:,}")


def cohorts(runs: Sequence[Run], memory: int = MEMORY) -> list[Cohort]:
    """Runs grouped by shape, in their order, each group in parts of nearly equal size that fit into memory."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(shape(run.config), []).append(run)
    return [cohort for group in groups.values() for cohort in _split_group(group, memory)]


def shape(config: RunConfig) -> str:
    """What runs of one cohort have in common: everything but the seed, the rows and the numbers each run has its own of.

    Example:
        >>> one = RunConfig(seed=1, training={"epochs": 1, "beta1": 0.1, "learning_rate": 0.1})
        >>> shape(one) == shape(one.replace(seed=2, training={"beta1": 0.2}))
        True
    """
    training = {name: value for name, value in config.training.items() if name not in PER_RUN}
    find = config.training.get("learning_rate") == "find"
    rest = {name: value for name, value in config.to_dict().items() if name not in ("seed", "search", "split")}
    return canonical(rest | {"training": training | {"find": find}})


def _split_group(group: Sequence[Run], memory: int) -> Iterator[Cohort]:
    config = group[0].config
    single = needs_single_network(family(config.model), Recipe.model_validate(config.training))
    most = 1 if single else max(1, memory // _bytes_per_run(config))
    yield from divide(group, -(-len(group) // most))


def divide(runs: Sequence[Run], parts: int) -> Iterator[Cohort]:
    """Runs of one shape in so many cohorts of nearly equal size, in their order."""
    bounds = [round(i * len(runs) / parts) for i in range(parts + 1)]
    for first, last in pairwise(bounds):
        yield Cohort(tuple(runs[first:last]))


def _bytes_per_run(config: RunConfig) -> int:
    recipe, model = Recipe.model_validate(config.training), family(config.model)
    if needs_single_network(model, recipe):  # what else it holds depends on its precision and micro-batches
        return FLOAT_BYTES * COPIES_OF_PARAMETERS * config.parameters
    data = describe(source(config.data))
    return bytes_per_run(data, model, config.activation, config.width, recipe.batch)


def _configuration(name: str, profile: str | None, study: Study, data: Description, spec: str, size: _Size) -> RunConfig:
    recipe = study.recipe(spec)
    return RunConfig(
        study=name,
        profile=profile,
        data=RunConfig.options(study.data),
        model=RunConfig.options(study.model),
        inputs=list(data.inputs),
        outputs=data.outputs,
        activation=spec,
        width=list(size.widths),
        depth=len(size.widths),
        parameters=size.parameters,
        budget=size.budget,
        training=RunConfig.options(recipe) | {"loss": recipe.loss or LOSS_OF_TASK[data.task]},
        metric=study.metric,
        arithmetic=ARITHMETIC,
    )


def _check(resolved: ResolvedStudy, data: Description) -> None:
    """What only the data can tell: whether metric and loss fit the task."""
    metric, task = resolved.study.metric, data.task
    if metric.split not in data.samples:
        known = ", ".join(data.samples)
        raise resolved.error(("metric", "split"), f"metric.split is {metric.split!r}; the data has {known}")
    _check_metric(resolved, data, ("metric", "name"), metric.name, metric.split)
    recipes = [resolved.study.recipe(spec) for spec in resolved.study.sweep.activation]
    for recipe in recipes:
        if recipe.patience is not None and "valid" not in data.samples:
            rule = "training.patience needs data with a split called valid; leave it out or choose such data"
            raise resolved.error(("training", "patience"), rule)
        if recipe.loss and task not in TASKS_OF_LOSS[recipe.loss]:
            rule = f"training.loss is {recipe.loss!r}, which {task} data cannot have; use {LOSS_OF_TASK[task]!r}"
            raise resolved.error(("training", "loss"), rule)
    for name in {recipe.patience_on for recipe in recipes if recipe.patience is not None}:
        _check_metric(resolved, data, ("training", "patience_on"), name, "valid")


def _check_metric(resolved: ResolvedStudy, data: Description, location: tuple[str, str], name: str, split: str) -> None:
    """A metric is the task's, the loss, or, on every split but ``train``, one of the data's extra metrics."""
    known = [METRIC_OF_TASK[data.task], "loss"]
    if name not in known and split != "train":
        known[:1] += data.extra_metrics
    if name not in known:
        rule = f"{data.task} data has the metrics {', '.join(known[:-1])} and {known[-1]}"
        raise resolved.error(location, f"{'.'.join(location)} is {name!r}; {rule}")


def _sizes(resolved: ResolvedStudy, data: Description, activation: Activation) -> Iterator[_Size]:
    study, ends = resolved.study, (data.inputs, data.outputs)
    for budget, depth in product(study.sweep.params or [], study.sweep.depth):
        widths = study.model.widths_for_budget(budget, depth, *ends, activation)
        count = study.model.parameters(*ends, widths, activation)
        if abs(count - budget) > BUDGET_TOLERANCE * budget:
            rule = (
                f"sweep.params is {budget}, but the nearest network with {activation.spec} has {count} parameters; ask for more"
            )
            raise resolved.error(("sweep", "params"), rule)
        yield _Size(widths, count, budget)
    for nominal in _nominal_widths(study):
        adapted = study.model.widths_for_activation(nominal, *ends, activation)
        widths = [_valid_width(resolved, width, activation) for width in adapted]
        yield _Size(widths, study.model.parameters(*ends, widths, activation), None)


def _nominal_widths(study: Study) -> Iterator[list[int]]:
    for width in study.sweep.width or []:
        if isinstance(width, list):
            yield width
        else:
            yield from (study.model.widths(width, depth) for depth in study.sweep.depth)


def _valid_width(resolved: ResolvedStudy, width: int, activation: Activation) -> int:
    if resolved.study.sweep.rounding == "nearest":
        return round_width(width, activation.divisor)
    try:
        activation.out_features(width)
    except ValueError as error:
        raise resolved.error(("sweep", "width"), f"sweep.width: {error}") from None
    return width
