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
Rule = Callable[[WidthConstraints, fx.Node, ChannelTensor], Result | None]

_ARITHMETIC = "add iadd sub isub mul imul div truediv floordiv pow neg abs exp log log1p sqrt rsqrt square reciprocal sign"
_COMPARISON = "lt gt le ge eq ne where maximum minimum clamp clamp_min clamp_max masked_fill nan_to_num lerp erf sin cos"
_RANDOM = "softmax log_softmax normalize dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"
_COPY = "contiguous clone detach data float double half bfloat16"
ELEMENTWISE = POINTWISE_NAMES.union(f"{_ARITHMETIC} {_COMPARISON} {_RANDOM} {_COPY}".split())
_ALONG = ("mean", "sum", "amax", "amin", "squeeze", "roll", "flip", "narrow", "index_select", "select", "cumsum")
LEAVING = re.compile(r"((adaptive_)?(max|avg|lp)_pool(?P<dims>[123])d|interpolate)$")
SEVERAL = frozenset({"chunk", "split", "tensor_split", "unbind"})
QUERIES = frozenset({"size", "dim", "numel", "ndimension", "is_floating_point", "element_size", "get_device"})


def operate(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """The result of a function or method call; one that is not understood fixes the widths of all it reads."""
    name, source = operation_name(node), node.args[0] if node.args else node.kwargs.get("input")
    value = results[source] if isinstance(source, fx.Node) else Opaque.NUMBER
    if name in QUERIES or (name == "getattr" and node.args[1] in ("shape", "ndim", "dtype", "device")):
        return Opaque.NUMBER
    if name in ELEMENTWISE:
        return elementwise(constraints, node, results)
    if name in ("to", "type_as") or (name == "getitem" and value is Opaque.NUMBER):
        return value
    found: Result | None = None
    if name in ("cat", "concat", "concatenate"):
        found = concatenate(constraints, node, results)
    elif name == "linear":
        found = linear(constraints, node, value)
    elif isinstance(value, ChannelTensor):
        leaving, rule = LEAVING.match(name), RULES.get(name)
        found = keep_left_of(int(leaving["dims"] or 1), value) if leaving else rule and rule(constraints, node, value)
    if found is None:
        place = f" in {owner(node)}" if owner(node) else ""
        constraints.pin((results[each] for each in node.all_input_nodes), f"the call of {_call_text(node)}{place}")
    return found or Opaque.TENSOR


def keep_left_of(dims: int, value: Result) -> ChannelTensor | None:
    """An operation on the last ``dims`` dimensions, such as pooling, leaves channels before them."""
    return value if isinstance(value, ChannelTensor) and -value.dim > dims else None


def elementwise(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result:
    """All operands have the same channels, but for those that are broadcast."""
    found = {each: results[each] for each in node.all_input_nodes}
    values = [each for each in found.values() if isinstance(each, ChannelTensor)]
    if not values:
        return Opaque.TENSOR if Opaque.TENSOR in found.values() else Opaque.NUMBER
    result = max(values, key=lambda value: value.size)
    shapes = [other.meta.get("shape") for other, each in found.items() if each is Opaque.TENSOR]
    if any(shape is None or (len(shape) >= -result.dim and shape[result.dim] != 1) for shape in shapes):
        constraints.pin(values, f"the operand of {_call_text(node)} that is no layer's output")
    for value in values:
        if value.dim != result.dim or not constraints.tie(result.parts, value.parts):
            broadcast = value.dim == result.dim and value.size == 1
            constraints.pin([value] if broadcast else values, f"{_call_text(node)} of unlike operands")
    ranks = (value.rank for value in values if value.rank)
    return result._replace(rank=max(ranks, default=None), norm=result.norm if len(values) == 1 else "")


def concatenate(constraints: WidthConstraints, node: fx.Node, results: Results) -> Result | None:
    """Along the channels the parts line up; along another dimension they must agree."""
    tensors = argument(node, 0, "tensors", ())
    values = [results.get(each) for each in tensors] if isinstance(tensors, (list, tuple)) else []
    known = [value for value in values if isinstance(value, ChannelTensor)]
    if not known or len(known) < len(values) or len({(value.dim, value.rank) for value in known}) > 1:
        return None
    first = known[0]
    dim = from_the_end(argument(node, 1, "dim", 0), first.rank)
    if dim == first.dim:
        parts = tuple(part for value in known for part in value.parts)
        return first._replace(parts=parts, flat="mixed" if any(value.flat == "positions" for value in known) else first.flat)
    return first if dim is not None and all(constraints.tie(first.parts, value.parts) for value in known) else None


def flatten(constraints: WidthConstraints, node: fx.Node, value: ChannelTensor) -> Result | None:
    """``flatten(x, start)`` to the end, or with known shapes any."""
    if "shape" in node.meta:
        return view(constraints, node, value)
    to_the_end = operation_name(node) == "flatten" and argument(node, 2, "end_dim", -1) == -1
    return flatten_channels(value, argument(node, 1, "start_dim", 0)) if to_the_end else None


def flatten_channels(value: Result, start: object) -> ChannelTensor | None:
    """The value after merging all dimensions from ``start``, where that can be told."""
    if not isinstance(value, ChannelTensor) or not isinstance(start, int) or start < 1:
        return None
    if value.rank is None and (start > 1 or value.dim != -1):
        return None
    channel = start if value.rank is None else value.rank + value.dim
    if channel < start:
        return value._replace(dim=channel - start - 1, rank=start + 1)
    order = "mixed" if value.flat else "positions" if value.dim == -1 else "channels" if channel == start else "mixed"
    merged = value.rank is None or value.rank > start + 1
    return value._replace(dim=-1, rank=start + 1, flat=order if merged else value.flat)


def view(constraints: WidthConstraints, node: fx.Node, value: ChannelTensor) -> Result | None:
    """``view(n, -1)`` flattens, and so does ``view(-1, 400)``, where 400 must follow; ``view(n, c, 1, 1)`` adds positions."""
    shape: Any = node.args[1:] if not isinstance(node.args[-1], (list, tuple)) else node.args[-1]
    if "shape" in node.meta:
        found = _regroup(value, node.all_input_nodes[0].meta["shape"], node.meta["shape"])
        if found and operation_name(node) in ("view", "reshape") and shape[found.dim] != -1:
            use = LayerWidth(value.parts, node.meta["shape"][found.dim] // value.size)
            constraints.literals.append(ReshapeLiteral(node, found.dim, use))
        return found
    batch, last, *ones = shape if len(shape) > 1 else (None, None)
    asked = isinstance(batch, fx.Node) and operation_name(batch) in ("size", "getitem") and batch.args[-1] == 0
    if not asked and not isinstance(batch, int):  # the first size must leave the first dimension
        return None
    if ones:
        channels_last = value.dim == -1 and not value.flat and all(one == 1 for one in ones)
        followed = channels_last and (last == -1 or isinstance(last, fx.Node))
        return value._replace(dim=-len(ones) - 1, rank=len(shape)) if followed else None
    if last == -1:
        return flatten_channels(value, 1)
    if not isinstance(last, int) or last % value.size or (value.dim == -1 and not value.flat and last != value.size):
        return None
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


def permute(_: WidthConstraints, node: fx.Node, value: ChannelTensor) -> Result | None:
    """Channels go where the permutation says; a transposition is one of two dimensions."""
    if operation_name(node) in ("transpose", "swapaxes"):
        one, other = (from_the_end(argument(node, i, f"dim{i - 1}", None), value.rank) for i in (1, 2))
        moved = {one: other, other: one}.get(value.dim, value.dim)
        return None if moved is None or one is None else value._replace(dim=moved)
    dims = argument(node, 1, "dims", ())
    given = dims if isinstance(dims, (list, tuple)) else node.args[1:]
    places = [dim % len(given) for dim in given if isinstance(dim, int)]
    rank = len(places)
    return value._replace(dim=places.index(value.dim % rank) - rank, rank=rank) if rank and rank == len(given) else None


def along(constraints: WidthConstraints, node: fx.Node, value: ChannelTensor) -> Result | None:
    """Of other dimensions than the channels' some may go; a mean over the channels themselves goes with any width."""
    name = operation_name(node)
    if name == "squeeze" and "shape" in node.meta:
        return view(constraints, node, value)
    reduced = name in ("mean", "sum", "amax", "amin", "squeeze")
    place = 2 if name in ("roll", "chunk", "split", "tensor_split", "repeat_interleave") else 1
    given = argument(node, place, "dims" if name in ("roll", "flip") else "dim", None if reduced or name == "roll" else 0)
    dims = [from_the_end(dim, value.rank) for dim in (given if isinstance(given, (list, tuple)) else [given])]
    if reduced and name != "squeeze" and (given is None or value.dim in dims):
        return Opaque.NUMBER
    count = argument(node, 1, "chunks", None) if name == "chunk" and dims == [value.dim] and not value.flat else None
    if isinstance(count, int) and len(value.parts) == 1 and value.size % count == 0:
        return value._replace(parts=(constraints.axes.derive(value.parts[0], value.size // count),), norm="")
    if None in dims or value.dim in dims:
        return None
    gone = len(dims) if name in ("select", "unbind") or (reduced and argument(node, 2, "keepdim", False) is not True) else 0
    right = sum(1 for dim in dims if gone and dim is not None and dim > value.dim)
    return value._replace(dim=value.dim + right, rank=value.rank - gone if value.rank else None)


def getitem(_: WidthConstraints, node: fx.Node, value: ChannelTensor) -> Result | None:
    """One of the chunks, ``x[:, :, None, None]``, or with known shapes whatever takes all channels."""
    source, index = node.args
    assert isinstance(source, fx.Node)
    if isinstance(index, int) and operation_name(source) in SEVERAL:
        return value
    items = index if isinstance(index, tuple) else (index,)
    rank = len(source.meta["shape"]) if "shape" in source.meta else value.rank if value.rank == 2 else None
    if rank is None or ("shape" not in source.meta and items[:2] != (slice(None),) * 2):
        return None
    used = sum(1 for item in items if item is not None and item is not ...)
    filled: list[Any] = [part for item in items for part in ([slice(None)] * (rank - used) if item is ... else [item])]
    filled += [slice(None)] * (rank - used if ... not in items else 0)
    place = [i for i, item in enumerate(filled) if item is not None][value.dim]
    several = sum(1 for item in filled if isinstance(item, fx.Node)) > 1
    if several or filled[place] != slice(None) or any(isinstance(item, (fx.Node, list)) for item in filled[place:]):
        return None
    kept = sum(1 for item in filled[place:] if not isinstance(item, int))
    return value._replace(dim=-kept, rank=len(node.meta["shape"]) if "shape" in node.meta else len(filled))


def linear(constraints: WidthConstraints, node: fx.Node, value: Result) -> Result | None:
    """``F.linear`` with a layer's own weight does what the layer does."""
    weight, bias = (argument(node, i, name, None) for i, name in ((1, "weight"), (2, "bias")))
    path = str(getattr(weight, "target", "")).removesuffix(".weight")
    layer = dict(constraints.model.named_modules()).get(path) if getattr(weight, "op", "") == "get_attr" else None
    if layer is None or not is_linear(layer) or layer._parameters.keys() != {"weight", "bias"}:
        return None
    own = getattr(bias, "target", None) == (f"{path}.bias" if getattr(layer, "bias", None) is not None else None)
    return call_linear(constraints, path, layer, value) if own else None


def call_linear(constraints: WidthConstraints, path: str, layer: nn.Module, value: Result) -> ChannelTensor:
    """What a linear layer reads and makes."""
    inside, outside = widths(layer).values()
    constraints.read_channels(path, "in_features", value, -1, inside)
    rank = value.rank if isinstance(value, ChannelTensor) and value.dim == -1 else None
    return ChannelTensor(constraints.make_channels(path, "out_features", outside), -1, rank)


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


def _call_text(node: fx.Node) -> str:
    return str(node.target if node.op == "call_method" else getattr(node.target, "__name__", node.target))


RULES: dict[str, Rule] = {
    **dict.fromkeys((*_ALONG, *SEVERAL, "repeat_interleave"), along),
    **dict.fromkeys(("view", "reshape"), view),
    **dict.fromkeys(("flatten", "unflatten", "unsqueeze"), flatten),
    **dict.fromkeys(("permute", "transpose", "swapaxes"), permute),
    "getitem": getitem,
    "pad": lambda _, node, value: keep_left_of(len(argument(node, 1, "pad", ())) // 2, value),
}
