"""Which channel axes must keep one relative width, what fixes them, and what they must divide by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from torch import fx, nn

from boolit.nn.conversion.layers import unresizable
from boolit.nn.conversion.sites import Site


class ChannelPart(NamedTuple):
    """Some channels: how many there were, and the axis they change with."""

    axis: int
    size: int


Channels = tuple[ChannelPart, ...]


class ChannelTensor(NamedTuple):
    """A tensor whose channels are understood: they lie along ``dim`` (negative), in parts that were concatenated.

    ``flat`` says that every channel stands for all its positions, as after a flatten: ``channels`` where the positions of a
    channel are next to each other, ``positions`` where the channels of a position are, else ``mixed``. ``norm`` is the layer
    that has just normalised it.
    """

    parts: Channels
    dim: int
    rank: int | None = None
    flat: str = ""
    norm: str = ""

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
        self.multiples: list[dict[int, int]] = []  # the sizes in a class, and what each must stay a multiple of
        self.pins: list[str | None] = []  # what fixes a class
        self.produced: list[bool] = []  # whether some layer makes channels of the class

    def new(self, size: int, *, produced: bool = False, pin: str | None = None) -> ChannelPart:
        """An axis of its own; ``produced`` says that a layer makes it, ``pin`` what fixes its width."""
        self._parent.append(len(self._parent))
        self.multiples.append({size: 1})
        self.pins.append(pin)
        self.produced.append(produced)
        return ChannelPart(len(self._parent) - 1, size)

    def root(self, axis: int) -> int:
        """The representative of the axis's class."""
        while self._parent[axis] != axis:
            self._parent[axis] = self._parent[self._parent[axis]]
            axis = self._parent[axis]
        return axis

    def join(self, one: ChannelPart, other: ChannelPart) -> None:
        """From now on both change by the same factor."""
        kept, gone = self.root(one.axis), self.root(other.axis)
        if kept == gone:
            return
        self._parent[gone] = kept
        for size, multiple in self.multiples[gone].items():
            self._demand(kept, size, multiple)
        self.pins[kept] = self.pins[kept] or self.pins[gone]
        self.produced[kept] |= self.produced[gone]

    def derive(self, part: ChannelPart, size: int) -> ChannelPart:
        """Channels of another number that change with ``part``."""
        self._demand(self.root(part.axis), size, 1)
        return ChannelPart(part.axis, size)

    def demand(self, parts: Iterable[ChannelPart], multiple: int) -> None:
        """Each part's new size must be a multiple of this."""
        for part in parts:
            self._demand(self.root(part.axis), part.size, multiple)

    def pin(self, parts: Iterable[ChannelPart], reason: str) -> None:
        """The parts must keep their sizes."""
        for part in parts:
            root = self.root(part.axis)
            self.pins[root] = self.pins[root] or reason

    def _demand(self, root: int, size: int, multiple: int) -> None:
        self.multiples[root][size] = lcm(multiple, self.multiples[root].get(size, 1))


class LayerWidth(NamedTuple):
    """A width of a layer: ``times`` the channels of its parts."""

    parts: Channels
    times: int = 1
    order: str = "channels"

    @property
    def size(self) -> int:
        """The width the model was given with."""
        return self.times * sum(part.size for part in self.parts)


class ReshapeLiteral(NamedTuple):
    """A width written out in a reshape: ``x.view(-1, 400)`` has one at position 1."""

    node: fx.Node
    position: int
    use: LayerWidth


class ActivationLink(NamedTuple):
    """A converted activation between some channels and what it makes of them; ``ratio`` is by how much their widths part."""

    site: Site
    before: ChannelPart
    after: ChannelPart
    ratio: Fraction
    norm: str = ""


@dataclass
class WidthConstraints:
    """The axes of a model, who uses them, and which activations act between them."""

    model: nn.Module
    axes: Axes = field(default_factory=Axes)
    layer_widths: dict[tuple[str, str], LayerWidth] = field(default_factory=dict)
    literals: list[ReshapeLiteral] = field(default_factory=list)
    links: list[ActivationLink] = field(default_factory=list)
    dims: dict[Site, int] = field(default_factory=dict)
    widths: dict[Site, int] = field(default_factory=dict)
    several: set[Site] = field(default_factory=set)
    refusals: dict[Site, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._unresizable = unresizable(self.model)

    def read_channels(self, layer: str, attribute: str, value: ChannelTensor | Opaque, dim: int, size: int) -> Channels:
        """The channels a layer reads along ``dim``; what does not fit is fixed as it is."""
        times = size // value.size if isinstance(value, ChannelTensor) else 0
        if isinstance(value, ChannelTensor) and value.dim == dim and size == times * value.size and (times == 1 or value.flat):
            return self.use(layer, attribute, LayerWidth(value.parts, times, value.flat or "channels"))
        self.pin([value], layer)
        return self.use(layer, attribute, LayerWidth((self.axes.new(size, pin=f"what enters {layer}"),)))

    def make_channels(self, layer: str, attribute: str, size: int) -> Channels:
        """The channels a layer makes."""
        known = self.layer_widths.get((layer, attribute))
        return known.parts if known else self.use(layer, attribute, LayerWidth((self.axes.new(size, produced=True),)))

    def use(self, layer: str, attribute: str, use: LayerWidth) -> Channels:
        """Records a layer's width; where the layer is called twice, both calls have the same."""
        known = self.layer_widths.setdefault((layer, attribute), use)
        if not self.tie(known.parts, use.parts):
            self.axes.pin([*known.parts, *use.parts], f"{layer}, which is called twice")
        if layer in self._unresizable:
            self.axes.pin(use.parts, f"{layer}, whose parameters are shared, parametrised or hooked")
        return use.parts

    def tie(self, one: Channels, other: Channels) -> bool:
        """Makes channels that meet element by element change together, if they match part by part."""
        if [part.size for part in one] != [part.size for part in other]:
            return False
        for a, b in zip(one, other, strict=True):
            self.axes.join(a, b)
        return True

    def pin(self, values: Iterable[ChannelTensor | Opaque], reason: str) -> None:
        """Fixes the widths of values."""
        for value in values:
            if isinstance(value, ChannelTensor):
                self.axes.pin(value.parts, reason)
