"""The activations the paper compares with, and some beyond it, with the same face as the gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from boolit.functional._operations import operands, signed_geomean
from boolit.logic import PAIRINGS
from boolit.logic.program import suffix
from boolit.logic.vocabulary import as_group_size, as_int, check_word
from boolit.nn._activation import Activation

POINTWISE: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "softplus": nn.Softplus,
    "elu": nn.ELU,
    "celu": nn.CELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "hardswish": nn.Hardswish,
    "mish": nn.Mish,
    "softsign": nn.Softsign,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}

GATED: dict[str, Callable[[], nn.Module]] = {"glu": nn.Sigmoid, "swiglu": nn.SiLU, "geglu": nn.GELU, "bilinear": nn.Identity}


class Pointwise(Activation):
    """A 1→1 activation of torch under its name here.

    Example:
        >>> Pointwise("relu")(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def __init__(self, name: str, dim: int = -1) -> None:
        super().__init__()
        if name not in POINTWISE:
            raise ValueError(f"unknown activation {name!r}; choose one of {', '.join(POINTWISE)}")
        self.name, self.dim = name, as_int("dim", dim)
        self.function = POINTWISE[name]()

    @property
    def spec(self) -> str:
        return self.name

    @property
    def map(self) -> tuple[int, int]:
        return 1, 1

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function(x)
        return result


class Extremum(Activation):
    """The maximum (MaxOut) or minimum of k channels; ``max`` and ``min`` duplicated are GroupSort up to a permutation.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)``.

    Example:
        >>> Extremum("max")(torch.tensor([1.0, 2.0, -1.0, -3.0]))
        tensor([ 2., -1.])
    """

    def __init__(self, name: str, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> None:
        super().__init__()
        if name not in ("max", "min"):
            raise ValueError(f"unknown extremum {name!r}; choose max or min")
        check_word("pairing", pairing, PAIRINGS)
        self.name, self.k, self.dim, self.pairing = name, as_group_size(k, name), as_int("dim", dim), pairing

    @property
    def spec(self) -> str:
        return f"{self.name}{suffix(self.k, self.pairing)}"

    @property
    def map(self) -> tuple[int, int]:
        return self.k, 1

    def forward(self, x: Tensor) -> Tensor:
        several = operands(x, self.k, self.dim, self.pairing)
        result = several[0]
        for operand in several[1:]:
            result = torch.maximum(result, operand) if self.name == "max" else torch.minimum(result, operand)
        return result


class SignedGeomean(Activation):
    """sgn(x y) √|x y| of neighbouring channels.

    Shape: ``(…, C, …)`` to ``(…, C/2, …)``.

    Example:
        >>> SignedGeomean()(torch.tensor([4.0, -1.0]))
        tensor([-2.])
    """

    def __init__(self, dim: int = -1, pairing: str = "adjacent") -> None:
        super().__init__()
        check_word("pairing", pairing, PAIRINGS)
        self.dim, self.pairing = as_int("dim", dim), pairing

    @property
    def spec(self) -> str:
        return f"signed_geomean{suffix(2, self.pairing)}"

    @property
    def map(self) -> tuple[int, int]:
        return 2, 1

    def forward(self, x: Tensor) -> Tensor:
        return signed_geomean(x, self.dim, self.pairing)


class Gated(Activation):
    """GLU and its kin: the first half of the channels times a function of the second half.

    Shape: ``(…, C, …)`` to ``(…, C/2, …)``.

    Example:
        >>> Gated("bilinear")(torch.tensor([2.0, 3.0, 5.0, 7.0]))
        tensor([10., 21.])
    """

    def __init__(self, name: str, dim: int = -1) -> None:
        super().__init__()
        if name not in GATED:
            raise ValueError(f"unknown activation {name!r}; choose one of {', '.join(GATED)}")
        self.name, self.dim = name, as_int("dim", dim)
        self.function = GATED[name]()

    @property
    def spec(self) -> str:
        return self.name

    @property
    def map(self) -> tuple[int, int]:
        return 2, 1

    def forward(self, x: Tensor) -> Tensor:
        value, control = operands(x, 2, self.dim, "halves")
        result: Tensor = value * self.function(control)
        return result
