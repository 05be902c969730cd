"""Random choices that every Python makes alike: all come from `random.Random.random`, whose sequence is the one it promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

from boolit.lab.common.random import derive
from boolit.lab.datasets.raven.configurations import Range

T = TypeVar("T")


class Chance:
    """A stream of choices that depends on the seed and all words.

    Example:
        >>> Chance(0, "a").several(range(9), 3) == Chance(0, "a").several(range(9), 3)
        True
    """

    def __init__(self, seed: int, *words: str | int) -> None:
        self._uniform = Random(derive(seed, *words)).random

    def choice(self, items: Sequence[T]) -> T:
        """One of the items, each as likely."""
        return items[int(self._uniform() * len(items))]

    def level(self, limits: Range) -> int:
        """A level between the limits, both included."""
        low, high = limits
        return low + int(self._uniform() * (high - low + 1))

    def several(self, items: Iterable[T], count: int) -> list[T]:
        """Different ones of the items, in random order."""
        return self.shuffled(items)[:count]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """All items in random order."""
        return sorted(items, key=lambda _: self._uniform())
