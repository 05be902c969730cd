"""The runs of a comparison: a learning rate for every activation on every split, then the runs that are measured.

All rates on all splits are one stacked training per activation, a fifth as long as the final one. It never reads test rows,
and the choice on a split depends on no other split, whose validation rows may be test rows of this one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from boolit.errors import UserError
from boolit.lab.compare.config import CompareConfig
from boolit.lab.datasets.table import PreparedTable, TableSource
from boolit.lab.models import family
from boolit.lab.results.names import paper_name
from boolit.lab.runs import Result, RunConfig
from boolit.lab.studies import Plan, StudyFile, cohorts, plan
from boolit.lab.studies.planner import BUDGET_TOLERANCE
from boolit.lab.training.recipe import METRIC_OF_TASK
from boolit.nn import activation

ActivationSplit: TypeAlias = tuple[str, int]  # an activation on a split

MODEL = {"name": "mlp", "normalization": "batch"}
MIN_BUDGET, BUDGET_PER_FEATURE = 10_000, 50
SAMPLES_SEEN, MAX_EPOCHS, MIN_EPOCHS = 1_500_000, 100, 8
MIN_BATCH, MAX_BATCH = 16, 512
PATIENCE_SHARE, MIN_PATIENCE = 0.15, 5
TRIAL_SHARE, MIN_TRIAL_EPOCHS = 0.2, 2
WEIGHT_DECAY = 1e-4
LOSS = "valid_loss"


def make_plan(config: CompareConfig, source: TableSource, table: PreparedTable) -> Plan:
    """Plan one run per activation: batch-normalized perceptrons of equal size, stopped early."""
    features = table.x.shape[1]
    budget = config.budget or max(MIN_BUDGET, BUDGET_PER_FEATURE * features)
    _check_budget(config, table, budget)
    tables: dict[str, Any] = {
        "title": f"{config.target or 'Classes'} of {config.path.name}",
        "keep_weights": True,
        "data": source.model_dump(mode="json"),
        "model": MODEL,
        "sweep": {"activation": list(config.activations), "params": [budget], "depth": [config.layers], "seeds": 1},
        "training": recipe(len(table.resample(1).rows["train"]), config.epochs),
        "metric": {"name": METRIC_OF_TASK[table.task]},
    }
    return plan(StudyFile(config.name, config.path, tables))


def recipe(rows: int, epochs: int | None = None) -> dict[str, Any]:
    """Return the recipe for a number of training rows: batches of about its root, a bounded number of rows seen.

    The learning rate follows a cosine down to 0, so that an early stop is not mistaken for the rise of a cycle.

    Example:
        >>> {rows: [recipe(rows)[name] for name in ("batch", "epochs", "patience")] for rows in (100, 10_000, 320_000)}
        {100: [16, 100, 15], 10000: [128, 100, 15], 320000: [512, 8, 5]}
    """
    epochs = epochs or min(MAX_EPOCHS, max(MIN_EPOCHS, round(SAMPLES_SEEN / rows)))
    return {
        "optimizer": "adamw",
        "schedule": "cosine",
        "weight_decay": WEIGHT_DECAY,
        "epochs": epochs,
        "batch": min(MAX_BATCH, max(MIN_BATCH, 1 << round(rows**0.5).bit_length())),
        "patience": _patience(epochs),
    }


def trial_epochs(epochs: int) -> int:
    """Return the epochs of a trial of a learning rate."""
    return min(epochs, max(MIN_TRIAL_EPOCHS, round(TRIAL_SHARE * epochs)))


def trial_plan(planned: Plan, splits: Sequence[int], rates: Sequence[float]) -> Plan:
    """Plan the runs that try every rate of every activation on every split."""
    epochs = trial_epochs(planned.study.training.epochs)
    options = {"epochs": epochs, "patience": _patience(epochs)}
    runs = [
        run.replace(stage="rates", trial=True, seed=split, split=split, training=options | {"learning_rate": rate})
        for run in planned.runs
        for split in splits
        for rate in rates
    ]
    return Plan(planned.name, None, planned.study.model_copy(update={"keep_weights": False}), tuple(cohorts(runs)))


def final_plan(planned: Plan, rates: Mapping[ActivationSplit, float]) -> Plan:
    """Plan the runs that are measured: every activation on every split, at the rate that was chosen there."""
    configs = {run.activation: run for run in planned.runs}
    runs = [
        configs[spec].replace(seed=split, split=split, training={"learning_rate": rate})
        for (spec, split), rate in rates.items()
    ]
    return Plan(planned.name, None, planned.study, tuple(cohorts(runs)))


def choose_rates(trials: Iterable[Result]) -> dict[ActivationSplit, float]:
    """Return the rate with the lowest validation loss for every activation and split; diverged trials come last.

    Of equal losses, and where all diverged, it is the lowest rate.
    """
    losses: dict[ActivationSplit, dict[float, float]] = defaultdict(dict)
    for trial in trials:
        loss = trial.metrics.get(LOSS, math.nan)
        rate = float(trial.config.training.learning_rate)
        losses[place(trial.config)][rate] = loss if trial.state == "finished" and math.isfinite(loss) else math.inf
    return {where: min(sorted(tried), key=lambda rate: tried[rate]) for where, tried in sorted(losses.items())}


def place(run: RunConfig) -> ActivationSplit:
    """Return the activation and the split of a run."""
    assert run.split is not None
    return run.activation, run.split


def edge_notes(rates: Mapping[ActivationSplit, float], tried: Sequence[float]) -> list[str]:
    """Name the activations whose rate on most splits is the highest or the lowest of those tried."""
    chosen: dict[str, list[float]] = defaultdict(list)
    for (spec, _), rate in rates.items():
        chosen[spec].append(rate)
    notes = []
    for word, edge in (("high", max(tried)), ("low", min(tried))) if len(tried) > 1 else ():
        names = ", ".join(paper_name(spec) for spec, values in chosen.items() if 2 * values.count(edge) > len(values))
        if names:
            where = f"the {word}est rate tried, {edge:g}, was chosen on most splits for {names}"
            notes.append(f"{where}; a {word}er one may be better (--rates)")
    return notes


def _patience(epochs: int) -> int:
    return max(MIN_PATIENCE, round(PATIENCE_SHARE * epochs))


def _check_budget(config: CompareConfig, table: PreparedTable, budget: int) -> None:
    network, ends = family(MODEL), ((table.x.shape[1],), len(table.classes) if table.task == "classes" else 1)
    for spec in config.activations:
        function = activation(spec)
        count = network.parameters(*ends, network.widths_for_budget(budget, config.layers, *ends, function), function)
        if abs(count - budget) > BUDGET_TOLERANCE * budget:
            raise UserError(f"--budget {budget} is too small: the smallest network with {spec} has {count} parameters")
