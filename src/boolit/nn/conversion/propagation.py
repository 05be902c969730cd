"""A walk through the graph: which channels every tensor has, and what fixes or ties them."""

from __future__ import annotations

import re
from collections.abc import Collection
from fractions import Fraction

from torch import Tensor, fx, nn

from boolit.nn.activations import Activation
from boolit.nn.conversion.constraints import ActivationLink, ChannelPart, ChannelTensor, LayerWidth, Opaque, WidthConstraints
from boolit.nn.conversion.layers import CHANNEL_NORMS, CONVOLUTIONS, FEATURE_NORMS, width_attributes, widths
from boolit.nn.conversion.operations import Result, flatten_channels, keep_left_of, operate
from boolit.nn.conversion.sites import POINTWISE_CLASSES, TRANSFORMER_LAYERS, Site, child

_SAME = (nn.Identity, nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.modules.dropout._DropoutNd, *POINTWISE_CLASSES)
_SPATIAL = re.compile(r"\w+(?:Pool|Pad)(?P<dims>[123])d$")


class Propagation:
    """One walk, for one set of activations to convert."""

    def __init__(self, model: nn.Module, sites: Collection[Site], new: Activation) -> None:
        self.constraints, self._new = WidthConstraints(model), new
        self._sites = {site.node: site for site in sites if site.node is not None}
        self._results: dict[fx.Node, Result] = {}
        for site in sites:
            self.constraints.dims[site] = -1
            if site.node is None and site.module is None:
                self._transformer_layer(site)

    def walk(self, graph: fx.Graph) -> None:
        """Understands every node in turn."""
        for node in graph.nodes:
            self._results[node] = self._result(node)

    def _result(self, node: fx.Node) -> Result:
        if node in self._sites:
            return self._activate(self._sites[node], self._input(node))
        if node.op == "call_module":
            return self._call(node, str(node.target), self.constraints.model.get_submodule(str(node.target)))
        if node.op == "get_attr":
            return _attribute_value(self.constraints.model, str(node.target))
        if node.op == "output":
            self.constraints.pin((self._results[each] for each in node.all_input_nodes), "the model's output")
        if node.op in ("output", "placeholder"):
            return Opaque.TENSOR
        return operate(self.constraints, node, self._results)

    def _input(self, node: fx.Node) -> Result:
        return self._results[node.all_input_nodes[0]] if node.all_input_nodes else Opaque.TENSOR

    def _call(self, node: fx.Node, name: str, module: nn.Module) -> Result:
        value = self._input(node)
        spatial = _SPATIAL.match(type(module).__name__)
        if isinstance(module, nn.Linear):
            return self._linear(name, module, value)
        if isinstance(module, CONVOLUTIONS):
            return self._convolution(name, module, value)
        if isinstance(module, (*CHANNEL_NORMS, *FEATURE_NORMS)):
            return self._normalise(name, module, value)
        if isinstance(module, Activation):
            return self._existing(name, module, value)
        if isinstance(module, nn.Flatten) and module.end_dim == -1:
            return flatten_channels(value, module.start_dim) or self._fix(name, module, node)
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return ChannelTensor((self.constraints.axes.new(module.embedding_dim, pin=f"the embedding {name}"),), -1)
        if isinstance(module, _SAME):
            return value
        if spatial or isinstance(module, nn.Upsample):
            return keep_left_of(int(spatial["dims"]) if spatial else 1, self.constraints, node, self._results)
        return self._fix(name, module, node)

    def _fix(self, name: str, module: nn.Module, node: fx.Node) -> Result:
        values = [self._results[each] for each in node.all_input_nodes]
        self.constraints.pin(values, f"the {type(module).__name__} {name}")
        return Opaque.TENSOR

    def _linear(self, name: str, layer: nn.Linear, value: Result) -> Result:
        self.constraints.read_channels(name, "in_features", value, -1, layer.in_features)
        rank = value.rank if isinstance(value, ChannelTensor) and value.dim == -1 else None
        return ChannelTensor(self.constraints.make_channels(name, "out_features", layer.out_features), -1, rank)

    def _convolution(self, name: str, layer: nn.Module, value: Result) -> Result:
        inside, outside, groups = widths(layer).values()
        spatial = len(layer.kernel_size)  # type: ignore[arg-type]
        read = self.constraints.read_channels(name, "in_channels", value, -1 - spatial, inside)
        if groups == inside > 1:
            made = tuple(self.constraints.axes.derive(part, part.size * outside // inside) for part in read)
            self.constraints.use(name, "groups", LayerWidth(read))
            self.constraints.use(name, "out_channels", LayerWidth(made))
        else:
            made = self.constraints.make_channels(name, "out_channels", outside)
            self.constraints.axes.demand((*read, *made), groups)
        return ChannelTensor(made, -1 - spatial, spatial + 2)

    def _normalise(self, name: str, layer: nn.Module, value: Result) -> Result:
        (attribute,), (width,) = width_attributes(layer), widths(layer).values()
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
        return value if isinstance(value, ChannelTensor) else ChannelTensor(parts, dim)

    def _existing(self, name: str, module: Activation, value: Result) -> Result:
        if module.map == (1, 1) or not isinstance(value, ChannelTensor):
            return value
        dim = module.dim if module.dim < 0 else module.dim - (value.rank or 2)
        if dim != value.dim or any(part.size % module.divisor for part in value.parts):
            self.constraints.pin([value], f"the activation {name}")
            return Opaque.TENSOR
        self.constraints.axes.demand(value.parts, module.divisor)
        parts = (self.constraints.axes.derive(part, int(part.size * module.feature_factor)) for part in value.parts)
        return value._replace(parts=tuple(parts))

    def _activate(self, site: Site, value: Result) -> Result:
        ratio, group = self._new.feature_factor / site.factor, self._new.divisor
        if isinstance(value, ChannelTensor):
            self.constraints.dims[site] = value.dim
        if ratio == group == 1:
            return value
        if not isinstance(value, ChannelTensor):
            self.constraints.refusals[site] = "its input does not come from a layer, so its channels are not known"
        elif value.flat and group > 1:
            self.constraints.refusals[site] = "it acts after a flatten, where neighbours are positions, not channels"
        else:
            return value._replace(parts=tuple(self._link(site, part, ratio) for part in value.parts))
        return value

    def _link(self, site: Site, before: ChannelPart, ratio: Fraction) -> ChannelPart:
        size = int(before.size * site.factor)
        after = self.constraints.axes.derive(before, size) if ratio == 1 else self.constraints.axes.new(size)
        self.constraints.axes.demand([before], self._new.divisor)
        self.constraints.links.append(ActivationLink(site, before, after, ratio))
        return after

    def _transformer_layer(self, site: Site) -> None:
        """The feed-forward part of a layer of torch's, which a trace does not go into."""
        parent = site.name.rpartition(".")[0]
        layer = self.constraints.model.get_submodule(parent)
        assert isinstance(layer, TRANSFORMER_LAYERS)
        (before,) = self.constraints.make_channels(child(parent, "linear1"), "out_features", layer.linear1.out_features)
        self.constraints.use(
            child(parent, "linear2"), "in_features", LayerWidth((self._link(site, before, self._new.feature_factor),))
        )


def _norm_dim(layer: nn.Module, value: Result) -> int | None:
    """The dimension a normalisation has its parameters along, counted from the end, where that can be told."""
    if isinstance(layer, FEATURE_NORMS):
        return -1
    if isinstance(value, ChannelTensor):
        return 1 - value.rank if value.rank else -1
    named = re.search(r"(?P<dims>[23])d$", type(layer).__name__)
    return -1 - int(named["dims"]) if named else None


def _attribute_value(model: nn.Module, path: str) -> Opaque:
    """A parameter or buffer of one element goes with any width."""
    parent, _, name = path.rpartition(".")
    stored = getattr(model.get_submodule(parent), name)
    return Opaque.NUMBER if isinstance(stored, Tensor) and stored.numel() <= 1 else Opaque.TENSOR
