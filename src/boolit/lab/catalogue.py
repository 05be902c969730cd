"""What there is to choose from: every activation with its map and a line on what it computes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from fractions import Fraction

import boolit
from boolit.nn import Activation, Ensemble, Extremum, Gate, Gated, Pointwise, SignedGeomean, known_specs

FORMULAS = {
    "relu": "max(0, x)",
    "leaky_relu": "x if x > 0, else 0.01 x",
    "prelu": "x if x > 0, else a x with a learnt a",
    "softplus": "log(1 + eˣ)",
    "elu": "x if x > 0, else eˣ − 1",
    "celu": "elu, smooth for any α (α = 1)",
    "selu": "elu, scaled to keep mean 0 and sd 1",
    "gelu": "x Φ(x)",
    "silu": "x σ(x)",
    "hardswish": "x clip(x + 3, 0, 6) / 6",
    "mish": "x tanh(log(1 + eˣ))",
    "softsign": "x / (1 + |x|)",
    "tanh": "tanh(x)",
    "sigmoid": "σ(x)",
    "identity": "x",
    "glu": "x σ(y), y from the second half",
    "swiglu": "x silu(y), y from the second half",
    "geglu": "x gelu(y), y from the second half",
    "bilinear": "x y, y from the second half",
    "max": "max(x, y), MaxOut",
    "min": "min(x, y)",
    "max_min_d": "max and min of each pair, GroupSort",
    "signed_geomean": "sgn(x y) √|x y|",
}
OPERATORS = {
    "implies": "x ⇒ y",
    "nimplies": "NOT (x ⇒ y)",
    "implied_by": "x ⇐ y",
    "nimplied_by": "NOT (x ⇐ y)",
}
FORMS = {"il": "exact", "ail": "approximate", "nil": "exact, normalised", "nail": "approximate, normalised"}


@dataclass(frozen=True)
class ActivationEntry:
    """One activation: ``map`` is channels in → out of a group, ``divisor`` what a width must be a multiple of."""

    spec: str
    map: tuple[int, int]
    divisor: int
    feature_factor: Fraction
    kind: str
    description: str

    @property
    def arrow(self) -> str:
        """The map as it is written."""
        return f"{self.map[0]}→{self.map[1]}"


def activations() -> list[ActivationEntry]:
    """Every spec that takes no ending, registered ones included; by map, then by kind.

    Example:
        >>> [entry.arrow for entry in activations() if entry.spec in ("relu", "or_and_xnor_nail_d")]
        ['1→1', '2→3']
    """
    entries = [_entry(boolit.activation(spec)) for spec in known_specs()]
    kinds = list(dict.fromkeys(entry.kind for entry in entries))
    return sorted(entries, key=lambda entry: (entry.map, kinds.index(entry.kind)))


def _entry(module: Activation) -> ActivationEntry:
    kind, description = _kind(module), _description(module)
    return ActivationEntry(module.spec, module.map, module.divisor, module.feature_factor, kind, description)


def _kind(module: Activation) -> str:
    if isinstance(module, Gate):
        return "gate"
    if isinstance(module, Ensemble) and module.program is not None:
        return "duplicate" if module.strategy == "d" else "partition"
    return "baseline" if isinstance(module, Pointwise | Gated | Extremum | SignedGeomean | Ensemble) else "registered"


def _description(module: Activation) -> str:
    if isinstance(module, Gate):
        return f"{OPERATORS.get(module.op, f'x {module.op.upper()} y')}, {FORMS[module.form]}"
    if isinstance(module, Ensemble) and module.program is not None:
        members = ", ".join(op.upper() for op, _ in module.program.members)
        return f"{members}; {FORMS[module.program.members[0][1]]}"
    return FORMULAS.get(module.spec) or (inspect.getdoc(module) or "").partition("\n")[0]
