"""Every gate under its own name: ``or_ail(x)`` is ``gate(x, "or", "ail")``.

The functions are written out, for editors, type checkers and torch.jit.script; their docstrings are made from one table, and
each holds an example computed with Python's own floats, so that running it compares the gate with its definition.
"""

from __future__ import annotations

import math

import torch  # noqa: F401 (the examples use it)
from torch import Tensor

from boolit.functional._operations import gate
from boolit.logic.moments import moments
from boolit.logic.vocabulary import FORMS, OPERATIONS, approximate, normalised

# operation: when the event is true, the exact logit of two operands, the approximate one
_MEANINGS = {
    "and": ("every one is true", "−log(e⁻ˣ + e⁻ʸ + e⁻ˣ⁻ʸ)", "x + y if both are negative, else min(x, y)"),
    "or": ("at least one is true", "log(eˣ + eʸ + eˣ⁺ʸ)", "x + y if both are positive, else max(x, y)"),
    "xnor": ("an even number is false", "2 atanh(tanh(x/2) tanh(y/2))", "sgn(x y) min(|x|, |y|)"),
    "nand": ("not every one is true", "log(e⁻ˣ + e⁻ʸ + e⁻ˣ⁻ʸ)", "−x − y if both are negative, else max(−x, −y)"),
    "nor": ("none is true", "−log(eˣ + eʸ + eˣ⁺ʸ)", "−x − y if both are positive, else min(−x, −y)"),
    "xor": ("an odd number is true", "−2 atanh(tanh(x/2) tanh(y/2))", "−sgn(x y) min(|x|, |y|)"),
    "implies": ("x is false or y is true", "log(e⁻ˣ + eʸ + eʸ⁻ˣ)", "y − x if x < 0 < y, else max(−x, y)"),
    "nimplies": ("x is true and y is false", "−log(e⁻ˣ + eʸ + eʸ⁻ˣ)", "x − y if x < 0 < y, else min(x, −y)"),
    "implied_by": ("x is true or y is false", "log(eˣ + e⁻ʸ + eˣ⁻ʸ)", "x − y if y < 0 < x, else max(x, −y)"),
    "nimplied_by": ("x is false and y is true", "−log(eˣ + e⁻ʸ + eˣ⁻ʸ)", "y − x if y < 0 < x, else min(−x, y)"),
}
_DOCSTRING = """{title} of groups of k logits, {form}: the logit of the event that {meaning}{independent}.

    Of two logits x and y it is {formula}{shifted}.

    Args:
        x: logits, of any floating-point type.
        k: how many channels one gate reads{only_two}.
        dim: the dimension of the channels.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k, as GLU does.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)``.

    Example:
        >>> [round(value, 3) for value in {name}(torch.tensor([2.0, -1.0, 0.5, 1.5])).tolist()]
        {result}
    """


def _describe(op: str, form: str) -> str:
    meaning, exact, by_comparison = _MEANINGS[op]
    mean, sd = moments(op, form.removeprefix("n")) if normalised(form) else (0.0, 1.0)
    return _DOCSTRING.format(
        title=op.upper().replace("_", " "),
        form="approximate" if approximate(form) else "exact",
        meaning=meaning,
        independent="" if approximate(form) else ", if they are independent",
        formula=by_comparison if approximate(form) else exact,
        shifted=f"; less its mean {mean:.4f} and divided by its sd {sd:.4f} under N(0,1) logits" if normalised(form) else "",
        only_two="" if OPERATIONS[op].any_k else "; 2, as an implication is of two",
        name=f"{op}_{form}",
        result=[round((_of_two(op, form, x, y) - mean) / sd, 3) for x, y in ((2.0, -1.0), (0.5, 1.5))],
    )


def _of_two(op: str, form: str, x: float, y: float) -> float:
    """The gate's definition for two numbers of moderate size, before it is normalised."""
    operation = OPERATIONS[op]
    x, y = (sign * value for sign, value in zip(operation.input_signs(2), (x, y), strict=True))
    if operation.base == "or":
        by_comparison = x + y if x > 0 and y > 0 else max(x, y)
        value = by_comparison if approximate(form) else math.log(math.exp(x) + math.exp(y) + math.exp(x + y))
    else:
        by_comparison = math.copysign(min(abs(x), abs(y)), x * y)
        value = by_comparison if approximate(form) else 2 * math.atanh(math.tanh(x / 2) * math.tanh(y / 2))
    return operation.output_sign(2) * value


def and_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "and", "il", k, dim, pairing)


def or_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "or", "il", k, dim, pairing)


def xnor_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xnor", "il", k, dim, pairing)


def nand_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nand", "il", k, dim, pairing)


def nor_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nor", "il", k, dim, pairing)


def xor_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xor", "il", k, dim, pairing)


def implies_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implies", "il", k, dim, pairing)


def nimplies_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplies", "il", k, dim, pairing)


def implied_by_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implied_by", "il", k, dim, pairing)


def nimplied_by_il(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplied_by", "il", k, dim, pairing)


def and_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "and", "ail", k, dim, pairing)


def or_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "or", "ail", k, dim, pairing)


def xnor_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xnor", "ail", k, dim, pairing)


def nand_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nand", "ail", k, dim, pairing)


def nor_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nor", "ail", k, dim, pairing)


def xor_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xor", "ail", k, dim, pairing)


def implies_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implies", "ail", k, dim, pairing)


def nimplies_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplies", "ail", k, dim, pairing)


def implied_by_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implied_by", "ail", k, dim, pairing)


def nimplied_by_ail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplied_by", "ail", k, dim, pairing)


def and_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "and", "nil", k, dim, pairing)


def or_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "or", "nil", k, dim, pairing)


def xnor_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xnor", "nil", k, dim, pairing)


def nand_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nand", "nil", k, dim, pairing)


def nor_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nor", "nil", k, dim, pairing)


def xor_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xor", "nil", k, dim, pairing)


def implies_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implies", "nil", k, dim, pairing)


def nimplies_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplies", "nil", k, dim, pairing)


def implied_by_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implied_by", "nil", k, dim, pairing)


def nimplied_by_nil(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplied_by", "nil", k, dim, pairing)


def and_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "and", "nail", k, dim, pairing)


def or_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "or", "nail", k, dim, pairing)


def xnor_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xnor", "nail", k, dim, pairing)


def nand_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nand", "nail", k, dim, pairing)


def nor_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nor", "nail", k, dim, pairing)


def xor_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "xor", "nail", k, dim, pairing)


def implies_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implies", "nail", k, dim, pairing)


def nimplies_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplies", "nail", k, dim, pairing)


def implied_by_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "implied_by", "nail", k, dim, pairing)


def nimplied_by_nail(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    return gate(x, "nimplied_by", "nail", k, dim, pairing)


for _op in OPERATIONS:
    for _form in FORMS:
        globals()[f"{_op}_{_form}"].__doc__ = _describe(_op, _form)
