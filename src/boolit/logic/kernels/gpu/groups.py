"""Gates of k operands in Triton: the operands are read one after another, so that no k is too large for the registers.

A gate's derivatives need what is known only after a pass over all operands: `group_state` is that pass, `group_partial` what
follows from its result for one operand. gate_math.h has the same in C++, with room to keep what is computed twice here.
"""
# mypy: ignore-errors
# ruff: noqa: N803, RET505

import triton
import triton.language as tl

from boolit.logic.kernels.gpu.math import (
    ATANH_32,
    ATANH_64,
    BIAS_32,
    BIAS_64,
    FRACTION_32,
    FRACTION_64,
    INFINITY,
    LARGEST_32,
    LARGEST_64,
    LN2_HIGH_32,
    LN2_HIGH_64,
    LN2_LOW_32,
    LN2_LOW_64,
    LOWEST_32,
    LOWEST_64,
    OR_AIL,
    OR_IL,
    XNOR_AIL,
    as_bits,
    by_type,
    constant,
    divide,
    least,
    most,
    nan_like,
    plus_log1p,
    polynomial,
    scaled_exp,
    sink,
)

ROOT_HALF_32, ROOT_HALF_64 = tl.constexpr(0x3F3504F3), tl.constexpr(0x3FE6A09E667F3BCD)
CERTAIN_32, CERTAIN_64 = tl.constexpr(40.0), tl.constexpr(80.0)  # 1 + e^-x rounds to 1 from there on, and e^x does not overflow


@triton.jit
def operand(at, mask, FLIP: tl.constexpr):
    """The operands there in the type of the arithmetic, their signs changed if the gate changes them."""
    p = tl.load(at, mask=mask, other=0.0)
    p = p.to(tl.float64) if p.dtype == tl.float64 else p.to(tl.float32)
    if FLIP:
        return -p
    else:
        return p


@triton.jit
def exp_of(x, dropped):
    """e^(x + dropped) for x ≤ 0, it minus 1, and what rounding dropped from the latter. NaN counts as -infinity."""
    scale, r, tail = scaled_exp(most(x, by_type(x, LOWEST_32, LOWEST_64)), dropped, True)
    p = r + tail
    low = sink(scale)  # 0 for the least x
    minus_one = tl.fma(low, p, low - 1.0)
    rest = tl.fma(low, p, (low - 1.0) - minus_one)
    return sink(tl.fma(scale, p, scale)), minus_one, tl.fma(low, (r - p) + tail, rest)


@triton.jit
def exp_of_difference(x, y):
    """e^(x - y) for x ≤ y and |x| ≥ |y|; 0 beside an infinity, two equal ones included."""
    floor = by_type(x, LOWEST_32, LOWEST_64)
    rounded = most(x - y, floor)
    dropped = tl.where(rounded > floor, (x - rounded) - y, constant(x, 0.0))
    value, _minus_one, _dropped = exp_of(rounded, dropped)
    return value


@triton.jit
def log1p_of(t):
    """For t ≥ 0: with 1 + t = 2^e (1 + f) and f within √½ - 1 … √2 - 1, f is rounded once; log1p(f) = f - s(f - 2s(2s)² P)."""
    double: tl.constexpr = t.dtype == tl.float64
    fraction: tl.constexpr = FRACTION_64 if double else FRACTION_32
    bias: tl.constexpr = BIAS_64 if double else BIAS_32
    root_half: tl.constexpr = ROOT_HALF_64 if double else ROOT_HALF_32
    above = as_bits(1.0 + t) - root_half  # not negative, since 1 + t ≥ 1
    exponent = above >> fraction
    scale = ((-exponent + bias) << fraction).to(t.dtype, bitcast=True)
    e = exponent.to(t.dtype)
    f = tl.fma(scale, t, scale - 1.0)
    half = 0.5 * f
    double_s = divide(f, 1.0 + half)
    z = double_s * double_s
    small = tl.fma(double_s, tl.fma(z, polynomial(z, ATANH_32, ATANH_64), -half), e * by_type(t, LN2_LOW_32, LN2_LOW_64))
    return tl.fma(e, by_type(t, LN2_HIGH_32, LN2_HIGH_64), f + small)


# ---------------------------------------------------------------- events, for OR


@triton.jit
def event(p, floor):
    """σ(p)·e^-floor, which keeps its digits, and softplus(p); floor = min(largest operand, 0) ≥ min(p, 0)."""
    zero = constant(p, 0.0)
    decay, _minus_one, _dropped = exp_of(-tl.abs(p), zero)
    lift = exp_of_difference(least(p, zero), floor)
    return divide(lift, 1.0 + decay), plus_log1p(tl.where(p > 0.0, p, zero), decay, zero)


@triton.jit
def add_to(total, carried, term):
    """A sum that carries what rounding drops from it (Kahan); an infinite one carries nothing."""
    y = term - carried
    following = total + y
    dropped = (following - total) - y
    return following, tl.where(tl.abs(dropped) <= by_type(total, LARGEST_32, LARGEST_64), dropped, constant(total, 0.0))


@triton.jit
def largest_of(start, step, mask, K: tl.constexpr, FLIP: tl.constexpr):
    """The largest operand, its index, whether some operand is positive, and whether one is NaN; NaN counts as positive."""
    top = operand(start, mask, FLIP)
    index = tl.full(top.shape, 0, tl.int32)
    some = ~(top <= 0.0)
    hole = top != top
    at = start
    for j in range(1, K):
        at += step
        p = operand(at, mask, FLIP)
        larger = p > top
        top = tl.where(larger, p, top)
        index = tl.where(larger, j, index)
        some = some | ~(p <= 0.0)
        hole = hole | (p != p)
    return top, index, some, hole


@triton.jit
def or_ail_of(start, step, mask, K: tl.constexpr, FLIP: tl.constexpr):
    """The sum of the positive operands, or the largest."""
    top, index, some, _hole = largest_of(start, step, mask, K, FLIP)
    total = constant(top, 0.0)
    at = start
    for _ in range(K):
        p = operand(at, mask, FLIP)
        total += tl.where(p <= 0.0, constant(p, 0.0), p)
        at += step
    return tl.where(some, total, top), top, index, some


@triton.jit
def or_il_of(start, step, mask, K: tl.constexpr, FLIP: tl.constexpr):
    """h + Σ softplus(others) + log1p(e^-max(h,0) · e^-min(h,0) P(any of the others)), h the largest operand.

    The probability grows by σ · P(none so far) from one operand to the next.
    """
    top, _index, _some, hole = largest_of(start, step, mask, K, FLIP)
    zero = constant(top, 0.0)
    floor = least(top, zero)
    unscale, _minus_one, _dropped = exp_of(floor, zero)
    passed = operand(start, mask, FLIP)  # the largest of those read so far waits, the other is added
    some, some_carried, soft, soft_carried = zero, zero, zero, zero
    at = start
    for _ in range(1, K):
        at += step
        p = operand(at, mask, FLIP)
        larger = p > passed
        scaled, softplus = event(tl.where(larger, passed, p), floor)
        passed = tl.where(larger, p, passed)
        some, some_carried = add_to(some, some_carried, scaled * tl.fma(-some, unscale, constant(top, 1.0)))
        soft, soft_carried = add_to(soft, soft_carried, softplus)
    above, _minus_one, _dropped = exp_of(-most(top, zero), zero)
    value = top + soft + log1p_of(some * above)
    return tl.where(hole, nan_like(top), value), top


# ---------------------------------------------------------------- agreement, for XNOR


@triton.jit
def smallest_of(start, step, mask, K: tl.constexpr, FLIP: tl.constexpr):
    """The operand of least size, its index, whether an odd number of operands is negative, and whether one is NaN."""
    taken = operand(start, mask, FLIP)
    index = tl.full(taken.shape, 0, tl.int32)
    odd = taken < 0.0
    hole = taken != taken
    at = start
    for j in range(1, K):
        at += step
        p = operand(at, mask, FLIP)
        smaller = ((tl.abs(p) < tl.abs(taken)) | (p != p)) & (taken == taken)  # a NaN, once taken, stays
        taken = tl.where(smaller, p, taken)
        index = tl.where(smaller, j, index)
        odd = odd ^ (p < 0.0)
        hole = hole | (p != p)
    return taken, index, odd, hole


@triton.jit
def agreement(size, smallest, first):
    """t = tanh(size/2), improved by what rounding dropped on the way, and (1 - t)·e^smallest.

    Where all sizes are infinite, the first operand counts as the smallest.
    """
    _q, minus_one, dropped = exp_of(-size, constant(size, 0.0))
    below = 2.0 + minus_one
    below_dropped = ((2.0 - below) + minus_one) + dropped
    whole = divide(constant(size, 1.0), below)
    rough = -minus_one * whole
    missing = tl.fma(-rough, below, -minus_one) - tl.fma(rough, below_dropped, dropped)
    scaled = 2.0 * exp_of_difference(-size, -smallest) * whole
    certain = (smallest == INFINITY) & first
    return tl.fma(missing, whole, rough), tl.where(certain, constant(size, 2.0), scaled)


@triton.jit
def accord(start, step, mask, K: tl.constexpr, FLIP: tl.constexpr, smallest, index):
    """Π tanh(|x|/2) of all operands but the smallest, tanh of that, and 1 minus the whole product, times e^smallest."""
    others, own, apart = constant(smallest, 1.0), constant(smallest, 1.0), constant(smallest, 0.0)
    at = start
    for j in range(K):
        t, scaled = agreement(tl.abs(operand(at, mask, FLIP)), smallest, j == 0)
        own = tl.where(index == j, t, own)
        others = tl.where(index == j, others, others * t)
        apart = tl.fma(apart, t, scaled)
        at += step
    return others, own, apart


@triton.jit
def xnor_il_of(start, step, mask, K: tl.constexpr, FLIP: tl.constexpr):
    """|f| = log1p(2 Πt / (1 - Πt)); beyond CERTAIN the least size is split off."""
    taken, index, odd, hole = smallest_of(start, step, mask, K, FLIP)
    smallest = tl.abs(taken)
    others, own, apart = accord(start, step, mask, K, FLIP, smallest, index)
    part = least(smallest, by_type(smallest, CERTAIN_32, CERTAIN_64))
    down, _minus_one, _dropped = exp_of(-part, constant(part, 0.0))
    size = (smallest - part) + log1p_of(divide(2.0 * (others * own), apart * down))
    return tl.where(hole, nan_like(size), tl.where(odd, -size, size))


# ---------------------------------------------------------------- the gates


@triton.jit
def group_value(start, step, mask, KIND: tl.constexpr, K: tl.constexpr, FLIP: tl.constexpr):
    """The value, where it may not be infinite, and the index and the condition of an approximate gate's `group_state`."""
    if KIND == OR_AIL:
        value, top, index, condition = or_ail_of(start, step, mask, K, FLIP)
        finite = top < INFINITY
    elif KIND == XNOR_AIL:
        taken, index, odd, _hole = smallest_of(start, step, mask, K, FLIP)
        condition = odd ^ (taken < 0.0)
        value = tl.where(condition, -taken, taken)
        finite = tl.abs(value) < INFINITY
    else:
        if KIND == OR_IL:
            value, top = or_il_of(start, step, mask, K, FLIP)
            finite = top < INFINITY
        else:
            value = xnor_il_of(start, step, mask, K, FLIP)
            finite = tl.abs(value) < INFINITY
        index, condition = tl.full(value.shape, 0, tl.int32), finite
    return value, finite, index, condition


@triton.jit
def group_state(start, step, mask, KIND: tl.constexpr, K: tl.constexpr, FLIP: tl.constexpr):
    """What the derivatives need of all operands: an index, a condition, and four numbers; see `group_partial`."""
    if KIND == OR_AIL:
        top, index, some, _hole = largest_of(start, step, mask, K, FLIP)
        zero = constant(top, 0.0)
        return index, some, zero, zero, zero, zero
    elif KIND == XNOR_AIL:
        taken, index, odd, _hole = smallest_of(start, step, mask, K, FLIP)
        zero = constant(taken, 0.0)
        return index, odd ^ (taken < 0.0), zero, zero, zero, zero
    elif KIND == OR_IL:
        top, index, _some, hole = largest_of(start, step, mask, K, FLIP)
        zero, one = constant(top, 0.0), constant(top, 1.0)
        floor = least(top, zero)
        unscale, _minus_one, _dropped = exp_of(floor, zero)
        none = top == -INFINITY
        some = tl.where(none, one, zero)
        at = start
        for _ in range(K):
            scaled, _softplus = event(operand(at, mask, FLIP), floor)
            some += scaled * tl.fma(-some, unscale, one)
            at += step
        unit = tl.where(hole, nan_like(top), divide(one, some))
        return index, none, floor, unit, zero, zero
    else:
        taken, index, odd, hole = smallest_of(start, step, mask, K, FLIP)
        smallest = tl.abs(taken)
        others, own, apart = accord(start, step, mask, K, FLIP, smallest, index)
        whole = divide(constant(smallest, 1.0), apart * tl.fma(others, own, constant(smallest, 1.0)))
        unit = tl.where(hole, nan_like(smallest), whole)
        return index, odd, smallest, unit, others, own


@triton.jit
def group_partial(p, j, state, KIND: tl.constexpr):
    """The derivative by operand j, which is p."""
    index, condition, base, unit, others, own = state
    zero, one = constant(p, 0.0), constant(p, 1.0)
    if KIND == OR_AIL:
        return tl.where(tl.where(condition, ~(p <= 0.0), index == j), one, zero)
    elif KIND == XNOR_AIL:
        return tl.where(index == j, tl.where(condition, -one, one), zero)
    elif KIND == OR_IL:  # σ(x_j) / P(any); if all are impossible, the first gets it all
        scaled, _softplus = event(p, base)
        return tl.where(condition & (j == 0), one, scaled) * unit
    else:  # Π_{i≠j} t_i · (1 - t_j²) / (1 - Πt²); the smallest is left out of the product, which so is 0 only if it counts as 0
        t, scaled = agreement(tl.abs(p), base, j == 0)
        rest = tl.where(index == j, others, tl.where(t > 0.0, divide(others, most(t, zero)) * own, zero))
        along = rest * tl.fma(scaled, t, scaled) * unit
        return tl.where(condition ^ (p < 0.0), -along, along)
