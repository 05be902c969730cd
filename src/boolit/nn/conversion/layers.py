"""Layers that can get another width: their widths, the shapes of their parameters, and resizing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import nn

CONVOLUTION = nn.modules.conv._ConvNd
CHANNEL_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.PReLU)
FEATURE_NORMS = (nn.LayerNorm, nn.RMSNorm)

_WIDTHS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: ("in_features", "out_features"),
    CONVOLUTION: ("in_channels", "out_channels", "groups"),
    nn.modules.batchnorm._NormBase: ("num_features",),
    nn.GroupNorm: ("num_channels",),
    nn.PReLU: ("num_parameters",),
    nn.LayerNorm: ("normalized_shape",),
    nn.RMSNorm: ("normalized_shape",),
}


def is_conv1d(module: nn.Module) -> bool:
    """Whether the module is the Conv1D of transformers: a linear layer with weights of shape (in, out)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nx") and hasattr(module, "nf")


def widths(layer: nn.Module) -> dict[str, int]:
    """Return the attributes that hold a layer's widths, inputs first, with their values. Empty if it cannot be resized."""
    names = next((names for kind, names in _WIDTHS.items() if isinstance(layer, kind)), ())
    values = {name: getattr(layer, name) for name in (("nx", "nf") if is_conv1d(layer) else names)}
    return {name: value[-1] if isinstance(value, tuple) else int(value) for name, value in values.items()}


def unresizable(model: nn.Module) -> set[str]:
    """Return the layers whose parameters are shared, parametrized or rewritten by a hook."""
    owners = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    return {
        name
        for name, module in model.named_modules(remove_duplicate=False)
        if hasattr(module, "parametrizations")
        or module._forward_pre_hooks
        or any(owners[id(parameter)] > 1 for parameter in module.parameters(recurse=False))
    }


def shapes(layer: nn.Module, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters and buffers that depend on the widths, at these widths."""
    inputs, *others = {**widths(layer), **sizes}.values()
    if not others:
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (inputs,))
    outputs, groups = (*others, 1)[:2]
    is_transposed = is_conv1d(layer) or getattr(layer, "transposed", False)
    kernel = layer.kernel_size if isinstance(layer, CONVOLUTION) else ()
    weight = (inputs, outputs // groups) if is_transposed else (outputs, inputs // groups)
    return {"weight": weight + kernel, "bias": (outputs,)}


def resize(layer: nn.Module, sizes: Mapping[str, int]) -> None:
    """Give the layer these widths and initialize it with torch's defaults."""
    new = shapes(layer, sizes)
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(parameter.detach().new_empty(new[name]), requires_grad=parameter.requires_grad))
    for name, buffer in list(layer.named_buffers()):
        setattr(layer, name, buffer.new_empty(new[name]) if name in new else buffer)
    for name, size in sizes.items():
        setattr(layer, name, (size,) if name == "normalized_shape" else size)
    if is_conv1d(layer):
        nn.init.normal_(layer.weight, std=0.02)  # type: ignore[arg-type]
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    else:
        layer.reset_parameters()  # type: ignore[operator]


def describe(layer: nn.Module) -> str:
    """Format a layer as its class and widths."""
    values = [(name, size) for name, size in widths(layer).items() if (name, size) != ("groups", 1)]
    return f"{type(layer).__name__}({', '.join(f'groups={n}' if name == 'groups' else str(n) for name, n in values)})"
