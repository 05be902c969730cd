"""Bach's chorales: is an excerpt of four steps genuine, or were some of its notes changed? (s:chorales, a:jsb)

NOTE[paper]: the mixture's weights .6, .2, .2 and .1 sum to 1.1; they are scaled to sum to 1. Whether 2 or 3 notes are changed
is even odds; which ones is uniform over the 16 of the excerpt; each is changed in view of the genuine excerpt, not of the other
changes. Every change does change the note, so that the label is right: only the first two operations say so in the paper. Where
an operation cannot (nothing else in the voice to copy, no previous note or the same one to extend), the Gaussian takes its
place. It is rounded to semitones and taken on condition that it is another pitch of the voice's three octaves; where the voice
is silent it has no centre, and every pitch is as likely.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.devices import DeviceCopies
from boolit.lab.common.random import keys, uniform
from boolit.lab.datasets.base import Dataset, Description, Split, Task
from boolit.lab.datasets.download.fetch import Tensors, load_tensors
from boolit.lab.datasets.download.published import PublishedDataset

STEPS, VOICES = 4, 4
CELLS = STEPS * VOICES
PITCHES, OCTAVE = 36, 12
TOKENS = PITCHES + 1
SILENCE = PITCHES
LOWEST_SHIFT, SHIFTS = -5, 12
SEMITONES = 3.0  # the Gaussian's standard deviation
NOTES = 3  # changed at most
GAUSSIAN, COPY, EXTEND, UNIFORM = range(4)
# Eleven tenths of the paper's weights.
OPERATION = DeviceCopies(torch.tensor([GAUSSIAN] * 6 + [COPY] * 2 + [EXTEND] * 2 + [UNIFORM]))


def _transpositions() -> Tensor:
    """The token of every token in every transposition; one that leaves the three octaves comes back by an octave."""
    moved = torch.arange(PITCHES) + torch.arange(LOWEST_SHIFT, LOWEST_SHIFT + SHIFTS).unsqueeze(1)
    moved = moved + OCTAVE * (moved < 0).long() - OCTAVE * (moved >= PITCHES).long()
    return torch.cat([moved, torch.full((SHIFTS, 1), SILENCE)], 1)


def _nearby() -> Tensor:
    """For every token the distribution function, over the pitches, of the Gaussian around it; all alike around silence.

    The functions lie one behind the other, that of token t in (t, t + 1], so that one search of t + a chance finds a pitch.

    Shape: ``(37 · 36,)``.
    """
    pitch = torch.arange(PITCHES, dtype=torch.float64)
    distance = (pitch - pitch.unsqueeze(1)).abs()
    edges = torch.stack([distance - 0.5, distance + 0.5]) / SEMITONES
    near, far = torch.special.ndtr(edges)
    weights = torch.cat([(far - near).fill_diagonal_(0), torch.ones(1, PITCHES, dtype=torch.float64)])
    sums = weights.cumsum(1)
    return (sums / sums[:, -1:] + torch.arange(TOKENS).unsqueeze(1)).flatten()


TRANSPOSED, NEARBY = DeviceCopies(_transpositions()), DeviceCopies(_nearby())


def draw(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The excerpts of a training step: a transposition of each, changed or not, and whether it is genuine still.

    Shape: ``(runs, batch, 4, 4)`` tokens and ``(runs, batch, 1)``, both unchanged.
    """
    chances = uniform(run_keys, step, (x.shape[1], 3 + 3 * NOTES)).flatten(0, 1)
    shift, genuine = _below(chances[:, :1], SHIFTS), chances[:, 1] < 0.5
    excerpts = TRANSPOSED.on(x.device).take(shift * TOKENS + x.reshape(-1, CELLS))
    rows = genuine.logical_not().nonzero().squeeze(1)
    excerpts[rows] = corrupt(excerpts[rows], chances[rows, 2:])
    return excerpts.to(x.dtype).view(x.shape), genuine.to(y.dtype).view(y.shape)


def corrupt(excerpts: Tensor, chances: Tensor) -> Tensor:
    """Excerpts with two or three notes changed.

    Shape: ``(n, 16)`` and ``(n, 10)`` to ``(n, 16)``.
    """
    where, how, which = chances[:, 1:].chunk(3, 1)
    cells = draw_cells(where)
    notes = change_notes(excerpts, cells, how, which)
    # With two notes, the third is replaced by itself.
    last = NOTES - 1
    notes[:, last] = torch.where(chances[:, 0] < 0.5, excerpts.gather(1, cells[:, last:]).squeeze(1), notes[:, last])
    return excerpts.scatter(1, cells, notes)


def draw_cells(where: Tensor) -> Tensor:
    """Three different cells, each choice as likely: the second is drawn from 15, the third from 14, past those taken.

    Shape: ``(n, 3)`` numbers in [0, 1) to ``(n, 3)`` cells.
    """
    first, second, third = (_below(chance, CELLS - taken) for taken, chance in enumerate(where.unbind(1)))
    second = second + (second >= first)
    third = third + (third >= torch.minimum(first, second))
    third = third + (third >= torch.maximum(first, second))
    return torch.stack([first, second, third], 1)


def change_notes(excerpts: Tensor, cells: Tensor, how: Tensor, which: Tensor) -> Tensor:
    """Other tokens for some cells: ``how`` chooses the operation, ``which`` among its outcomes.

    Shape: ``(n, 16)`` and three of ``(n, notes)`` to ``(n, notes)``.
    """
    time, voice = cells // VOICES, cells % VOICES
    lines = excerpts.view(-1, STEPS, VOICES).mT.gather(1, voice.unsqueeze(2).expand(-1, -1, STEPS))
    note = excerpts.gather(1, cells)
    operations, nearby = (table.on(excerpts.device) for table in (OPERATION, NEARBY))
    operation = operations.take(_below(how, len(operations)))
    others = (lines != note.unsqueeze(2)) & (lines != SILENCE)
    copied = _choose(lines, others, which)
    previous = lines.gather(2, (time - 1).clamp_(min=0).unsqueeze(2)).squeeze(2)
    other = _below(which, TOKENS - 1)
    other = other + (other >= note)
    result = torch.searchsorted(nearby, note + which.double(), right=True) - PITCHES * note
    result = torch.where((operation == COPY) & others.any(2), copied, result)
    result = torch.where((operation == EXTEND) & (previous != note), previous, result)
    return torch.where(operation == UNIFORM, other, result)


def _choose(lines: Tensor, candidates: Tensor, which: Tensor) -> Tensor:
    """One of the candidates, each as likely; 0 if there is none.

    Shape: ``(…, steps)`` twice and ``(…)`` to ``(…)``.
    """
    rank = candidates.cumsum(-1)
    wanted = (which * rank[..., -1]).long().unsqueeze(-1) + 1
    return (lines * (candidates & (rank == wanted))).sum(-1)


def _below(chance: Tensor, count: int) -> Tensor:
    """An integer of 0 … count − 1, each as likely."""
    return (chance * count).long()


Grid: TypeAlias = Literal["quarter", "sixteenth"]
SIXTEENTHS: Mapping[Grid, int] = MappingProxyType({"quarter": 4, "sixteenth": 1})
SPLITS = ("train", "valid", "test")
REST = -1  # what the file has for a silent voice
# NOTE[paper]: "3 octaves" for each voice, but not which. These hold every note of soprano, alto, tenor and bass in all twelve
# transpositions, except 0.035% of the bass, whose 42 pitches no three octaves hold; those are moved by an octave.
LOWEST = torch.tensor([54, 46, 40, 33])
VERSION = 1
SIXTEENTH_SAMPLES = {"train": 54_541, "valid": 18_180, "test": 18_669}


class Chorales(PublishedDataset, published="chorales"):
    """Every excerpt of four steps on a ``grid``; 1 is genuine, 0 changed. Training excerpts are transposed, and half of them
    changed, anew in every step; those of the other splits once, from ``seed``.

    NOTE[paper]: the grid is not given. On sixteenths a fifth of the excerpts is one chord four times, so quarters are the
    default.
    NOTE[paper]: which is class 1, and how the excerpts of the test were drawn, is not said: here like those of the training.
    """

    name: Literal["chorales"] = "chorales"
    grid: Grid = "quarter"
    seed: int = Field(0, ge=0)

    task: ClassVar[Task] = "binary"

    def describe(self) -> Description:
        samples = self.samples if self.grid == "quarter" else SIXTEENTH_SAMPLES
        return Description((CELLS * TOKENS,), 1, self.task, samples)

    def load(self) -> Dataset:
        found = load_tensors(self.files, VERSION, parse)
        genuine = {split: found[f"{split}_{self.grid}"] for split in SPLITS}
        splits = {"train": _label_genuine(genuine["train"])}
        splits |= {split: self._draw_split(split, genuine[split]) for split in SPLITS[1:]}
        return Dataset(splits, self.task, 1, encode=one_hot, draw=draw)

    def _draw_split(self, split: str, genuine: Tensor) -> Split:
        stored = _label_genuine(genuine)
        x, y = draw(stored.x.unsqueeze(0), stored.y.unsqueeze(0), keys([self.seed], "chorales", split), 0)
        return Split(x.squeeze(0), y.squeeze(0))


def _label_genuine(x: Tensor) -> Split:
    return Split(x, torch.ones(len(x), 1))


def parse(contents: Mapping[str, bytes]) -> Tensors:
    """The excerpts of every split on every grid."""
    (content,) = contents.values()
    chorales = json.loads(content)
    return {
        f"{split}_{grid}": torch.cat([excerpts(tokens(steps), sixteenths) for steps in chorales[split]])
        for split in SPLITS
        for grid, sixteenths in SIXTEENTHS.items()
    }


def tokens(steps: Sequence[Sequence[int]]) -> Tensor:
    """A chorale's MIDI pitches as tokens: 0 … 35 from the lowest pitch of the voice's three octaves on, 36 is silence.

    Shape: ``(steps, voices)``, uint8.

    Example:
        >>> tokens([[60, 55, -1, 36]])
        tensor([[ 6,  9, 36,  3]], dtype=torch.uint8)
    """
    pitches = torch.tensor(steps)
    numbers, silent = pitches - LOWEST, pitches == REST
    if bool((~silent & ((numbers < 0) | (numbers >= PITCHES))).any()):
        raise UserError(
            f"a chorale has a pitch outside its voice's three octaves from {LOWEST.tolist()} on; fetch the file again"
        )
    return numbers.masked_fill(silent, SILENCE).to(torch.uint8)


def excerpts(chorale: Tensor, sixteenths: int) -> Tensor:
    """Every excerpt of four successive steps, so many sixteenths apart.

    Shape: ``(steps, voices)`` to ``(excerpts, 4, voices)``.

    Example:
        >>> excerpts(torch.arange(24).view(24, 1), 4).squeeze(2).tolist()
        [[0, 4, 8, 12], [4, 8, 12, 16], [8, 12, 16, 20]]
    """
    return chorale[::sixteenths].unfold(0, STEPS, 1).mT.contiguous()


def one_hot(x: Tensor) -> Tensor:
    """Tokens as the numbers a network reads: 37 per note, one of them 1.

    Shape: ``(…, 4, 4)`` to ``(…, 592)``.
    """
    places = x.reshape(-1, CELLS) + torch.arange(CELLS, device=x.device) * TOKENS
    empty = torch.zeros(len(places), CELLS * TOKENS, device=x.device)
    return empty.scatter_(1, places, 1.0).view(*x.shape[:-2], CELLS * TOKENS)
