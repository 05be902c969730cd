"""Logical activation functions: AND, OR and XNOR of independent events, in logit space, for PyTorch.

Example:
    >>> import torch, boolit
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 64), boolit.activation("or_ail"), torch.nn.Linear(32, 1))
    >>> net(torch.zeros(5, 8)).shape
    torch.Size([5, 1])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boolit import functional, logic, nn
    from boolit.functional import combine
    from boolit.nn import activation
    from boolit.tables import load

__version__ = "0.1.0"
__all__ = ["__version__", "activation", "combine", "functional", "load", "logic", "nn"]

_HOMES = {"activation": "nn", "combine": "functional", "load": "tables"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``boolit --help`` does not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name)
    module = import_module(f"{__name__}.{home or name}")
    globals()[name] = getattr(module, name) if home else module
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
