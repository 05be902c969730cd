"""Random numbers as a function of a run's seed, their purpose and the step in which they are drawn.

No state is carried along: a run draws the same numbers alone, in a cohort and after a restart. Numbers that are drawn once or
once per epoch come from torch's generators (`generator`); numbers of every step come from a counter-based hash for all runs at
once (`uniform`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24


def derive(seed: int, *words: str | int) -> int:
    """Return a 63-bit number that depends on the seed and all words."""
    text = "\0".join(map(str, (seed, *words)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *words: str | int) -> torch.Generator:
    """Return a torch generator for one purpose of one run."""
    return torch.Generator().manual_seed(derive(seed, *words))


def stratified_order(y: Tensor, seed: int, *words: str | int) -> Tensor:
    """Return a random order that spreads the classes evenly, so that any split cut out of it is stratified.

    The i-th of n samples of a class is placed at (i + u) / n, with u drawn once per class.

    Shape: ``(samples,)`` class numbers to ``(samples,)`` row numbers.
    """
    draw = generator(seed, *words, "order")
    shuffled = torch.randperm(len(y), generator=draw)
    by_class = shuffled[y[shuffled].argsort(stable=True)]
    counts = y.bincount()
    ends = counts.cumsum(0)
    ranks = torch.arange(len(y)) - (ends - counts)[y[by_class]]
    offsets = torch.rand(len(counts), generator=draw, dtype=torch.float64)
    places = (ranks + offsets[y[by_class]]) / counts[y[by_class]]
    return by_class[places.argsort(stable=True)]


def keys(seeds: Sequence[int], *words: str | int) -> Tensor:
    """Return the keys that `uniform` takes for runs with these seeds. Shape: ``(runs,)``, int64."""
    return torch.tensor([derive(seed, *words) for seed in seeds], dtype=torch.int64)


def uniform(run_keys: Tensor, step: int, shape: Sequence[int]) -> Tensor:
    """Return numbers in [0, 1) for every run and step; a run's numbers depend only on its own key.

    SplitMix64 (Steele, Lea, Flood 2014) is applied to key, step and position.

    Shape: ``(runs,)`` to ``(runs, *shape)``.
    """
    streams = _mix(run_keys + (step + 1) * _GOLDEN % 2**63)
    positions = torch.arange(math.prod(shape), dtype=torch.int64, device=run_keys.device)
    bits = _mix(streams.unsqueeze(1) + positions * _GOLDEN)
    numbers: Tensor = ((bits >> (63 - _BITS)) & (2**_BITS - 1)).to(torch.float32).mul_(2.0**-_BITS).view(-1, *shape)
    return numbers


def normal(run_keys: Tensor, step: int, shape: Sequence[int]) -> Tensor:
    """Return standard normal numbers (Box and Muller 1958), otherwise as `uniform`.

    Shape: ``(runs,)`` to ``(runs, *shape)``.
    """
    radius, angle = uniform(run_keys, step, (2, *shape)).unbind(1)
    return (1 - radius).log().mul(-2).sqrt() * (2 * math.pi * angle).cos()


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift_right(z, 30)) * _FIRST
    z = (z ^ _shift_right(z, 27)) * _SECOND
    return z ^ _shift_right(z, 31)


def _shift_right(z: Tensor, places: int) -> Tensor:
    shifted: Tensor = (z >> places) & (2 ** (64 - places) - 1)  # torch's shift copies the sign bit
    return shifted
