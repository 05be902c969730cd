"""Datasets of images of pairs, where some pairs occur in tests only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from boolit.lab.common.devices import DeviceCopies
from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.datasets.czsl.pairs import Pairs, compute_metrics, sample_candidates


@dataclass(frozen=True)
class CompositionalDataset(Dataset):
    """A dataset whose classes are the listed ``pairs``.

    A sample is stored as the row of its features in a table, which is made when the first one is needed. In a training step,
    the numbers of the candidate pairs follow, the true one first: the class is then 0.

    Shape: a sample is ``(1,)``, or ``(2 + negatives,)`` once drawn; a network reads ``(features,)``, and any candidates.
    """

    pairs: Pairs = field(kw_only=True)


def compositional_dataset(
    pairs: Pairs,
    targets: Mapping[str, Tensor],
    table: Callable[[], Tensor],
    features: int,
    words: tuple[Tensor, Tensor],
    negatives: int,
) -> CompositionalDataset:
    """Return a dataset of the rows of a table.

    Args:
        pairs: the listed pairs.
        targets: the number of each sample's pair, by split.
        table: returns the features ``(samples, features)`` in the order of the targets.
        features: number of features.
        words: word vectors of attributes and objects, ``(names, size)`` each.
        negatives: number of wrong candidates in a training step.
    """
    rows = torch.arange(sum(map(len, targets.values()))).unsqueeze(1).split([len(y) for y in targets.values()])
    attributes, objects = (torch.cat([vectors, torch.zeros(1, vectors.shape[1])]) for vectors in words)
    return CompositionalDataset(
        splits={name: Split(x, y) for (name, y), x in zip(targets.items(), rows, strict=True)},
        task="classes",
        outputs=len(pairs.numbers),
        encode=FeatureLookup(table),
        draw=partial(_draw_candidates, DeviceCopies(pairs.seen), negatives),
        # The paper's networks have a padding row of zeros, which counts as parameters and is never read.
        initial_values={"pairs": pairs.numbers, "attributes.weight": attributes, "objects.weight": objects},
        extra_metrics=lambda split, outputs: compute_metrics(outputs, targets[split], pairs, split),
        input_shape=(features,),
        pairs=pairs,
    )


class FeatureLookup:
    """An encoding of row numbers as rows of a table; numbers after the first stay, as floats (exact below 2²⁴).

    Shape: ``(…, 1 + others)`` to ``(…, features + others)``.
    """

    def __init__(self, table: Callable[[], Tensor]) -> None:
        self._make = table

    @cached_property
    def table(self) -> DeviceCopies:
        """The whole table."""
        return DeviceCopies(self._make())

    def __call__(self, x: Tensor) -> Tensor:
        rows = self.table.take(x[..., 0].flatten()).float().view(*x.shape[:-1], -1)
        return torch.cat([rows, x[..., 1:]], -1)


def _draw_candidates(
    seen: DeviceCopies, negatives: int, x: Tensor, y: Tensor, run_keys: Tensor, step: int
) -> tuple[Tensor, Tensor]:
    candidates = sample_candidates(seen.on(y.device), y, run_keys, step, negatives)
    return torch.cat([x, candidates], -1), torch.zeros_like(y)
