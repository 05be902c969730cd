"""Logical activations and their baselines as modules, and what a network around them needs."""

from boolit.nn._activation import Activation
from boolit.nn.baselines import Extremum, Gated, Pointwise, SignedGeomean
from boolit.nn.convert import Conversion, convert
from boolit.nn.gates import Ensemble, Gate
from boolit.nn.specs import Custom, activation, known_specs, register

__all__ = [
    "Activation",
    "Conversion",
    "Custom",
    "Ensemble",
    "Extremum",
    "Gate",
    "Gated",
    "Pointwise",
    "SignedGeomean",
    "activation",
    "convert",
    "known_specs",
    "register",
]
