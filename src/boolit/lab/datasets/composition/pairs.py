"""Pairs of an attribute and an object: which there are, wrong ones to learn from, and zero-shot evaluation (a:czsl).

Networks prefer the pairs they were trained on. So a bias is added to the scores of all other pairs: the higher it is, the more
images of unseen pairs are right, and the fewer of seen ones. The area under that curve is what counts. Its biases are those at
which unseen images become right, about twenty of them, and 1000, where next to nothing but an unseen pair is chosen.

For every image there is one bias at which it turns, which makes all points of all curves counts of numbers below or above one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from boolit.lab.common.random import uniform

# The pairs a network chooses between, and the wrong ones it learns to tell the true one from (a:czsl).

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


# Generalised zero-shot evaluation: seen pairs against unseen ones, at every price of the latter (a:czsl).

HIGHEST = 1000.0  # the bias of the upper end
STEPS = 20  # biases a curve has at least, where as many unseen images can be right
NUDGE = 1e-4  # how far below the bias at which an image turns a curve has its point
NUMBERS_AT_ONCE = 2**20  # scores that are looked at together; bounds the memory
DEPTHS = (1, 2, 3)
FIGURES = (*(f"auc{k if k > 1 else ''}" for k in DEPTHS), "seen", "unseen", "harmonic")


@dataclass(frozen=True)
class Curve:
    """The accuracies at some biases, from low to high; those of unseen images rise, and those of seen ones fall.

    Shape: ``(biases,)`` each.

    Example:
        >>> curve = Curve(torch.tensor([-1.0, 1000.0]), torch.tensor([0.8, 0.0]), torch.tensor([0.0, 0.5]))
        >>> round(curve.area, 6)
        0.2
    """

    bias: Tensor
    seen: Tensor
    unseen: Tensor

    @property
    def area(self) -> float:
        """Under the accuracy of seen images, over that of unseen ones; with one point, as if no unseen image is right, 0."""
        return float(torch.trapezoid(self.seen, self.unseen))

    @property
    def harmonic(self) -> Tensor:
        """The harmonic mean of both accuracies; 0 where both are."""
        return 2 * self.seen * self.unseen / (self.seen + self.unseen).clamp(min=torch.finfo(self.seen.dtype).tiny)


def curves(scores: Tensor, y: Tensor, pairs: Pairs, split: str, depths: tuple[int, ...] = DEPTHS) -> list[list[Curve]]:
    """The curves of every run, for every depth: an image is right if fewer than ``depth`` others score as high as its own pair.

    Pairs that are neither seen nor the split's are left out. Of two with the same score the wrong one comes first: so a network
    that gives all pairs the same score is never right. A split without unseen images, or without one that can be right, has
    curves of one point and area 0.

    Shape: scores ``(runs, images, pairs)`` and numbers of pairs ``(images,)``; a list a run, of a curve a depth.
    """
    seen, new = pairs.trained, pairs.new_in(split)
    if len(seen) < max(depths):
        raise ValueError(f"the {max(depths)} best of {len(seen)} seen pairs do not exist; give as many pairs to train on")
    known = pairs.of["train"][y]
    rows = known.nonzero().squeeze(1), (~known).nonzero().squeeze(1)
    ahead, _ = _turns(scores, y, rows[0], seen, new, max(depths))
    behind, critical = _turns(scores, y, rows[1], new, seen, max(depths))
    ends = (-ahead, behind, critical)
    return [[_curve(*(each[run, :, k - 1] for each in ends)) for k in depths] for run in range(len(scores))]


def figures(scores: Tensor, y: Tensor, pairs: Pairs, split: str) -> dict[str, Tensor]:
    """The areas for one, two and three guesses, and for one the best accuracies and harmonic mean of the curve; fractions all.

    NOTE[paper]: the latter are those at the best bias on the split itself, as the published evaluation has it: what a network
    could reach, not what a bias chosen beforehand gets. Nothing is chosen by them; areas have no bias to choose.

    Shape: as `curves`, to ``(runs,)`` each.
    """
    found = curves(scores, y, pairs, split)
    values = [[run[place].area for run in found] for place in range(len(DEPTHS))]
    values += [[float(getattr(run[0], name).max()) for run in found] for name in FIGURES[len(DEPTHS) :]]
    return {name: torch.tensor(each, dtype=torch.float64) for name, each in zip(FIGURES, values, strict=True)}


def _turns(scores: Tensor, y: Tensor, rows: Tensor, kind: Tensor, rivals: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """By how much the pairs of the other kind are ahead of each image's own, for one guess and more: the image is right if they
    are set back by more. Also, how far their best ones are ahead, wherever other pairs of its own kind are.

    Shape: ``(runs, images of the rows, depth)`` each, float64.
    """
    size = max(1, NUMBERS_AT_ONCE // (scores.shape[0] * scores.shape[2]))
    found = [_turns_of(scores[:, piece].double(), y[piece], kind, rivals, depth) for piece in rows.split(size)]
    turns, critical = zip(*found, strict=True)
    return torch.cat(turns, 1), torch.cat(critical, 1)


def _turns_of(scores: Tensor, y: Tensor, kind: Tensor, rivals: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    own = scores.gather(2, y.expand(len(scores), -1).unsqueeze(2))
    before = (scores[..., kind] >= own).sum(2, keepdim=True) - 1  # itself not counted
    best = torch.full((*own.shape[:2], depth), -torch.inf, dtype=scores.dtype, device=scores.device)
    best[..., : len(rivals)] = scores[..., rivals].topk(min(depth, len(rivals)), 2).values
    # Of k places, its own kind leaves k - before to be had before the own pair's: that many rivals decide.
    left = torch.arange(depth, device=scores.device) - before
    turns = best.gather(2, left.clamp(0, depth - 1)) - own
    return turns.masked_fill(left < 0, torch.inf), best - own


def _curve(until: Tensor, above: Tensor, critical: Tensor) -> Curve:
    """The curve of one run and depth: seen images are right below ``until``, unseen ones above ``above``."""
    reached = critical[above < HIGHEST].sub(NUDGE).sort().values
    bias = torch.cat([reached[:: max(1, len(reached) // STEPS)], reached.new_tensor([HIGHEST])])
    seen, unseen = until > bias.unsqueeze(1), above < bias.unsqueeze(1)
    return Curve(bias, *(right.sum(1).double() / max(1, right.shape[1]) for right in (seen, unseen)))
