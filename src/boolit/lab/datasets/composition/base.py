"""Images of pairs of an attribute and an object, some of which occur in tests only: what such datasets have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.datasets.composition import Pairs, contenders, figures


@dataclass(frozen=True)
class Compositional(Dataset):
    """Its classes are the listed pairs. A sample is stored as the row of its features in a table, which is made or mapped when
    the first is wanted. In a training step, the numbers of the pairs to choose from follow: the true one first, as class 0.

    Shape: a sample is ``(1,)``, drawn ``(1 + contenders,)``; a network reads ``(features,)``, or as many more as it was drawn.
    """

    pairs: Pairs = field(kw_only=True)


@dataclass(frozen=True)
class Words:
    """Vectors of the attributes' and objects' names.

    Shape: ``(attributes, size)`` and ``(objects, size)``.
    """

    attributes: Tensor
    objects: Tensor


def compositional(
    pairs: Pairs, targets: Mapping[str, Tensor], table: Callable[[], Tensor], features: int, words: Words, negatives: int
) -> Compositional:
    """A dataset of rows of a table ``(samples, features)``, in the order of the splits' targets."""
    rows = torch.arange(sum(map(len, targets.values()))).unsqueeze(1).split([len(y) for y in targets.values()])
    return Compositional(
        splits={name: Split(x, y) for (name, y), x in zip(targets.items(), rows, strict=True)},
        task="classes",
        outputs=len(pairs.numbers),
        encode=TableRows(table),
        draw=partial(with_contenders, pairs.trained, negatives),
        initial_values={
            "pairs": pairs.numbers,
            "attributes.weight": _padded(words.attributes),
            "objects.weight": _padded(words.objects),
        },
        extra_metrics=partial(metrics_on_split, pairs, targets),
        pairs=pairs,
        shape=(features,),
    )


class TableRows:
    """Row numbers as rows of a table; what follows a row number follows the row.

    Shape: ``(…, 1 + others)`` to ``(…, features + others)``.

    Example:
        >>> TableRows(lambda: torch.tensor([[0.5, 1.5], [2.5, 3.5]]))(torch.tensor([[1, 7], [0, 8]]))
        tensor([[2.5000, 3.5000, 7.0000],
                [0.5000, 1.5000, 8.0000]])
    """

    def __init__(self, table: Callable[[], Tensor]) -> None:
        self._make = table

    @cached_property
    def table(self) -> Tensor:
        """The whole table."""
        return self._make()

    def __call__(self, x: Tensor) -> Tensor:
        rows = self.table.index_select(0, x[..., 0].flatten()).float().view(*x.shape[:-1], -1)
        return torch.cat([rows, x[..., 1:]], -1)


def with_contenders(
    trained: Tensor, negatives: int, x: Tensor, y: Tensor, run_keys: Tensor, step: int
) -> tuple[Tensor, Tensor]:
    """Samples with the pairs they are to be told from, of which the first is right.

    Shape: ``(runs, batch, 1)`` and ``(runs, batch)`` to ``(runs, batch, 2 + negatives)`` and ``(runs, batch)``.
    """
    return torch.cat([x, contenders(trained, y, run_keys, step, negatives)], -1), torch.zeros_like(y)


def metrics_on_split(pairs: Pairs, targets: Mapping[str, Tensor], split: str, outputs: Tensor) -> Mapping[str, Tensor]:
    """The figures of the generalised evaluation on a split.

    Shape: ``(runs, samples, pairs)`` to ``(runs,)`` each.
    """
    return figures(outputs, targets[split], pairs, split)


def _padded(vectors: Tensor) -> Tensor:
    """With a row of zeros, as the tables of the paper's networks have one: it is counted, and never read."""
    return torch.cat([vectors, torch.zeros(1, vectors.shape[1])])
