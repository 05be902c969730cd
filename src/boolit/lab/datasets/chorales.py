"""Bach's chorales (s:chorales, a:jsb): is an excerpt of four steps genuine, or were some of its notes changed?

NOTE[paper]: the weights .6, .2, .2 and .1 of the mixture sum to 1.1; they are rescaled. 2 and 3 changed notes are equally
likely, and so are the 16 notes of the excerpt; each is changed in view of the genuine excerpt. Every change does change the
note, so that the label is right. Where an operation cannot (nothing else to copy in the voice, no previous note or the same
one), the Gaussian takes its place. It is rounded to semitones, conditioned on another pitch within the voice's three octaves;
for a silent voice all pitches are equally likely.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.devices import DeviceCopies
from boolit.lab.common.random import keys, uniform
from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.datasets.download import PublishedDataset, published_files, read_contents

STEPS, VOICES = 4, 4
CELLS = STEPS * VOICES
PITCHES, OCTAVE = 36, 12
TOKENS = PITCHES + 1
SILENCE = PITCHES
LOWEST_SHIFT, SHIFTS = -5, 12
SEMITONES = 3.0  # standard deviation of the Gaussian
NOTES = 3  # changed at most
GAUSSIAN, COPY, EXTEND, UNIFORM = range(4)
OPERATION = DeviceCopies(torch.tensor([GAUSSIAN] * 6 + [COPY] * 2 + [EXTEND] * 2 + [UNIFORM]))  # the weights, in 11ths

SIXTEENTHS = 4  # of the file in a step
REST = -1  # a silent voice in the file
# NOTE[paper]: the paper says "3 octaves" for each voice, but not which. These hold every note of soprano, alto, tenor and bass
# in all twelve transpositions except 0.035% of the bass, whose 42 pitches do not fit; those are moved by an octave.
LOWEST = torch.tensor([54, 46, 40, 33])


class Chorales(PublishedDataset):
    """Every excerpt of four quarters; 1 is genuine, 0 changed.

    Training excerpts are transposed, and half of them changed, in every step; those of the other splits once, with ``seed``.

    NOTE[paper]: the length of a step is not given. In sixteenths, a fifth of the excerpts would repeat one chord.
    NOTE[paper]: which class is 1 and how test excerpts were drawn is not given: here like those of the training.
    """

    name: Literal["chorales"] = "chorales"
    seed: int = Field(0, ge=0)

    task = "binary"
    inputs = (CELLS * TOKENS,)
    classes = 1
    samples: ClassVar = {"train": 13_120, "valid": 4_374, "test": 4_494}
    files = published_files("chorales")

    def load(self) -> Dataset:
        (content,) = read_contents(self.files).values()
        chorales = json.loads(content)
        splits = {}
        for name in ("train", "valid", "test"):
            x = torch.cat([excerpts(tokens(steps)) for steps in chorales[name]])
            y = torch.ones(len(x), 1)
            if name != "train":
                x, y = (part.squeeze(0) for part in draw(x[None], y[None], keys([self.seed], "chorales", name), 0))
            splits[name] = Split(x, y)
        return Dataset(splits, self.task, 1, encode=one_hot, draw=draw)


def tokens(steps: Sequence[Sequence[int]]) -> Tensor:
    """Return MIDI pitches as tokens: 0 … 35 from the lowest pitch of the voice's three octaves on, 36 for silence.

    Shape: ``(steps, voices)``, uint8.
    """
    pitches = torch.tensor(steps)
    numbers, silent = pitches - LOWEST, pitches == REST
    if bool((~silent & ((numbers < 0) | (numbers >= PITCHES))).any()):
        raise UserError(f"a chorale has a pitch outside its voice's three octaves from {LOWEST.tolist()} on")
    return numbers.masked_fill(silent, SILENCE).to(torch.uint8)


def excerpts(chorale: Tensor) -> Tensor:
    """Return every excerpt of four successive quarters. Shape: ``(sixteenths, voices)`` to ``(excerpts, 4, voices)``."""
    return chorale[::SIXTEENTHS].unfold(0, STEPS, 1).mT.contiguous()


def one_hot(x: Tensor) -> Tensor:
    """Encode tokens as 37 numbers per note, of which one is 1. Shape: ``(…, 4, 4)`` to ``(…, 592)``."""
    places = x.reshape(-1, CELLS) + torch.arange(CELLS, device=x.device) * TOKENS
    empty = torch.zeros(len(places), CELLS * TOKENS, device=x.device)
    return empty.scatter_(1, places, 1.0).view(*x.shape[:-2], CELLS * TOKENS)


def _transpositions() -> Tensor:
    """Return every token in every transposition, moved by an octave where it leaves the three octaves."""
    moved = torch.arange(PITCHES) + torch.arange(LOWEST_SHIFT, LOWEST_SHIFT + SHIFTS).unsqueeze(1)
    moved = moved + OCTAVE * (moved < 0).long() - OCTAVE * (moved >= PITCHES).long()
    return torch.cat([moved, torch.full((SHIFTS, 1), SILENCE)], 1)


def _nearby() -> Tensor:
    """Return the cumulative distribution over pitches of the Gaussian around every token; uniform around silence.

    The distribution of token t is shifted to (t, t + 1], so that one search for t + u finds a pitch.

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
    """Transpose every excerpt, change the notes of half of them, and return them with their labels.

    Shape: ``(runs, batch, 4, 4)`` tokens and ``(runs, batch, 1)``, unchanged.
    """
    numbers = uniform(run_keys, step, (x.shape[1], 3 + 3 * NOTES)).flatten(0, 1)
    shift, genuine = _below(numbers[:, :1], SHIFTS), numbers[:, 1] < 0.5
    drawn = TRANSPOSED.on(x.device).take(shift * TOKENS + x.reshape(-1, CELLS))
    rows = genuine.logical_not().nonzero().squeeze(1)
    drawn[rows] = corrupt(drawn[rows], numbers[rows, 2:])
    return drawn.to(x.dtype).view(x.shape), genuine.to(y.dtype).view(y.shape)


def corrupt(genuine: Tensor, numbers: Tensor) -> Tensor:
    """Change two or three notes of every excerpt. Shape: ``(n, 16)`` and ``(n, 10)`` numbers in [0, 1) to ``(n, 16)``."""
    place, how, which = numbers[:, 1:].chunk(3, 1)
    cells = draw_cells(place)
    notes = change_notes(genuine, cells, how, which)
    last = NOTES - 1  # with two notes, the third is replaced by itself
    notes[:, last] = torch.where(numbers[:, 0] < 0.5, genuine.gather(1, cells[:, last:]).squeeze(1), notes[:, last])
    return genuine.scatter(1, cells, notes)


def draw_cells(numbers: Tensor) -> Tensor:
    """Draw three different cells: the second from 15, the third from 14, skipping those already drawn.

    Shape: ``(n, 3)`` numbers in [0, 1) to ``(n, 3)`` cells.
    """
    first, second, third = (_below(number, CELLS - taken) for taken, number in enumerate(numbers.unbind(1)))
    second = second + (second >= first)
    third = third + (third >= torch.minimum(first, second))
    third = third + (third >= torch.maximum(first, second))
    return torch.stack([first, second, third], 1)


def change_notes(genuine: Tensor, cells: Tensor, how: Tensor, which: Tensor) -> Tensor:
    """Return other tokens for some cells: ``how`` chooses the operation, ``which`` among its outcomes.

    Shape: ``(n, 16)`` and three of ``(n, notes)`` to ``(n, notes)``.
    """
    time, voice = cells // VOICES, cells % VOICES
    lines = genuine.view(-1, STEPS, VOICES).mT.gather(1, voice.unsqueeze(2).expand(-1, -1, STEPS))
    note = genuine.gather(1, cells)
    operations, nearby = (table.on(genuine.device) for table in (OPERATION, NEARBY))
    operation = operations.take(_below(how, len(operations)))
    others = (lines != note.unsqueeze(2)) & (lines != SILENCE)
    rank = others.cumsum(-1)
    wanted = (which * rank[..., -1]).long().unsqueeze(-1) + 1
    copied = (lines * (others & (rank == wanted))).sum(-1)  # one of the others, each with equal probability
    previous = lines.gather(2, (time - 1).clamp_(min=0).unsqueeze(2)).squeeze(2)
    other = _below(which, TOKENS - 1)
    other = other + (other >= note)
    result = torch.searchsorted(nearby, note + which.double(), right=True) - PITCHES * note
    result = torch.where((operation == COPY) & others.any(2), copied, result)
    result = torch.where((operation == EXTEND) & (previous != note), previous, result)
    return torch.where(operation == UNIFORM, other, result)


def _below(number: Tensor, count: int) -> Tensor:
    """Map numbers in [0, 1) to 0 … count − 1."""
    return (number * count).long()
