"""Gates and their ensembles as modules: each holds a program and calls one function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.jit import is_scripting  # type: ignore[attr-defined]

from boolit.logic import Program, evaluate
from boolit.logic.kernels.logits import check_logits, position, sizes
from boolit.logic.program import Strategy, suffix
from boolit.logic.vocabulary import as_int
from boolit.nn._activation import Activation


class Gate(Activation):
    """One Boolean operation on groups of k channels.

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

    Shape: along ``dim``, ``C`` to the sum of the members' outputs.

    Example:
        >>> Ensemble([Gate("or"), Gate("xnor")], "p")(torch.tensor([1.0, 2.0, -1.0, 3.0]))
        tensor([ 3., -1.])
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
        self.program = _fused(members, strategy, uneven)
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


def _fused(members: Sequence[Activation], strategy: Strategy, uneven: bool) -> Program | None:
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
