"""Which channels every tensor of a traced model has, and which widths must change together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from math import lcm, prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from boolit.nn.conversion.activations import POINTWISE_NAMES, TABLE, Site
from boolit.nn.conversion.layers import CHANNEL_NORMS, CONVOLUTION, FEATURE_NORMS, unresizable, widths
from boolit.nn.conversion.tracing import Node, Trace
from boolit.nn.gates import Activation, Pointwise


class Part(NamedTuple):
    """Channels along an axis: ``size`` is their number before the conversion."""

    axis: int
    size: int


class Channels(NamedTuple):
    """Channels of a tensor or a layer: parts that were concatenated, along dimension ``dim`` (negative).

    After a flatten, ``times`` is the number of adjacent positions that each channel stands for.
    """

    parts: Parts
    dim: int
    times: int = 1

    @property
    def size(self) -> int:
        """The length of the dimension before the conversion."""
        return self.times * sum(part.size for part in self.parts)


Parts = tuple[Part, ...]
Value = Channels | None  # None is a tensor without known channels
Span = tuple[int, int, int]  # a dimension along which channels lie one after the other, its length, and their ``times``


class Link(NamedTuple):
    """A converted activation, or a depthwise layer between two of them: ``after`` changes by ``ratio`` times the factor."""

    site: Site | None
    before: Part
    after: Part
    ratio: Fraction


class Axes:
    """A union-find over axes. All sizes of a class are scaled by the same factor.

    ``pins[root]`` is the reason why a class keeps its sizes, ``multiples[root]`` maps a size to a divisor of its new size.
    """

    def __init__(self) -> None:
        self.pins: list[str] = []
        self.multiples: list[dict[int, int]] = []
        self._parent: list[int] = []
        self._joins: dict[int, list[tuple[int, str]]] = {}

    def new(self, size: int, pin: str = "") -> Part:
        """Return the channels of a new axis, whose number is fixed if ``pin`` is a reason."""
        self._parent.append(len(self._parent))
        self.pins.append(pin)
        self.multiples.append({size: 1})
        return Part(len(self._parent) - 1, size)

    def derive(self, part: Part, size: int) -> Part:
        """Return another number of channels that change by the same factor as ``part``."""
        self.demand([Part(part.axis, size)], 1)
        return Part(part.axis, size)

    def root(self, axis: int) -> int:
        """Return the axis that stands for the class of an axis."""
        while self._parent[axis] != axis:
            axis = self._parent[axis]
        return axis

    def join(self, first: Part, second: Part, cause: str) -> None:
        """Make both change by the same factor."""
        kept, merged = self.root(first.axis), self.root(second.axis)
        if kept != merged:
            self._parent[merged] = kept
            self.pin([first], self.pins[merged])
            for size, multiple in self.multiples[merged].items():
                self.demand([Part(kept, size)], multiple)
            for axis, other in ((first.axis, second.axis), (second.axis, first.axis)):
                self._joins.setdefault(axis, []).append((other, cause))

    def demand(self, parts: Iterable[Part], multiple: int) -> None:
        """Require that the new size of each part is a multiple."""
        for part in parts:
            sizes = self.multiples[self.root(part.axis)]
            sizes[part.size] = lcm(multiple, sizes.get(part.size, 1))

    def pin(self, parts: Iterable[Part], reason: str) -> None:
        """Require that the parts keep their sizes."""
        for root in (self.root(part.axis) for part in parts):
            self.pins[root] = self.pins[root] or reason

    def cause(self, start: int, end: int) -> str:
        """Return what joined two axes, nearest to ``start`` if there were several joins; empty for the same axis."""
        reached, queue = {start: ""}, [start]
        for axis in queue:
            for other, cause in self._joins.get(axis, ()):
                if other not in reached:
                    reached[other] = reached[axis] or cause
                    queue.append(other)
        return reached.get(end, "")


class _NotFollowedError(Exception):
    """Raised by a rule if the channels of its result are not known. The widths of all inputs are then fixed."""


class ChannelAnalysis:
    """The channels of every tensor in a graph, given the activations to convert.

    With ``widen``, a depthwise layer between two activations gives back the channels that the first one loses.
    """

    def __init__(self, model: nn.Module, trace: Trace, sites: Iterable[Site], new: Activation, widen: bool) -> None:
        self.model, self._new, self._widen = model, new, widen
        self.axes = Axes()
        self.layer_widths: dict[tuple[str, str], Channels] = {}
        self.links: list[Link] = []
        self.dims: dict[Site, int] = {}
        self.refusals: dict[Site, str] = {}
        self.flops: Counter[str] = Counter()  # of each layer, per element of its weight
        self._sites = {node: site for site in sites for node in site.nodes}
        self._factors = {node: site for site in sites if site.factor_site for node in site.factor_site.nodes}
        self._values: dict[Node, Value] = {}
        self._pieces: dict[Node, list[Value]] = {}
        self._unresizable = unresizable(model)
        for node in trace.nodes:
            try:
                value, shape = self._value(node), node.shape
                if value is not None and shape and (len(shape) < -value.dim or shape[value.dim] != value.size):
                    raise _NotFollowedError
            except _NotFollowedError:
                value = None
                self._pin(map(self._values.get, node.inputs), self._describe(node))
            self._values[node] = value
        self._pin(map(self._values.get, trace.outputs), "the model's output")

    def _value(self, node: Node) -> Value:
        if not node.inputs:
            return None
        value, module = self._values[node.inputs[0]], node.module
        if node in self._sites:
            site = self._sites[node]
            return self._gate(site, node) if site.pair == "product" else self._activate(site, node)
        if node in self._factors:  # becomes the identity
            return value
        if module is not None and widths(module):
            return self._layer_output(node, node.name, module, value)
        name = node.name if module is None else type(module).__name__.casefold()
        if name in _ELEMENTWISE or isinstance(module, _POINTWISE):
            return self._elementwise(node)
        if name in ("cat", "concat", "concatenate"):
            return self._concatenate(node)
        if value is None:
            if any(map(self._values.get, node.inputs)):
                raise _NotFollowedError
            return None
        if node.place is None and node.inputs[0] in self._pieces:
            return self._pieces[node.inputs[0]][cast(int, node.key)]
        if name in _MOVES:
            return self._move(node, value)
        spatial = _SPATIAL.fullmatch(name.replace("_", ""))
        dims = len(node.argument(1, "pad", ())) // 2 if name == "pad" else int(spatial[1] or 1) if spatial else -value.dim
        if -value.dim > dims:  # it acts on the dimensions after the channels
            return value
        raise _NotFollowedError

    def _describe(self, node: Node) -> str:
        if node.module is not None:
            return f"the {type(node.module).__name__} {node.name}"
        words = {"add": "sum", "sub": "difference", "mul": "product", "div": "quotient", "truediv": "quotient"}
        what = words.get(node.name, f"call of {node.name}")
        return f"the {what} in {(node.place and node.place.owner) or type(self.model).__name__}"

    # Layers

    def _layer_output(self, node: Node, name: str, layer: nn.Module, value: Value) -> Value:
        if isinstance(layer, CONVOLUTION):
            return self._convolution(node, name, layer, value)
        if isinstance(layer, (*CHANNEL_NORMS, *FEATURE_NORMS)):
            return self._normalize(node, name, layer, value)
        self.flops[name] += 2 * prod(node.shape[:-1])
        self._read(name, value, -1)
        return Channels(self._make(name), -1)

    def _convolution(self, node: Node, name: str, layer: nn.modules.conv._ConvNd, value: Value) -> Channels:
        dim = -1 - len(layer.kernel_size)
        shape = (node.inputs[0] if layer.transposed else node).shape
        self.flops[name] += 2 * prod(shape) // shape[dim]
        read = self._read(name, value, dim)
        if layer.groups == layer.in_channels > 1:
            multiple = layer.out_channels // layer.in_channels
            made = tuple(self.axes.derive(self._depthwise_output(node, part), part.size * multiple) for part in read)
            self._use(name, "groups", Channels(read, dim))
            self._use(name, "out_channels", Channels(made, dim))
            return Channels(made, dim)
        made = self._make(name)
        self.axes.demand((*read, *made), layer.groups)
        return Channels(made, dim)

    def _depthwise_output(self, node: Node, read: Part) -> Part:
        """Return the channels that a depthwise layer makes: those it reads, or a new axis between two activations."""
        roots = {self.axes.root(link.after.axis): link.ratio for link in self.links if link.site}
        ratio = roots.get(self.axes.root(read.axis), Fraction(1))
        widened = self._widen and (1 / ratio).denominator == 1
        if ratio == 1 or not self._feeds_activation(node):
            return read
        made = self.axes.new(read.size)
        self.links.append(Link(None, read, made, 1 / ratio if widened else Fraction(1)))
        return made

    def _feeds_activation(self, node: Node) -> bool:
        norms = (user for user in node.users if isinstance(user.module, CHANNEL_NORMS))
        return any(user in self._sites for user in node.users) or any(map(self._feeds_activation, norms))

    def _normalize(self, node: Node, name: str, layer: nn.Module, value: Value) -> Value:
        if isinstance(layer, FEATURE_NORMS) and len(layer.normalized_shape) > 1:
            raise _NotFollowedError
        dim = -1 if isinstance(layer, FEATURE_NORMS) else 1 - len(node.shape)
        if (isinstance(layer, nn.PReLU) and layer.num_parameters == 1) or (value is not None and value.dim != dim):
            return value
        parts = self._read(name, value, dim)
        if isinstance(layer, nn.GroupNorm):
            self.axes.demand(parts, layer.num_groups)
        return value or Channels(parts, dim)

    def _read(self, layer: str, value: Value, dim: int) -> Parts:
        """Return the channels that a layer reads along ``dim``; a width that does not fit is fixed."""
        attribute, size = next(iter(widths(self.model.get_submodule(layer)).items()))
        if value is not None and value.dim == dim and value.size == size:
            return self._use(layer, attribute, value)
        self._pin([value], layer)
        return self._use(layer, attribute, Channels((self.axes.new(size, pin=f"what enters {layer}"),), dim))

    def _make(self, layer: str) -> Parts:
        attribute, size = [*widths(self.model.get_submodule(layer)).items()][1]
        known = self.layer_widths.get((layer, attribute))
        return known.parts if known else self._use(layer, attribute, Channels((self.axes.new(size),), -1))

    def _use(self, layer: str, attribute: str, use: Channels) -> Parts:
        known = self.layer_widths.setdefault((layer, attribute), use)
        if not self._tie(known.parts, use.parts, f"{layer}, which is called twice,"):
            self.axes.pin([*known.parts, *use.parts], f"{layer}, which is called twice")
        if layer in self._unresizable:
            self.axes.pin(use.parts, f"{layer}, whose parameters are shared, parametrized or hooked")
        return use.parts

    def _tie(self, first: Parts, second: Parts, cause: str) -> bool:
        if [part.size for part in first] != [part.size for part in second]:
            return False
        for a, b in zip(first, second, strict=True):
            self.axes.join(a, b, cause)
        return True

    def _pin(self, values: Iterable[Value], reason: str) -> None:
        for value in values:
            self.axes.pin(value.parts if value else (), reason)

    # Activations

    def _activate(self, site: Site, node: Node) -> Value:
        value, ratio, multiple = self._values[node.inputs[0]], self._new.feature_factor / site.factor, self._new.width_multiple
        if site.pair:  # a GLU, which knows its dimension
            dim: Any = node.argument(1, "dim", -1) if site.module is None else site.module.dim
            self.dims[site] = _negative(dim, node)
            if ratio == 1 and value is None:
                return None
            if value is not None and (value.dim != self.dims[site] or len(value.parts) > 1):
                self.refusals[site] = "it does not multiply two halves of the channels of one layer"
                return value
        if ratio == multiple == 1:
            self.dims.setdefault(site, value.dim if value else -1)
            return value
        if value is None:
            self.refusals[site] = "its input does not come from a layer, so its channels are not known"
        elif value.times > 1 and multiple > 1:
            self.refusals[site] = "it acts after a flatten, where neighbors are positions, not channels"
        elif self.dims.setdefault(site, value.dim) != value.dim:
            self.refusals[site] = "it is called on tensors with their channels along different dimensions"
        else:
            return value._replace(parts=tuple(self._link(site, part, ratio, multiple) for part in value.parts))
        return value

    def _gate(self, site: Site, node: Node) -> Value:
        """Link a product, or a gate that has replaced one, as a gate over both factors."""
        values = [value for value in map(self._values.get, node.inputs) if value is not None]
        reason = ""
        if len(values) < 2 or any(len(value.parts) > 1 for value in values):
            reason = "one factor is not the output of a layer"
        elif values[0].dim != values[1].dim or values[0].times > 1:
            reason = "the factors have their channels along different dimensions"
        elif not self._tie(values[0].parts, values[1].parts, self._describe(node)):
            reason = "one factor is broadcast"
        if reason:
            self.refusals[site] = reason
            return None
        self.dims[site] = values[0].dim
        ratio = 2 * self._new.feature_factor / site.factor
        after = self._link(site, values[0].parts[0], ratio, lcm(self._new.width_multiple, 2) // 2)
        return Channels((after,), values[0].dim)

    def _link(self, site: Site, before: Part, ratio: Fraction, multiple: int) -> Part:
        size = int(before.size * site.factor)
        after = self.axes.derive(before, size) if ratio == 1 else self.axes.new(size)
        self.axes.demand([before], multiple)
        self.links.append(Link(site, before, after, ratio))
        return after

    # Functions and methods

    def _elementwise(self, node: Node) -> Value:
        """All operands have the same channels, except broadcast ones."""
        inputs = {each: self._values[each] for each in node.inputs}
        values = [each for each in inputs.values() if each is not None]
        if not values:
            return None
        result = max(values, key=lambda value: value.size)
        shapes = [other.shape for other, each in inputs.items() if each is None]
        if any(len(shape) >= -result.dim and shape[result.dim] != 1 for shape in shapes):
            self._pin(values, f"the operand of {node.name} that is not a layer's output")
        for value in values:
            if value.dim != result.dim or not self._tie(result.parts, value.parts, self._describe(node)):
                broadcast = value.dim == result.dim and value.size == 1
                self._pin([value] if broadcast else values, f"the call of {node.name} with unlike operands")
        return result

    def _concatenate(self, node: Node) -> Value:
        values = [self._values[each] for each in node.inputs]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values) or len({(value.dim, value.times) for value in known}) > 1:
            raise _NotFollowedError
        if _negative(node.argument(1, "dim", 0), node) == known[0].dim:
            return known[0]._replace(parts=tuple(part for value in known for part in value.parts))
        if not all(self._tie(known[0].parts, value.parts, self._describe(node)) for value in known):
            raise _NotFollowedError
        return known[0]

    def _move(self, node: Node, value: Channels) -> Value:
        """Follow the channels through a reshape, slice or mean, by applying it to a tensor that holds their numbers."""
        spans = self._spans(node, value, 1)
        if not spans:
            raise _NotFollowedError
        free = [span and (span[0], 2 * span[1], span[2]) for span in spans] == self._spans(node, value, 2)
        pieces = [self._piece(value, span) for span in spans]
        if not free:  # the number of channels is written in the code
            self._pin([value], self._describe(node))
        self._pieces[node] = pieces
        return pieces[0] if node.shape else value

    def _spans(self, node: Node, value: Channels, factor: int) -> list[Span | None]:
        """Return where the results have the channels, if there were ``factor`` times as many; nothing if that fails."""
        shape = list(node.inputs[0].shape)
        shape[value.dim] *= factor
        numbers = torch.arange(shape[value.dim]).div(value.times, rounding_mode="floor").double()
        marked = numbers.view(-1, *[1] * (-1 - value.dim)).expand(shape).contiguous()
        function, args, kwargs = cast(tuple[Any, Any, Any], node.call)
        try:
            result = function(marked, *args[1:], **kwargs)
            return [_span(piece) for piece in ([result] if isinstance(result, Tensor) else result)]
        except (IndexError, RuntimeError, TypeError, _NotFollowedError):
            return []

    def _piece(self, value: Channels, span: Span | None) -> Value:
        if span is None:
            return None
        dim, length, times = span
        if length * value.times == value.size * times:
            return Channels(value.parts, dim, times)
        if value.times * times * len(value.parts) > 1:
            raise _NotFollowedError
        return Channels((self.axes.derive(value.parts[0], length),), dim)


def _span(marked: Tensor) -> Span | None:
    """Return where a tensor holds increasing numbers, along the last of its dimensions that do; None if it has one number."""
    dim = next((dim for dim in range(-1, -1 - marked.dim(), -1) if marked.diff(dim=dim).any()), None)
    if dim is None:
        return None
    numbers = marked.movedim(dim, -1).reshape(-1, marked.shape[dim])
    times = int((numbers[0] == numbers[0, 0]).sum())
    if not torch.equal(numbers, numbers[:, :1] + torch.arange(marked.shape[dim]) // times):
        raise _NotFollowedError
    return dim, marked.shape[dim], times


def _negative(dim: int, node: Node) -> int:
    return dim if dim < 0 else dim - len(node.shape)


def split_source(node: Node) -> Node | None:
    """Return the node of which ``node`` is a piece: a chunk, a split, a slice."""
    is_slice = node.place is not None and node.name in ("getitem", "select")
    is_piece = node.place is None and any(source.name in _SPLITS for source in node.inputs)
    return node.inputs[0] if is_slice or is_piece else None


_SPLITS = ("chunk", "split", "unbind")
_POINTWISE = (nn.Identity, nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.modules.dropout._DropoutNd, Pointwise, *TABLE.values())
_SPATIAL = re.compile(r"[a-z]*(?:pool|pad)([123])d|interpolate|upsamp[a-z]*(?:2d)?")
_ARITHMETIC = "add iadd sub isub mul imul div truediv floordiv pow neg abs exp log log1p sqrt rsqrt square reciprocal sign"
_COMPARISON = "lt gt le ge eq ne where maximum minimum clamp clamp_min clamp_max masked_fill nan_to_num lerp erf sin cos"
_RANDOM = "softmax log_softmax normalize dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"
_COPY = "contiguous clone detach data float double half bfloat16 to type_as"
_ELEMENTWISE = POINTWISE_NAMES.union(f"{_ARITHMETIC} {_COMPARISON} {_RANDOM} {_COPY}".split())
_MOVES = {
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "movedim", "expand"),
    *(*_SPLITS, "mean", "amax", "amin", "select", "narrow", "getitem", "roll", "flip"),
}
