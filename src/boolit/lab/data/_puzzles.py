"""Problems of I-RAVEN as samples: which problem, and in what order its panels are shown; their pixels come last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from boolit.lab.data._dataset import Dataset, Split
from boolit.lab.randomness import uniform
from boolit.lab.raven.files import CANDIDATES, PANELS

CONTEXT = PANELS - CANDIDATES
ROW = 3  # panels
Tables: TypeAlias = Sequence[tuple[Tensor, Tensor]]  # pictures and answers of every configuration


class LaterSplit(Split):
    """A split whose targets are in files that may not have been made yet: they are read when they are first asked for."""

    def __init__(self, x: Tensor, targets: Callable[[], Tensor]) -> None:
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "_targets", targets)

    @cached_property
    def y(self) -> Tensor:
        """The targets."""
        found: Tensor = self.__dict__["_targets"]()
        return found


@dataclass(frozen=True)
class PuzzleSet(Dataset):
    """Its samples are rows and orders of panels, and no picture is read before one is encoded."""

    side: int = 0

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        return (PANELS, self.side, self.side)


class Panels:
    """The pictures of samples, out of tables that are made or mapped when the first is wanted: levels of grey from 0 to 255.

    Shape: ``(…, 17)`` to ``(…, 16, side, side)``, float32.
    """

    def __init__(self, tables: Callable[[], Tables], sizes: Sequence[int]) -> None:
        self._make, self._sizes = tables, sizes

    @cached_property
    def tables(self) -> Tables:
        """Those of all configurations."""
        return self._make()

    def targets(self, rows: Tensor) -> Tensor:
        """The number of the right candidate of some problems.

        Shape: ``(n,)``.
        """
        return torch.cat([answers for _, answers in self.tables])[rows].long()

    def __call__(self, x: Tensor) -> Tensor:
        rows, order = x.reshape(-1, 1 + PANELS).split([1, PANELS], 1)
        side = self.tables[0][0].shape[-1]
        seen = torch.empty(len(rows), PANELS, side, side)
        first = 0
        for (pictures, _), size in zip(self.tables, self._sizes, strict=True):
            mine = ((rows >= first) & (rows < first + size)).squeeze(1).nonzero().squeeze(1)
            numbers = (rows[mine].long() - first) * PANELS + order[mine]
            seen[mine] = pictures.view(-1, side, side).index_select(0, numbers.flatten()).view(-1, PANELS, side, side).float()
            first += size
        return seen.view(*x.shape[:-1], PANELS, side, side)


def stored(rows: Tensor) -> Tensor:
    """Samples of some problems, with their panels as they are in the file.

    Shape: ``(n,)`` to ``(n, 17)``, int32: the row, and the number of the panel that is shown in each of the 16 places.
    """
    order = torch.arange(PANELS, dtype=torch.int32).expand(len(rows), -1)
    return torch.cat([rows.to(torch.int32).unsqueeze(1), order], 1)


def shuffled(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The problems of a training step: candidates in any order, and the first two rows of the matrix exchanged or not.

    Shape: ``(runs, batch, 17)`` and ``(runs, batch)``, both unchanged.
    """
    chances = uniform(run_keys, step, (x.shape[1], CANDIDATES + 1))
    candidates = chances[..., :CANDIDATES].argsort(-1)
    exchanged = torch.tensor([*range(ROW, 2 * ROW), *range(ROW), *range(2 * ROW, CONTEXT)])
    context = torch.where(chances[..., CANDIDATES:] < 0.5, exchanged, torch.arange(CONTEXT))
    places = torch.cat([torch.zeros_like(context[..., :1]), 1 + context, 1 + CONTEXT + candidates], -1)
    return x.gather(-1, places), (candidates == y.unsqueeze(-1)).int().argmax(-1)


def accuracies(
    splits: Mapping[str, Split], owners: Mapping[str, Tensor], configurations: Sequence[str], split: str, outputs: Tensor
) -> dict[str, Tensor]:
    """The accuracy on the problems of each configuration; ``owners`` has the number of every sample's.

    Shape: ``(runs, samples, 8)`` to ``(runs,)`` each.
    """
    hits = (outputs.max(-1).indices == splits[split].y.to(outputs.device)).double()
    of_split = owners[split].to(outputs.device)
    return {f"accuracy_{name}": hits[:, of_split == number].mean(1) for number, name in enumerate(configurations)}
