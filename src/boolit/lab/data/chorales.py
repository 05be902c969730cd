"""Bach's chorales: is an excerpt of four steps genuine, or were some of its notes changed? (s:chorales, a:jsb)"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor

from boolit.lab.data import register
from boolit.lab.data._corruption import CELLS, PITCHES, SILENCE, STEPS, TOKENS, draw
from boolit.lab.data._dataset import Dataset, Description, Split, Task
from boolit.lab.data._parsed import Tensors, tensors
from boolit.lab.data._published import Published
from boolit.lab.data._remote import Remote
from boolit.lab.errors import UserError
from boolit.lab.randomness import keys

Grid: TypeAlias = Literal["quarter", "sixteenth"]
SIXTEENTHS: Mapping[Grid, int] = MappingProxyType({"quarter": 4, "sixteenth": 1})
SPLITS = ("train", "valid", "test")
REST = -1  # what the file has for a silent voice
# NOTE[paper]: "3 octaves" for each voice, but not which. These hold every note of soprano, alto, tenor and bass in all twelve
# transpositions, except 0.035% of the bass, whose 42 pitches no three octaves hold; those are moved by an octave.
LOWEST = torch.tensor([54, 46, 40, 33])
VERSION = 1
SIXTEENTH_SAMPLES = {"train": 54_541, "valid": 18_180, "test": 18_669}


@register
class Chorales(Published):
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
    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 13_120, "valid": 4_374, "test": 4_494})
    home: ClassVar[str] = "Boulanger-Lewandowski et al. 2012; voices apart: github.com/czhuang/JSB-Chorales-dataset"
    licence: ClassVar[str] = "none stated; Bach's music is in the public domain"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            "chorales",
            "Jsb16thSeparated.json",
            ("https://raw.githubusercontent.com/czhuang/JSB-Chorales-dataset/master/Jsb16thSeparated.json",),
            "79294cc374f9252e95ef4b703161524c1c53dc1f712c236f00f1c1f5d54af5a7",
            1_666_444,
        ),
    )

    def describe(self) -> Description:
        samples = self.samples if self.grid == "quarter" else SIXTEENTH_SAMPLES
        return Description((CELLS * TOKENS,), 1, self.task, samples)

    def load(self) -> Dataset:
        found = tensors(self.remotes, VERSION, parsed)
        genuine = {split: found[f"{split}_{self.grid}"] for split in SPLITS}
        splits = {"train": _all_genuine(genuine["train"])}
        splits |= {split: self._drawn(split, genuine[split]) for split in SPLITS[1:]}
        return Dataset(splits, self.task, 1, encode=one_hot, draw=draw)

    def _drawn(self, split: str, genuine: Tensor) -> Split:
        stored = _all_genuine(genuine)
        x, y = draw(stored.x.unsqueeze(0), stored.y.unsqueeze(0), keys([self.seed], "chorales", split), 0)
        return Split(x.squeeze(0), y.squeeze(0))


def _all_genuine(x: Tensor) -> Split:
    return Split(x, torch.ones(len(x), 1))


def parsed(contents: Mapping[str, bytes]) -> Tensors:
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
    """Tokens as the numbers a network reads: 37 a note, one of them 1.

    Shape: ``(…, 4, 4)`` to ``(…, 592)``.
    """
    places = x.reshape(-1, CELLS) + torch.arange(CELLS) * TOKENS
    return torch.zeros(len(places), CELLS * TOKENS).scatter_(1, places, 1.0).view(*x.shape[:-2], CELLS * TOKENS)
