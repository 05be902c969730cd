"""Names in reports: specs as the paper writes them, columns, metrics, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from html import escape

from boolit.lab.runs import Metric
from boolit.nn import Activation, Custom, Ensemble, Extremum, Gate, activation, known_specs

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


_SMALL_LETTERS = str.maketrans("ailn", "ₐᵢₗₙ")


def label(spec: str) -> str:
    """An activation's name for a legend, in matplotlib's mathtext; a text that is no spec stays as it is.

    Example:
        >>> label("or_xnor_ail_p")
        'OR, XNOR$_{\\\\mathrm{AIL}}$ (p)'
        >>> label("relu"), label("my net, $5")
        ('ReLU', 'my net, \\\\$5')
    """
    return _name(spec, lambda form: f"$_{{\\mathrm{{{form}}}}}$") or spec.replace("$", r"\$")


def paper_name(spec: str) -> str:
    """An activation's name as the paper writes it, in plain text; a text that is no spec stays as it is.

    Example:
        >>> paper_name("xnor_ail"), paper_name("or_and_xnor_nil_d"), paper_name("relu"), paper_name("a guess")
        ('XNORₐᵢₗ', 'OR, AND, XNORₙᵢₗ (d)', 'ReLU', 'a guess')
    """
    return _name(spec, lambda form: form.lower().translate(_SMALL_LETTERS)) or spec


def html_name(spec: str) -> str:
    """The same as HTML, escaped.

    Example:
        >>> html_name("xnor_ail"), html_name("a <b>")
        ('XNOR<sub>AIL</sub>', 'a &lt;b&gt;')
    """
    text = escape(_name(spec, lambda form: f"\0{form}\1") or spec)  # a registered name may hold anything
    return text.replace("\0", "<sub>").replace("\1", "</sub>")


def _name(spec: str, subscript: Callable[[str], str]) -> str:
    """The name with its form as ``subscript`` writes it; nothing for a text that is no spec."""
    try:
        return _module_name(activation(spec), subscript)
    except ValueError:
        return ""


def _module_name(module: Activation, subscript: Callable[[str], str]) -> str:
    if isinstance(module, Ensemble):
        *others, last = module.parts
        form = getattr(last, "form", None)  # written once, at the last, when all have it
        same = [form is not None and getattr(part, "form", None) == form for part in others]
        heads = [gate_name(part) if short else _module_name(part, subscript) for part, short in zip(others, same, strict=True)]
        return f"{', '.join([*heads, _module_name(last, subscript)])} ({module.strategy})"
    if isinstance(module, Gate):
        return f"{gate_name(module)}{subscript(module.form.upper())}{_group(module.k)}"
    if isinstance(module, Extremum):
        return f"{module.name.capitalize()}{_group(module.k)}"
    if isinstance(module, Custom):  # its own author's word
        return module.spec
    return _PROPER.get(module.spec, module.spec.capitalize().replace("_", " "))


def gate_name(module: Activation) -> str:
    """A gate's operation alone, or the activation's name.

    Example:
        >>> gate_name(activation("implied_by_il")), gate_name(activation("relu"))
        ('IMPLIED BY', 'ReLU')
    """
    return module.op.upper().replace("_", " ") if isinstance(module, Gate) else paper_name(module.spec)


def multiple_of_c(factor: Fraction) -> str:
    """Channels after an activation, in terms of the channels C before it.

    Example:
        >>> multiple_of_c(Fraction(1, 2)), multiple_of_c(Fraction(3, 2)), multiple_of_c(Fraction(1))
        ('C/2', '3C/2', 'C')
    """
    top = "C" if factor.numerator == 1 else f"{factor.numerator}C"
    return top if factor.denominator == 1 else f"{top}/{factor.denominator}"


def _group(k: int) -> str:
    return "" if k == 2 else f" k={k}"


def map_of(spec: str) -> str:
    """Channels in → out of an activation; nothing for a name that is no spec.

    Example:
        >>> map_of("or_and_xnor_ail_d"), map_of("a linear layer only")
        ('2→3', '')
    """
    try:
        into, out = activation(spec).map
    except ValueError:
        return ""
    return f"{into}→{out}"


def sort_key(spec: str) -> tuple[int, str]:
    """A key that sorts specs as `boolit.nn.known_specs` does, pointwise ones first; others follow by name."""
    known = known_specs()
    return (known.index(spec) if spec in known else len(known)), spec


def metric_label(metric: Metric, split: bool = True) -> str:
    """A metric in words, with the name of its split or without.

    Example:
        >>> metric_label(Metric(name="accuracy"))
        'test accuracy (%)'
    """
    return (metric.key if split else metric.name).replace("_", " ") + (" (%)" if metric.percent else "")


def shorten_numbers(numbers: Iterable[int]) -> dict[int, str]:
    """Numbers in a few digits, or in full if some could not be told apart.

    Example:
        >>> shorten_numbers([36, 16384, 4000000]), shorten_numbers([65501, 65502])
        ({36: '36', 16384: '16.4k', 4000000: '4M'}, {65501: '65501', 65502: '65502'})
    """
    numbers = list(dict.fromkeys(numbers))
    short = {number: _short(number) for number in numbers}
    return short if len(set(short.values())) == len(numbers) else {number: str(number) for number in numbers}


def _short(number: int) -> str:
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return str(number)
