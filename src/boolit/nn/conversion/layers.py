"""Layers that can be given another width: which sizes they have, how many parameters that makes, and the resizing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from torch import nn

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
    nn.Linear: ("in_features", "out_features"),
    nn.GroupNorm: ("num_channels",),
    nn.PReLU: ("num_parameters",),
    nn.LayerNorm: ("normalized_shape",),
    nn.RMSNorm: ("normalized_shape",),
    **dict.fromkeys(CONVOLUTIONS, ("in_channels", "out_channels", "groups")),
}


def width_attributes(layer: nn.Module) -> tuple[str, ...]:
    """The attributes of a resizable layer that are widths."""
    return next((names for kind, names in _WIDTHS.items() if isinstance(layer, kind)), ("num_features",))


def widths(layer: nn.Module) -> dict[str, int]:
    """The widths of a resizable layer.

    Example:
        >>> widths(nn.Linear(3, 2))
        {'in_features': 3, 'out_features': 2}
    """
    values = {name: getattr(layer, name) for name in width_attributes(layer)}
    return {name: value[-1] if isinstance(value, tuple) else int(value) for name, value in values.items()}


def unresizable(model: nn.Module) -> set[str]:
    """The layers whose parameters are not theirs alone to change: shared, parametrised, or rewritten by a hook."""
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, RESIZABLE)]
    owners = Counter(id(parameter) for _, module in model.named_modules() for parameter in module.parameters(recurse=False))
    return {
        name
        for name, module in modules
        if type(module) not in RESIZABLE
        or module._forward_pre_hooks
        or any(owners[id(parameter)] > 1 for parameter in module.parameters(recurse=False))
    }


def parameter_count(layer: nn.Module, sizes: Mapping[str, int]) -> int:
    """Trainable parameters the layer has at these widths.

    Example:
        >>> parameter_count(nn.Conv2d(3, 8, 3), {"out_channels": 16})
        448
    """
    shapes = _shapes(layer, {**widths(layer), **sizes})
    return sum(prod(shapes[name]) for name, parameter in layer.named_parameters() if parameter.requires_grad)


def resize(layer: nn.Module, sizes: Mapping[str, int]) -> None:
    """Gives the layer these widths, and new initial values by its own rule."""
    shapes = _shapes(layer, {**widths(layer), **sizes})
    for name, parameter in list(layer.named_parameters()):
        empty = parameter.detach().new_empty(shapes[name])
        setattr(layer, name, nn.Parameter(empty, requires_grad=parameter.requires_grad))
    for name, buffer in list(layer.named_buffers()):
        setattr(layer, name, buffer.new_empty(shapes[name]) if name in shapes else buffer)
    for name, size in sizes.items():
        setattr(layer, name, (size,) if name == "normalized_shape" else size)
    reset = layer.reset_parameters
    assert callable(reset)
    reset()


def describe(layer: nn.Module, sizes: Mapping[str, int] | None = None) -> str:
    """A layer in one short phrase.

    Example:
        >>> describe(nn.Conv2d(4, 4, 3, groups=4), {"in_channels": 8, "out_channels": 8, "groups": 8})
        'Conv2d(8, 8, groups=8)'
    """
    values = {**widths(layer), **(sizes or {})}
    shown = [
        f"groups={size}" if name == "groups" else str(size) for name, size in values.items() if (name, size) != ("groups", 1)
    ]
    return f"{type(layer).__name__}({', '.join(shown)})"


def _shapes(layer: nn.Module, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    if isinstance(layer, nn.Linear):
        return {"weight": (sizes["out_features"], sizes["in_features"]), "bias": (sizes["out_features"],)}
    if isinstance(layer, CONVOLUTIONS):
        ends = sizes["out_channels"], sizes["in_channels"]
        first, second = reversed(ends) if layer.transposed else ends
        return {"weight": (first, second // sizes["groups"], *layer.kernel_size), "bias": ends[:1]}
    (width,) = sizes.values()
    return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (width,))
