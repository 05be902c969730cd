"""Gates of two operands in Triton, and what follows from their values and bits.

logic/exact.py and logic/approximate.py derive the formulas; gate_math.h has the same in C++.
"""
# mypy: ignore-errors
# ruff: noqa: N803, RET505, SIM109

import triton
import triton.language as tl

from boolit.logic.kernels.gpu.math import (
    INFINITY,
    LARGEST_32,
    LARGEST_64,
    OR_AIL,
    OR_IL,
    XNOR_AIL,
    atanh_excess,
    by_type,
    constant,
    difference_of,
    divide,
    expm1_of,
    has_nan,
    least,
    lifted_exp,
    most,
    nan_like,
    plus_log1p,
    sink,
    turn_by,
)
from boolit.logic.kernels.gpu.memory import load_bits


@triton.jit
def or_ail(x, y):
    """The value, and whether each operand is part of it."""
    one = (x <= 0.0) | (y <= 0.0)
    larger = (x >= y) | (x != x)
    return tl.where(one, tl.where(larger, x, y), x + y), larger | ~one, ~(one & larger)


@triton.jit
def xnor_ail(x, y):
    """The value, whether it is from the second operand, and whether its gradient changes its sign."""
    smaller = (tl.abs(x) <= tl.abs(y)) | (x != x)
    taken = tl.where(smaller, x, y)
    minus = tl.where(smaller, y, x) < 0.0
    return tl.where(minus, -taken, taken), ~smaller, minus


@triton.jit
def or_il(x, y):
    """high + max(low, 0) + log1p(e^-|low| + e^(min(low, 0) - high))."""
    zero = constant(x, 0.0)
    high = most(x, y)
    low = least(y, x)
    from_low = lifted_exp(-tl.abs(low))
    from_gap = lifted_exp(least(low, zero) - high)
    t = from_low + from_gap
    dropped = from_gap - (t - from_low)  # without it the error exceeds 4u·c where the sum is a little more than ½
    return plus_log1p(high + most(zero, low), sink(t), sink(dropped))


@triton.jit
def or_il_gradient(x, y, g):
    """The partial derivatives times g."""
    high = most(x, y)
    low = least(y, x)
    negative = least(low, constant(x, 0.0))
    from_low, _ = expm1_of(-tl.abs(low), constant(x, 0.0))
    gap, dropped = difference_of(negative, high)
    from_gap, _ = expm1_of(gap, dropped)
    to_high = 1.0 + from_low
    unit = tl.where(has_nan(x, y), nan_like(x), divide(g, to_high + from_gap))
    to_low = most(from_low, 1.0 + negative) + from_gap  # e^min(low,0) + e^gap, since 1 + x ≤ e^x
    first = x >= y
    return tl.where(first, to_high, to_low) * unit, tl.where(first, to_low, to_high) * unit


@triton.jit
def xnor_il(x, y):
    """On sizes m ≤ M with q = e^-m, E = e^(m-M) and Q = Eq, all with the sign of x·y.

    M < 1: 2 atanh((1-q)(1-Q) / (1+q+Q+qQ)); else m + 2 atanh(-(1-q)(E+Q) / (2+E+qQ)).
    """
    size_x, size_y = tl.abs(x), tl.abs(y)
    m = least(size_x, size_y)
    large = most(size_x, size_y)
    zero = constant(x, 0.0)
    q, q_minus_one = expm1_of(-m, zero)
    ratio, ratio_minus_one = expm1_of(m - large, zero)
    few = large < 1.0
    large_q = ratio * q
    minus_not_large = tl.fma(ratio, q_minus_one, ratio_minus_one)
    above = (q_minus_one + q_minus_one) * tl.where(few, minus_not_large, ratio + large_q)
    below = tl.fma(q, large_q, constant(x, 1.0)) + tl.where(few, q + large_q, 1.0 + ratio)
    double_s = divide(above, below)
    size = tl.where(few, zero, m) + double_s
    size = tl.fma(double_s, atanh_excess(double_s), size)
    value = turn_by(turn_by(size, x), y)
    return tl.where(has_nan(x, y), nan_like(x), value)


@triton.jit
def xnor_il_gradient(x, y, g):
    """The partial derivatives times g: ∂/∂m = (1-Q)(1+Q) / ((1+E)(1+qQ)) and ∂/∂M = (1-q)(1+q) E / ((1+E)(1+qQ))."""
    size_x, size_y = tl.abs(x), tl.abs(y)
    m = least(size_x, size_y)
    large = most(size_x, size_y)
    q, q_minus_one = expm1_of(-m, constant(x, 0.0))
    gap, dropped = difference_of(-large, -m)
    ratio, ratio_minus_one = expm1_of(gap, dropped)
    large_q = ratio * q
    minus_not_large = tl.fma(ratio, q_minus_one, ratio_minus_one)
    below = 1.0 + ratio
    unit = divide(-g, tl.fma(below, q * large_q, below))
    unit = tl.where(has_nan(x, y), nan_like(x), unit)
    to_small = tl.fma(minus_not_large, large_q, minus_not_large)
    to_large = tl.fma(q_minus_one, q, q_minus_one) * ratio
    first = size_x <= size_y
    along_x = tl.where(first, to_small, to_large) * unit
    along_y = tl.where(first, to_large, to_small) * unit
    return turn_by(along_x, y), turn_by(along_y, x)


@triton.jit
def flip_if(x, FLIP: tl.constexpr):
    return -x if FLIP else x


@triton.jit
def pair_value(x, y, KIND: tl.constexpr):
    """The value, where it may not be infinite, and the bits to keep."""
    if KIND == OR_AIL:
        value, first, second = or_ail(x, y)
        finite = (x < INFINITY) & (y < INFINITY)
    elif KIND == XNOR_AIL:
        value, first, second = xnor_ail(x, y)
        finite = tl.abs(value) < INFINITY
    elif KIND == OR_IL:
        value = or_il(x, y)
        finite = (x < INFINITY) & (y < INFINITY)
        first, second = finite, finite
    else:
        value = xnor_il(x, y)
        finite = tl.abs(value) < INFINITY
        first, second = finite, finite
    return value, finite, first, second


@triton.jit
def finish(value, finite, KIND: tl.constexpr, SCALE: tl.constexpr, SHIFT: tl.constexpr, LARGEST: tl.constexpr):
    """scale · value + shift; beyond the largest number, though no infinite operand makes it so, it becomes that number.

    XNOR is no larger than its operands, OR no smaller than the largest of its own.
    """
    normalised: tl.constexpr = SHIFT != 0.0 or (SCALE != 1.0 and SCALE != -1.0)
    if KIND == OR_AIL or KIND == OR_IL:
        most = by_type(value, LARGEST_32, LARGEST_64) if normalised else constant(value, LARGEST)
        value = tl.where((value > most) & finite, most, value)
    if normalised:
        result = value * constant(value, SCALE) + constant(value, SHIFT)
        most = constant(value, LARGEST)
        bounded = tl.where(result > most, most, tl.where(result < -most, -most, result))
        result = tl.where(tl.abs(value) < INFINITY, bounded, result)
    elif SCALE == -1.0:
        result = -value
    else:
        result = value
    return result


@triton.jit
def choice_gradient(first, second, g, KIND: tl.constexpr):
    """From the bits of `or_ail` or `xnor_ail`."""
    zero = constant(g, 0.0)
    if KIND == OR_AIL:
        return tl.where(first, g, zero), tl.where(second, g, zero)
    else:
        along = tl.where(second, -g, g)
        return tl.where(first, zero, along), tl.where(first, along, zero)


@triton.jit
def pair_gradient(x, y, g, KIND: tl.constexpr):
    if KIND == OR_AIL:
        _, first, second = or_ail(x, y)
        return choice_gradient(first, second, g, KIND)
    elif KIND == XNOR_AIL:
        _, first, second = xnor_ail(x, y)
        return choice_gradient(first, second, g, KIND)
    elif KIND == OR_IL:
        return or_il_gradient(x, y, g)
    else:
        return xnor_il_gradient(x, y, g)


@triton.jit
def kept_state(bits, plane, KIND: tl.constexpr, PLANES: tl.constexpr, BLOCK: tl.constexpr):
    """The index and the sign of XNOR; OR's planes are read one by one, by `kept_partial`."""
    index = tl.full((BLOCK,), 0, tl.int32)
    minus = index != 0
    if KIND == XNOR_AIL:
        for bit in tl.static_range(PLANES - 1):
            index += load_bits(bits + bit * plane, plane, BLOCK).to(tl.int32) << bit
        minus = load_bits(bits + (PLANES - 1) * plane, plane, BLOCK)
    return index, minus


@triton.jit
def kept_partial(bits, plane, j, state, KIND: tl.constexpr, like, BLOCK: tl.constexpr):
    index, minus = state
    zero, one = constant(like, 0.0), constant(like, 1.0)
    if KIND == OR_AIL:
        return tl.where(load_bits(bits, plane, BLOCK), one, zero)
    else:
        return tl.where(index == j, tl.where(minus, -one, one), zero)
