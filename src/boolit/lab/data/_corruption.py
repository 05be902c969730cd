"""How training excerpts of chorales are made: transposed, and every other one with two or three notes changed (a:jsb).

NOTE[paper]: the mixture's weights .6, .2, .2 and .1 sum to 1.1; they are scaled to sum to 1. Whether 2 or 3 notes are changed
is even odds; which ones is uniform over the 16 of the excerpt; each is changed in view of the genuine excerpt, not of the other
changes. Every change does change the note, so that the label is right: only the first two operations say so in the paper. Where
an operation cannot (nothing else in the voice to copy, no previous note or the same one to extend), the Gaussian takes its
place. It is rounded to semitones and taken on condition that it is another pitch of the voice's three octaves; where the voice
is silent it has no centre, and every pitch is as likely.
"""

from __future__ import annotations

import torch
from torch import Tensor

from boolit.lab.randomness import uniform

STEPS, VOICES = 4, 4
CELLS = STEPS * VOICES
PITCHES, OCTAVE = 36, 12
TOKENS = PITCHES + 1
SILENCE = PITCHES
LOWEST_SHIFT, SHIFTS = -5, 12
SEMITONES = 3.0  # the Gaussian's standard deviation
NOTES = 3  # changed at most
GAUSSIAN, COPY, EXTEND, UNIFORM = range(4)
OPERATION = torch.tensor([GAUSSIAN] * 6 + [COPY] * 2 + [EXTEND] * 2 + [UNIFORM])  # eleven tenths of the paper's weights


def _transposed() -> Tensor:
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


TRANSPOSED, NEARBY = _transposed(), _nearby()


def draw(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The excerpts of a training step: a transposition of each, changed or not, and whether it is genuine still.

    Shape: ``(runs, batch, 4, 4)`` tokens and ``(runs, batch, 1)``, both unchanged.
    """
    chances = uniform(run_keys, step, (x.shape[1], 3 + 3 * NOTES)).flatten(0, 1)
    shift, genuine = _below(chances[:, :1], SHIFTS), chances[:, 1] < 0.5
    excerpts = TRANSPOSED.take(shift * TOKENS + x.reshape(-1, CELLS))
    rows = genuine.logical_not().nonzero().squeeze(1)
    excerpts[rows] = corrupted(excerpts[rows], chances[rows, 2:])
    return excerpts.to(x.dtype).view(x.shape), genuine.to(y.dtype).view(y.shape)


def corrupted(excerpts: Tensor, chances: Tensor) -> Tensor:
    """Excerpts with two or three notes changed.

    Shape: ``(n, 16)`` and ``(n, 10)`` to ``(n, 16)``.
    """
    where, how, which = chances[:, 1:].chunk(3, 1)
    cells = distinct(where)
    notes = changed(excerpts, cells, how, which)
    # With two notes, the third is replaced by itself.
    last = NOTES - 1
    notes[:, last] = torch.where(chances[:, 0] < 0.5, excerpts.gather(1, cells[:, last:]).squeeze(1), notes[:, last])
    return excerpts.scatter(1, cells, notes)


def distinct(where: Tensor) -> Tensor:
    """Three different cells, each choice as likely: the second is drawn from 15, the third from 14, past those taken.

    Shape: ``(n, 3)`` numbers in [0, 1) to ``(n, 3)`` cells.
    """
    first, second, third = (_below(chance, CELLS - taken) for taken, chance in enumerate(where.unbind(1)))
    second = second + (second >= first)
    third = third + (third >= torch.minimum(first, second))
    third = third + (third >= torch.maximum(first, second))
    return torch.stack([first, second, third], 1)


def changed(excerpts: Tensor, cells: Tensor, how: Tensor, which: Tensor) -> Tensor:
    """Other tokens for some cells: ``how`` chooses the operation, ``which`` among its outcomes.

    Shape: ``(n, 16)`` and three of ``(n, notes)`` to ``(n, notes)``.
    """
    time, voice = cells // VOICES, cells % VOICES
    lines = excerpts.view(-1, STEPS, VOICES).mT.gather(1, voice.unsqueeze(2).expand(-1, -1, STEPS))
    note = excerpts.gather(1, cells)
    operation = OPERATION.take(_below(how, len(OPERATION)))
    others = (lines != note.unsqueeze(2)) & (lines != SILENCE)
    copied = _chosen(lines, others, which)
    previous = lines.gather(2, (time - 1).clamp_(min=0).unsqueeze(2)).squeeze(2)
    other = _below(which, TOKENS - 1)
    other = other + (other >= note)
    result = torch.searchsorted(NEARBY, note + which.double(), right=True) - PITCHES * note
    result = torch.where((operation == COPY) & others.any(2), copied, result)
    result = torch.where((operation == EXTEND) & (previous != note), previous, result)
    return torch.where(operation == UNIFORM, other, result)


def _chosen(lines: Tensor, candidates: Tensor, which: Tensor) -> Tensor:
    """One of the candidates, each as likely; 0 if there is none.

    Shape: ``(…, steps)`` twice and ``(…)`` to ``(…)``.
    """
    rank = candidates.cumsum(-1)
    wanted = (which * rank[..., -1]).long().unsqueeze(-1) + 1
    return (lines * (candidates & (rank == wanted))).sum(-1)


def _below(chance: Tensor, count: int) -> Tensor:
    """An integer of 0 … count − 1, each as likely."""
    return (chance * count).long()
