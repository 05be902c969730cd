"""Specs as the paper writes them."""

from __future__ import annotations

from fractions import Fraction

from boolit.nn import Activation, Ensemble, Extremum, Gate, activation

_PROPER = {
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
    "prelu": "PReLU",
    "elu": "ELU",
    "celu": "CELU",
    "selu": "SELU",
    "gelu": "GELU",
    "silu": "SiLU",
    "glu": "GLU",
    "swiglu": "SwiGLU",
    "geglu": "GEGLU",
    "signed_geomean": "SignedGeomean",
}


def label(spec: str) -> str:
    """An activation's name for a legend, in matplotlib's mathtext; a text that is no spec stays as it is.

    Example:
        >>> label("or_xnor_ail_p")
        'OR, XNOR$_{\\\\mathrm{AIL}}$ (p)'
        >>> label("relu"), label("my net, $5")
        ('ReLU', 'my net, \\\\$5')
    """
    try:
        return module_label(activation(spec))
    except ValueError:
        return spec.replace("$", r"\$")


def module_label(module: Activation) -> str:
    """The same for a module."""
    if isinstance(module, Ensemble):
        *others, last = module.parts
        return f"{', '.join([*_heads(others, last), module_label(last)])} ({module.strategy})"
    if isinstance(module, Gate):
        return f"{gate_name(module)}$_{{\\mathrm{{{module.form.upper()}}}}}${_group(module.k)}"
    if isinstance(module, Extremum):
        return f"{module.name.capitalize()}{_group(module.k)}"
    return _PROPER.get(module.spec, module.spec.capitalize().replace("_", " "))


def gate_name(module: Activation) -> str:
    """A gate's operation alone, or the activation's name.

    Example:
        >>> gate_name(activation("implied_by_il")), gate_name(activation("relu"))
        ('IMPLIED BY', 'ReLU')
    """
    return module.op.upper().replace("_", " ") if isinstance(module, Gate) else module_label(module)


def multiple_of_c(factor: Fraction) -> str:
    """Channels after an activation, in terms of the channels C before it.

    Example:
        >>> multiple_of_c(Fraction(1, 2)), multiple_of_c(Fraction(3, 2)), multiple_of_c(Fraction(1))
        ('C/2', '3C/2', 'C')
    """
    top = "C" if factor.numerator == 1 else f"{factor.numerator}C"
    return top if factor.denominator == 1 else f"{top}/{factor.denominator}"


def _heads(others: list[Activation], last: Activation) -> list[str]:
    """The members before the last; the form is written once, at the last, when all have it."""
    form = getattr(last, "form", None)
    return [gate_name(part) if form and getattr(part, "form", None) == form else module_label(part) for part in others]


def _group(k: int) -> str:
    return "" if k == 2 else f" k={k}"
