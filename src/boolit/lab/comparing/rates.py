"""A learning rate for every activation, by the loss on the validation rows: each one's rates are one stacked training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from boolit.lab.execute import Summary, execute
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run
from boolit.lab.studies import Plan
from boolit.lab.studies.planner import MEMORY, cohorts

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SEEDS = (1_000_001, 1_000_002)  # not those of the comparison: its runs have no part in choosing the rate
MANY_ROWS = 20_000  # from so many on, seeds differ less than rates do, and one of them will do
LOSS = "valid_loss"


def rate_plan(planned: Plan, rows: int) -> Plan:
    """The runs that try every rate, from a plan with one run an activation, for a table with so many training rows."""
    configs = [
        {
            **run.config,
            "study": f"{planned.name}-rates",
            "search": "rates",
            "seed": seed,
            "training": {**_training(run.config), "learning_rate": rate},
        }
        for run in planned.runs
        for rate in RATES
        for seed in SEEDS[: 1 if rows >= MANY_ROWS else None]
    ]
    study = planned.study.model_copy(update={"keep_weights": False})
    return Plan(planned.name, study, tuple(cohorts([Run(config) for config in configs], MEMORY)))


def chosen_rates(planned: Plan, rows: int, store: Store, progress: bool | None) -> tuple[dict[str, float] | None, Summary]:
    """The rate of every activation, or None if it was interrupted; and what was done for it."""
    wanted = rate_plan(planned, rows)
    summary = execute(wanted, store, progress)
    if not summary.complete:
        return None, summary
    keys = {run.key for run in wanted.runs}
    records = [record for record in store.records({"search": "rates"}, history=False) if record.key in keys]
    specs = dict.fromkeys(str(run.config["activation"]) for run in planned.runs)
    return {spec: best_rate([r for r in records if r.config["activation"] == spec]) for spec in specs}, summary


def best_rate(records: list[Record]) -> float:
    """The rate with the lowest mean loss; one at which a run diverged comes last."""
    losses: dict[float, list[float]] = {}
    for record in records:
        loss = record.metrics.get(LOSS, math.nan)
        finite = record.state == "finished" and math.isfinite(loss)
        losses.setdefault(float(_training(record.config)["learning_rate"]), []).append(loss if finite else math.inf)
    return min(sorted(losses), key=lambda rate: fmean(losses[rate]))


def _training(config: Mapping[str, Any]) -> Mapping[str, Any]:
    training: Mapping[str, Any] = config["training"]
    return training
