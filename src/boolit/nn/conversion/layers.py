"""Layers that can get another width: their widths, resizing them, and transferring their old weights."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn.conv1x1 import Conv1x1

CONVOLUTIONS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, Conv1x1),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
CHANNEL_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.GroupNorm, nn.PReLU),
)
FEATURE_NORMS = (nn.LayerNorm, nn.RMSNorm)
RESIZABLE: tuple[type[nn.Module], ...] = (nn.Linear, *CONVOLUTIONS, *CHANNEL_NORMS, *FEATURE_NORMS)

_WIDTHS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.GroupNorm: ("num_channels",),
    nn.PReLU: ("num_parameters",),
    nn.LayerNorm: ("normalized_shape",),
    nn.RMSNorm: ("normalized_shape",),
    **dict.fromkeys(CONVOLUTIONS, ("in_channels", "out_channels", "groups")),
}
_ALIASES = {"in_features": "nx", "out_features": "nf"}  # in the Conv1D of transformers


def is_linear_alike(layer: nn.Module) -> bool:
    """Whether a module that is not torch's has the parameters of a linear layer and no others."""
    weight, bias = map(layer._parameters.get, ("weight", "bias"))
    if isinstance(layer, (*RESIZABLE, nn.Embedding)) or weight is None or weight.dim() != 2 or layer._modules:
        return False
    return layer._parameters.keys() <= {"weight", "bias"} and (bias is None or (bias.dim() == 1 and len(bias) in weight.shape))


def is_linear(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) or is_linear_alike(layer)


def behaves_like_its_kind(layer: nn.Module, args: Any, kwargs: Mapping[str, Any], result: object) -> bool:
    """Whether a user's layer computed what torch's layer computes with the same parameters."""
    x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    with torch._C.DisableTorchFunction(), contextlib.suppress(RuntimeError):  # raised if the shapes do not fit
        if is_linear_alike(layer):
            weight = layer.weight.T if _is_transposed(layer) else layer.weight
            expected = F.linear(x, weight, getattr(layer, "bias", None))  # type: ignore[arg-type]
        else:
            expected = next(kind for kind in type(layer).__mro__ if kind in RESIZABLE).forward(layer, x)
        return isinstance(result, Tensor) and expected.shape == result.shape and torch.allclose(expected, result, 1e-3, 1e-4)
    return False


def widths(layer: nn.Module) -> dict[str, int]:
    """Return the widths of a resizable layer by attribute."""
    if is_linear(layer):
        inputs, outputs = layer.weight.shape[:: 1 if _is_transposed(layer) else -1]  # type: ignore[index]
        return {"in_features": int(inputs), "out_features": int(outputs)}
    names = next((names for kind, names in _WIDTHS.items() if isinstance(layer, kind)), ("num_features",))
    values = {name: getattr(layer, name) for name in names}
    return {name: value[-1] if isinstance(value, tuple) else int(value) for name, value in values.items()}


def unresizable(model: nn.Module) -> set[str]:
    """Return the layers whose parameters are shared, parametrized or rewritten by a hook."""
    owners = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    shared = {id(module) for module in model.modules() for each in module.parameters(recurse=False) if owners[id(each)] > 1}
    hooked = {id(module) for module in model.modules() if hasattr(module, "parametrizations") or module._forward_pre_hooks}
    return {name for name, module in model.named_modules() if id(module) in shared | hooked}


def parameter_axes(layer: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return which width each dimension of each parameter and buffer has; a width per group ends in ``/``."""
    if is_linear(layer):
        ends = ("out_features", "in_features")
        return {"weight": ends[::-1] if _is_transposed(layer) else ends, "bias": ends[:1]}
    if isinstance(layer, CONVOLUTIONS):
        transposed = isinstance(layer, nn.modules.conv._ConvTransposeNd)
        weight = ("in_channels", "out_channels/") if transposed else ("out_channels", "in_channels/")
        return {"weight": weight, "bias": ("out_channels",)}
    return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (*widths(layer),))


def parameter_count(layer: nn.Module, sizes: Mapping[str, int]) -> int:
    """Return the number of trainable parameters that the layer has at these widths."""
    shapes = _shapes(layer, sizes)
    return sum(
        prod(shapes.get(name, parameter.shape)) for name, parameter in layer.named_parameters() if parameter.requires_grad
    )


def weight_count(layer: nn.Module, sizes: Mapping[str, int]) -> int:
    """Return the number of elements that the layer's weight has at these widths."""
    return prod(_shapes(layer, sizes)["weight"])


def resize(layer: nn.Module, sizes: Mapping[str, int]) -> None:
    """Give the layer these widths and initialize it with torch's defaults."""
    shapes = _shapes(layer, sizes)
    for name, parameter in list(layer.named_parameters()):
        empty = parameter.detach().new_empty(shapes[name])
        setattr(layer, name, nn.Parameter(empty, requires_grad=parameter.requires_grad))
    for name, buffer in list(layer.named_buffers()):
        setattr(layer, name, buffer.new_empty(shapes[name]) if name in shapes else buffer)
    for name, size in sizes.items():
        for attribute in (name, _ALIASES.get(name, name)):
            if hasattr(layer, attribute):
                setattr(layer, attribute, (size,) if name == "normalized_shape" else size)
    reset = getattr(layer, "reset_parameters", None)
    if reset is not None:
        reset()
    else:
        nn.init.kaiming_uniform_(layer.weight.T if _is_transposed(layer) else layer.weight, 5**0.5)  # type: ignore[arg-type]
        for bias in [*layer.parameters()][1:]:
            nn.init.zeros_(bias)


def describe(layer: nn.Module) -> str:
    """Format a layer as its class and widths."""
    values = [(name, size) for name, size in widths(layer).items() if (name, size) != ("groups", 1)]
    return f"{type(layer).__name__}({', '.join(f'groups={n}' if name == 'groups' else str(n) for name, n in values)})"


def fill(new: Tensor, old: Tensor, indices: Sequence[Tensor | None], zero: Sequence[bool]) -> None:
    """Copy old weights into a resized parameter.

    Args:
        new: the resized parameter.
        old: its former value.
        indices: for each dimension the old index of every new one, -1 for a new channel; None keeps the order.
        zero: for each dimension whether new channels are zero, instead of what ``new`` holds.
    """
    with torch.no_grad():
        known = torch.ones(new.shape, dtype=torch.bool)
        for dim, (given, zeros) in enumerate(zip(indices, zero, strict=True)):
            index = torch.arange(new.shape[dim]) if given is None else given
            here = ((index >= 0) & (index < old.shape[dim])).view([-1 if i == dim else 1 for i in range(new.dim())])
            known = known & here
            if zeros:
                new.mul_(here.to(new))
            old = old.index_select(dim, index.clamp(0, old.shape[dim] - 1).to(old.device))
        new.copy_(torch.where(known.to(new.device), old, new))


def _shapes(layer: nn.Module, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    known = {**widths(layer), **sizes}
    known |= {f"{name}/": size // known["groups"] for name, size in known.items() if "groups" in known}
    kernel = tuple(getattr(layer, "kernel_size", ()))
    axes = {name: tuple(known[axis] for axis in axes) for name, axes in parameter_axes(layer).items()}
    return {name: shape + kernel if name == "weight" else shape for name, shape in axes.items()}


def _is_transposed(layer: nn.Module) -> bool:
    """Whether a linear layer stores its weights as (in, out), as the Conv1D of transformers does."""
    weight, bias = layer.weight, getattr(layer, "bias", None)
    if isinstance(layer, nn.Linear) or not isinstance(weight, Tensor):
        return False
    return hasattr(layer, "nf") or (bias is not None and len(bias) == weight.shape[1] != weight.shape[0])
