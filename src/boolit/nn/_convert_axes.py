"""Channel axes that must keep one relative width: which belong together, what fixes them, what they must divide by."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from math import gcd, lcm
from typing import NamedTuple


class Part(NamedTuple):
    """Some channels: how many there were, and the axis they change with."""

    axis: int
    size: int


class Value(NamedTuple):
    """A tensor whose channels are understood: they lie along ``dim`` (negative), in parts that were concatenated.

    ``flat`` says that every channel stands for all its positions, next to each other, as after a flatten.
    """

    parts: tuple[Part, ...]
    dim: int
    rank: int | None = None
    flat: bool = False

    @property
    def size(self) -> int:
        """How many channels."""
        return sum(part.size for part in self.parts)


class Opaque(Enum):
    """A result without understood channels: some tensor, or a number (sizes, scalars) that goes with any width."""

    TENSOR = auto()
    NUMBER = auto()


class Axes:
    """A union-find over axes; all sizes of a class scale by one factor."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._multiples: list[dict[int, int]] = []
        self._pins: list[str | None] = []
        self._produced: list[bool] = []

    def new(self, size: int, *, produced: bool = False, pin: str | None = None) -> Part:
        """An axis of its own; ``produced`` says that a layer makes it, ``pin`` what fixes its width."""
        self._parent.append(len(self._parent))
        self._multiples.append({size: 1})
        self._pins.append(pin)
        self._produced.append(produced)
        return Part(len(self._parent) - 1, size)

    def root(self, axis: int) -> int:
        """The representative of the axis's class."""
        while self._parent[axis] != axis:
            self._parent[axis] = self._parent[self._parent[axis]]
            axis = self._parent[axis]
        return axis

    def join(self, one: Part, other: Part) -> None:
        """From now on both change by the same factor."""
        kept, gone = self.root(one.axis), self.root(other.axis)
        if kept == gone:
            return
        self._parent[gone] = kept
        for size, multiple in self._multiples[gone].items():
            self._demand(kept, size, multiple)
        self._pins[kept] = self._pins[kept] or self._pins[gone]
        self._produced[kept] |= self._produced[gone]

    def resized(self, part: Part, size: int) -> Part:
        """Channels of another number that change with ``part``."""
        self._demand(self.root(part.axis), size, 1)
        return Part(part.axis, size)

    def demand(self, parts: Iterable[Part], multiple: int) -> None:
        """Each part's new size must be a multiple of this."""
        for part in parts:
            self._demand(self.root(part.axis), part.size, multiple)

    def pin(self, parts: Iterable[Part], reason: str) -> None:
        """The parts must keep their sizes."""
        for part in parts:
            root = self.root(part.axis)
            self._pins[root] = self._pins[root] or reason

    def pinned(self, root: int) -> str | None:
        """What fixes the class, if something does."""
        return self._pins[root]

    def produced(self, root: int) -> bool:
        """Whether some layer makes channels of the class."""
        return self._produced[root]

    def multiples(self, root: int) -> dict[int, int]:
        """The sizes in the class, and what each must stay a multiple of."""
        return self._multiples[root]

    def unit(self, roots: Iterable[int]) -> int:
        """The greatest common divisor of all sizes in the classes."""
        return gcd(*(size for root in roots for size in self._multiples[root]))

    def _demand(self, root: int, size: int, multiple: int) -> None:
        self._multiples[root][size] = lcm(multiple, self._multiples[root].get(size, 1))
