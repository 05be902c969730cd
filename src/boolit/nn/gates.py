"""Activations as modules: gates and their ensembles, and the baselines that the paper compares them with."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor, nn

from boolit.functional import grouped, operands, signed_geomean
from boolit.logic import PAIRINGS, Program, evaluate
from boolit.logic.dispatch import check_channels
from boolit.logic.operations import EXTREMA, STRATEGIES, as_group_size, as_int, check_choice, format_spec, not_a_multiple


class Activation(nn.Module):
    """An activation with known numbers of input and output channels, which lie along ``dim``.

    If ``dim`` is None, activations that read several channels use the last dimension of tensors with up to three dimensions and
    refuse larger ones.

    Attributes:
        spec: The name from which `boolit.activation` makes the module.
        channels: Input and output channels of one group, such as (1, 1), (2, 1), (2, 2) or (2, 3).
        width_multiple: What the number of channels must be a multiple of.
        dim: Dimension of the channels, or None.

    Shape: ``(…, C, …)`` to ``(…, C·out/in, …)`` along ``dim``, for ``channels`` (in, out).

    Example:
        >>> gates = Ensemble([Gate("or"), Gate("and"), Gate("xnor")], "d")
        >>> gates.spec, gates.channels, gates.width_multiple, gates.feature_factor
        ('or_and_xnor_ail_d', (2, 3), 2, Fraction(3, 2))
        >>> gates.out_features(8) == gates(torch.zeros(5, 8)).shape[-1] == 12
        True
    """

    def __init__(self, spec: str, channels: tuple[int, int], dim: int | None = None, width_multiple: int | None = None) -> None:
        super().__init__()
        self.spec, self.channels, self.width_multiple = spec, channels, width_multiple or channels[0]
        self.dim = dim if dim is None else as_int("dim", dim)

    @property
    def feature_factor(self) -> Fraction:
        """Output channels per input channel."""
        return Fraction(self.channels[1], self.channels[0])

    def out_features(self, n: int) -> int:
        """Return the number of output channels for n input channels, which must be a multiple of ``width_multiple``."""
        if n % self.width_multiple:
            raise not_a_multiple(self.spec, self.width_multiple, n)
        return int(n * self.feature_factor)

    def extra_repr(self) -> str:
        """Return what the module prints."""
        return f"{self.spec!r}, dim={self.dim}, {self.channels[0]}→{self.channels[1]}"

    def along(self, dim: int | None) -> Activation:
        """Return the module if it already acts along ``dim``, or if that is None; else a copy that does."""
        if dim is None or self.dim == dim:
            return self
        copy = deepcopy(self)
        for part in copy.modules():
            if isinstance(part, Activation):
                part.dim = as_int("dim", dim)
        return copy


class Gate(Activation):
    """One Boolean operation on groups of k channels.

    Args:
        op: ``and``, ``or``, ``xnor``, ``nand``, ``nor``, ``xor``, ``implies``, ``nimplies``, ``implied_by``, ``nimplied_by``.
        form: ``il`` exact, ``ail`` approximate, ``nil`` and ``nail`` the same with mean 0 and sd 1 under N(0, 1) inputs.
        k: Number of channels that one gate reads.
        dim: Dimension of the channels; see `Activation`.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k, as GLU does.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)`` along ``dim``.

    Example:
        >>> Gate("xnor", "ail")(torch.tensor([2.0, -3.0]))
        tensor([-2.])
    """

    def __init__(self, op: str, form: str = "ail", k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> None:
        program = Program(((op, form),), "d", k, pairing)
        super().__init__(program.spec, (program.k, 1), dim)
        self.program, self.op, self.form, self.k, self.pairing = program, op, form, program.k, pairing

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        return evaluate(x, self.program, self.dim)


class Ensemble(Activation):
    """Several activations on one tensor, their outputs concatenated in order.

    Gates of one group size and pairing run as a single pass.

    Args:
        members: The activations, in the order of their outputs.
        strategy: ``d`` (duplicate) gives every member all channels. A partition gives each its contiguous share of the groups:
            ``p`` equal shares; ``pu`` uneven ones, the first members getting one group more (as in the paper's SRAN); ``pl``
            ``groups // members`` each and the rest for the last (as in the authors' sweeps). The last two are for gates only.
        dim: Dimension of the channels; see `Activation`. Members get the same.

    Shape: along ``dim``, ``C`` to the sum of the members' outputs.

    Example:
        >>> both = Ensemble([Gate("or"), Gate("xnor")], "p")
        >>> both(torch.tensor([1.0, 2.0, -1.0, 3.0])), [part.spec for part in both.parts]
        (tensor([ 3., -1.]), ['or_ail', 'xnor_ail'])
    """

    def __init__(self, members: Sequence[Activation], strategy: str, dim: int | None = None) -> None:
        if isinstance(members, (str, Activation)) or not all(isinstance(member, Activation) for member in members):
            raise TypeError(f"members is a list of activation modules, got {members!r}; make each with boolit.activation")
        if not members:
            raise ValueError("an ensemble needs at least one member, got none")
        check_choice("strategy", strategy, STRATEGIES)
        dims = list(dict.fromkeys(member.dim for member in members))
        if dim is None and len(dims) > 1:
            raise ValueError(f"the members act along dims {dims}; give the ensemble its dim")
        program = _fuse(members, strategy)
        group = math.lcm(*(member.width_multiple for member in members))
        width_multiple = program.width_multiple if program else group * (len(members) if strategy == "p" else 1)
        axis = dims[0] if dim is None else dim
        super().__init__(_spec(members, strategy), _channels(members, strategy), axis, width_multiple)
        self.members = nn.ModuleList(member.along(dim) for member in members)
        self.strategy, self.program = strategy, program

    @property
    def parts(self) -> list[Activation]:
        """The members, typed."""
        return [cast(Activation, member) for member in self.members]

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        if self.program is not None:
            return evaluate(x, self.program, self.dim)
        check_channels(x, self.dim, self.width_multiple, self.spec)
        dim = -1 if self.dim is None else self.dim
        if self.strategy == "d":
            return torch.cat([member(x) for member in self.members], dim)
        share = x.size(dim) // len(self.members)
        return torch.cat([member(x.narrow(dim, i * share, share)) for i, member in enumerate(self.members)], dim)


def _fuse(members: Sequence[Activation], strategy: str) -> Program | None:
    gates = [member for member in members if isinstance(member, Gate)]
    if len(gates) == len(members) and len({(gate.k, gate.pairing) for gate in gates}) == 1:
        return Program(tuple((gate.op, gate.form) for gate in gates), strategy, gates[0].k, gates[0].pairing)
    if strategy in ("pu", "pl"):
        raise ValueError("an uneven partition takes gates of one group size and pairing only")
    if strategy == "p" and any(getattr(member, "pairing", "adjacent") == "halves" for member in members):
        raise ValueError("a partition by halves takes gates of one group size only")
    return None


def _spec(members: Sequence[Activation], strategy: str) -> str:
    words: list[Any] = [member for member in members if isinstance(member, Gate) or getattr(member, "name", "") in EXTREMA]
    if len(words) < len(members) or len({(word.k, word.pairing) for word in words}) > 1:
        return f"{'+'.join(member.spec for member in members)}_{strategy}"
    names = [(word.op, word.form) if isinstance(word, Gate) else (word.name, "") for word in words]
    return format_spec(names, strategy, words[0].k, words[0].pairing)


def _channels(members: Sequence[Activation], strategy: str) -> tuple[int, int]:
    group = math.lcm(*(member.channels[0] for member in members))
    outputs = [int(group * member.feature_factor) for member in members]
    if strategy == "d":
        return group, sum(outputs)
    return (group, outputs[0]) if len(set(outputs)) == 1 else (group * len(outputs), sum(outputs))


# ------------------------------------------------------------------------------------------------ baselines


class RReLU(nn.RReLU):
    """``nn.RReLU`` that draws its slopes from ``generator``, if that is set, with the same numbers on every device."""

    generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        if self.generator is None or not self.training:
            return super().forward(x)
        slope = torch.empty_like(x, device=self.generator.device)
        slope.uniform_(self.lower, self.upper, generator=self.generator)
        return torch.where(x < 0, x * slope.to(x.device), x)


_TORCH = "ReLU ReLU6 PReLU Softplus ELU CELU SELU GELU SiLU Hardswish Mish Softsign Tanh Hardtanh Tanhshrink Hardshrink"
_TORCH += " Softshrink Sigmoid Hardsigmoid LogSigmoid Identity"
POINTWISE: dict[str, type[nn.Module]] = {name.lower(): getattr(nn, name) for name in _TORCH.split()}
POINTWISE |= {"leaky_relu": nn.LeakyReLU, "rrelu": RReLU}
_THRESHOLD = re.compile(r"threshold_(-?[0-9.]+)_(-?[0-9.]+)")

REDUCTIONS = (*EXTREMA, "signed_geomean")
GATED: dict[str, Callable[[], nn.Module]] = {"glu": nn.Sigmoid, "swiglu": nn.SiLU, "geglu": nn.GELU, "bilinear": nn.Identity}


def is_pointwise(name: str) -> bool:
    """Return whether `Pointwise` knows the name."""
    return name in POINTWISE or _THRESHOLD.fullmatch(name) is not None


class Pointwise(Activation):
    """A 1→1 activation of torch with its defaults.

    Args:
        name: A key of ``POINTWISE`` such as ``relu``; or ``threshold_T_V`` for ``nn.Threshold(T, V)``.
        dim: Dimension of the channels; it changes nothing.

    Shape: any, unchanged.

    Example:
        >>> Pointwise("relu")(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def __init__(self, name: str, dim: int | None = None) -> None:
        super().__init__(name, (1, 1), dim)
        if not is_pointwise(name):
            raise ValueError(f"unknown activation {name!r}; choose one of {', '.join(POINTWISE)} or threshold_T_V")
        match = _THRESHOLD.fullmatch(name)
        self.name, self.function = name, nn.Threshold(float(match[1]), float(match[2])) if match else POINTWISE[name]()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        return cast(Tensor, self.function(x))


class Reduction(Activation):
    """The maximum (MaxOut) or minimum of k channels, or the signed geometric mean ``sgn(x y) √|x y|`` of two.

    ``max`` and ``min`` duplicated are GroupSort up to a permutation (NOTE[paper]: the paper calls them equal).

    Args:
        name: ``max``, ``min`` or ``signed_geomean``.
        k: Number of channels that each output reads.
        dim: Dimension of the channels; see `Activation`.
        pairing: ``adjacent`` or ``halves``, as in `Gate`.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)``.

    Example:
        >>> Reduction("max")(torch.tensor([1.0, 2.0, -1.0, -3.0]))
        tensor([ 2., -1.])
    """

    def __init__(self, name: str, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> None:
        check_choice("reduction", name, REDUCTIONS)
        check_choice("pairing", pairing, PAIRINGS)
        k = as_group_size(k, name)
        if name == "signed_geomean" and k > 2:
            raise ValueError(f"signed_geomean reads 2 channels, so k={k} has no meaning for it; use k=2")
        super().__init__(format_spec([(name, "")], None, k, pairing), (k, 1), dim)
        self.name, self.k, self.pairing = name, k, pairing

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        if self.name == "signed_geomean":
            return signed_geomean(x, self.dim, self.pairing)
        groups, axis = grouped(x, self.k, self.dim, self.pairing)
        return groups.amax(axis) if self.name == "max" else groups.amin(axis)  # equal operands share the gradient


class Gated(Activation):
    """GLU and its variants: the first half of the channels times a function of the second half.

    Args:
        name: ``glu`` (sigmoid), ``swiglu`` (SiLU), ``geglu`` (GELU) or ``bilinear`` (the second half itself).
        dim: Dimension of the channels; see `Activation`.

    Shape: ``(…, C, …)`` to ``(…, C/2, …)``.

    Example:
        >>> Gated("bilinear")(torch.tensor([2.0, 3.0, 5.0, 7.0]))
        tensor([10., 21.])
    """

    def __init__(self, name: str, dim: int | None = None) -> None:
        check_choice("activation", name, GATED)
        super().__init__(name, (2, 1), dim)
        self.name, self.function = name, GATED[name]()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        value, control = operands(x, 2, self.dim, "halves")
        return cast(Tensor, value * self.function(control))
