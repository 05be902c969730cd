"""A walk through the graph: which channels every tensor has, and what fixes or ties them."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from math import lcm

from torch import Tensor, fx, nn

from boolit.nn.conversion.constraints import ActivationLink, ChannelPart, ChannelTensor, LayerWidth, Opaque, WidthConstraints
from boolit.nn.conversion.layers import CHANNEL_NORMS, CONVOLUTIONS, FEATURE_NORMS, is_linear, widths
from boolit.nn.conversion.operations import Result, call_linear, flatten_channels, keep_left_of, operate, view
from boolit.nn.conversion.sites import POINTWISE_CLASSES, TRANSFORMER_LAYERS, Site, child
from boolit.nn.gates import Activation

_SAME = (nn.Identity, nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.modules.dropout._DropoutNd, *POINTWISE_CLASSES)
_SPATIAL = re.compile(r"\w+(?:Pool|Pad)(?P<dims>[123])d$")


Gated = Mapping[fx.Node, Site]


class Propagation:
    """One walk, for one set of activations to convert.

    ``gated`` has the products that are to become gates of two, with the activation each has on one side. With ``widen`` a
    depthwise layer after an activation that lost channels gives them back, by several filters per channel; ``apart`` says that
    channels before and after an activation change apart even where their numbers do not.
    """

    def __init__(
        self, model: nn.Module, sites: Collection[Site], new: Activation, gated: Gated, widen: bool, apart: bool
    ) -> None:
        self.constraints, self._new, self._gated, self._widen, self._apart = WidthConstraints(model), new, gated, widen, apart
        self._sites = {node: site for site in sites for node in site.nodes}
        self.ungated: set[Site] = set()
        self._results: dict[fx.Node, Result] = {}
        self._before: dict[int, ChannelPart] = {}
        for site in sites:
            self.constraints.dims[site] = -1
            if not site.nodes and site.module is None:
                self._transformer_layer(site)

    def walk(self, graph: fx.Graph) -> None:
        """Understands every node in turn."""
        for node in graph.nodes:
            self._results[node] = self._check(node, self._result(node))

    def _check(self, node: fx.Node, result: Result) -> Result:
        """Holds what is believed against the shape that was seen."""
        shape = node.meta.get("shape")
        if shape is None or not isinstance(result, ChannelTensor) or node in self._gated or node in self._sites:
            return result
        if len(shape) >= -result.dim and (shape[result.dim] == result.size or result.flat):
            return result._replace(rank=len(shape))
        self.constraints.pin([result], f"the call of {node.target}")
        return Opaque.TENSOR

    def _result(self, node: fx.Node) -> Result:
        if node in self._gated:
            return self._gate(self._gated[node], node)
        if node in self._sites:
            return self._activate(self._sites[node], self._input(node))
        if node.op == "call_module":
            return self._call(node, str(node.target), self.constraints.model.get_submodule(str(node.target)))
        if node.op == "get_attr":
            stored = operator.attrgetter(str(node.target))(self.constraints.model)
            return Opaque.NUMBER if isinstance(stored, Tensor) and stored.numel() <= 1 else Opaque.TENSOR
        if node.op == "output":
            self.constraints.pin((self._results[each] for each in node.all_input_nodes), "the model's output")
        if node.op == "placeholder" and node.meta.get("shape") == ():
            return Opaque.NUMBER
        if node.op in ("output", "placeholder"):
            return Opaque.TENSOR
        return operate(self.constraints, node, self._results)

    def _input(self, node: fx.Node) -> Result:
        return self._results[node.all_input_nodes[0]] if node.all_input_nodes else Opaque.TENSOR

    def _call(self, node: fx.Node, name: str, module: nn.Module) -> Result:
        value = self._input(node)
        spatial = _SPATIAL.match(type(module).__name__)
        if is_linear(module):
            return call_linear(self.constraints, name, module, value)
        if isinstance(module, CONVOLUTIONS):
            return self._convolution(name, module, value)
        if isinstance(module, (*CHANNEL_NORMS, *FEATURE_NORMS)):
            return self._normalise(name, module, value)
        if isinstance(module, Activation):
            return self._existing(name, module, value)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return ChannelTensor((self.constraints.axes.new(module.embedding_dim, pin=f"the embedding {name}"),), -1)
        if isinstance(module, _SAME):
            return value
        found: Result | None = None
        if isinstance(module, nn.Flatten) and isinstance(value, ChannelTensor):
            to_the_end = flatten_channels(value, module.start_dim) if module.end_dim == -1 else None
            found = view(self.constraints, node, value) if "shape" in node.meta else to_the_end
        elif spatial or isinstance(module, nn.Upsample):
            found = keep_left_of(int(spatial["dims"]) if spatial else 1, value)
        return found or self._fix(name, module, node)

    def _fix(self, name: str, module: nn.Module, node: fx.Node) -> Result:
        values = [self._results[each] for each in node.all_input_nodes]
        self.constraints.pin(values, f"the {type(module).__name__} {name}")
        return Opaque.TENSOR

    def _convolution(self, name: str, layer: nn.Module, value: Result) -> Result:
        inside, outside, groups = widths(layer).values()
        spatial = len(layer.kernel_size)  # type: ignore[arg-type]
        read = self.constraints.read_channels(name, "in_channels", value, -1 - spatial, inside)
        if groups == inside > 1:
            sources = [self._before.get(part.axis, part) if self._widen else part for part in read]
            pairs = zip(sources, read, strict=True)
            made = tuple(self.constraints.axes.derive(source, part.size * outside // inside) for source, part in pairs)
            self.constraints.use(name, "groups", LayerWidth(read))
            self.constraints.use(name, "out_channels", LayerWidth(made))
        else:
            made = self.constraints.make_channels(name, "out_channels", outside)
            self.constraints.axes.demand((*read, *made), groups)
        return ChannelTensor(made, -1 - spatial, spatial + 2)

    def _normalise(self, name: str, layer: nn.Module, value: Result) -> Result:
        ((attribute, width),) = widths(layer).items()
        several = isinstance(layer, FEATURE_NORMS) and len(layer.normalized_shape) > 1
        dim = _norm_dim(layer, value)
        if isinstance(value, ChannelTensor) and several:
            self.constraints.pin([value], name)
        if several or (isinstance(layer, nn.PReLU) and width == 1):
            return value
        if dim is None or (isinstance(value, ChannelTensor) and value.dim != dim):
            return value
        parts = self.constraints.read_channels(name, attribute, value, dim, width)
        if isinstance(layer, nn.GroupNorm):
            self.constraints.axes.demand(parts, layer.num_groups)
        return value._replace(norm=name) if isinstance(value, ChannelTensor) else ChannelTensor(parts, dim, norm=name)

    def _existing(self, name: str, module: Activation, value: Result) -> Result:
        if module.map == (1, 1) or not isinstance(value, ChannelTensor):
            return value
        along = -1 if module.dim is None else module.dim
        dim = along if along < 0 else along - (value.rank or 2)
        if dim != value.dim or any(part.size % module.divisor for part in value.parts):
            self.constraints.pin([value], f"the activation {name}")
            return Opaque.TENSOR
        self.constraints.axes.demand(value.parts, module.divisor)
        parts = (self.constraints.axes.derive(part, int(part.size * module.feature_factor)) for part in value.parts)
        return value._replace(parts=tuple(parts))

    def _activate(self, site: Site, value: Result) -> Result:
        ratio, group = self._new.feature_factor / site.factor, self._new.divisor
        if isinstance(value, ChannelTensor):
            if site in self.constraints.widths and self.constraints.dims[site] != value.dim:
                self.constraints.refusals[site] = "it is called on tensors with their channels along different dimensions"
            self.constraints.dims[site], self.constraints.widths[site] = value.dim, value.size
        if ratio == group == 1 or site in self._gated.values():
            return value
        if not isinstance(value, ChannelTensor):
            self.constraints.refusals[site] = "its input does not come from a layer, so its channels are not known"
        elif value.flat and group > 1:
            self.constraints.refusals[site] = "it acts after a flatten, where neighbours are positions, not channels"
        else:
            parts = tuple(self._link(site, part, ratio, value.norm) for part in value.parts)
            self.constraints.several |= {site} if len(parts) > 1 else set()
            return value._replace(parts=parts, norm="")
        return value

    def _gate(self, site: Site, node: fx.Node) -> Result:
        """The product of an activation and another layer's output, as one gate of both."""
        values = [value for value in map(self._results.get, node.all_input_nodes) if isinstance(value, ChannelTensor)]
        one, other = values[0] if values else None, values[-1] if len(values) == 2 else None
        if not one or not other or one[1:4] != other[1:4] or one.flat or len({*one.parts, *other.parts}) != 2:
            self.ungated.add(site)
            return Opaque.TENSOR
        self.constraints.tie(one.parts, other.parts)
        self.constraints.dims[site], (part,) = one.dim, one.parts
        self.constraints.axes.demand([part], lcm(self._new.divisor, 2) // 2)
        after = self.constraints.axes.new(part.size)
        self.constraints.links.append(ActivationLink(site, part, after, 2 * self._new.feature_factor))
        return one._replace(parts=(after,))

    def _link(self, site: Site, before: ChannelPart, ratio: Fraction, norm: str = "") -> ChannelPart:
        size = int(before.size * site.factor)
        same = ratio == 1 and not self._apart
        after = self.constraints.axes.derive(before, size) if same else self.constraints.axes.new(size)
        if not same and before.size == size and ratio != 1 == (1 / ratio).denominator:
            self._before[after.axis] = before
        self.constraints.axes.demand([before], self._new.divisor)
        self.constraints.links.append(ActivationLink(site, before, after, ratio, norm))
        return after

    def _transformer_layer(self, site: Site) -> None:
        """The feed-forward part of a layer of torch's, which a trace does not go into."""
        parent = site.name.rpartition(".")[0]
        layer = self.constraints.model.get_submodule(parent)
        assert isinstance(layer, TRANSFORMER_LAYERS)
        (before,) = self.constraints.make_channels(child(parent, "linear1"), "out_features", layer.linear1.out_features)
        after = LayerWidth((self._link(site, before, self._new.feature_factor),))
        self.constraints.use(child(parent, "linear2"), "in_features", after)


def _norm_dim(layer: nn.Module, value: Result) -> int | None:
    """The dimension a normalisation has its parameters along, counted from the end, where that can be told."""
    if isinstance(layer, FEATURE_NORMS):
        return -1
    if isinstance(value, ChannelTensor):
        return 1 - value.rank if value.rank else -1
    named = re.search(r"(?P<dims>[23])d$", type(layer).__name__)
    return -1 - int(named["dims"]) if named else None
