"""A learning rate for every activation's heads, by their loss on the pictures for validation.

At one rate for all, some activations are compared where they diverge and others where they learn too little. So every rate is
tried with a few seeds of its own in half the epochs, and the finals take, for each activation, the rate with the lowest loss.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from boolit.lab.comparing.rates import LOSS
from boolit.lab.runs import Record, Run
from boolit.lab.studies import Plan
from boolit.lab.studies.planner import MEMORY, cohorts

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
TRIAL_SHARE = 0.5  # of the final epochs
FIRST_TRIAL_SEED, TRIAL_SEEDS = 4_000_000, 2  # no seed of a final, which begin at 0


def trial_plan(planned: Plan, rates: Sequence[float] = RATES) -> Plan:
    """The runs that try every rate for every activation of a plan; they never read a test picture."""
    configs = {str(run.config["activation"]): run.config for run in planned.runs}.values()
    trials = [
        {
            **config,
            "study": f"{planned.name}-rates",
            "search": "rates",
            "trial": True,
            "seed": seed,
            "training": {**_shortened(config), "learning_rate": rate},
        }
        for config in configs
        for rate in rates
        for seed in range(FIRST_TRIAL_SEED, FIRST_TRIAL_SEED + TRIAL_SEEDS)
    ]
    return Plan(planned.name, planned.study, tuple(cohorts([Run(config) for config in trials], MEMORY)))


def final_plan(planned: Plan, rates: Mapping[str, float]) -> Plan:
    """A plan with every activation's runs at its own rate."""
    runs = [
        Run({**run.config, "training": {**_training(run.config), "learning_rate": rates[str(run.config["activation"])]}})
        for run in planned.runs
    ]
    return Plan(planned.name, planned.study, tuple(cohorts(runs, MEMORY)))


def chosen_rates(trials: Iterable[Record]) -> dict[str, float]:
    """Of every activation, the rate with the lowest mean loss; one at which a trial diverged comes last.

    Of equal losses, and where all diverged, the lowest rate.
    """
    losses: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in trials:
        loss = record.metrics.get(LOSS, math.nan)
        finite = record.state == "finished" and math.isfinite(loss)
        losses[_activation(record)][_rate(record)].append(loss if finite else math.inf)
    return {spec: min(sorted(own), key=lambda rate: fmean(own[rate])) for spec, own in losses.items()}


def divergence_note(finals: Iterable[Record], batch: int) -> str | None:
    """Which activations diverged, at which rate, and what to do about it."""
    diverged = [record for record in finals if record.state == "diverged"]
    if not diverged:
        return None
    counts = Counter((_activation(record), _rate(record)) for record in diverged)
    told = ", ".join(f"{spec} in {count} of its runs (rate {rate:g})" for (spec, rate), count in counts.items())
    lower = min(rate for _, rate in counts) / 3
    return f"Diverged: {told}. A lower rate or larger batches are steadier: --rate {lower:.1g} or --batch {2 * batch}"


def _shortened(config: Mapping[str, Any]) -> dict[str, Any]:
    training = dict(_training(config))
    least = training.get("prelude", 0) + 1
    return training | {"epochs": min(training["epochs"], max(least, math.ceil(TRIAL_SHARE * training["epochs"])))}


def _training(config: Mapping[str, Any]) -> Mapping[str, Any]:
    training: Mapping[str, Any] = config["training"]
    return training


def _activation(record: Record) -> str:
    return str(record.config["activation"])


def _rate(record: Record) -> float:
    return float(_training(record.config)["learning_rate"])
