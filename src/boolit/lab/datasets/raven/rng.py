"""Random choices that are the same in every Python version: all use `random.Random.random`, whose sequence is guaranteed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

from boolit.lab.common.random import derive

T = TypeVar("T")


class StableRandom:
    """A random number generator whose choices depend on the seed and all words, with methods as in `random` and numpy.

    Example:
        >>> StableRandom(0, "a").sample(range(9), 3) == StableRandom(0, "a").sample(range(9), 3)
        True
    """

    def __init__(self, seed: int, *words: str | int) -> None:
        self._uniform = Random(derive(seed, *words)).random

    def choice(self, items: Sequence[T]) -> T:
        """One of the items, each with the same probability."""
        return items[int(self._uniform() * len(items))]

    def randint(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + int(self._uniform() * (high - low + 1))

    def sample(self, items: Iterable[T], count: int) -> list[T]:
        """Different items in random order."""
        return self.permutation(items)[:count]

    def permutation(self, items: Iterable[T]) -> list[T]:
        """All items in random order."""
        return sorted(items, key=lambda _: self._uniform())
