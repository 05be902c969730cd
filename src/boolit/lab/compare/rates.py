"""A learning rate for every activation on every split, by the loss on that split's own validation rows.

All rates on all splits are one stacked training per activation, a quarter as long as the final one. It never reads a test row;
and the choice on a split depends on no other split, whose validation rows may be test rows of this one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from boolit.lab.compare.study import MIN_PATIENCE, PATIENCE_SHARE
from boolit.lab.results.names import paper_name
from boolit.lab.runs import Record, Run, RunConfig
from boolit.lab.studies import Plan
from boolit.lab.studies.planner import MEMORY, cohorts

TRIAL_SHARE, MIN_TRIAL_EPOCHS = 0.25, 2  # of the final epochs, and in epochs
LOSS = "valid_loss"
ActivationSplit = tuple[str, int]  # an activation on a split


def trial_plan(planned: Plan, splits: Sequence[int], rates: Sequence[float]) -> Plan:
    """The runs that try every rate on every split, from a plan with one run per activation."""
    study = planned.study.model_copy(update={"keep_weights": False})
    configs = [
        run.config.replace(
            study=f"{planned.name}-rates",
            search="rates",
            trial=True,
            seed=split,
            split=split,
            training={**_trial_training(run.config), "learning_rate": rate},
        )
        for run in planned.runs
        for split in splits
        for rate in rates
    ]
    return Plan(planned.name, study, tuple(cohorts([Run(config) for config in configs], MEMORY)))


def final_plan(planned: Plan, rates: Mapping[ActivationSplit, float]) -> Plan:
    """The runs that are measured: every activation on every split, at the rate that was chosen there."""
    configs = [
        run.config.replace(seed=split, split=split, training={"learning_rate": rate})
        for run in planned.runs
        for (spec, split), rate in rates.items()
        if run.config.activation == spec
    ]
    return Plan(planned.name, planned.study, tuple(cohorts([Run(config) for config in configs], MEMORY)))


def choose_rates(records: Iterable[Record]) -> dict[ActivationSplit, float]:
    """Of every activation on every split, the rate with the lowest validation loss; one at which it diverged comes last.

    Of equal losses, and where all diverged, the lowest rate.
    """
    losses: dict[ActivationSplit, dict[float, float]] = defaultdict(dict)
    for record in records:
        loss = record.metrics.get(LOSS, math.nan)
        finite = record.state == "finished" and math.isfinite(loss)
        losses[activation_split(record)][record.config.training["learning_rate"]] = loss if finite else math.inf
    return {place: min(sorted(tried), key=lambda rate: tried[rate]) for place, tried in sorted(losses.items())}


def activation_split(record: Record) -> ActivationSplit:
    """The activation and the split of a run."""
    assert record.config.split is not None
    return record.config.activation, record.config.split


def edge_notes(rates: Mapping[ActivationSplit, float], tried: Sequence[float]) -> list[str]:
    """A sentence on the activations whose rate on most splits is the highest of those tried, and one on the lowest.

    Example:
        >>> edge_notes({("relu", 1): 0.1, ("relu", 2): 0.1, ("relu", 3): 0.01}, [0.01, 0.1, 0.03])
        ['The highest rate tried, 0.1, was chosen on most splits for ReLU; a higher one may be better: --rates 0.03,0.1,0.3,1']
    """
    own: dict[str, list[float]] = defaultdict(list)
    for (spec, _), rate in rates.items():
        own[spec].append(rate)
    notes = []
    for word, edge in (("high", max(tried)), ("low", min(tried))):
        at = [spec for spec, chosen in own.items() if 2 * chosen.count(edge) > len(chosen)]
        if at:
            further = ",".join(f"{rate:g}" for rate in _beyond(tried, word == "high"))
            where = f"The {word}est rate tried, {edge:g}, was chosen on most splits for {', '.join(map(paper_name, at))}"
            notes.append(f"{where}; a {word}er one may be better: --rates {further}")
    return notes


def _beyond(tried: Sequence[float], up: bool) -> list[float]:
    """The two rates at an edge and two more beyond it: 1, 3, 10, 30, …"""
    edge = sorted(tried)[-2:] if up else sorted(tried)[:2]
    half_decade = round(2 * math.log10(edge[-1 if up else 0]))
    more = [float(f"{10 ** ((half_decade + step) / 2):.0e}") for step in ((1, 2) if up else (-2, -1))]
    return [*edge, *more] if up else [*more, *edge]


def trial_epochs(epochs: int) -> int:
    """How many a trial has, by those of a final run.

    Example:
        >>> [trial_epochs(epochs) for epochs in (100, 4, 1)]
        [25, 2, 1]
    """
    return min(epochs, max(MIN_TRIAL_EPOCHS, round(TRIAL_SHARE * epochs)))


def _trial_training(config: RunConfig) -> dict[str, int]:
    epochs = trial_epochs(config.training["epochs"])
    return {"epochs": epochs, "patience": max(MIN_PATIENCE, round(PATIENCE_SHARE * epochs))}
