"""Logical activations and their baselines as modules, and what a network around them needs."""

from boolit.nn._activation import Activation
from boolit.nn.baselines import Extremum, Gated, Pointwise, SignedGeomean
from boolit.nn.gates import Ensemble, Gate
from boolit.nn.specs import Custom, activation, known_specs, register

__all__ = [
    "Activation",
    "Custom",
    "Ensemble",
    "Extremum",
    "Gate",
    "Gated",
    "Pointwise",
    "SignedGeomean",
    "activation",
    "known_specs",
    "register",
]
