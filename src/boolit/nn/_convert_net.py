"""What a walk through a model's graph finds out about its widths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from torch import fx, nn
from torch.fx.node import Argument

from boolit.nn._convert_axes import Axes, Opaque, Part, Value
from boolit.nn._convert_layers import unresizable
from boolit.nn._convert_trace import Site


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
