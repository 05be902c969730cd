"""Data that is stored small, drawn anew in every step and encoded for the network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from boolit.lab.common.random import uniform
from boolit.lab.datasets.base import identity
from boolit.lab.training import Job, StackedTraining, train

Config = Callable[..., dict[str, Any]]


def stored(job: Job, **changes: Any) -> Job:
    """The same job, its samples kept as bytes."""
    splits = {
        name: replace(split, x=(split.x * 20 + 128).clamp(0, 255).to(torch.uint8)) for name, split in job.dataset.splits.items()
    }
    return replace(job, dataset=replace(job.dataset, splits=splits, probes=(), encode=encode, **changes))


def encode(x: Tensor) -> Tensor:
    return (x.float() - 128) / 20


def test_encoding_in_the_trainer_equals_encoding_in_advance(config: Config) -> None:
    kept_small = stored(Job.of([config(seed) for seed in range(2)]))
    dataset = kept_small.dataset
    splits = {name: replace(split, x=encode(split.x)) for name, split in dataset.splits.items()}
    in_advance = replace(kept_small, dataset=replace(dataset, splits=splits, encode=identity))
    one, other = train(kept_small), train(in_advance)
    assert one is not None
    assert other is not None
    assert [outcome.history for outcome in one.outcomes] == [outcome.history for outcome in other.outcomes]


def test_the_draw_decides_samples_and_targets_and_sees_every_step(config: Config) -> None:
    seen: list[tuple[int, Tensor]] = []

    def draw(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
        seen.append((step, run_keys))
        flipped = uniform(run_keys, step, y.shape[1:]) < 0.5
        return 255 - x, torch.where(flipped, 1 - y, y)

    training = StackedTraining(stored(Job.of([config(seed) for seed in (5, 6)]), draw=draw))
    for _ in range(training.job.steps_per_epoch + 1):
        training.step()
    assert [step for step, _ in seen] == list(range(training.job.steps_per_epoch + 1))
    assert seen[0][1][0] != seen[0][1][1]
    assert training.history["train_accuracy"][0].max() < 0.65  # half the targets are turned round, so nothing can be learnt


def test_the_inputs_are_what_the_encoding_makes(config: Config) -> None:
    job = Job.of([config()])
    wide = replace(job.dataset, encode=lambda x: torch.cat([x, x, x], -1))
    assert wide.inputs == (12,)
