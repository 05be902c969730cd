"""Randomness that belongs to a run: every number is a function of the run's seed, what it is for, and when it is drawn.

Nothing is carried along, so a run draws the same numbers alone or in a cohort, and after a restart without any state saved.
What is drawn once or once per epoch comes from torch's generators (`generator`); what is drawn in every step comes for all
runs at once from a counter-based hash (`uniform`), because a generator per run would mean a Python loop over the runs.
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
    """A 63-bit number that depends on the seed and all words.

    Example:
        >>> derive(0, "shuffle", 1) == derive(0, "shuffle", 1) != derive(0, "shuffle", 2)
        True
    """
    text = "\0".join(map(str, (seed, *words)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *words: str | int) -> torch.Generator:
    """torch's generator for one purpose of one run."""
    return torch.Generator().manual_seed(derive(seed, *words))


def stratified_order(y: Tensor, seed: int, *words: str | int) -> Tensor:
    """A random order with the classes spread evenly: so the splits cut out of it are stratified, and may be cut anywhere.

    The i-th of n samples of a class has the place (i + u) / n, with u drawn for the class.

    Shape: ``(samples,)`` class numbers to ``(samples,)`` row numbers.

    Example:
        >>> y = torch.tensor([0] * 20 + [1] * 10)
        >>> y[stratified_order(y, 0)[:6]].bincount().tolist()
        [4, 2]
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
    """What `uniform` takes for some runs and one purpose.

    Shape: ``(runs,)``, int64.
    """
    return torch.tensor([derive(seed, *words) for seed in seeds], dtype=torch.int64)


def uniform(run_keys: Tensor, step: int, shape: Sequence[int]) -> Tensor:
    """Numbers in [0, 1) for every run, different in every step; a run's numbers depend on its own key only.

    The finaliser of SplitMix64 (Steele, Lea, Flood 2014) on key, step and position.

    Shape: ``(runs,)`` to ``(runs, *shape)``.

    Example:
        >>> both = uniform(keys([3, 4], "noise"), 0, (2, 5))
        >>> bool((both[1:] == uniform(keys([4], "noise"), 0, (2, 5))).all())
        True
    """
    streams = _mix(run_keys + (step + 1) * _GOLDEN % 2**63)
    positions = torch.arange(math.prod(shape), dtype=torch.int64, device=run_keys.device)
    bits = _mix(streams.unsqueeze(1) + positions * _GOLDEN)
    numbers: Tensor = ((bits >> (63 - _BITS)) & (2**_BITS - 1)).to(torch.float32).mul_(2.0**-_BITS).view(-1, *shape)
    return numbers


def normal(run_keys: Tensor, step: int, shape: Sequence[int]) -> Tensor:
    """Standard normal numbers, otherwise as `uniform` (Box and Muller 1958).

    Shape: ``(runs,)`` to ``(runs, *shape)``.
    """
    radius, angle = uniform(run_keys, step, (2, *shape)).unbind(1)
    return (1 - radius).log().mul(-2).sqrt() * (2 * math.pi * angle).cos()


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift_right(z, 30)) * _FIRST
    z = (z ^ _shift_right(z, 27)) * _SECOND
    return z ^ _shift_right(z, 31)


def _shift_right(z: Tensor, places: int) -> Tensor:
    """A right shift that fills with zeros: torch's copies the sign bit."""
    shifted: Tensor = (z >> places) & (2 ** (64 - places) - 1)
    return shifted
