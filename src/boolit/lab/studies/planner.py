"""From a study to its runs, and from runs to cohorts that train together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import boolit
from boolit.errors import UserError, user_input
from boolit.lab.common.files import atomic_write
from boolit.lab.datasets import describe
from boolit.lab.datasets.base import Description, Task
from boolit.lab.runs import KEY_DIGITS, RunConfig, canonical
from boolit.lab.studies.budgets import StepTimer, widths_for_flops, widths_for_outputs
from boolit.lab.studies.study import SIZES, Fail, Study, StudyFile
from boolit.lab.training import bytes_per_run, distributed
from boolit.lab.training.recipe import LOSS_OF_TASK, LOSSES, METRIC_OF_TASK, METRICS, PER_RUN
from boolit.nn import Activation
from boolit.nn.width import round_width

COHORT_BYTES = 2 * 2**30
BUDGET_TOLERANCE = 0.5
MAX_RUNS = 200_000
SAVED = "study.json"


@dataclass(frozen=True)
class Cohort:
    """Runs of one shape that train as one stacked model."""

    runs: tuple[RunConfig, ...]

    @cached_property
    def key(self) -> str:
        """Name of the checkpoint: a hash of the runs and their order."""
        return hashlib.sha256("".join(run.key for run in self.runs).encode()).hexdigest()[:KEY_DIGITS]

    def __str__(self) -> str:
        first, runs = self.runs[0], len(self.runs)
        return f"{first.activation}, {first.parameters:,} parameters, {runs:,} run{'' if runs == 1 else 's'}"

    def subset(self, keys: Collection[str]) -> Cohort:
        """Return the cohort of the runs with the given keys."""
        return Cohort(tuple(run for run in self.runs if run.key in keys))


@dataclass(frozen=True)
class Plan:
    """All runs of a study, in cohorts."""

    name: str
    profile: str | None
    study: Study
    cohorts: tuple[Cohort, ...]

    @cached_property
    def runs(self) -> list[RunConfig]:
        """The runs of all cohorts."""
        return [run for cohort in self.cohorts for run in cohort.runs]


def plan(
    file: StudyFile, profile: str | None = None, seeds: int | None = None, sets: Sequence[str] = (), hparams: Path | None = None
) -> Plan:
    """Plan the runs of a study. Nothing is trained.

    Args:
        file: a study from `load_study`.
        profile: one of its profiles. Defaults to ``quick``, or to the study as it stands if it has no such profile.
        seeds: the number of seeds, instead of the study's.
        sets: changes such as ``"training.epochs=20"``.
        hparams: a file of hyper-parameters that ``boolit search`` wrote.

    Example:
        >>> from boolit.lab import load_study, plan
        >>> planned = plan(load_study("parity"), seeds=2, sets=["sweep.activation=['relu', 'xnor_ail']"])
        >>> [(run.activation, run.widths, run.seed) for run in planned.runs]
        [('relu', (4, 2), 0), ('relu', (4, 2), 1), ('xnor_ail', (4, 2), 0), ('xnor_ail', (4, 2), 1)]
    """
    if profile is None and "quick" in file.profiles:
        profile = "quick"
    study, fail = file.resolve(profile, seeds, sets, hparams)
    return _plan(study, file.name, profile, fail)


def _plan(study: Study, name: str, profile: str | None, fail: Fail) -> Plan:
    sweep = study.sweep
    sizes = max(len(getattr(sweep, kind) or []) for kind in SIZES) * len(sweep.depth)
    if (runs := len(sweep.activation) * sizes * len(sweep.seed_list)) > MAX_RUNS:
        raise fail("sweep", f"all activations, sizes and seeds are {runs:,} runs; a study has at most {MAX_RUNS:,}")
    with user_input():
        data = describe(study.data)
    _check(study, data, fail)
    if sweep.step_time is not None:
        study = _with_step_widths(study, data)
    configs = (config for spec in sweep.activation for config in _configs(study, name, profile, data, spec, fail))
    groups = (list(config.with_seeds(sweep.seed_list)) for config in configs)
    return Plan(name, profile, study, tuple(part for group in groups for part in _fit(group, COHORT_BYTES)))


def cohorts(runs: Iterable[RunConfig], memory: int = COHORT_BYTES) -> list[Cohort]:
    """Group runs by shape, in parts of nearly equal size that fit into memory."""
    groups: dict[str, list[RunConfig]] = {}
    for run in runs:
        groups.setdefault(shape(run), []).append(run)
    return [part for group in groups.values() for part in _fit(group, memory)]


def _fit(runs: Sequence[RunConfig], memory: int) -> Iterator[Cohort]:
    run, most = runs[0], 1
    if not (run.model.trains_alone or distributed.size() > 1):
        most = memory // bytes_per_run(describe(run.data), run.model, run.activation, run.widths, run.training)
    return divide(runs, -(-len(runs) // max(1, most)))


def divide(runs: Sequence[RunConfig], parts: int) -> Iterator[Cohort]:
    """Divide runs of one shape into cohorts of nearly equal size."""
    for first, last in pairwise(round(part * len(runs) / parts) for part in range(parts + 1)):
        yield Cohort(tuple(runs[first:last]))


def shape(run: RunConfig) -> str:
    """Return what the runs of a cohort have in common: all but the seed, the split and the per-run hyper-parameters."""
    identity = run.identity()
    recipe: Any = identity["training"]
    shared = {name: value for name, value in recipe.items() if name not in PER_RUN}
    find = run.training.learning_rate == "find"
    return canonical(identity | {"seed": None, "split": None, "training": shared | {"find": find}})


def _configs(study: Study, name: str, profile: str | None, data: Description, spec: str, fail: Fail) -> Iterator[RunConfig]:
    study = study.tuned(spec)
    recipe = study.training
    # The metrics are part of the key: a run that has not measured them is trained again.
    chosen = [study.metric.name, *([recipe.patience_on] if recipe.patience else [])]
    metrics = dict.fromkeys([*recipe.metrics, *(name for name in chosen if name in _registered_metrics(data.task))])
    recipe = recipe.model_copy(update={"loss": recipe.loss or LOSS_OF_TASK[data.task], "metrics": list(metrics)})
    for widths, budget in _sizes(study, data, boolit.activation(spec), fail):
        yield RunConfig(
            study=name,
            profile=profile,
            data=study.data,
            model=study.model,
            training=recipe,
            inputs=tuple(data.inputs),
            outputs=data.outputs,
            activation=spec,
            widths=tuple(widths),
            parameters=study.model.parameters(data.inputs, data.outputs, widths, boolit.activation(spec)),
            budget=budget,
            metric=study.metric,
        )


def _with_step_widths(study: Study, data: Description) -> Study:
    """Return a study with the widths that solve its ``step_time`` in its hyper-parameters; those that are there stay."""
    sweep, hparams = study.sweep, {**study.hparams}
    missing = [spec for spec in sweep.activation if "width" not in hparams.get(spec, {})]
    if missing and sweep.params and sweep.step_time:
        timer = StepTimer(study.model, data, study.training, sweep.params[0], sweep.depth[0])
        for spec in missing:
            hparams[spec] = {**hparams.get(spec, {}), "width": timer.solve(spec, sweep.step_time)[0]}
    return study.model_copy(update={"hparams": hparams})


def _sizes(study: Study, data: Description, activation: Activation, fail: Fail) -> Iterator[tuple[list[int], int | None]]:
    sweep, model, ends = study.sweep, study.model, (data.inputs, data.outputs)
    for budget, depth in product(sweep.params or [], sweep.depth):
        widths = model.widths_for_budget(budget, depth, *ends, activation)
        count = model.parameters(*ends, widths, activation)
        if abs(count - budget) > BUDGET_TOLERANCE * budget:
            raise fail("sweep.params", f"the network of {activation.spec} nearest to {budget} has {count} parameters")
        yield widths, budget
    for outputs, depth in product(sweep.outputs or [], sweep.depth):
        yield widths_for_outputs(model, outputs, depth, activation), None
    for budget, depth in product(sweep.flops or [], sweep.depth):
        yield widths_for_flops(model, budget, depth, data, activation), None
    for width in sweep.width or []:
        for nominal in [width] if isinstance(width, list) else [model.widths(width, depth) for depth in sweep.depth]:
            widths = model.widths_for_activation(nominal, *ends, activation)
            if sweep.rounding == "nearest":
                widths = [round_width(width, activation.width_multiple) for width in widths]
            try:
                _ = [activation.out_features(width) for width in widths]
            except ValueError as error:
                raise fail("sweep.width", str(error)) from None
            yield widths, None


def _check(study: Study, data: Description, fail: Fail) -> None:
    metric, task = study.metric, data.task
    if metric.split not in data.samples:
        raise fail("metric.split", f"{metric.split!r} is not a split of the data; it has {', '.join(data.samples)}")
    _check_metric("metric.name", metric.name, metric.split, data, fail)
    for recipe in (study.tuned(spec).training for spec in study.sweep.activation):
        for name in recipe.metrics:
            if name not in _registered_metrics(task):
                raise fail("training.metrics", f"{name!r} is not a registered metric of {task} data")
        if recipe.loss and task not in LOSSES.get(recipe.loss).tasks:
            raise fail("training.loss", f"{recipe.loss!r} does not fit {task} data; use {LOSS_OF_TASK[task]!r}")
        if recipe.patience is not None:
            if "valid" not in data.samples:
                raise fail("training.patience", "needs data with a split valid")
            _check_metric("training.patience_on", recipe.patience_on, "valid", data, fail)


def _check_metric(key: str, name: str, split: str, data: Description, fail: Fail) -> None:
    if name not in (known := known_metrics(data, split)):
        raise fail(key, f"{name!r} is not a metric of {data.task} data; choose one of {', '.join(known)}")


def known_metrics(data: Description, split: str) -> list[str]:
    """Return the metrics that runs on the data measure on a split."""
    of_outputs = [*data.extra_metrics, *_registered_metrics(data.task)] if split != "train" else []
    return [METRIC_OF_TASK[data.task], "loss", *of_outputs]


def _registered_metrics(task: Task) -> list[str]:
    return [name for name, metric in METRICS.registered.items() if task in metric.tasks]


class SavedStudy(NamedTuple):
    """The ``study.json`` of a results folder; ``kind`` is ``study``, ``search`` or ``compare``."""

    kind: str
    plan: Plan
    command: str
    more: Mapping[str, Any]


def save(planned: Plan, folder: Path, kind: str = "study", command: str = "", **more: Any) -> None:
    """Write ``study.json``, from which a report plans the runs of a results folder again."""
    study = planned.study.model_dump(mode="json", exclude_unset=True)
    entries = {"kind": kind, "name": planned.name, "profile": planned.profile, "command": command, **more, "study": study}
    with atomic_write(folder / SAVED) as part:
        part.write_text(json.dumps(entries, indent=2, ensure_ascii=False), encoding="utf-8")


def load(folder: Path) -> SavedStudy:
    """Read the ``study.json`` of a results folder and plan its runs."""
    path = folder / SAVED
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        kind, name, profile, command = (entries.pop(key) for key in ("kind", "name", "profile", "command"))
        study = Study.model_validate(entries.pop("study"))
    except FileNotFoundError:
        raise UserError(f"{folder} has no {SAVED}: it is not a results folder") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}") from None
    planned = _plan(study, name, profile, lambda key, rule: UserError(f"{path}: {key}: {rule}"))
    return SavedStudy(kind, planned, command, entries)
