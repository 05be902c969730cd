"""What torch's functions and methods do to channels: leave, merge, move, join or split them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import fx, nn

from boolit.nn.conversion.constraints import ChannelTensor, LayerWidth, Opaque, ReshapeLiteral, WidthConstraints
from boolit.nn.conversion.layers import is_linear, widths
from boolit.nn.conversion.sites import POINTWISE_NAMES, operation_name, owner

Result = ChannelTensor | Opaque
Results = Mapping[fx.Node, Result]
Rule = Callable[[WidthConstraints, fx.Node, Results], Result]

_ARITHMETIC = "add iadd sub isub mul imul div truediv floordiv pow neg abs exp log log1p sqrt rsqrt square reciprocal sign"
_COMPARISON = "lt gt le ge eq ne where maximum minimum clamp clamp_min clamp_max masked_fill nan_to_num lerp"
_SMOOTH = "erf sin cos softmax log_softmax normalize"
_RANDOM = "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"
_COPY = "contiguous clone detach data float double half bfloat16"
ELEMENTWISE = POINTWISE_NAMES.union(*(names.split() for names in (_ARITHMETIC, _COMPARISON, _SMOOTH, _RANDOM, _COPY)))
SPATIAL = re.compile(r"(adaptive_)?(max|avg|lp)_pool(?P<dims>[123])d$")
SEVERAL = frozenset({"chunk", "split", "tensor_split", "unbind"})
QUERIES = frozenset({"size", "dim", "numel", "ndimension", "is_floating_point", "element_size", "get_device"})


def operate(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """The result of a function or method call."""
    name = operation_name(node)
    pool = SPATIAL.match(name)
    if pool:
        return keep_left_of(int(pool["dims"]), constraints, node, results)
    if name in ELEMENTWISE:
        return elementwise(constraints, node, results)
    return RULES.get(name, unknown)(constraints, node, results)


def unknown(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """An operation that is not understood fixes the widths of all it reads."""
    place = owner(node)
    constraints.pin(
        (results[each] for each in node.all_input_nodes), f"the call of {_call_text(node)}{f' in {place}' if place else ''}"
    )
    return Opaque.TENSOR


def keep_left_of(dims: int, constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """An operation on the last ``dims`` dimensions, such as pooling, leaves channels before them."""
    value = _first(node, results)
    return value if isinstance(value, ChannelTensor) and -value.dim > dims else unknown(constraints, node, results)


def elementwise(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """All operands have the same channels, but for those that are broadcast."""
    found = {each: results[each] for each in node.all_input_nodes}
    values = [each for each in found.values() if isinstance(each, ChannelTensor)]
    if not values:
        return Opaque.TENSOR if Opaque.TENSOR in found.values() else Opaque.NUMBER
    result = max(values, key=lambda value: value.size)
    if any(each is Opaque.TENSOR and not _is_broadcast(other, result.dim) for other, each in found.items()):
        constraints.pin(values, f"the operand of {_call_text(node)} that is no layer's output")
    for value in values:
        if value.dim != result.dim or not constraints.tie(result.parts, value.parts):
            broadcast = value.dim == result.dim and value.size == 1
            constraints.pin([value] if broadcast else values, f"{_call_text(node)} of unlike operands")
    ranks = (value.rank for value in values if value.rank)
    return result._replace(rank=max(ranks, default=None), norm=result.norm if len(values) == 1 else "")


def _is_broadcast(node: fx.Node, dim: int) -> bool:
    """Whether a tensor is known to have one entry for all channels along ``dim``."""
    shape = node.meta.get("shape")
    return shape is not None and (len(shape) < -dim or shape[dim] == 1)


def concatenate(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """Along the channels the parts line up; along another dimension they must agree."""
    tensors = argument(node, 0, "tensors", ())
    values = [results.get(each) for each in tensors] if isinstance(tensors, (list, tuple)) else []
    known = [value for value in values if isinstance(value, ChannelTensor)]
    if not known or len(known) < len(values) or len({(value.dim, value.rank) for value in known}) > 1:
        return unknown(constraints, node, results)
    first = known[0]
    dim = from_the_end(argument(node, 1, "dim", 0), first.rank)
    if dim == first.dim:
        parts = tuple(part for value in known for part in value.parts)
        return first._replace(parts=parts, flat="mixed" if any(value.flat == "positions" for value in known) else first.flat)
    if dim is None or not all(constraints.tie(first.parts, value.parts) for value in known):
        return unknown(constraints, node, results)
    return first


def flatten(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """``flatten(x, start)`` to the end."""
    if "shape" in node.meta:
        return view(constraints, node, results)
    start, end = argument(node, 1, "start_dim", 0), argument(node, 2, "end_dim", -1)
    result = flatten_channels(_first(node, results), start) if end == -1 else None
    return result or unknown(constraints, node, results)


def flatten_channels(value: Result, start: object) -> ChannelTensor | None:
    """The value after merging all dimensions from ``start``, where that can be told."""
    if not isinstance(value, ChannelTensor) or not isinstance(start, int) or start < 1:
        return None
    merged = value.rank is None or value.rank > start + 1
    if value.rank is None and (start > 1 or value.dim != -1):
        return None
    channel = start if value.rank is None else value.rank + value.dim
    if channel < start:
        return value._replace(dim=channel - start - 1, rank=start + 1)
    order = "mixed" if value.flat else "positions" if value.dim == -1 else "channels" if channel == start else "mixed"
    return value._replace(dim=-1, rank=start + 1, flat=order if merged else value.flat)


def view(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """``view(n, -1)`` flattens, and so does ``view(-1, 400)``, where 400 must follow; ``view(n, c, 1, 1)`` adds positions."""
    value = _first(node, results)
    shape = node.args[1:] if not isinstance(node.args[-1], (list, tuple)) else tuple(node.args[-1])
    if isinstance(value, ChannelTensor) and "shape" in node.meta:
        found = _regroup(value, node.all_input_nodes[0].meta["shape"], node.meta["shape"])
        written = operation_name(node) in ("view", "reshape") and shape[found.dim] != -1 if found else False
        if found and written:
            times = node.meta["shape"][found.dim] // value.size
            constraints.literals.append(ReshapeLiteral(node, found.dim, LayerWidth(value.parts, times)))
        return found or unknown(constraints, node, results)
    if not isinstance(value, ChannelTensor) or len(shape) < 2 or not _is_batch(shape[0]):
        return unknown(constraints, node, results)
    _, last, *ones = shape
    if ones:
        channels_last = value.dim == -1 and not value.flat and all(one == 1 for one in ones)
        followed = channels_last and (last == -1 or isinstance(last, fx.Node))
        return value._replace(dim=-len(ones) - 1, rank=len(shape)) if followed else unknown(constraints, node, results)
    if last == -1:
        return flatten_channels(value, 1) or unknown(constraints, node, results)
    if not isinstance(last, int) or last % value.size or (value.dim == -1 and not value.flat and last != value.size):
        return unknown(constraints, node, results)
    constraints.literals.append(ReshapeLiteral(node, -1, LayerWidth(value.parts, last // value.size)))
    return value._replace(dim=-1, rank=2, flat=value.flat or ("" if value.dim == -1 else "channels"))


def _regroup(value: ChannelTensor, before: tuple[int, ...], after: tuple[int, ...]) -> ChannelTensor | None:
    """Where the channels are after a reshape: alone, or merged with positions; None if they are split."""
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
            if len(places) != 1 or before[channel] == 1:
                return None
            outer, inner = prod(before[first:channel]), prod(before[channel + 1 : i])
            order = ("channels" if outer == 1 else "positions" if inner == 1 else "mixed") if outer * inner > 1 else ""
            flat = "mixed" if order and value.flat else order or value.flat
            return value._replace(dim=places[0] - len(after), rank=len(after), flat=flat)
    return None


def permute(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """Channels go where the permutation says."""
    value = _first(node, results)
    dims = argument(node, 1, "dims", ())
    given = dims if isinstance(dims, (list, tuple)) else node.args[1:]
    order = [dim for dim in given if isinstance(dim, int)]
    rank = len(order)
    if not isinstance(value, ChannelTensor) or not rank or rank < len(given):
        return unknown(constraints, node, results)
    places = [dim % rank for dim in order]
    return value._replace(dim=places.index(value.dim % rank) - rank, rank=rank)


def transpose(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """Channels go to the other of the two dimensions."""
    value = _first(node, results)
    if not isinstance(value, ChannelTensor):
        return unknown(constraints, node, results)
    one, other = (from_the_end(argument(node, i, f"dim{i - 1}", None), value.rank) for i in (1, 2))
    if one is None or other is None:
        return unknown(constraints, node, results)
    return value._replace(dim={one: other, other: one}.get(value.dim, value.dim))


def reduce(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """Other dimensions may go; a mean over the channels themselves goes with any width."""
    value = _first(node, results)
    if not isinstance(value, ChannelTensor):
        return unknown(constraints, node, results)
    if operation_name(node) == "squeeze" and "shape" in node.meta:
        return view(constraints, node, results)
    given = argument(node, 1, "dim", None)
    dims = [from_the_end(dim, value.rank) for dim in (given if isinstance(given, (list, tuple)) else [given])]
    if given is None or value.dim in dims:
        # Squeezed channels must stay one; reduced ones may be any number.
        return unknown(constraints, node, results) if operation_name(node) == "squeeze" else Opaque.NUMBER
    right = sum(1 for dim in dims if dim is not None and dim > value.dim)
    if None in dims:
        return unknown(constraints, node, results)
    if argument(node, 2, "keepdim", False) is True:
        return value
    return value._replace(dim=value.dim + right, rank=value.rank - len(dims) if value.rank else None)


def chunk(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """Equal shares of the channels; a getitem picks one of them."""
    value = _first(node, results)
    count = argument(node, 1, "chunks", None)
    dim = from_the_end(argument(node, 2, "dim", 0), value.rank) if isinstance(value, ChannelTensor) else None
    whole = isinstance(value, ChannelTensor) and dim == value.dim and len(value.parts) == 1 and not value.flat
    if isinstance(value, ChannelTensor) and whole and isinstance(count, int) and value.size % count == 0:
        return value._replace(parts=(constraints.axes.derive(value.parts[0], value.size // count),), norm="")
    return beside(constraints, node, results)


def beside(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """An operation along another dimension than the channels' leaves these."""
    value = _first(node, results)
    name = operation_name(node)
    place = 2 if name in ("roll", "chunk", "split", "tensor_split", "repeat_interleave") else 1
    given = argument(node, place, "dims" if name in ("roll", "flip") else "dim", None if name == "roll" else 0)
    if not isinstance(value, ChannelTensor) or given is None:
        return unknown(constraints, node, results)
    dims = [from_the_end(dim, value.rank) for dim in (given if isinstance(given, (list, tuple)) else [given])]
    if None in dims or value.dim in dims:
        return unknown(constraints, node, results)
    gone = name in ("select", "unbind")
    right = gone and any(dim is not None and dim > value.dim for dim in dims)
    return value._replace(dim=value.dim + right, rank=value.rank - gone if value.rank else None)


def getitem(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """One of the chunks, a number of a shape, ``x[:, :, None, None]``, or with known shapes whatever takes all channels."""
    source, index = node.args
    value = _first(node, results)
    known = isinstance(source, fx.Node) and isinstance(value, ChannelTensor)
    if known and isinstance(source, fx.Node) and isinstance(index, int) and operation_name(source) in SEVERAL:
        return value
    items = index if isinstance(index, tuple) else (index,)
    if isinstance(value, ChannelTensor) and isinstance(source, fx.Node) and "shape" in source.meta:
        return _index(value, len(source.meta["shape"]), items, len(node.meta["shape"])) or unknown(constraints, node, results)
    added = len(items) - 2
    if isinstance(value, ChannelTensor) and value.rank == 2 and added > 0 and items == (slice(None),) * 2 + (None,) * added:
        return value._replace(dim=value.dim - added, rank=2 + added)
    return Opaque.NUMBER if value is Opaque.NUMBER else unknown(constraints, node, results)


def _index(value: ChannelTensor, rank: int, items: tuple[Any, ...], left: int) -> ChannelTensor | None:
    """Where the channels are after indexing by whole numbers, slices, None, ... and at most one tensor."""
    used = sum(1 for item in items if item is not None and item is not ...)
    filled = [part for item in items for part in ([slice(None)] * (rank - used) if item is ... else [item])]
    filled += [slice(None)] * (rank - used if ... not in items else 0)
    before, after = [item for item in filled if item is not None], filled
    if sum(1 for item in filled if isinstance(item, fx.Node)) > 1 or before[value.dim] != slice(None):
        return None
    place = max(i for i, item in enumerate(after) if item is not None and sum(x is not None for x in after[i:]) == -value.dim)
    if any(isinstance(item, (fx.Node, list)) for item in after[place:]):
        return None
    kept = sum(1 for item in after[place:] if not isinstance(item, int))
    return value._replace(dim=-kept, rank=left)


def linear(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """``F.linear`` with a layer's own weight does what the layer does."""
    weight = argument(node, 1, "weight", None)
    path = str(weight.target).removesuffix(".weight") if isinstance(weight, fx.Node) and weight.op == "get_attr" else ""
    layer = constraints.model.get_submodule(path) if path and path != weight.target else None
    if layer is None or not is_linear(layer) or layer._parameters.keys() != {"weight", "bias"}:
        return unknown(constraints, node, results)
    bias = argument(node, 2, "bias", None)
    if (bias.target if isinstance(bias, fx.Node) else None) != (f"{path}.bias" if layer.bias is not None else None):
        return unknown(constraints, node, results)
    return call_linear(constraints, path, layer, _first(node, results))


def call_linear(constraints: WidthConstraints, path: str, layer: nn.Module, value: Result) -> ChannelTensor:
    """What a linear layer reads and makes."""
    inside, outside = widths(layer).values()
    constraints.read_channels(path, "in_features", value, -1, inside)
    rank = value.rank if isinstance(value, ChannelTensor) and value.dim == -1 else None
    return ChannelTensor(constraints.make_channels(path, "out_features", outside), -1, rank)


def get_attribute(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """``x.shape`` and the like are numbers."""
    return Opaque.NUMBER if node.args[1] in ("shape", "ndim", "dtype", "device") else unknown(constraints, node, results)


def cast(_: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """``x.to(…)`` has the channels of x."""
    return _first(node, results)


def pad(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """Padding of dimensions after the channels leaves these."""
    amounts = argument(node, 1, "pad", ())
    dims = len(amounts) // 2 if isinstance(amounts, (list, tuple)) else 9
    return keep_left_of(dims, constraints, node, results)


def argument(node: fx.Node, position: int, name: str, default: object) -> Any:
    """An argument of a call, given by position, by name, or by the name numpy has for it."""
    if len(node.args) > position:
        return node.args[position]
    numpy_name = {"dim": "axis", "keepdim": "keepdims"}.get(name, name)
    return node.kwargs.get(name, node.kwargs.get(numpy_name, default))


def from_the_end(dim: object, rank: int | None) -> int | None:
    """A dimension counted from the end, where that can be told."""
    if not isinstance(dim, int) or (dim >= 0 and rank is None):
        return None
    return dim if dim < 0 else dim - (rank or 0)


def _first(node: fx.Node, results: Results) -> Result:
    source = node.args[0] if node.args else node.kwargs.get("input")
    return results[source] if isinstance(source, fx.Node) else Opaque.NUMBER


def _is_batch(size: object) -> bool:
    """Whether the first size of a view leaves the first dimension: a number, or that of some tensor."""
    if isinstance(size, fx.Node):
        return operation_name(size) in ("size", "getitem") and bool(size.args[-1] == 0)
    return isinstance(size, int)


def _call_text(node: fx.Node) -> str:
    return str(node.target if node.op == "call_method" else getattr(node.target, "__name__", node.target))


RULES: dict[str, Rule] = {
    **dict.fromkeys(("cat", "concat", "concatenate"), concatenate),
    **dict.fromkeys(("view", "reshape"), view),
    **dict.fromkeys(("mean", "sum", "amax", "amin", "squeeze"), reduce),
    **dict.fromkeys(("transpose", "swapaxes"), transpose),
    **dict.fromkeys(QUERIES, lambda constraints, node, results: Opaque.NUMBER),  # noqa: ARG005
    "interpolate": lambda constraints, node, results: keep_left_of(1, constraints, node, results),
    "flatten": flatten,
    "permute": permute,
    "chunk": chunk,
    "linear": linear,
    **dict.fromkeys(("unflatten", "unsqueeze"), view),
    **dict.fromkeys(SEVERAL - {"chunk"}, beside),
    **dict.fromkeys(("roll", "flip", "narrow", "index_select", "select", "cumsum", "repeat_interleave"), beside),
    "getitem": getitem,
    "getattr": get_attribute,
    "to": cast,
    "type_as": cast,
    "pad": pad,
}
