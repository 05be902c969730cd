"""The pairs a network chooses between, and the wrong ones it learns to tell the true one from (a:czsl)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from boolit.lab.randomness import uniform

Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Pairs:
    """Listed pairs in a fixed order, and in which splits each occurs; the split ``train`` says which are *seen*.

    Shape: ``numbers`` is ``(pairs, 2)``, of attribute and object; ``of`` has a mask ``(pairs,)`` for each split.

    Example:
        >>> pairs = Pairs.of_names({"train": [("old", "bear"), ("wet", "dog")], "test": [("wet", "bear"), ("wet", "dog")]})
        >>> pairs.listed
        [('old', 'bear'), ('wet', 'bear'), ('wet', 'dog')]
        >>> pairs.numbers.tolist(), pairs.trained.tolist(), pairs.new_in("test").tolist()
        ([[0, 0], [1, 0], [1, 1]], [0, 2], [1])
    """

    attributes: tuple[str, ...]
    objects: tuple[str, ...]
    numbers: Tensor
    of: Mapping[str, Tensor]

    @staticmethod
    def of_names(splits: Mapping[str, Sequence[Pair]]) -> Pairs:
        """All pairs of some splits, in the order of their names."""
        listed = sorted({pair for pairs in splits.values() for pair in pairs})
        attributes, objects = (tuple(sorted({pair[part] for pair in listed})) for part in range(2))
        numbers = [(attributes.index(attribute), objects.index(thing)) for attribute, thing in listed]
        of = {name: torch.tensor([pair in known for pair in listed]) for name, known in _sets(splits).items()}
        return Pairs(attributes, objects, torch.tensor(numbers), of)

    @property
    def listed(self) -> list[Pair]:
        """The names of the pairs."""
        return [(self.attributes[attribute], self.objects[thing]) for attribute, thing in self.numbers.tolist()]

    @cached_property
    def trained(self) -> Tensor:
        """The numbers of the seen pairs, in order."""
        return self.of["train"].nonzero().squeeze(1)

    def new_in(self, split: str) -> Tensor:
        """The numbers of a split's pairs that are not seen, in order."""
        return (self.of[split] & ~self.of["train"]).nonzero().squeeze(1)


def contenders(trained: Tensor, y: Tensor, run_keys: Tensor, step: int, negatives: int) -> Tensor:
    """The true pair of every sample, then wrong ones: uniform, with replacement, among the seen pairs.

    Shape: ``(seen pairs,)`` in order, and ``(runs, batch)`` seen pairs, to ``(runs, batch, 1 + negatives)``.
    """
    places = torch.searchsorted(trained, y.contiguous()).unsqueeze(-1)
    drawn = (uniform(run_keys, step, (*y.shape[1:], negatives)) * (len(trained) - 1)).long()
    wrong = trained[drawn + (drawn >= places)]  # the true pair is stepped over
    return torch.cat([y.unsqueeze(-1), wrong], -1)


def _sets(splits: Mapping[str, Sequence[Pair]]) -> dict[str, set[Pair]]:
    return {name: set(pairs) for name, pairs in splits.items()}
