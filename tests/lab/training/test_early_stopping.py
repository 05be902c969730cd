"""Early stopping: a run ends when its validation loss has not fallen for a while, and is left as it was at its best."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from boolit.lab.common.random import generator
from boolit.lab.datasets import Split
from boolit.lab.training import Checkpoint, Job, Outcome, train

Config = Callable[..., dict[str, Any]]
MODEL = {"name": "mlp", "normalisation": "batch"}
TRAINING = {"epochs": 30, "schedule": "constant", "learning_rate": 0.05}
PATIENCE = 2


def job(config: Config, seeds: Sequence[int], **training: Any) -> Job:
    """Runs on labels that are noise: what they learn is soon of no use on the split ``valid``."""
    made = Job.of([config(seed, model=MODEL, width=[16], training=TRAINING | training) for seed in seeds])
    drawn = generator(0, "valid")
    valid = Split(torch.randn(64, 4, generator=drawn), torch.randint(2, (64, 1), generator=drawn).float())
    return replace(made, dataset=replace(made.dataset, splits={**made.dataset.splits, "valid": valid}))


def trained(wanted: Job) -> list[Outcome]:
    finished = train(wanted)
    assert finished is not None
    return finished.outcomes


def same_weights(one: Outcome, other: Outcome) -> bool:
    return all(torch.equal(values, other.weights[name]) for name, values in one.weights.items())


def test_a_run_stops_after_its_patience_and_reports_its_best_epoch(config: Config) -> None:
    for outcome in trained(job(config, range(4), patience=PATIENCE)):
        losses = outcome.history["valid_loss"]
        best = min(range(len(losses)), key=losses.__getitem__)
        assert len(losses) == best + 1 + PATIENCE < TRAINING["epochs"]
        assert outcome.metrics["best_epoch"] == best + 1
        assert outcome.metrics["epochs"] == len(losses)
        for name, curve in outcome.history.items():
            assert outcome.metrics[name] == curve[best]


def test_its_weights_are_those_of_a_training_that_ended_there(config: Config) -> None:
    stopped = trained(job(config, range(2), patience=PATIENCE))
    for seed, outcome in enumerate(stopped):
        short = job(config, range(2), epochs=int(outcome.metrics["best_epoch"]))
        assert same_weights(outcome, trained(short)[seed])


def test_who_else_is_in_the_cohort_does_not_matter(config: Config) -> None:
    together = trained(job(config, range(4), patience=PATIENCE))
    assert len({outcome.metrics["best_epoch"] for outcome in together}) > 1
    for seed, outcome in enumerate(together):
        beside = trained(job(config, [seed if place == seed else 10 + place for place in range(4)], patience=PATIENCE))[seed]
        assert same_weights(outcome, beside)
        assert outcome.history == beside.history


@pytest.mark.parametrize("steps", [3, 9, 20])
def test_a_checkpoint_holds_the_best_epochs(tmp_path: Path, steps: int, config: Config) -> None:
    wanted = job(config, range(3), patience=PATIENCE)
    assert train(wanted, Checkpoint(tmp_path), lambda training: training.steps < steps) is None
    resumed = train(wanted, Checkpoint(tmp_path))
    assert resumed is not None
    for ours, theirs in zip(resumed.outcomes, trained(wanted), strict=True):
        assert same_weights(ours, theirs)
        assert ours.metrics == theirs.metrics
