"""Modules for logical activations and their baselines, a perceptron, and `convert` for existing networks.

Example:
    >>> import torch
    >>> net = MLP(8, [64, 64], 1, "or_and_xnor_nail_d", normalization="batch")
    >>> net(torch.zeros(5, 8)).shape
    torch.Size([5, 1])
"""

from typing import TYPE_CHECKING, Any

from boolit.nn.gates import Activation, Ensemble, Gate, Gated, Pointwise, Reduction
from boolit.nn.mlp import MLP
from boolit.nn.specs import Custom, activation, known_specs, register

if TYPE_CHECKING:
    from boolit.nn.conversion import Conversion, convert

__all__ = ["MLP", "Activation", "Custom", "Ensemble", "Gate", "Gated", "Pointwise", "Reduction", "activation"]
__all__ += ["Conversion", "convert", "known_specs", "register"]


def __getattr__(name: str) -> Any:
    if name in ("Conversion", "convert"):  # slow to import, so loaded when used
        from boolit.nn import conversion

        return getattr(conversion, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
