"""Gates in pure torch: the specification that the kernels must agree with, for any device, transform and order of derivative.

Every operation is an OR or XNOR of two logits with signs changed before and after. More operands are joined as a balanced tree
of pairs, since the values of OR, AND and XNOR are associative in both forms, and normalized once at the end.

In the exact formulas each ``torch.where`` chooses between two expressions of the same analytic function, so autograd is right
on both sides of every boundary and on it, at every order. The choice only decides which expression rounds well.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boolit.logic.moments import check_precision, moments
from boolit.logic.operations import OPERATIONS, Program, is_normalized

Join = Callable[[Tensor, Tensor], Tensor]


def evaluate_reference(x: Tensor, program: Program, dim: int) -> Tensor:
    """Return the program's output, concatenated over its members along ``dim``, which must not be negative.

    bfloat16 and float16 are computed in float32 and rounded once.
    """
    check_precision(program, x.dtype)
    if x.dtype in (torch.bfloat16, torch.float16):
        return _round_to(evaluate_reference(x.float(), program, dim), x.dtype)
    groups = program.groups(x.shape[dim])
    adjacent = program.pairing == "adjacent"
    grouped = x.unflatten(dim, (groups, program.k) if adjacent else (program.k, groups))
    operands = grouped.movedim(dim + 1 if adjacent else dim, 0)
    outputs = [
        _gate(operands.narrow(dim + 1, start, size), name, form)
        for (name, form), (start, size) in zip(program.members, program.shares(groups), strict=True)
    ]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim)


def _gate(operands: Tensor, name: str, form: str) -> Tensor:
    k = operands.shape[0]
    operation = OPERATIONS[name]
    if operation.flips == "all":
        operands = -operands
    elif operation.flips != "none":  # implications have two operands
        first, second = operands[0], operands[1]
        operands = torch.stack([-first, second] if operation.flips == "first" else [first, -second])
    value = join_tree(operands, FORMULAS[operation.base, form.removeprefix("n")])
    if operation.output_sign(k) < 0:
        value = -value
    if is_normalized(form):
        mean, sd = moments(name, form.removeprefix("n"), k)
        value = affine(value, 1 / sd, -mean / sd)  # each constant is rounded once, after the division
    return value


def join_tree(operands: Tensor, join: Join) -> Tensor:
    """Join neighbors along dimension 0 level by level; if their number is odd, the last one moves to the next level."""
    while (size := operands.shape[0]) > 1:
        even = size // 2 * 2
        joined = join(operands[:even:2], operands[1:even:2])
        operands = torch.cat([joined, operands[even:]]) if size % 2 else joined
    return operands[0]


# ------------------------------------------------------------------------------------------------ two operands, approximate
# The selections are constants of the derivative. At a tie the first operand is taken and gets the gradient. Zero counts as
# not positive for OR and as positive for XNOR, so some operand always has a gradient. NaN is taken, whichever operand it is.


def or_ail(x: Tensor, y: Tensor) -> Tensor:
    """Return x + y where both are positive, max(x, y) elsewhere (eq:or_ail)."""
    both = ~((x <= 0) | (y <= 0))
    first = (x >= y) | x.isnan()
    return add(x.masked_fill(~(both | first), 0), y.masked_fill(~both & first, 0))


def xnor_ail(x: Tensor, y: Tensor) -> Tensor:
    """Return sgn(x y) min(|x|, |y|) (eq:xnor_ail); its derivative at x = 0 is the sign of y."""
    first = (x.abs() <= y.abs()) | x.isnan()
    return torch.where(first, torch.where(y < 0, -x, x), torch.where(x < 0, -y, y))


# ------------------------------------------------------------------------------------------------ two operands, exact


def or_il(x: Tensor, y: Tensor) -> Tensor:
    """Return logit(1 - σ(-x) σ(-y)) = log(eˣ + eʸ + eˣ⁺ʸ) (eq:or-il).

    With h ≥ l this is h + max(l, 0) + log1p(…): the AIL value plus a correction between 0 and ln 3.
    """
    first = x >= y
    high, low = torch.where(first, x, y), torch.where(first, y, x)
    positive = low > 0
    from_low = torch.exp(torch.where(positive, -low, low))
    gap, dropped = _difference(low.masked_fill(positive, 0), high)
    return add(high, low.masked_fill(~positive, 0)) + torch.log1p(from_low + torch.exp(gap) * (1 + dropped))


def xnor_il(x: Tensor, y: Tensor) -> Tensor:
    """Return logit(σ(x) σ(y) + σ(-x) σ(-y)) = 2 atanh(tanh(x/2) tanh(y/2)) (eq:xnor_il).

    Beyond 2, tanh says too little about its argument: with magnitudes m ≤ M, |f| = m + log1p(-σ(m-M) (1-e⁻²ᵐ)) is m less a
    correction that needs no cancellation. atanh and expm1 are written with functions that every ONNX exporter knows.
    """
    sign_x, sign_y = _sign(x), _sign(y)
    size_x, size_y = sign_x * x, sign_y * y
    first = size_x <= size_y
    small, large = torch.where(first, size_x, size_y), torch.where(first, size_y, size_x)
    near = large < 2
    double = 2 * torch.tanh(small.masked_fill(~near, 0) / 2) * torch.tanh(large.masked_fill(~near, 0) / 2)
    near_value = torch.log1p(double / (1 - double / 2))
    difference, dropped = _difference(small, large)
    share = torch.sigmoid(difference)
    share = share * (1 + dropped * (1 - share.detach()))
    far_value = small + torch.log1p(-share * torch.tanh(small) * (1 + torch.exp(-2 * small)))
    return sign_x * sign_y * torch.where(near, near_value, far_value)


FORMULAS: dict[tuple[str, str], Join] = {
    ("or", "il"): or_il,
    ("xnor", "il"): xnor_il,
    ("or", "ail"): or_ail,
    ("xnor", "ail"): xnor_ail,
}


def _sign(x: Tensor) -> Tensor:
    """Return ±1, and +1 at zero: the derivative of XNOR at x = 0 must not vanish."""
    return 1 - 2 * (x < 0).to(x.dtype)


def _difference(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return x - y for x ≤ y, and what rounding dropped from it, which an exponential would turn into a relative error.

    Equal infinities are as far apart as can be: so the first of two certain events gets the gradient, as at a tie of AIL.
    """
    rounded = (x - y).masked_fill((x == y) & x.isinf(), -torch.inf)
    with torch.no_grad():  # Knuth's TwoSum
        back = rounded - x
        dropped = (x - (rounded - back)) - (y + back)
        dropped = dropped.masked_fill(~dropped.isfinite(), 0)
    return rounded, dropped


# ------------------------------------------------------------------------------------------------ arithmetic that stays finite
# A result beyond the largest number becomes that number, unless an operand is infinite. The derivative is that of the plain
# expression all the same, so a saturated gate still learns.


def add(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b."""
    total = a + b
    return _bounded(total, total.isinf() & a.isfinite() & b.isfinite(), (a - a.detach()) + (b - b.detach()))


def affine(x: Tensor, factor: float, shift: float) -> Tensor:
    """Return factor · x + shift."""
    result = x * factor + shift
    return _bounded(result, result.isinf() & x.isfinite(), (x - x.detach()) * factor)


def _round_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    result = x.to(dtype)
    return _bounded(result, result.isinf() & x.isfinite(), (x - x.detach()).to(dtype))


def _bounded(result: Tensor, overflowed: Tensor, gradient: Tensor) -> Tensor:
    largest = torch.finfo(result.dtype).max
    return torch.where(overflowed, result.detach().clamp(-largest, largest) + gradient, result)
