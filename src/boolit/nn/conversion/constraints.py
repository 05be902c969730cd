"""Which channel axes must keep one relative width, what fixes them, and what they must divide by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

from torch import fx, nn
from torch.fx.node import Argument

from boolit.nn.conversion.layers import unresizable
from boolit.nn.conversion.sites import Site

# Channel axes that must keep one relative width: which belong together, what fixes them, what they must divide by.


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


# What a walk through a model's graph finds out about its widths.


class Use(NamedTuple):
    """A width of a layer: ``times`` the channels of its parts."""

    parts: tuple[Part, ...]
    times: int = 1

    @property
    def size(self) -> int:
        """The width the model was given with."""
        return self.times * sum(part.size for part in self.parts)


class Literal(NamedTuple):
    """A width written out in a reshape: ``x.view(-1, 400)``."""

    node: fx.Node
    leading: Argument
    use: Use


class Link(NamedTuple):
    """A converted activation between some channels and what it makes of them; ``ratio`` is by how much their widths part."""

    site: Site
    before: Part
    after: Part
    ratio: Fraction


@dataclass
class Net:
    """The axes of a model, who uses them, and which activations act between them."""

    model: nn.Module
    axes: Axes = field(default_factory=Axes)
    uses: dict[tuple[str, str], Use] = field(default_factory=dict)
    literals: list[Literal] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    dims: dict[Site, int] = field(default_factory=dict)
    refusals: dict[Site, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._unresizable = unresizable(self.model)

    def take_in(self, layer: str, attribute: str, value: Value | Opaque, dim: int, size: int) -> tuple[Part, ...]:
        """The channels a layer reads along ``dim``; what does not fit is fixed as it is."""
        times = size // value.size if isinstance(value, Value) else 0
        if isinstance(value, Value) and value.dim == dim and size == times * value.size and (times == 1 or value.flat):
            return self.use(layer, attribute, Use(value.parts, times))
        self.pin([value], layer)
        return self.use(layer, attribute, Use((self.axes.new(size, pin=f"what enters {layer}"),)))

    def give_out(self, layer: str, attribute: str, size: int) -> tuple[Part, ...]:
        """The channels a layer makes."""
        known = self.uses.get((layer, attribute))
        return known.parts if known else self.use(layer, attribute, Use((self.axes.new(size, produced=True),)))

    def use(self, layer: str, attribute: str, use: Use) -> tuple[Part, ...]:
        """Records a layer's width; where the layer is called twice, both calls have the same."""
        known = self.uses.setdefault((layer, attribute), use)
        if not self.tie(known.parts, use.parts):
            self.axes.pin([*known.parts, *use.parts], f"{layer}, which is called twice")
        if layer in self._unresizable:
            self.axes.pin(use.parts, f"{layer}, whose parameters are shared, parametrised or hooked")
        return use.parts

    def tie(self, one: tuple[Part, ...], other: tuple[Part, ...]) -> bool:
        """Makes channels that meet element by element change together, if they match part by part."""
        if [part.size for part in one] != [part.size for part in other]:
            return False
        for a, b in zip(one, other, strict=True):
            self.axes.join(a, b)
        return True

    def pin(self, values: Iterable[Value | Opaque], reason: str) -> None:
        """Fixes the widths of values."""
        for value in values:
            if isinstance(value, Value):
                self.axes.pin(value.parts, reason)
