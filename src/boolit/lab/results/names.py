"""Names in reports: activations as the paper writes them, metrics, numbers, and their order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from html import escape

from boolit.lab.runs import Metric
from boolit.nn import Activation, Custom, Ensemble, Gate, Reduction, activation, known_specs

REFERENCE = "relu"
MINUS = " − "  # between two specs: the name of a difference

_PROPER = {name.lower(): name for name in ("PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "GLU", "SwiGLU", "GEGLU", "ReLU")}
_PROPER |= {"leaky_relu": "LeakyReLU", "signed_geomean": "SignedGeomean"}
_LATEX: dict[str, str | int | None] = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
_LATEX |= {"<": "$<$", ">": "$>$", "≥": r"$\geq$", "≤": r"$\leq$", "±": r"$\pm$", "−": "$-$", "→": r"$\to$"}


def latex_escape(text: str) -> str:
    """Escape a text for LaTeX."""
    return text.translate(str.maketrans(_LATEX))


_MARKUP: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {  # how text is escaped and a subscript written
    "text": (str, lambda form: form.lower().translate(str.maketrans("ailn", "ₐᵢₗₙ"))),
    "mathtext": (lambda text: text.replace("$", r"\$"), lambda form: f"$_{{\\mathrm{{{form}}}}}$"),
    "latex": (latex_escape, lambda form: f"$_{{\\mathrm{{{form}}}}}$"),
    "html": (escape, lambda form: f"<sub>{form}</sub>"),
}


def paper_name(spec: str, markup: str = "text") -> str:
    r"""Return an activation's name as the paper writes it. A text that is not a spec is only escaped.

    Args:
        spec: the spec, or two of them with `MINUS` between them.
        markup: ``text``, ``mathtext`` (of matplotlib), ``latex`` or ``html``.

    Example:
        >>> paper_name("xnor_ail"), paper_name("or_and_xnor_nil_d"), paper_name("relu"), paper_name("a guess")
        ('XNORₐᵢₗ', '{OR, AND, XNORₙᵢₗ (d)}', 'ReLU', 'a guess')
        >>> print(paper_name("or_xnor_ail_p", "latex"), paper_name("xnor_ail", "html"))
        \{OR, XNOR$_{\mathrm{AIL}}$ (p)\} XNOR<sub>AIL</sub>
    """
    escaped, subscript = _MARKUP[markup]
    modules = {part: _activation(part) for part in spec.split(MINUS)}
    names = [part if module is None else _module_name(module) for part, module in modules.items()]
    return re.sub("\0(.*?)\1", lambda form: subscript(form[1]), escaped(MINUS.join(names)))


def _activation(spec: str) -> Activation | None:
    try:
        return activation(spec)
    except ValueError:
        return None


def _module_name(module: Activation) -> str:
    """Return the name of an activation, with its form, which is a subscript, between two control characters."""
    if isinstance(module, Ensemble):
        *others, last = module.parts
        form = getattr(last, "form", None)  # written once, after the last gate, if all gates share it
        shared = [form is not None and getattr(part, "form", None) == form for part in others]
        names = [gate_name(part) if short else _module_name(part) for part, short in zip(others, shared, strict=True)]
        return f"{{{', '.join([*names, _module_name(last)])} ({module.strategy})}}"
    if isinstance(module, Gate):
        return f"{gate_name(module)}\0{module.form.upper()}\1{_group(module.k)}"
    if isinstance(module, Reduction) and module.name in ("max", "min"):
        return f"{module.name.capitalize()}{_group(module.k)}"
    if isinstance(module, Custom):
        return module.spec
    return _PROPER.get(module.spec, module.spec.capitalize().replace("_", " "))


def _group(k: int) -> str:
    return "" if k == 2 else f" k={k}"


def gate_name(module: Activation) -> str:
    """Return the operation of a gate, such as ``IMPLIED BY``, or the name of any other activation."""
    return module.op.upper().replace("_", " ") if isinstance(module, Gate) else paper_name(module.spec)


def channels_of(spec: str) -> str:
    """Return the channels in → out of an activation, or "" for a text that is not a spec.

    Example:
        >>> channels_of("or_and_xnor_ail_d"), channels_of("majority class")
        ('2→3', '')
    """
    module = _activation(spec)
    return "→".join(map(str, module.channels)) if module is not None else ""


def sort_key(spec: str) -> tuple[int, str]:
    """Return a key that sorts specs like `boolit.nn.known_specs`, pointwise activations first."""
    known = known_specs()
    return (known.index(spec) if spec in known else len(known)), spec


def metric_label(metric: Metric, split: bool = True) -> str:
    """Return a metric in words, such as ``test accuracy (%)``."""
    return (metric.key if split else metric.name).replace("_", " ") + (" (%)" if metric.percent else "")


def shorten_numbers(numbers: Iterable[int]) -> dict[int, str]:
    """Return numbers in a few digits, or in full if two of them would look alike.

    Example:
        >>> shorten_numbers([36, 16384, 4000000]), shorten_numbers([65501, 65502])
        ({36: '36', 16384: '16.4k', 4000000: '4M'}, {65501: '65501', 65502: '65502'})
    """
    short = {number: _short(number) for number in numbers}
    return short if len(set(short.values())) == len(short) else {number: str(number) for number in short}


def _short(number: int) -> str:
    if number < 1000:
        return str(number)
    return f"{number / 10**6:.3g}M" if number >= 10**6 else f"{number / 1000:.3g}k"


def format_p(p: float) -> str:
    """Return a p-value with two digits: one below 0.001, three near 0.05.

    Example:
        >>> format_p(0.2104), format_p(1.234e-9), format_p(0.0498), format_p(0.0), format_p(float("nan"))
        ('0.21', '1e-9', '0.0498', '< 1e-300', 'no test')
    """
    if math.isnan(p):
        return "no test"
    if p < 1e-300:
        return "< 1e-300"
    if p < 1e-3:
        return f"{p:.0e}".replace("e-0", "e-")
    return f"{p:.3g}" if 0.045 < p < 0.055 else f"{p:.2g}"


def describe_p(p: float) -> str:
    """Return a p-value for a sentence, such as ``p = 0.21``."""
    number = format_p(p)
    return number if math.isnan(p) else f"p {number}" if number.startswith("<") else f"p = {number}"


def join_words(words: list[str], most: int | None = None) -> str:
    """Join words for a sentence, or the first ``most`` of them and the number of others.

    Example:
        >>> join_words(["a", "b", "c"]), join_words(["a", "b", "c"], 1)
        ('a, b and c', 'a and 2 others')
    """
    hidden = 0 if most is None else max(0, len(words) - most)
    shown = [*words[: len(words) - hidden], *([f"{hidden} other{'s' * (hidden > 1)}"] if hidden else [])]
    return "".join(shown) if len(shown) < 2 else f"{', '.join(shown[:-1])} and {shown[-1]}"
