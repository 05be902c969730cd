"""Datasets of pairs of an attribute and an object, and the generalized zero-shot evaluation (a:czsl).

Networks prefer the pairs they were trained on. A bias is added to the scores of all other pairs: the higher it is, the more
images of unseen pairs are right, and the fewer of seen ones. The metric is the area under that curve, at about twenty biases at
which unseen images become right, and at 1000. The prediction for each image changes at one bias, so every point of a curve
counts the images with a threshold below or above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from boolit.lab.common.devices import DeviceCopies
from boolit.lab.common.random import uniform
from boolit.lab.datasets.base import Dataset, Split, look_up_rows

Pair: TypeAlias = tuple[str, str]  # attribute and object
MAX_BIAS = 1000.0
STEPS = 20  # at least, if as many unseen images can be right
NUDGE = 1e-4  # distance below the critical bias at which the curve is evaluated
DEPTHS = (1, 2, 3)
METRICS = ("auc", "auc2", "auc3")


@dataclass(frozen=True)
class Pairs:
    """Listed pairs in a fixed order, and the splits in which each occurs; those of the split ``train`` are *seen*.

    Shape: ``numbers`` is ``(pairs, 2)``, of attribute and object; ``masks`` has one ``(pairs,)`` for each split.
    """

    attributes: tuple[str, ...]
    objects: tuple[str, ...]
    numbers: Tensor
    masks: Mapping[str, Tensor]

    @staticmethod
    def from_names(splits: Mapping[str, Sequence[Pair]]) -> Pairs:
        """Return all pairs of some splits, sorted by name."""
        sets = {name: set(pairs) for name, pairs in splits.items()}
        listed = sorted(set().union(*sets.values()))
        attributes, objects = (tuple(sorted({pair[part] for pair in listed})) for part in range(2))
        numbers = [(attributes.index(attribute), objects.index(thing)) for attribute, thing in listed]
        masks = {name: torch.tensor([pair in known for pair in listed]) for name, known in sets.items()}
        return Pairs(attributes, objects, torch.tensor(numbers), masks)

    @property
    def names(self) -> list[Pair]:
        """The names of all pairs."""
        return [(self.attributes[attribute], self.objects[thing]) for attribute, thing in self.numbers.tolist()]

    @cached_property
    def seen(self) -> Tensor:
        """The numbers of the pairs of ``train``, in order."""
        return self.masks["train"].nonzero().squeeze(1)

    def unseen(self, split: str) -> Tensor:
        """Return the numbers of a split's pairs that are not seen, in order."""
        return (self.masks[split] & ~self.masks["train"]).nonzero().squeeze(1)


def sample_candidates(seen: Tensor, y: Tensor, run_keys: Tensor, step: int, negatives: int) -> Tensor:
    """Return the true pair of every sample, then negatives drawn uniformly, with replacement, from the other seen pairs.

    Shape: ``(seen pairs,)`` in order, and ``(runs, batch)`` seen pairs, to ``(runs, batch, 1 + negatives)``.
    """
    places = torch.searchsorted(seen, y.contiguous()).unsqueeze(-1)
    drawn = (uniform(run_keys, step, (*y.shape[1:], negatives)) * (len(seen) - 1)).long()
    return torch.cat([y.unsqueeze(-1), seen[drawn + (drawn >= places)]], -1)  # skips the true pair


@dataclass(frozen=True)
class Curve:
    """Accuracies at increasing biases: on unseen images they rise, on seen ones they fall. Shape: ``(biases,)`` each."""

    bias: Tensor
    seen: Tensor
    unseen: Tensor

    @property
    def area(self) -> float:
        """The area under the seen accuracy as a function of the unseen one."""
        return float(torch.trapezoid(self.seen, self.unseen))


def curves(scores: Tensor, y: Tensor, pairs: Pairs, split: str, depths: tuple[int, ...] = DEPTHS) -> list[list[Curve]]:
    """Return the curves of every run and depth: an image is right if fewer than ``depth`` other pairs score as high.

    Pairs that are neither seen nor in the split are left out. A wrong pair wins a tie, so equal scores are never right. If no
    unseen image can be right, the curve has one point and area 0.

    Shape: scores ``(runs, images, pairs)`` and numbers of pairs ``(images,)``; one list per run, of one curve per depth.
    """
    y, seen, new, trained = (v.to(scores.device) for v in (y, pairs.seen, pairs.unseen(split), pairs.masks["train"]))
    if len(seen) < max(depths):
        raise ValueError(f"the {max(depths)} best of {len(seen)} seen pairs do not exist; give as many pairs to train on")
    known = trained[y]
    runs = []
    for of_run in scores.unbind():  # one run at a time, to save memory
        ahead, _ = _thresholds(of_run[known].double(), y[known], seen, new, max(depths))
        behind, critical = _thresholds(of_run[~known].double(), y[~known], new, seen, max(depths))
        runs.append([_curve(*(biases[:, k - 1] for biases in (-ahead, behind, critical))) for k in depths])
    return runs


def compute_metrics(scores: Tensor, y: Tensor, pairs: Pairs, split: str) -> dict[str, Tensor]:
    """Return the areas for one, two and three guesses. Shape: as `curves`, to ``(runs,)`` each."""
    areas = torch.tensor([[curve.area for curve in run] for run in curves(scores, y, pairs, split)], dtype=torch.float64)
    return dict(zip(METRICS, areas.unbind(1), strict=True))


def _thresholds(scores: Tensor, y: Tensor, kind: Tensor, rivals: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Return by how much the rivals, the pairs of the other kind, must be lowered, and how far the best rivals are ahead.

    The first is for an image to be right with 1 … depth guesses, the second is relative to the true pair.

    Shape: ``(images, pairs)`` scores to ``(images, depth)`` each.
    """
    true = scores.gather(1, y.unsqueeze(1))
    before = (scores[:, kind] >= true).sum(1, keepdim=True) - 1  # without itself
    best = scores.new_full((len(scores), depth), -torch.inf)
    best[:, : len(rivals)] = scores[:, rivals].topk(min(depth, len(rivals)), 1).values
    # With k guesses, k - 1 - before rivals may score higher than the true pair; the next one decides.
    left = torch.arange(depth, device=scores.device) - before
    thresholds = best.gather(1, left.clamp(0, depth - 1)) - true
    return thresholds.masked_fill(left < 0, torch.inf), best - true


def _curve(until: Tensor, above: Tensor, critical: Tensor) -> Curve:
    """Return the curve of one run and depth: seen images are right below the bias ``until``, unseen ones above ``above``."""
    reached = critical[above < MAX_BIAS].sub(NUDGE).sort().values
    bias = torch.cat([reached[:: max(1, len(reached) // STEPS)], reached.new_tensor([MAX_BIAS])])
    seen, unseen = until > bias.unsqueeze(1), above < bias.unsqueeze(1)
    return Curve(bias, *(right.sum(1).double() / max(1, right.shape[1]) for right in (seen, unseen)))


def compositional_dataset(
    pairs: Pairs,
    targets: Mapping[str, Tensor],
    table: Tensor,
    words: tuple[Tensor, Tensor],
    negatives: int,
) -> Dataset:
    """Return a dataset of the rows of a table, whose classes are the pairs.

    A sample is stored as its row. In a training step, the numbers of the candidate pairs follow, the true one first: the class
    is then 0. Shape: ``(1,)``, or ``(2 + negatives,)`` once drawn; a network reads ``(features,)``, and any candidates.

    Args:
        pairs: the listed pairs.
        targets: the number of each sample's pair, by split.
        table: the features ``(samples, features)`` in the order of the targets.
        words: word vectors of attributes and objects, ``(names, size)`` each.
        negatives: number of wrong candidates in a training step.
    """
    seen, features = DeviceCopies(pairs.seen), DeviceCopies(table)

    def encode(x: Tensor) -> Tensor:  # the numbers of candidates stay, as floats (exact below 2²⁴)
        return torch.cat([look_up_rows(features, x[..., 0]), x[..., 1:]], -1)

    def draw(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
        candidates = sample_candidates(seen.on(y.device), y, run_keys, step, negatives)
        return torch.cat([x, candidates], -1), torch.zeros_like(y)

    rows = torch.arange(sum(map(len, targets.values()))).unsqueeze(1).split([len(y) for y in targets.values()])
    attributes, objects = (torch.cat([vectors, torch.zeros(1, vectors.shape[1])]) for vectors in words)
    return Dataset(
        splits={name: Split(x, y) for (name, y), x in zip(targets.items(), rows, strict=True)},
        task="classes",
        outputs=len(pairs.numbers),
        encode=encode,
        draw=draw,
        # The paper's networks have a padding row of zeros, which counts as parameters and is never read.
        initial_values={"pairs": pairs.numbers, "attributes.weight": attributes, "objects.weight": objects},
        extra_metrics=lambda split, outputs: compute_metrics(outputs, targets[split], pairs, split),
        input_shape=(table.shape[1],),
    )
