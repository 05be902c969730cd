"""Datasets of images of pairs of an attribute and an object, where some pairs occur in tests only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from boolit.lab.common.devices import DeviceCopies
from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.datasets.composition import Pairs, compute_metrics, sample_candidates


@dataclass(frozen=True)
class CompositionalDataset(Dataset):
    """Its classes are the listed pairs. A sample is stored as the row of its features in a table, which is made or mapped when
    the first one is needed. In a training step, the numbers of the candidate pairs follow: the true one first, as class 0.

    Shape: a sample is ``(1,)``, or ``(2 + negatives,)`` once drawn; a network reads ``(features,)``, and any candidates.
    """

    pairs: Pairs = field(kw_only=True)


@dataclass(frozen=True)
class WordVectors:
    """Vectors of the attributes' and objects' names.

    Shape: ``(attributes, size)`` and ``(objects, size)``.
    """

    attributes: Tensor
    objects: Tensor


def compositional_dataset(
    pairs: Pairs, targets: Mapping[str, Tensor], table: Callable[[], Tensor], features: int, words: WordVectors, negatives: int
) -> CompositionalDataset:
    """A dataset of the rows of a table ``(samples, features)``, in the order of the splits' targets."""
    rows = torch.arange(sum(map(len, targets.values()))).unsqueeze(1).split([len(y) for y in targets.values()])
    return CompositionalDataset(
        splits={name: Split(x, y) for (name, y), x in zip(targets.items(), rows, strict=True)},
        task="classes",
        outputs=len(pairs.numbers),
        encode=FeatureLookup(table),
        draw=partial(_draw_candidates, DeviceCopies(pairs.seen), negatives),
        initial_values={
            "pairs": pairs.numbers,
            "attributes.weight": _padded(words.attributes),
            "objects.weight": _padded(words.objects),
        },
        extra_metrics=lambda split, outputs: compute_metrics(outputs, targets[split], pairs, split),
        input_shape=(features,),
        pairs=pairs,
    )


class FeatureLookup:
    """Row numbers as rows of a table; what follows a row number follows the row, as floats (exact below 2²⁴).

    Shape: ``(…, 1 + others)`` to ``(…, features + others)``.

    Example:
        >>> FeatureLookup(lambda: torch.tensor([[0.5, 1.5], [2.5, 3.5]]))(torch.tensor([[1, 7], [0, 8]]))
        tensor([[2.5000, 3.5000, 7.0000],
                [0.5000, 1.5000, 8.0000]])
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
    """Samples followed by their candidates, of which the first is right.

    Shape: ``(runs, batch, 1)`` and ``(runs, batch)`` to ``(runs, batch, 2 + negatives)`` and ``(runs, batch)``.
    """
    candidates = sample_candidates(seen.on(y.device), y, run_keys, step, negatives)
    return torch.cat([x, candidates], -1), torch.zeros_like(y)


def _padded(vectors: Tensor) -> Tensor:
    """With a last row of zeros, as the paper's networks have one: it counts as parameters, and is never read."""
    return torch.cat([vectors, torch.zeros(1, vectors.shape[1])])
