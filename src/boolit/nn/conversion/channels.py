"""Which channels every tensor of a traced model has, and which widths must change together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from math import lcm, prod
from typing import Any, NamedTuple

from torch import fx, nn

from boolit.nn.conversion.layers import CHANNEL_NORMS, CONVOLUTIONS, FEATURE_NORMS, is_linear, unresizable, widths
from boolit.nn.conversion.sites import POINTWISE_CLASSES, POINTWISE_NAMES, Site, owner
from boolit.nn.gates import Activation


class Part(NamedTuple):
    """Channels along an axis: ``size`` is their number before the conversion."""

    axis: int
    size: int


Parts = tuple[Part, ...]


class Channels(NamedTuple):
    """A tensor whose channels are known: they lie along ``dim`` (negative), in parts that were concatenated.

    ``flat`` is set if each channel stands for all its positions, as after a flatten: ``channels`` if the positions of a
    channel are adjacent, ``positions`` if the channels of a position are, else ``mixed``. ``norm`` is the layer that has
    just normalized the tensor, ``depthwise`` the depthwise convolution it passed since the last activation.
    """

    parts: Parts
    dim: int
    flat: str = ""
    norm: str = ""
    depthwise: str = ""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class Opaque(Enum):
    """A tensor without known channels."""

    TENSOR = 0


Value = Channels | Opaque


class LayerWidth(NamedTuple):
    """A width of a layer: ``times`` the channels of its parts."""

    parts: Parts
    times: int = 1
    order: str = "channels"

    @property
    def size(self) -> int:
        return self.times * sum(part.size for part in self.parts)


class ReshapeLiteral(NamedTuple):
    """A width written in the code of a reshape: ``x.view(-1, 400)`` has one at position -1."""

    node: fx.Node
    position: int
    use: LayerWidth


class Link(NamedTuple):
    """A converted activation between two axes; the factor of the second is ``ratio`` times that of the first."""

    site: Site
    before: Part
    after: Part
    ratio: Fraction
    norm: str
    depthwise: str


class Axes:
    """A union-find over axes. All sizes of a class change by one factor."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._joins: dict[int, list[tuple[int, str]]] = {}
        self.multiples: list[dict[int, int]] = []  # for each size of a class, what it must be a multiple of
        self.pins: list[str | None] = []  # what fixes a class

    def new(self, size: int, pin: str | None = None) -> Part:
        self._parent.append(len(self._parent))
        self.multiples.append({size: 1})
        self.pins.append(pin)
        return Part(len(self._parent) - 1, size)

    def root(self, axis: int) -> int:
        while self._parent[axis] != axis:
            self._parent[axis] = self._parent[self._parent[axis]]
            axis = self._parent[axis]
        return axis

    def join(self, first: Part, second: Part, cause: str) -> None:
        """Make both change by the same factor."""
        kept, merged = self.root(first.axis), self.root(second.axis)
        if kept == merged:
            return
        for axis, other in ((first.axis, second.axis), (second.axis, first.axis)):
            self._joins.setdefault(axis, []).append((other, cause))
        self._parent[merged] = kept
        for size, multiple in self.multiples[merged].items():
            self._demand(kept, size, multiple)
        self.pins[kept] = self.pins[kept] or self.pins[merged]

    def cause(self, start: int, end: int) -> str:
        """Return what joined two axes, nearest to ``start`` if there were several joins; empty for the same axis."""
        reached, queue = {start: ""}, [start]
        for axis in queue:
            for other, cause in self._joins.get(axis, ()):
                if other not in reached:
                    reached[other] = reached[axis] or cause
                    queue.append(other)
        return reached.get(end, "")

    def derive(self, part: Part, size: int) -> Part:
        """Return another number of channels that change by the same factor as ``part``."""
        self._demand(self.root(part.axis), size, 1)
        return Part(part.axis, size)

    def demand(self, parts: Iterable[Part], multiple: int) -> None:
        """Require that the new size of each part is a multiple."""
        for part in parts:
            self._demand(self.root(part.axis), part.size, multiple)

    def pin(self, parts: Iterable[Part], reason: str) -> None:
        """Require that the parts keep their sizes."""
        for part in parts:
            root = self.root(part.axis)
            self.pins[root] = self.pins[root] or reason

    def _demand(self, root: int, size: int, multiple: int) -> None:
        self.multiples[root][size] = lcm(multiple, self.multiples[root].get(size, 1))


class ChannelAnalysis:
    """The channels of every tensor in a graph, given the activations to convert.

    Args:
        model: the traced model.
        sites: the activations to convert.
        new: the new activation.
        products: products to be replaced by a gate over both factors, with the activation on one side.
        widen: depthwise layers that give back the channels lost by the activation before them.
        separate: whether channels before and after an activation change separately even if their number stays.
    """

    def __init__(
        self,
        model: nn.Module,
        sites: Collection[Site],
        new: Activation,
        products: Mapping[fx.Node, Site],
        widen: Collection[str] = (),
        separate: bool = False,
    ) -> None:
        self.model, self._new, self._products, self._widen, self._separate = model, new, products, widen, separate
        self.axes = Axes()
        self.layer_widths: dict[tuple[str, str], LayerWidth] = {}
        self.literals: list[ReshapeLiteral] = []
        self.links: list[Link] = []
        self.dims: dict[Site, int] = dict.fromkeys(sites, -1)
        self.widths: dict[Site, int] = {}
        self.concatenated: set[Site] = set()
        self.refusals: dict[Site, str] = {}
        self.kept_products: dict[Site, str] = {}
        self.flops: Counter[str] = Counter()  # of each layer, per element of its weight
        self._sites = {node: site for site in sites for node in site.nodes}
        self._values: dict[fx.Node, Value] = {}
        self._read_by: dict[int, Part] = {}  # the channels that an activation read, by the axis it made
        self._unresizable = unresizable(model)

    def walk(self, graph: fx.Graph) -> None:
        """Analyze every node in order."""
        for node in graph.nodes:
            value, shape = self._value(node), node.meta.get("shape")
            if isinstance(value, Channels) and shape is not None:
                fits = len(shape) >= -value.dim and (shape[value.dim] == value.size or bool(value.flat))
                if not fits:
                    self._pin([value], f"the call of {node.target}")
                    value = Opaque.TENSOR
            self._values[node] = value

    def chained(self) -> set[str]:
        """Return the depthwise layers between two converted activations that change the width."""
        made = {self.axes.root(link.after.axis) for link in self.links if link.ratio != 1}
        return {link.depthwise for link in self.links if self.axes.root(link.before.axis) in made} - {""}

    def _value(self, node: fx.Node) -> Value:
        if node in self._products:
            return self._gate(self._products[node], node)
        if node in self._sites:
            site = self._sites[node]
            return self._gate(site, node) if site.pair == "product" else self._activate(site, node)
        if node.op == "call_module":
            return self._call(node, str(node.target), self.model.get_submodule(str(node.target)))
        if node.op == "output":
            self._pin((self._values[each] for each in node.all_input_nodes), "the model's output")
        if node.op not in ("call_method", "call_function"):
            return Opaque.TENSOR
        return self._operate(node)

    def _input(self, node: fx.Node) -> Value:
        return self._values[node.all_input_nodes[0]] if node.all_input_nodes else Opaque.TENSOR

    # Layers

    def _call(self, node: fx.Node, name: str, module: nn.Module) -> Value:
        value = self._input(node)
        spatial = re.match(r"\w+(?:Pool|Pad)([123])d$", type(module).__name__)
        result: Value | None = None
        if is_linear(module):
            return self._linear(node, name, module, value)
        if isinstance(module, CONVOLUTIONS):
            return self._convolution(node, name, module, value)
        if isinstance(module, (*CHANNEL_NORMS, *FEATURE_NORMS)):
            return self._normalize(node, name, module, value)
        if isinstance(module, Activation):
            return self._existing(node, name, module, value)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return Channels((self.axes.new(module.embedding_dim, pin=f"the embedding {name}"),), -1)
        if isinstance(module, _POINTWISE):
            return value
        if isinstance(module, (nn.Flatten, nn.Unflatten)) and isinstance(value, Channels):
            result = self._reshape(node, value)
        elif spatial or isinstance(module, nn.Upsample):
            result = _left_of(int(spatial[1]) if spatial else 1, value)
        if result is None:
            self._pin((self._values[each] for each in node.all_input_nodes), f"the {type(module).__name__} {name}")
        return result or Opaque.TENSOR

    def _linear(self, node: fx.Node, path: str, layer: nn.Module, value: Value) -> Channels:
        inputs, outputs = widths(layer).values()
        self.flops[path] += 2 * prod(node.meta["shape"][:-1])
        self._read(path, "in_features", value, -1, inputs)
        return Channels(self._make(path, "out_features", outputs), -1)

    def _convolution(self, node: fx.Node, name: str, layer: nn.Module, value: Value) -> Channels:
        inputs, outputs, groups = widths(layer).values()
        dim = -1 - len(layer.kernel_size)  # type: ignore[arg-type]
        counted = node.all_input_nodes[0] if isinstance(layer, nn.modules.conv._ConvTransposeNd) else node
        shape = counted.meta["shape"]
        self.flops[name] += 2 * prod(shape) // shape[dim]
        read = self._read(name, "in_channels", value, dim, inputs)
        if groups == inputs > 1:
            sources = [self._read_by.get(part.axis, part) if name in self._widen else part for part in read]
            pairs = zip(sources, read, strict=True)
            made = tuple(self.axes.derive(source, part.size * outputs // inputs) for source, part in pairs)
            self._use(name, "groups", LayerWidth(read))
            self._use(name, "out_channels", LayerWidth(made))
            return Channels(made, dim, depthwise=name)
        made = self._make(name, "out_channels", outputs)
        self.axes.demand((*read, *made), groups)
        return Channels(made, dim)

    def _normalize(self, node: fx.Node, name: str, layer: nn.Module, value: Value) -> Value:
        ((attribute, width),) = widths(layer).items()
        if isinstance(layer, FEATURE_NORMS) and len(layer.normalized_shape) > 1:
            self._pin([value], name)
            return value
        dim = -1 if isinstance(layer, FEATURE_NORMS) else 1 - len(node.meta["shape"])
        if (isinstance(layer, nn.PReLU) and width == 1) or (isinstance(value, Channels) and value.dim != dim):
            return value
        parts = self._read(name, attribute, value, dim, width)
        if isinstance(layer, nn.GroupNorm):
            self.axes.demand(parts, layer.num_groups)
        return value._replace(norm=name) if isinstance(value, Channels) else Channels(parts, dim, norm=name)

    def _existing(self, node: fx.Node, name: str, module: Activation, value: Value) -> Value:
        if module.channels == (1, 1) or not isinstance(value, Channels):
            return value
        given: Any = module.dim
        dim = -1 if given is None else given if given < 0 else given - len(node.meta["shape"])
        if dim != value.dim or any(part.size % module.width_multiple for part in value.parts):
            self._pin([value], f"the activation {name}")
            return Opaque.TENSOR
        self.axes.demand(value.parts, module.width_multiple)
        parts = (self.axes.derive(part, int(part.size * module.feature_factor)) for part in value.parts)
        return value._replace(parts=tuple(parts))

    def _read(self, layer: str, attribute: str, value: Value, dim: int, size: int) -> Parts:
        """Return the channels that a layer reads along ``dim``; a width that does not fit is fixed."""
        if isinstance(value, Channels) and value.dim == dim and size % value.size == 0:
            times = size // value.size
            if times == 1 or value.flat:
                return self._use(layer, attribute, LayerWidth(value.parts, times, value.flat or "channels"))
        self._pin([value], layer)
        return self._use(layer, attribute, LayerWidth((self.axes.new(size, pin=f"what enters {layer}"),)))

    def _make(self, layer: str, attribute: str, size: int) -> Parts:
        known = self.layer_widths.get((layer, attribute))
        return known.parts if known else self._use(layer, attribute, LayerWidth((self.axes.new(size),)))

    def _use(self, layer: str, attribute: str, use: LayerWidth) -> Parts:
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
            if isinstance(value, Channels):
                self.axes.pin(value.parts, reason)

    # Activations

    def _activate(self, site: Site, node: fx.Node) -> Value:
        value, ratio, group = self._input(node), self._new.feature_factor / site.factor, self._new.width_multiple
        if site.pair:  # a GLU, which knows its dimension
            module: Any = self.model.get_submodule(site.module) if site.module else None
            dim = _argument(node, 1, "dim", -1) if module is None else getattr(module, "gate", module).dim
            self.dims[site] = dim if dim < 0 else dim - len(node.meta["shape"])
            if ratio == 1 and not isinstance(value, Channels):
                return value
            if isinstance(value, Channels) and (value.dim != self.dims[site] or len(value.parts) > 1):
                self.refusals[site] = "it does not multiply two halves of the channels of one layer"
                return value
        if isinstance(value, Channels):
            if site in self.widths and self.dims[site] != value.dim:
                self.refusals[site] = "it is called on tensors with their channels along different dimensions"
            self.dims[site], self.widths[site] = value.dim, value.size
        if ratio == group == 1 or site in self._products.values():
            return value
        if not isinstance(value, Channels):
            self.refusals[site] = "its input does not come from a layer, so its channels are not known"
        elif value.flat and group > 1:
            self.refusals[site] = "it acts after a flatten, where neighbors are positions, not channels"
        else:
            parts = tuple(self._link(site, part, ratio, group, value.norm, value.depthwise) for part in value.parts)
            self.concatenated |= {site} if len(parts) > 1 else set()
            return value._replace(parts=parts, norm="", depthwise="")
        return value

    def _gate(self, site: Site, node: fx.Node) -> Value:
        """Link a product, or a gate that has replaced one, as a gate over both factors."""
        values = [value for value in map(self._values.get, node.all_input_nodes) if isinstance(value, Channels)]
        first, second = (values[0], values[-1]) if values else (None, None)
        reason = ""
        if first is None or second is None or len(values) < 2 or any(len(value.parts) > 1 for value in values):
            reason = "one factor is not the output of a layer"
        elif (first.dim, first.flat) != (second.dim, ""):
            reason = "the factors have their channels along different dimensions"
        elif not self._tie(first.parts, second.parts, self._describe(node)):
            reason = "one factor is broadcast"
        if first is None or reason:
            (self.refusals if site.pair else self.kept_products)[site] = reason
            return Opaque.TENSOR
        self.dims[site], self.widths[site], (part,) = first.dim, first.size, first.parts
        ratio = 2 * self._new.feature_factor / site.factor
        after = self._link(site, part, ratio, lcm(self._new.width_multiple, 2) // 2)
        return Channels((after,), first.dim)

    def _link(self, site: Site, before: Part, ratio: Fraction, multiple: int, norm: str = "", depthwise: str = "") -> Part:
        size = int(before.size * site.factor)
        same = ratio == 1 and not self._separate
        after = self.axes.derive(before, size) if same else self.axes.new(size)
        if not same and before.size == size and ratio != 1 == (1 / ratio).denominator:
            self._read_by[after.axis] = before
        self.axes.demand([before], multiple)
        self.links.append(Link(site, before, after, ratio, norm, depthwise))
        return after

    # Functions and methods

    def _operate(self, node: fx.Node) -> Value:
        name = str(node.target) if node.op == "call_method" else "getitem"
        value, result = self._input(node), None
        if name in _ELEMENTWISE:
            return self._elementwise(node)
        if name in ("to", "type_as"):
            return value
        if name in ("cat", "concat", "concatenate"):
            result = self._concatenate(node)
        elif name == "linear":
            result = self._functional_linear(node, value)
        elif isinstance(value, Channels):
            pooled = re.match(r"((adaptive_)?(max|avg|lp)_pool([123])d|interpolate)$", name)
            rule: Callable[[ChannelAnalysis, fx.Node, Channels], Value | None] | None = _RULES.get(name)
            result = _left_of(int(pooled[4] or 1), value) if pooled else rule(self, node, value) if rule else None
        if result is None:
            self._pin((self._values[each] for each in node.all_input_nodes), _call_text(node, name))
        return result or Opaque.TENSOR

    def _describe(self, node: fx.Node) -> str:
        words = {"add": "sum", "sub": "difference", "mul": "product", "div": "quotient", "truediv": "quotient"}
        return f"the {words.get(str(node.target), node.target)} in {owner(node) or type(self.model).__name__}"

    def _elementwise(self, node: fx.Node) -> Value:
        """All operands have the same channels, except broadcast ones."""
        inputs = {each: self._values[each] for each in node.all_input_nodes}
        values = [each for each in inputs.values() if isinstance(each, Channels)]
        if not values:
            return Opaque.TENSOR
        result = max(values, key=lambda value: value.size)
        shapes = [other.meta.get("shape") for other, each in inputs.items() if each is Opaque.TENSOR]
        if any(shape is None or (len(shape) >= -result.dim and shape[result.dim] != 1) for shape in shapes):
            self._pin(values, f"the operand of {node.target} that is not a layer's output")
        for value in values:
            if value.dim != result.dim or not self._tie(result.parts, value.parts, self._describe(node)):
                broadcast = value.dim == result.dim and value.size == 1
                self._pin([value] if broadcast else values, f"the call of {node.target} with unlike operands")
        return result if len(values) == 1 else result._replace(norm="", depthwise="")

    def _concatenate(self, node: fx.Node) -> Value | None:
        values = [self._values.get(each) for each in _argument(node, 0, "tensors", ())]
        known = [value for value in values if isinstance(value, Channels)]
        if not known or len(known) < len(values) or len({value.dim for value in known}) > 1:
            return None
        first, dim = known[0], _argument(node, 1, "dim", 0)
        if (dim if dim < 0 else dim - len(node.meta["shape"])) == first.dim:
            flat = "mixed" if any(value.flat == "positions" for value in known) else first.flat
            return first._replace(parts=tuple(part for value in known for part in value.parts), flat=flat, norm="")
        return first if all(self._tie(first.parts, value.parts, self._describe(node)) for value in known) else None

    def _functional_linear(self, node: fx.Node, value: Value) -> Value | None:
        """Treat ``F.linear`` with the parameters of a layer, as called by its subclasses, as that layer."""
        weight, bias = (_argument(node, i, name, None) for i, name in ((1, "weight"), (2, "bias")))
        path = str(getattr(weight, "target", "")).removesuffix(".weight")
        layer = dict(self.model.named_modules()).get(path) if getattr(weight, "op", "") == "get_attr" else None
        if layer is None or not is_linear(layer):
            return None
        expected = f"{path}.bias" if layer._parameters.get("bias") is not None else None
        return self._linear(node, path, layer, value) if getattr(bias, "target", None) == expected else None

    def _reshape(self, node: fx.Node, value: Channels) -> Value | None:
        """Follow channels that stay, merge with positions, or are split into groups of a fixed size."""
        before, after = node.all_input_nodes[0].meta["shape"], node.meta["shape"]
        result = _regroup(value, before, after)
        if result is None or result.size != value.size:
            self._pin([value], _call_text(node, str(node.target)))
            return result and result._replace(parts=(self.axes.derive(value.parts[0], result.size),))
        if node.op == "call_method" and node.target in ("view", "reshape"):
            shape: Any = node.args[-1] if isinstance(node.args[-1], (list, tuple)) else node.args[1:]
            if shape[result.dim] != -1:
                use = LayerWidth(value.parts, after[result.dim] // value.size)
                self.literals.append(ReshapeLiteral(node, result.dim, use))
        return result

    def _permute(self, node: fx.Node, value: Channels) -> Value | None:
        rank = len(node.meta["shape"])
        if node.target == "permute":
            dims: Any = _argument(node, 1, "dims", ())
            dims = dims if isinstance(dims, (list, tuple)) else node.args[1:]
            order = [dim % rank for dim in dims]
        else:
            order = [*range(rank)]
            first, second = (_argument(node, i, f"dim{i - 1}", 0) for i in (1, 2))
            order[first], order[second] = order[second], order[first]
        return value._replace(dim=order.index(value.dim % rank) - rank)

    def _along(self, node: fx.Node, value: Channels) -> Value | None:
        """Operations along given dimensions: others than the channels', or reductions over the channels."""
        name, rank = str(node.target), len(node.all_input_nodes[0].meta["shape"])
        reduced = name in ("mean", "sum", "amax", "amin")
        place = 2 if name in ("roll", "repeat_interleave", *_SPLITS) and name != "unbind" else 1
        default = None if reduced or name == "roll" else 0
        given = _argument(node, place, "dims" if name in ("roll", "flip") else "dim", default)
        dims = [
            dim if dim is None or dim < 0 else dim - rank for dim in (given if isinstance(given, (list, tuple)) else [given])
        ]
        if reduced and (given is None or value.dim in dims):
            return Opaque.TENSOR
        if value.dim in dims and name in ("chunk", "split", "tensor_split", "narrow") and not value.flat:
            return self._slice(node, value, name)
        if None in dims or value.dim in dims:
            return None
        removed = name in ("select", "unbind") or (reduced and _argument(node, 2, "keepdim", False) is not True)
        return value._replace(dim=value.dim + sum(1 for dim in dims if removed and dim is not None and dim > value.dim))

    def _slice(self, node: fx.Node, value: Channels, name: str) -> Value | None:
        """Some of the channels. Their number is written in the code, unless they are equal chunks."""
        count = _argument(node, 1, "chunks", 0) if name == "chunk" else 0
        if len(value.parts) > 1:
            return None
        if not count or value.size % count:
            self.axes.pin(value.parts, _call_text(node, name))
        shape = node.meta.get("shape")
        size = shape[value.dim] if shape else value.size  # the pieces of a split are separate nodes
        return value._replace(parts=(self.axes.derive(value.parts[0], size),), norm="", depthwise="")

    def _getitem(self, node: fx.Node, value: Channels) -> Value | None:
        source, index = node.args
        assert isinstance(source, fx.Node)
        if node.op == "call_function":  # an item of a tuple, as a piece of a split
            if str(source.target) not in _SPLITS or len(value.parts) > 1:
                return value if str(source.target) in _SPLITS else None
            return value._replace(parts=(self.axes.derive(value.parts[0], node.meta["shape"][value.dim]),))
        items = index if isinstance(index, tuple) else (index,)
        rank = len(source.meta["shape"])
        used = sum(1 for item in items if item is not None and item is not ...)
        filled: list[Any] = [part for item in items for part in ([slice(None)] * (rank - used) if item is ... else [item])]
        filled += [slice(None)] * (rank - used if ... not in items else 0)
        place = [i for i, item in enumerate(filled) if item is not None][value.dim]
        several = sum(1 for item in filled if isinstance(item, fx.Node)) > 1
        taken = filled[place]
        if several or not isinstance(taken, slice) or any(isinstance(item, (fx.Node, list)) for item in filled[place:]):
            return None
        moved = value._replace(dim=-sum(1 for item in filled[place:] if not isinstance(item, int)))
        return moved if taken == slice(None) else None if value.flat else self._slice(node, moved, "getitem")


def _call_text(node: fx.Node, name: str) -> str:
    return f"the call of {name} in {owner(node)}" if owner(node) else f"the call of {name}"


def _left_of(dims: int, value: Value) -> Channels | None:
    """Channels stay if an operation acts on the last ``dims`` dimensions only."""
    return value if isinstance(value, Channels) and -value.dim > dims else None


def _regroup(value: Channels, before: tuple[int, ...], after: tuple[int, ...]) -> Channels | None:
    channel = len(before) + value.dim
    i = j = 0
    while i < len(before) and j < len(after):
        first, start = i, j
        left, right = before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left <= right and i < len(before):
                left, i = left * before[i], i + 1
            elif j < len(after):
                right, j = right * after[j], j + 1
            else:
                return None
        if first <= channel < i:
            places = [place for place in range(start, j) if after[place] != 1]
            if before[channel] == 1 or not places:
                return None
            if i - first == 1 and len(places) > 1 and not value.flat and len(value.parts) == 1:
                return value._replace(parts=(Part(-1, after[places[-1]]),), dim=places[-1] - len(after), norm="", depthwise="")
            if len(places) != 1:
                return None
            outer, inner = prod(before[first:channel]), prod(before[channel + 1 : i])
            order = ("channels" if outer == 1 else "positions" if inner == 1 else "mixed") if outer * inner > 1 else ""
            return value._replace(dim=places[0] - len(after), flat="mixed" if order and value.flat else order or value.flat)
    return None


def _argument(node: fx.Node, position: int, name: str, default: object) -> Any:
    """Return an argument given by position, by name or by NumPy's name."""
    if len(node.args) > position:
        return node.args[position]
    numpy_name = {"dim": "axis", "keepdim": "keepdims"}.get(name, name)
    return node.kwargs.get(name, node.kwargs.get(numpy_name, default))


def factors(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return the two factors of a product of tensors, or nothing."""
    inputs = tuple(node.all_input_nodes)
    return inputs if node.op == "call_method" and node.target == "mul" and len(inputs) == 2 else ()


def split_source(node: fx.Node) -> fx.Node | None:
    """Return the node of which ``node`` is a piece: a chunk, a split, a slice."""
    is_piece = node.op == "call_function" and str(node.args[0].target) in _SPLITS  # type: ignore[union-attr]
    is_slice = node.op == "call_method" and node.target in ("getitem", "narrow", "select")
    source = node.args[0] if is_piece or is_slice else None
    return source if isinstance(source, fx.Node) else None


_POINTWISE = (nn.Identity, nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.modules.dropout._DropoutNd, *POINTWISE_CLASSES)
_SPLITS = ("chunk", "split", "tensor_split", "unbind")
_ARITHMETIC = "add iadd sub isub mul imul div truediv floordiv pow neg abs exp log log1p sqrt rsqrt square reciprocal sign"
_COMPARISON = "lt gt le ge eq ne where maximum minimum clamp clamp_min clamp_max masked_fill nan_to_num lerp erf sin cos"
_RANDOM = "softmax log_softmax normalize dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"
_COPY = "contiguous clone detach data float double half bfloat16"
_ELEMENTWISE = POINTWISE_NAMES.union(f"{_ARITHMETIC} {_COMPARISON} {_RANDOM} {_COPY}".split())
_ALONG = ("mean", "sum", "amax", "amin", "roll", "flip", "narrow", "index_select", "select", "cumsum", "repeat_interleave")
_RULES: dict[str, Callable[[ChannelAnalysis, fx.Node, Channels], Value | None]] = {
    **dict.fromkeys((*_ALONG, *_SPLITS), ChannelAnalysis._along),
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"), ChannelAnalysis._reshape),
    **dict.fromkeys(("permute", "transpose", "swapaxes"), ChannelAnalysis._permute),
    "getitem": ChannelAnalysis._getitem,
    "pad": lambda _, node, value: _left_of(len(_argument(node, 1, "pad", ())) // 2, value),
}
