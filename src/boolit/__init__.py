"""Logical activation functions: AND, OR and XNOR of independent events, in logit space, for PyTorch.

Example:
    >>> import torch, boolit
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 64), boolit.activation("or_ail"), torch.nn.Linear(32, 1))
    >>> net(torch.zeros(5, 8)).shape
    torch.Size([5, 1])
"""

from boolit import _command  # noqa: F401, I001  (before torch: it sees to Ctrl-C where this is the command)
from boolit import functional, logic, nn
from boolit._version import __version__
from boolit.functional import combine
from boolit.nn import activation
from boolit.saved import load

__all__ = ["__version__", "activation", "combine", "functional", "load", "logic", "nn"]
