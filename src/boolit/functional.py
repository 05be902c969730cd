"""Logical activations as functions of tensors.

`gate` applies any gate or ensemble by its spec. The paper's gates have their own functions: ``and``, ``or`` and ``xnor`` with
``il`` (exact), ``ail`` (approximate), ``nil`` and ``nail`` (the same, normalized). `combine` joins separate tensors.

Example:
    >>> or_ail(torch.tensor([1.0, 2.0, -1.0, 3.0])), and_ail(torch.tensor([1.0, 2.0, -1.0, 3.0]))
    (tensor([3., 3.]), tensor([ 1., -1.]))
"""

from __future__ import annotations

import torch
from torch import Tensor

from boolit.logic import PAIRINGS, Program, evaluate, moments
from boolit.logic.dispatch import check_channels, check_logits
from boolit.logic.operations import as_group_size, check_choice, format_spec, is_approximate, is_normalized

__all__ = [
    *("combine", "gate", "signed_geomean"),
    *(f"{op}_{form}" for op in ("and", "or", "xnor") for form in ("il", "ail", "nil", "nail")),
]


def gate(x: Tensor, spec: str, dim: int | None = None) -> Tensor:
    """Apply a gate or an ensemble of gates to groups of channels.

    Args:
        x: Logits of any floating-point type.
        spec: A gate such as ``or_ail``, ``xnor_nil`` or ``implies_il``, or an ensemble such as ``or_and_xnor_nail_d``. Add
            ``_kN`` for groups of N channels, ``_halves`` for pairs as in GLU. `boolit.activation` reads the same names.
        dim: Dimension of the channels. Defaults to the last one; required for tensors with more than three dimensions.

    Returns:
        The outputs, concatenated over the gates along ``dim``: ``(…, C, …)`` becomes ``(…, C/k, …)`` for a gate or a partition
        and ``(…, m·C/k, …)`` for m duplicated gates.

    Example:
        >>> gate(torch.tensor([1.0, 2.0, -1.0, 3.0]), "or_xnor_ail_d")
        tensor([ 3.,  3.,  1., -1.])
    """
    if not isinstance(spec, str):
        raise TypeError(f"a spec is a string such as 'or_ail', got {type(spec).__name__}")
    return evaluate(x, Program.parse(spec), dim)


def combine(op: str, *logits: Tensor, form: str = "il") -> Tensor:
    """Apply one Boolean operation to separate tensors of logits, which broadcast.

    Args:
        op: ``and``, ``or``, ``xnor``, ``nand``, ``nor``, ``xor``, ``implies``, ``nimplies``, ``implied_by`` or ``nimplied_by``.
        logits: Two or more tensors; an implication takes two.
        form: ``il`` exact, ``ail`` approximate, ``nil`` and ``nail`` the same, normalized.

    Returns:
        A tensor of the broadcast shape of the logits.

    Example:
        >>> rain, sprinkler = torch.tensor(0.0), torch.tensor([0.0, float("-inf")])
        >>> combine("or", rain, sprinkler).sigmoid()
        tensor([0.7500, 0.5000])
    """
    if len(logits) < 2:
        raise ValueError(f"combine({op!r}, …) needs at least 2 tensors of logits, got {len(logits)}")
    for logit in logits:
        check_logits(logit)
    stacked = torch.stack(torch.broadcast_tensors(*logits))
    return evaluate(stacked, Program(((op, form),), "d", len(logits), "halves"), 0).squeeze(0)


def signed_geomean(x: Tensor, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    """Return ``sgn(x y) √|x y|`` of pairs of channels, with a finite gradient.

    The true derivative ``½ √|y/x|`` diverges at x = 0; here it is 0 where an operand is exactly 0, as in the authors' code.

    Args:
        x: A tensor of floating-point numbers.
        dim: Dimension of the channels, as in `gate`.
        pairing: ``adjacent`` pairs channels (0, 1), (2, 3), …; ``halves`` pairs i with i + C/2.

    Returns:
        A tensor with half of the channels.

    Example:
        >>> signed_geomean(torch.tensor([4.0, -1.0, 9.0, 4.0]))
        tensor([-2.,  6.])
    """
    # NOTE[paper]: the paper does not define the gradient at 0.
    first, second = operands(x, 2, dim, pairing)
    nonzero = (first != 0) & (second != 0)
    sign = 1 - 2 * ((first < 0) ^ (second < 0)).to(x.dtype)
    root = torch.where(nonzero, first.abs(), 1).sqrt() * torch.where(nonzero, second.abs(), 1).sqrt()
    return torch.where(nonzero, sign * root, 0)


def operands(x: Tensor, k: int, dim: int | None, pairing: str) -> list[Tensor]:
    """Return the k operands of every group along ``dim``, as k views.

    Example:
        >>> operands(torch.arange(4.0), 2, -1, "halves")
        [tensor([0., 1.]), tensor([2., 3.])]
    """
    groups, axis = grouped(x, k, dim, pairing)
    views = groups.unbind(axis)
    return [views[i] for i in range(k)]


def grouped(x: Tensor, k: int, dim: int | None, pairing: str) -> tuple[Tensor, int]:
    """Split ``dim`` into groups of ``k``. Return the view and its new axis, along which the operands of a group lie.

    Example:
        >>> grouped(torch.arange(4.0), 2, -1, "halves")
        (tensor([[0., 1.],
                [2., 3.]]), -2)
    """
    check_choice("pairing", pairing, PAIRINGS)
    check_channels(x, dim, k, f"a grouping by {k}")
    dim = -1 if dim is None else dim
    if pairing == "adjacent":  # an axis is counted from the side that dim is counted from, so tracers need no rank
        return x.unflatten(dim, (-1, k)), dim + 1 if dim >= 0 else dim
    return x.unflatten(dim, (k, -1)), dim if dim >= 0 else dim - 1


def _program(spec: str, k: int, pairing: str) -> Program:
    program, k = Program.parse(spec), as_group_size(k)
    check_choice("pairing", pairing, PAIRINGS)
    return program if k == 2 and pairing == "adjacent" else Program.parse(format_spec(program.members, None, k, pairing))


# The paper's gates. Their docstrings are made from one table.


def and_il(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("and_il", k, pairing), dim)


def and_ail(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("and_ail", k, pairing), dim)


def and_nil(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("and_nil", k, pairing), dim)


def and_nail(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("and_nail", k, pairing), dim)


def or_il(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("or_il", k, pairing), dim)


def or_ail(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("or_ail", k, pairing), dim)


def or_nil(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("or_nil", k, pairing), dim)


def or_nail(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("or_nail", k, pairing), dim)


def xnor_il(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("xnor_il", k, pairing), dim)


def xnor_ail(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("xnor_ail", k, pairing), dim)


def xnor_nil(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("xnor_nil", k, pairing), dim)


def xnor_nail(x: Tensor, k: int = 2, dim: int | None = None, pairing: str = "adjacent") -> Tensor:
    return evaluate(x, _program("xnor_nail", k, pairing), dim)


# operation: when the event is true, the exact logit of two operands, the approximate one
_MEANINGS = {
    "and": ("every event is true", "−log(e⁻ˣ + e⁻ʸ + e⁻ˣ⁻ʸ)", "x + y if both are negative, else min(x, y)"),
    "or": ("at least one event is true", "log(eˣ + eʸ + eˣ⁺ʸ)", "x + y if both are positive, else max(x, y)"),
    "xnor": ("an even number of events is false", "2 atanh(tanh(x/2) tanh(y/2))", "sgn(x y) min(|x|, |y|)"),
}
_DOCSTRING = """Return the {kind} logit that {meaning}, for groups of k channels.

    For two logits x and y it is ``{formula}``{normalized}.

    Args:
        x: Logits of any floating-point type.
        k: Number of channels that one gate reads.
        dim: Dimension of the channels. Defaults to the last one of up to three; larger tensors need it.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k, as GLU does.

    Returns:
        A tensor with 1/k of the channels.
    """


def _describe(op: str, form: str) -> str:
    meaning, exact, approximate = _MEANINGS[op]
    mean, sd = moments(op, form.removeprefix("n"))
    normalized = (
        f", minus its mean {mean:.4f} and divided by its sd {sd:.4f} under N(0, 1) logits" if is_normalized(form) else ""
    )
    kind, formula = ("approximate", approximate) if is_approximate(form) else ("exact", exact)
    return _DOCSTRING.format(kind=kind, meaning=meaning, formula=formula, normalized=normalized)


for _function in (and_il, and_ail, and_nil, and_nail, or_il, or_ail, or_nil, or_nail, xnor_il, xnor_ail, xnor_nil, xnor_nail):
    _function.__doc__ = _describe(*_function.__name__.split("_"))
