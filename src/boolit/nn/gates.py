"""Activations as modules: gates and their ensembles, and the baselines the paper compares them with."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.jit import is_scripting  # type: ignore[attr-defined]

from boolit.functional import grouped, operands, signed_geomean
from boolit.logic import PAIRINGS, Program, evaluate
from boolit.logic.kernels.logits import check_logits, position, sizes
from boolit.logic.program import Strategy, suffix
from boolit.logic.vocabulary import as_group_size, as_int, check_word

# What every activation module tells about itself: how many channels it turns into how many, and its name.


class Activation(nn.Module, ABC):
    """An activation with a known map of channels; ``dim`` is the dimension they lie along.

    Every activation here is one, whatever it computes, so a network can be built around any of them. A subclass defines
    ``spec``, ``map`` and ``forward``.

    Shape: ``(…, C, …)`` to ``(…, C·out/in, …)`` along ``dim``, for the map in → out.

    Example:
        >>> gates = Ensemble([Gate("or"), Gate("and"), Gate("xnor")], "d")
        >>> gates.spec, gates.map, gates.divisor, gates.feature_factor
        ('or_and_xnor_ail_d', (2, 3), 2, Fraction(3, 2))
        >>> gates.out_features(8) == gates.forward(torch.zeros(5, 8)).shape[-1] == 12
        True
    """

    dim: int  # no postponed annotations in this file: torch.jit.script reads this one
    __jit_unused_properties__: ClassVar[list[str]] = ["spec", "map", "divisor", "feature_factor", "parts"]  # not to be scripted

    @property
    @abstractmethod
    def spec(self) -> str:
        """The name `boolit.activation` makes this module from."""

    @property
    @abstractmethod
    def map(self) -> tuple[int, int]:
        """Channels in → channels out, in lowest terms of one group, such as (1, 1), (2, 1), (2, 2) or (2, 3)."""

    @property
    def divisor(self) -> int:
        """What the number of channels must be a multiple of."""
        return self.map[0]

    @property
    def feature_factor(self) -> Fraction:
        """Channels out per channel in."""
        return Fraction(self.map[1], self.map[0])

    def out_features(self, n: int) -> int:
        """How many channels come out of n, which is a multiple of ``divisor``; else it is a ValueError with the nearest."""
        if n % self.divisor:
            below, above = n - n % self.divisor, n + -n % self.divisor
            near = f"{below} or {above}" if below else above
            raise ValueError(f"{self.spec} needs a multiple of {self.divisor} channels, got {n}; use {near}")
        return int(n * self.feature_factor)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The activated tensor; of modules, call the module itself.

        Shape: as the class says.
        """

    def extra_repr(self) -> str:
        return f"{self.spec!r}, dim={self.dim}, map={self.map[0]}→{self.map[1]}"


# Gates and their ensembles as modules: each holds a program and calls one function.


class Gate(Activation):
    """One Boolean operation on groups of k channels, as `boolit.functional.gate` computes it.

    Args:
        op: ``and``, ``or``, ``xnor``, ``nand``, ``nor``, ``xor``, ``implies``, ``nimplies``, ``implied_by``, ``nimplied_by``.
        form: ``il`` exact, ``ail`` approximate, ``nil`` and ``nail`` the same with mean 0 and sd 1 under N(0,1) inputs.
        k: how many channels one gate reads.
        dim: the dimension of the channels.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k, as GLU does.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)`` along ``dim``.

    Example:
        >>> Gate("xnor", "ail")(torch.tensor([2.0, -3.0]))
        tensor([-2.])
    """

    def __init__(self, op: str, form: str = "ail", k: int = 2, dim: int = -1, pairing: str = "adjacent") -> None:
        super().__init__()
        self.program = Program(((op, form),), "d", k, pairing)
        self.op, self.form, self.k, self.dim, self.pairing = op, form, self.program.k, as_int("dim", dim), pairing
        self.text = str(self.program)

    @property
    def spec(self) -> str:
        return f"{self.op}_{self.form}{suffix(self.k, self.pairing)}"

    @property
    def map(self) -> tuple[int, int]:
        return self.k, 1

    def forward(self, x: Tensor) -> Tensor:
        if is_scripting():
            result: Tensor = torch.ops.boolit.evaluate(x, self.text, self.dim)
            return result
        else:  # noqa: RET505 (TorchScript would compile what follows without it)
            return evaluate(x, self.program, self.dim)


class Ensemble(Activation):
    """Several activations on one tensor, their outputs concatenated in order.

    ``d`` (duplicate) gives every member all channels; ``p`` (partition) gives each its contiguous share of the groups,
    equal unless ``uneven``. Gates of one group size and pairing run as a single pass.

    Args:
        members: the activations, in the order of their outputs; each acts along ``dim``.
        strategy: ``d`` or ``p``.
        dim: the dimension of the channels.
        uneven: whether the shares of a partition may differ by one group, the first ones being larger.

    Shape: along ``dim``, ``C`` to the sum of the members' outputs.

    Example:
        >>> both = Ensemble([Gate("or"), Gate("xnor")], "p")
        >>> both(torch.tensor([1.0, 2.0, -1.0, 3.0])), [part.spec for part in both.parts]
        (tensor([ 3., -1.]), ['or_ail', 'xnor_ail'])
    """

    def __init__(self, members: Sequence[Activation], strategy: Strategy, dim: int = -1, uneven: bool = False) -> None:
        super().__init__()
        dim = as_int("dim", dim)
        if isinstance(members, (str, Activation)) or not all(isinstance(member, Activation) for member in members):
            raise TypeError(f"members is a list of activation modules, got {members!r}; make each with boolit.activation")
        if not members:
            raise ValueError("an ensemble needs at least one member, got none")
        if strategy not in ("d", "p"):
            raise ValueError(f"unknown strategy {strategy!r}; choose d (duplicate) or p (partition)")
        if any(member.dim != dim for member in members):
            raise ValueError(
                f"the members act along dims {[m.dim for m in members]}, the ensemble along {dim}; make them equal"
            )
        self.members = nn.ModuleList(members)
        self.strategy, self.dim, self.uneven = strategy, dim, uneven
        self.program = _fuse(members, strategy, uneven)
        self.text = str(self.program or "")
        if self.program is None and strategy == "p":
            _check_unfused_partition(members, uneven)

    @property
    def parts(self) -> list[Activation]:
        """The members, typed."""
        return [cast(Activation, member) for member in self.members]

    @property
    def spec(self) -> str:
        ending = f"_{self.strategy}{'u' if self.uneven else ''}"
        if self.program is not None:
            forms = {form for _, form in self.program.members}
            if len(forms) == 1:
                names = "_".join(name for name, _ in self.program.members)
                return f"{names}_{forms.pop()}{ending}{suffix(self.program.k, self.program.pairing)}"
        specs = [part.spec for part in self.parts]
        joint = "_" if all(spec in ("max", "min") for spec in specs) else "+"
        return joint.join(specs) + ending

    @property
    def map(self) -> tuple[int, int]:
        group = math.lcm(*(part.map[0] for part in self.parts))
        outputs = [int(group * part.feature_factor) for part in self.parts]
        if self.strategy == "d":
            return group, sum(outputs)
        return (group, outputs[0]) if len(set(outputs)) == 1 else (group * len(outputs), sum(outputs))

    @property
    def divisor(self) -> int:
        if self.program is not None:
            return self.program.divisor
        group = math.lcm(*(part.divisor for part in self.parts))
        return group * len(self.parts) if self.strategy == "p" else group

    def forward(self, x: Tensor) -> Tensor:
        if is_scripting():
            return torch.ops.boolit.evaluate(x, self.text, self.dim) if self.text else self._join(x)
        else:  # noqa: RET505 (TorchScript would compile what follows without it)
            return self._join_checked(x) if self.program is None else evaluate(x, self.program, self.dim)

    def _join_checked(self, x: Tensor) -> Tensor:
        check_logits(x)
        if not isinstance(x, Proxy):
            shape = sizes(x)
            self.out_features(shape[position(self.dim, shape)])
        return self._join(x)

    def _join(self, x: Tensor) -> Tensor:
        outputs = []
        share = x.size(self.dim) // len(self.members)
        for i, member in enumerate(self.members):
            outputs.append(member(x if self.strategy == "d" else x.narrow(self.dim, i * share, share)))
        return torch.cat(outputs, self.dim)


def _fuse(members: Sequence[Activation], strategy: Strategy, uneven: bool) -> Program | None:
    """The program that does all members in one pass, if they are gates of one grouping."""
    gates = [member for member in members if isinstance(member, Gate)]
    if len(gates) < len(members) or len({(gate.k, gate.pairing) for gate in gates}) > 1:
        return None
    return Program(tuple((gate.op, gate.form) for gate in gates), strategy, gates[0].k, gates[0].pairing, uneven)


def _check_unfused_partition(members: Sequence[Activation], uneven: bool) -> None:
    if uneven:
        raise ValueError("an uneven partition takes gates of one group size and pairing only")
    if any(getattr(member, "pairing", "adjacent") == "halves" for member in members):
        raise ValueError("a partition by halves takes gates of one group size only")


# The activations the paper compares with, and some beyond it, with the same face as the gates.

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

    Args:
        name: ``relu``, ``leaky_relu``, ``prelu``, ``softplus``, ``elu``, ``celu``, ``selu``, ``gelu``, ``silu``, ``hardswish``,
            ``mish``, ``softsign``, ``tanh``, ``sigmoid`` or ``identity``.
        dim: the dimension of the channels; it changes nothing.

    Shape: any, unchanged.

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

    Args:
        name: ``max`` or ``min``.
        k: how many channels each reads.
        dim: the dimension of the channels.
        pairing: ``adjacent`` or ``halves``, as in `Gate`.

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
        groups, axis = grouped(x, self.k, self.dim, self.pairing)
        return groups.amax(axis) if self.name == "max" else groups.amin(axis)  # equal operands share the gradient


class SignedGeomean(Activation):
    """``sgn(x y) √|x y|`` of pairs of channels, as `boolit.functional.signed_geomean` computes it.

    Args:
        dim: the dimension of the channels.
        pairing: ``adjacent`` or ``halves``, as in `Gate`.

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

    Args:
        name: ``glu`` (sigmoid), ``swiglu`` (SiLU), ``geglu`` (GELU) or ``bilinear`` (the second half itself).
        dim: the dimension of the channels.

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
