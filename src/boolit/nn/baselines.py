"""The activations the paper compares with, and some beyond it, with the same face as the gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.functional import operands, signed_geomean
from boolit.nn._activation import Activation
from boolit.nn.gates import suffix

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

GATED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "glu": lambda value, control: value * torch.sigmoid(control),
    "swiglu": lambda value, control: value * F.silu(control),
    "geglu": lambda value, control: value * F.gelu(control),
    "bilinear": lambda value, control: value * control,
}


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
        self.name, self.dim = name, dim
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
        if k < 2:
            raise ValueError(f"k={k} is not a group size: {name} reads at least 2 channels")
        self.name, self.k, self.dim, self.pairing = name, k, dim, pairing

    @property
    def spec(self) -> str:
        return f"{self.name}{suffix(self.k, self.pairing)}"

    @property
    def map(self) -> tuple[int, int]:
        return self.k, 1

    def forward(self, x: Tensor) -> Tensor:
        choose = torch.maximum if self.name == "max" else torch.minimum
        result, *others = operands(x, self.k, self.dim, self.pairing)
        for operand in others:
            result = choose(result, operand)
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
        self.dim, self.pairing = dim, pairing

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
        self.name, self.dim = name, dim

    @property
    def spec(self) -> str:
        return self.name

    @property
    def map(self) -> tuple[int, int]:
        return 2, 1

    def forward(self, x: Tensor) -> Tensor:
        return GATED[self.name](*operands(x, 2, self.dim, "halves"))
