"""From the runs on the splits to their scores: of every activation, of guessing, and of choosing by validation rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from boolit.lab.compare.rates import LOSS, Place, place_of
from boolit.lab.datasets import Dataset
from boolit.lab.results.resampled import Estimate, SplitComparison, Splits, compare_splits, estimate
from boolit.lab.runs import Metric, Record

MAJORITY, MEAN = "majority class", "target mean"
GUESSES = {MAJORITY: "guessing the majority class", MEAN: "guessing the mean"}


@dataclass(frozen=True)
class Outcomes:
    """The final runs of a comparison by activation and split, and what guessing scores on each split."""

    records: Mapping[Place, Record]
    activations: Sequence[str]
    numbers: Sequence[int]
    metric: Metric
    splits: Splits
    baseline: str
    guessed: Sequence[float]

    @staticmethod
    def of(
        records: Iterable[Record], activations: Sequence[str], numbers: Sequence[int], metric: Metric, dataset: Dataset
    ) -> Outcomes:
        """The outcomes on a dataset's resampled splits."""
        tested = len(dataset.splits["test"])
        others = sum(len(split) for name, split in dataset.splits.items() if name != "test")
        return Outcomes(
            records={place_of(record): record for record in records},
            activations=activations,
            numbers=numbers,
            metric=metric,
            splits=Splits(len(numbers), tested, others),
            baseline=MEAN if dataset.task == "regression" else MAJORITY,
            guessed=[guess_score(dataset, number) for number in numbers],
        )

    def compared(self) -> SplitComparison:
        """All activations and guessing against each other."""
        scores = {spec: [self._score(spec, place) for place in range(len(self.numbers))] for spec in self.activations}
        return compare_splits({**scores, self.baseline: self.guessed}, self.metric, self.splits)

    def diverged(self) -> dict[str, int]:
        """On how many splits each activation diverged."""
        return {
            spec: sum(not _finished(self.records[spec, number], self.metric.key) for number in self.numbers)
            for spec in self.activations
        }

    def chosen(self, number: int) -> str | None:
        """The activation with the lowest validation loss on a split; None if all diverged. Test rows have no part in it."""
        records = {spec: self.records[spec, number] for spec in self.activations}
        losses = {spec: own.metrics[LOSS] for spec, own in records.items() if _finished(own, LOSS)}
        return min(losses, key=lambda spec: losses[spec]) if losses else None

    def expected(self) -> Estimate:
        """What to expect on new rows if validation rows choose: done so on every split, and measured on its test rows."""
        picks = [self.chosen(number) for number in self.numbers]
        scores = [self.guessed[i] if spec is None else self._score(spec, i) for i, spec in enumerate(picks)]
        return estimate(scores, self.splits, self.metric.percent)

    def _score(self, spec: str, place: int) -> float:
        """A run's figure on its test rows; a network that diverged is as good as guessing."""
        record = self.records[spec, self.numbers[place]]
        return record.metrics[self.metric.key] if _finished(record, self.metric.key) else self.guessed[place]


def _finished(record: Record, name: str) -> bool:
    return record.state == "finished" and math.isfinite(record.metrics[name])


def guess_score(dataset: Dataset, number: int) -> float:
    """What the most frequent class, or the mean, of a split's training rows scores on its test rows."""
    assert dataset.pool is not None
    assert dataset.resample is not None
    rows = dataset.resample(number).rows
    train, test = (dataset.pool.y[rows[name]].flatten().double() for name in ("train", "test"))
    if dataset.task == "regression":
        return dataset.unit * float((test - train.mean()).square().mean().sqrt())
    return float((test == torch.bincount(train.long()).argmax()).double().mean())
