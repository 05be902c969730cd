"""Layers that can be given another width: which sizes they have, how many parameters that makes, and the resizing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn.conv1x1 import Conv1x1, ConvTranspose1x1

CONVOLUTIONS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, Conv1x1),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, ConvTranspose1x1),
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
    """Whether a module, not one of torch's, has the parameters of a linear layer and nothing else."""
    weight, bias = map(layer._parameters.get, ("weight", "bias"))
    if isinstance(layer, (*RESIZABLE, nn.Embedding)) or weight is None or weight.dim() != 2 or layer._modules:
        return False
    return layer._parameters.keys() <= {"weight", "bias"} and (bias is None or (bias.dim() == 1 and len(bias) in weight.shape))


def is_linear(layer: nn.Module) -> bool:
    """Whether the layer is linear in its last dimension."""
    return isinstance(layer, nn.Linear) or is_linear_alike(layer)


def does_what_it_looks_like(layer: nn.Module, args: Any, kwargs: Mapping[str, Any], result: object) -> bool:
    """Whether a layer of a class that is not torch's made of its input what torch's does with such parameters."""
    x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    with torch._C.DisableTorchFunction(), contextlib.suppress(RuntimeError):  # which says that they do not even fit
        if is_linear_alike(layer):
            weight = layer.weight.T if _is_transposed(layer) else layer.weight
            wanted = F.linear(x, weight, getattr(layer, "bias", None))  # type: ignore[arg-type]
        else:
            wanted = next(kind for kind in type(layer).__mro__ if kind in RESIZABLE).forward(layer, x)
        return isinstance(result, Tensor) and wanted.shape == result.shape and torch.allclose(wanted, result, 1e-3, 1e-4)
    return False


def widths(layer: nn.Module) -> dict[str, int]:
    """The widths of a resizable layer."""
    if is_linear(layer):
        inside, outside = layer.weight.shape[:: 1 if _is_transposed(layer) else -1]  # type: ignore[index]
        return {"in_features": int(inside), "out_features": int(outside)}
    names = next((names for kind, names in _WIDTHS.items() if isinstance(layer, kind)), ("num_features",))
    values = {name: getattr(layer, name) for name in names}
    return {name: value[-1] if isinstance(value, tuple) else int(value) for name, value in values.items()}


def unresizable(model: nn.Module) -> set[str]:
    """The layers whose parameters are not theirs alone to change: shared, parametrised, or rewritten by a hook."""
    owners = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    shared = {id(module) for module in model.modules() for each in module.parameters(recurse=False) if owners[id(each)] > 1}
    hooked = {id(module) for module in model.modules() if hasattr(module, "parametrizations") or module._forward_pre_hooks}
    return {name for name, module in model.named_modules() if id(module) in shared | hooked}


def parameter_axes(layer: nn.Module) -> dict[str, tuple[str, ...]]:
    """Which width each dimension of each parameter and buffer of a layer has; a width per group ends in ``/``."""
    if is_linear(layer):
        ends = ("out_features", "in_features")
        return {"weight": ends[::-1] if _is_transposed(layer) else ends, "bias": ends[:1]}
    if isinstance(layer, CONVOLUTIONS):
        transposed = isinstance(layer, nn.modules.conv._ConvTransposeNd)
        weight = ("in_channels", "out_channels/") if transposed else ("out_channels", "in_channels/")
        return {"weight": weight, "bias": ("out_channels",)}
    return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (*widths(layer),))


def parameter_count(layer: nn.Module, sizes: Mapping[str, int]) -> int:
    """Trainable parameters the layer has at these widths."""
    shapes = _shapes(layer, sizes)
    return sum(
        prod(shapes.get(name, parameter.shape)) for name, parameter in layer.named_parameters() if parameter.requires_grad
    )


def resize(layer: nn.Module, sizes: Mapping[str, int]) -> None:
    """Gives the layer these widths, and new initial values by its own rule."""
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
    else:  # a linear layer of another's making gets what torch's would, but for the bias
        nn.init.kaiming_uniform_(layer.weight.T if _is_transposed(layer) else layer.weight, 5**0.5)  # type: ignore[arg-type]
        for bias in [*layer.parameters()][1:]:
            nn.init.zeros_(bias)


def describe(layer: nn.Module) -> str:
    """A layer in one short phrase."""
    values = [(name, size) for name, size in widths(layer).items() if (name, size) != ("groups", 1)]
    return f"{type(layer).__name__}({', '.join(f'groups={n}' if name == 'groups' else str(n) for name, n in values)})"


def _shapes(layer: nn.Module, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    known = {**widths(layer), **sizes}
    known |= {f"{name}/": size // known["groups"] for name, size in known.items() if "groups" in known}
    kernel = tuple(getattr(layer, "kernel_size", ()))
    axes = {name: tuple(known[axis] for axis in axes) for name, axes in parameter_axes(layer).items()}
    return {name: shape + kernel if name == "weight" else shape for name, shape in axes.items()}


def _is_transposed(layer: nn.Module) -> bool:
    """Whether a linear layer has its weights as (in, out), as the Conv1D of transformers does."""
    weight, bias = layer.weight, getattr(layer, "bias", None)
    if isinstance(layer, nn.Linear) or not isinstance(weight, Tensor):
        return False
    return hasattr(layer, "nf") or (bias is not None and len(bias) == weight.shape[1] != weight.shape[0])
