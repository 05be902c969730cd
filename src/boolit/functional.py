"""Logical activations as functions: every gate by its own name, ensembles, and the operation as an argument.

Grouped, on neighbouring channels of one tensor: ``or_ail(x)``, ``xnor_il(x, k=3, dim=1)``, and so on for each of ``and | or |
xnor | nand | nor | xor | implies | nimplies | implied_by | nimplied_by`` with ``il | ail | nil | nail``; `gate` and `ensemble`
take the names as arguments. On separate tensors, with broadcasting: `combine`.

Example:
    >>> or_ail(torch.tensor([1.0, 2.0, -1.0, 3.0])), and_ail(torch.tensor([1.0, 2.0, -1.0, 3.0]))
    (tensor([3., 3.]), tensor([ 1., -1.]))
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.fx import Proxy
from torch.jit import is_scripting  # type: ignore[attr-defined]

from boolit.logic import PAIRINGS, Program, evaluate
from boolit.logic.kernels.logits import check_logits, position, sizes
from boolit.logic.kernels.operators import call_kernel, evaluate_first
from boolit.logic.moments import moments
from boolit.logic.program import Strategy
from boolit.logic.vocabulary import FORMS, OPERATIONS, approximate, check_word, normalised

__all__ = ["combine", "ensemble", "gate", "signed_geomean", *(f"{op}_{form}" for op in OPERATIONS for form in FORMS)]

# Gates, ensembles and the signed geometric mean, with the operation as an argument.


def gate(x: Tensor, op: str, form: str = "ail", k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    """One Boolean operation on groups of k channels along ``dim``.

    Args:
        x: logits, of any floating-point type.
        op: ``and``, ``or``, ``xnor``, ``nand``, ``nor``, ``xor``, ``implies``, ``nimplies``, ``implied_by``, ``nimplied_by``.
        form: ``il`` exact, ``ail`` approximate, ``nil`` and ``nail`` the same with mean 0 and sd 1 under N(0,1) inputs.
        k: how many channels one gate reads.
        dim: the dimension of the channels.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k, as GLU does.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)``.

    Example:
        >>> gate(torch.tensor([1.0, 2.0, -1.0, 3.0]), "or", "ail")
        tensor([3., 3.])
    """
    if is_scripting():
        result: Tensor = torch.ops.boolit.evaluate(x, f"{op}_{form}:d:k{k}:{pairing}", dim)
        return result
    else:  # noqa: RET505 (TorchScript compiles what follows a return, but not this)
        out = None if is_dynamo_compiling() else call_kernel(x, dim, op, form, k, pairing)
        return _gate_first(x, op, form, k, dim, pairing) if out is None else out


def _gate_first(x: Tensor, op: str, form: str, k: int, dim: int, pairing: str) -> Tensor:
    program = _program(((op, form),), "d", k, pairing, False)
    if type(op) is type(form) is type(pairing) is str and type(k) is int:  # what the next call may be known by cannot change
        return evaluate_first(x, program, dim, op, form, k, pairing)
    return evaluate(x, program, dim)


def ensemble(
    x: Tensor,
    ops: Iterable[str],
    form: str = "ail",
    strategy: Strategy = "d",
    k: int = 2,
    dim: int = -1,
    pairing: str = "adjacent",
    uneven: bool = False,
) -> Tensor:
    """Several gates in one pass: ``d`` gives each gate every group, ``p`` gives each its share; results are concatenated.

    Args:
        x: logits, of any floating-point type.
        ops: the operations, in the order of their results.
        form: of all of them, as in `gate`.
        strategy: ``d`` (duplicate) or ``p`` (partition: gate i has the i-th of m contiguous shares of the groups).
        k: how many channels one gate reads.
        dim: the dimension of the channels.
        pairing: ``adjacent`` or ``halves``, as in `gate`.
        uneven: whether the shares of a partition may differ by one group, the first ones being larger.

    Shape: with m gates, ``(…, C, …)`` to ``(…, m·C/k, …)`` for ``d`` and ``(…, C/k, …)`` for ``p``.

    Example:
        >>> ensemble(torch.tensor([1.0, 2.0, -1.0, 3.0]), ["or", "xnor"], "ail", "d")
        tensor([ 3.,  3.,  1., -1.])
    """
    if isinstance(ops, str):
        raise TypeError(f"ops is a list of operations, got the string {ops!r}; write {ops.split('_')!r}")
    return evaluate(x, _program(tuple((op, form) for op in ops), strategy, k, pairing, uneven), dim)


def combine(op: str, *logits: Tensor, form: str = "il") -> Tensor:
    """One Boolean operation on separate tensors of logits, which broadcast.

    Args:
        op: one of the operations of `boolit.functional.gate`.
        logits: two or more tensors; an implication takes two.
        form: ``il`` exact, ``ail`` approximate, ``nil`` and ``nail`` the same, normalised.

    Shape: the broadcast shape of the logits.

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
    return evaluate(stacked, _program(((op, form),), "d", len(logits), "halves", False), 0).squeeze(0)


def signed_geomean(x: Tensor, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    """``sgn(x y) √|x y|`` of pairs of channels, with a finite gradient.

    The true derivative ``½ √|y/x|`` diverges at x = 0; here it is 0 where an operand is exactly 0, as in the authors' code.

    Args:
        x: any tensor of floating-point numbers.
        dim: the dimension of the channels.
        pairing: ``adjacent`` or ``halves``, as in `gate`.

    Shape: ``(…, C, …)`` to ``(…, C/2, …)``.

    Example:
        >>> signed_geomean(torch.tensor([4.0, -1.0, 9.0, 4.0]))
        tensor([-2.,  6.])
    """
    first, second = operands(x, 2, dim, pairing)
    nonzero = (first != 0) & (second != 0)
    sign = 1 - 2 * ((first < 0) ^ (second < 0)).to(x.dtype)
    root = torch.where(nonzero, first.abs(), 1).sqrt() * torch.where(nonzero, second.abs(), 1).sqrt()
    return torch.where(nonzero, sign * root, 0)


def operands(x: Tensor, k: int, dim: int, pairing: str) -> list[Tensor]:
    """The k operands of every group along ``dim``, as k views.

    Example:
        >>> operands(torch.arange(4.0), 2, -1, "halves")
        [tensor([0., 1.]), tensor([2., 3.])]
    """
    groups, axis = grouped(x, k, dim, pairing)
    views = groups.unbind(axis)
    return [views[i] for i in range(k)]


def grouped(x: Tensor, k: int, dim: int, pairing: str) -> tuple[Tensor, int]:
    """A view in which the operands of every group along ``dim`` have an axis of their own, and that axis.

    Example:
        >>> grouped(torch.arange(4.0), 2, -1, "halves")
        (tensor([[0., 1.],
                [2., 3.]]), -2)
    """
    if not is_scripting():
        _check_operands(x, k, dim, pairing)
    # no size is read here, and an axis is counted from the side dim is counted from: so torch's tracers can follow
    if pairing == "adjacent":
        return x.unflatten(dim, (-1, k)), dim + 1 if dim >= 0 else dim
    return x.unflatten(dim, (k, -1)), dim if dim >= 0 else dim - 1


def _check_operands(x: Tensor | Proxy, k: int, dim: int, pairing: str) -> None:
    check_word("pairing", pairing, PAIRINGS)
    if isinstance(x, Proxy):
        return
    check_logits(x)
    shape = sizes(x)
    channels = shape[position(dim, shape)]
    if channels % k:
        below, above = channels - channels % k, channels + -channels % k
        raise ValueError(f"groups of {k} need a multiple of {k} channels, got {channels}; use {below or above} or {above}")


_cached_program = lru_cache(maxsize=4096, typed=True)(Program)  # typed: 2, 2.0 and True are equal, and one is a k


def _program(members: tuple[tuple[str, str], ...], strategy: Strategy, k: int, pairing: str, uneven: bool) -> Program:
    if not is_dynamo_compiling():  # which warns of a cache and ignores it
        try:
            return _cached_program(members, strategy, k, pairing, uneven)
        except TypeError:  # unhashable, or no integer: Program says what is wrong
            pass
    return Program(members, strategy, k, pairing, uneven)


# Every gate under its own name: ``or_ail(x)`` is ``gate(x, "or", "ail")``. They are written out, for editors, type checkers and
# torch.jit.script. Their docstrings are made from one table, and each holds an example computed with Python's own floats, so
# that running it compares the gate with its definition.

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

    Of two logits x and y it is ``{formula}``{shifted}.

    Args:
        x: logits, of any floating-point type.
        k: how many channels one gate reads{only_two}.
        dim: the dimension of the channels.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k, as GLU does.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)``.

    Example:
        >>> result = {name}(torch.tensor([2.0, -1.0, 0.5, 1.5]))
        >>> [round(value, 3) for value in result.tolist()]
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


def __dir__() -> list[str]:
    return __all__
