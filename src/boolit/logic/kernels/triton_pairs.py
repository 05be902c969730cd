"""Triton kernels for pairs of operands, computed in float32 with the formulas and polynomials of pairs.h.

Products are fused with sums only where `tl.fma` is called, and divisions are rounded correctly, so that Triton's interpreter
computes what a device does.
"""
# mypy: ignore-errors
# ruff: noqa: N803, RET505, SIM109

import triton
import triton.language as tl

OR_AIL, XNOR_AIL, OR_IL, XNOR_IL = (tl.constexpr(kind) for kind in range(4))
LN2, LOG2_E = tl.constexpr(0.6931471805599453), tl.constexpr(1.44269504088896340736)
LEAST, LOWEST = tl.constexpr(-88.0), tl.constexpr(-104.7)  # e^x is not a normal number below LEAST and is 0 below LOWEST
LARGEST_FLOAT, INFINITY = tl.constexpr(float.fromhex("0x1.fffffep127")), tl.constexpr(float("inf"))
LIFT, SINK = tl.constexpr(24), tl.constexpr(2.0**-24)  # small e^x are computed 2^LIFT times as large and rounded once

# (e^r - 1 - r) / r² for |r| ≤ ln2/2, and (2 atanh(s) - 2s) / (2s)³ as a polynomial of (2s)² for |s| ≤ 1/3; the last term first
_EXP = ("0x1.6d117ap-10", "0x1.120bdep-7", "0x1.555518p-5", "0x1.5554dcp-3", "0x1p-1")
_ATANH = ("0x0p0", "0x1.130324p-11", "0x1.2122bcp-9", "0x1.99ad7cp-7", "0x1.55554cp-4")
EXP, ATANH = (tl.constexpr(tuple(float.fromhex(number) for number in series)) for series in (_EXP, _ATANH))


@triton.jit
def _turn_by(x, y):  # x with its sign changed where y has a minus sign
    sign = y.to(tl.int32, bitcast=True) & -0x80000000
    return (x.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit
def _most(a, b):  # where either is NaN, b
    return tl.where(a > b, a, b)


@triton.jit
def _least(a, b):
    return tl.where(a < b, a, b)


@triton.jit
def _polynomial(x, SERIES: tl.constexpr):
    total = tl.full(x.shape, SERIES[0], tl.float32)
    for i in tl.static_range(1, 5):
        total = tl.fma(total, x, SERIES[i])
    return total


@triton.jit
def _expm1_of(x, dropped, LIFTED: tl.constexpr):
    """Return e^(x + dropped), with LIFTED 2^LIFT times as large, and it minus 1, for x ≤ 0."""
    # adding this leaves the nearest integer, and the bias of the exponent, in the low bits of the sum
    shift: tl.constexpr = 3.0 * 2**22 + 127 + (LIFT if LIFTED else 0)
    x = _most(x, LOWEST if LIFTED else LEAST)
    shifted = tl.fma(x, LOG2_E, shift)
    r = tl.fma(shifted - shift, -LN2, x) + dropped  # ln 2 rounded is wrong by less than 5u, as |n| ≤ 151
    scale = (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    p = r + r * r * _polynomial(r, EXP)
    return tl.fma(scale, p, scale), tl.fma(scale, p, scale - 1.0)


@triton.jit
def _atanh_excess(double_s):  # 2 atanh(s) / 2s - 1 from 2s, for |s| ≤ 1/3
    z = double_s * double_s
    return z * _polynomial(z, ATANH)


@triton.jit
def _has_nan(x, y):
    return (x != x) | (y != y)


@triton.jit
def _difference_of(x, y):
    """Return x - y for x ≤ y and |x| ≥ |y|, and what rounding dropped from it: nothing where e^(x-y) is not a normal number."""
    rounded = _most(x - y, LEAST)
    return rounded, tl.where(rounded > LEAST, (x - rounded) - y, 0.0)


@triton.jit
def _or_il(x, y):
    """Return high + max(low, 0) + log1p(t), t = e^-|low| + e^(min(low, 0) - high), as pairs.h does."""
    high, low = _most(x, y), _least(y, x)
    from_low, _ = _expm1_of(-tl.abs(low), 0.0, True)
    from_gap, _ = _expm1_of(_least(low, 0.0) - high, 0.0, True)
    t = from_low + from_gap
    dropped = (from_gap - (t - from_low)) * SINK  # without it the error exceeds 4u·c where the sum is a little more than ½
    t *= SINK
    c = tl.where(t > 0.5, 1.0, 0.0)
    double_s = tl.div_rn((t - c) + dropped, tl.fma(t + c, 0.5, 1.0))
    start = high + _most(0.0, low) + tl.where(t > 0.5, LN2, 0.0)
    return tl.fma(double_s, 1.0 + _atanh_excess(double_s), start)


@triton.jit
def _or_il_gradient(x, y, g):
    high, low = _most(x, y), _least(y, x)
    negative = _least(low, 0.0)
    from_low, _ = _expm1_of(-tl.abs(low), 0.0, False)
    gap, dropped = _difference_of(negative, high)
    from_gap, _ = _expm1_of(gap, dropped, False)
    to_high = 1.0 + from_low
    unit = tl.where(_has_nan(x, y), float("nan"), tl.div_rn(g, to_high + from_gap))
    to_low = _most(from_low, 1.0 + negative) + from_gap  # e^min(low,0) + e^gap, since 1 + x ≤ e^x
    return tl.where(x >= y, to_high, to_low) * unit, tl.where(x >= y, to_low, to_high) * unit


@triton.jit
def _xnor_il(x, y):
    """Return the value from sizes m ≤ M with q = e^-m, E = e^(m-M) and Q = Eq, as in pairs.h."""
    m, large = _least(tl.abs(x), tl.abs(y)), _most(tl.abs(x), tl.abs(y))
    q, q_minus_one = _expm1_of(-m, 0.0, False)
    ratio, ratio_minus_one = _expm1_of(m - large, 0.0, False)
    few, large_q = large < 1.0, ratio * q
    minus_not_large = tl.fma(ratio, q_minus_one, ratio_minus_one)
    above = (q_minus_one + q_minus_one) * tl.where(few, minus_not_large, ratio + large_q)
    below = tl.fma(q, large_q, 1.0) + tl.where(few, q + large_q, 1.0 + ratio)
    double_s = tl.div_rn(above, below)
    size = tl.fma(double_s, _atanh_excess(double_s), tl.where(few, 0.0, m) + double_s)
    return tl.where(_has_nan(x, y), float("nan"), _turn_by(_turn_by(size, x), y))


@triton.jit
def _xnor_il_gradient(x, y, g):
    m, large = _least(tl.abs(x), tl.abs(y)), _most(tl.abs(x), tl.abs(y))
    q, q_minus_one = _expm1_of(-m, 0.0, False)
    gap, dropped = _difference_of(-large, -m)
    ratio, ratio_minus_one = _expm1_of(gap, dropped, False)
    large_q, below = ratio * q, 1.0 + ratio
    minus_not_large = tl.fma(ratio, q_minus_one, ratio_minus_one)
    unit = tl.where(_has_nan(x, y), float("nan"), tl.div_rn(-g, tl.fma(below, q * large_q, below)))
    to_small, to_large = tl.fma(minus_not_large, large_q, minus_not_large), tl.fma(q_minus_one, q, q_minus_one) * ratio
    first = tl.abs(x) <= tl.abs(y)
    return _turn_by(tl.where(first, to_small, to_large) * unit, y), _turn_by(tl.where(first, to_large, to_small) * unit, x)


@triton.jit
def _choose(x, y, KIND: tl.constexpr):
    """Return the value of an approximate gate and its bits: which operands OR takes; that XNOR takes the second, and a sign."""
    if KIND == OR_AIL:
        either, larger = (x <= 0.0) | (y <= 0.0), (x >= y) | (x != x)
        return tl.where(either, tl.where(larger, x, y), x + y), larger | ~either, ~(either & larger)
    else:
        smaller = (tl.abs(x) <= tl.abs(y)) | (x != x)
        taken, minus = tl.where(smaller, x, y), tl.where(smaller, y, x) < 0.0
        return tl.where(minus, -taken, taken), ~smaller, minus


@triton.jit
def _gate_value(x, y, KIND: tl.constexpr, SCALE: tl.constexpr, SHIFT: tl.constexpr, LARGEST: tl.constexpr):
    """Return scale · base + shift, bounded unless an infinite operand makes it infinite, and the bits to keep."""
    value, first, second = _choose(x, y, KIND)
    if KIND == OR_IL:
        value = _or_il(x, y)
    elif KIND == XNOR_IL:
        value = _xnor_il(x, y)
    if KIND == OR_AIL or KIND == OR_IL:  # XNOR is no larger than its operands
        value = tl.where((value > LARGEST_FLOAT) & (x < INFINITY) & (y < INFINITY), LARGEST_FLOAT, value)
    result = value * SCALE + SHIFT
    bounded = tl.where(result > LARGEST, LARGEST, tl.where(result < -LARGEST, -LARGEST, result))
    return tl.where(tl.abs(value) < INFINITY, bounded, result), first, second


@triton.jit
def _gate_gradient(x, y, first, second, g, KIND: tl.constexpr):
    if KIND == OR_IL:
        return _or_il_gradient(x, y, g)
    elif KIND == XNOR_IL:
        return _xnor_il_gradient(x, y, g)
    elif KIND == OR_AIL:
        return tl.where(first, g, 0.0), tl.where(second, g, 0.0)
    else:
        along = tl.where(second, -g, g)
        return tl.where(first, 0.0, along), tl.where(first, along, 0.0)


# ------------------------------------------------------------------------------------------------ memory
# A tensor is seen as units, one for each group and inner position. `row` of them have the outer index in common, of which a
# share of a partition reads `share`, from `start` on; the operands of a unit lie `span` apart. A block computes BLOCK units.


@triton.jit
def _places(sizes, PER_UNIT: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Return the block's elements, PER_UNIT to a unit, whether each exists, its place among all shares, and its outer index."""
    units, share, row, start = sizes
    element = tl.program_id(0).to(tl.int64 if WIDE else tl.int32) * (PER_UNIT * BLOCK) + tl.arange(0, PER_UNIT * BLOCK)
    outer = element // (PER_UNIT * share)
    place = element + outer * (PER_UNIT * (row - share)) + PER_UNIT * start if PART else element  # simple: for long vectors
    return element, element < PER_UNIT * units, place, outer


@triton.jit
def _load_pairs(x, sizes, span, SPLIT: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    if SPLIT:  # operands side by side: as long vectors as memory likes best
        _, exists, at, _ = _places(sizes, 2, PART, WIDE, BLOCK)
        a, b = tl.split(tl.reshape(tl.load(x + at, mask=exists, other=0.0), (BLOCK, 2)))
    else:
        _, exists, unit, _ = _places(sizes, 1, PART, WIDE, BLOCK)
        at = x + unit + unit // span * span
        a, b = tl.load(at, mask=exists, other=0.0), tl.load(at + span, mask=exists, other=0.0)
    return a.to(tl.float32), b.to(tl.float32)


@triton.jit
def _store_pairs(x, a, b, sizes, span, SPLIT: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    a, b = a.to(x.dtype.element_ty), b.to(x.dtype.element_ty)
    if SPLIT:
        _, exists, at, _ = _places(sizes, 2, PART, WIDE, BLOCK)
        tl.store(x + at, tl.reshape(tl.join(a, b), (2 * BLOCK,)), mask=exists)
    else:
        _, exists, unit, _ = _places(sizes, 1, PART, WIDE, BLOCK)
        at = x + unit + unit // span * span
        tl.store(at, a, mask=exists)
        tl.store(at + span, b, mask=exists)


@triton.jit
def _store_bits(planes, first, second, size, BLOCK: tl.constexpr):
    """Store a bit per unit, eight to a byte, in two planes."""
    both = first.to(tl.int32) | (second.to(tl.int32) << 8)
    bits = tl.sum(tl.reshape(both, (BLOCK // 8, 8)) << tl.arange(0, 8)[None, :], axis=1)
    at = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    tl.store(planes + at, (bits & 0xFF).to(tl.uint8), mask=at < size)
    tl.store(planes + size + at, (bits >> 8).to(tl.uint8), mask=at < size)


@triton.jit
def _load_bits(plane, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    eight = tl.load(plane + at, mask=at < size, other=0).to(tl.int32)
    return tl.reshape((eight[:, None] >> tl.arange(0, 8)[None, :]) & 1, (BLOCK,)) != 0


@triton.jit
def forward(x, out, kept, units, share, row, span, start, out_row, MEMBERS: tl.constexpr, SPLIT: tl.constexpr,
            PART: tl.constexpr, KEEP: tl.constexpr, LARGEST: tl.constexpr, WIDE: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    """Compute the values of all MEMBERS and, if KEEP is set, the bits that the backward needs.

    A member is a tuple: kind, whether to negate the first operand, whether to negate the second, scale and shift.
    """
    sizes = (units, share, row, start)
    a, b = _load_pairs(x, sizes, span, SPLIT, PART, WIDE, BLOCK)
    unit, exists, _, outer = _places(sizes, 1, PART, WIDE, BLOCK)
    plane = (units + 7) // 8
    for m in tl.static_range(len(MEMBERS)):
        p, q = -a if MEMBERS[m][1] else a, -b if MEMBERS[m][2] else b
        value, first, second = _gate_value(p, q, MEMBERS[m][0], MEMBERS[m][3], MEMBERS[m][4], LARGEST)
        target = out + unit + outer * (out_row - share) + start + m * row
        tl.store(target, value.to(out.dtype.element_ty), mask=exists)
        if KEEP:
            _store_bits(kept + 2 * m * plane, first, second, plane, BLOCK)


@triton.jit
def backward(grad, saved, grad_x, units, share, row, span, start, out_row, MEMBERS: tl.constexpr, SPLIT: tl.constexpr,
             PART: tl.constexpr, KEPT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Compute the gradient of x from the bits (KEPT) or from x."""
    sizes = (units, share, row, start)
    unit, exists, _, outer = _places(sizes, 1, PART, WIDE, BLOCK)
    plane = (units + 7) // 8
    if not KEPT:
        a, b = _load_pairs(saved, sizes, span, SPLIT, PART, WIDE, BLOCK)
    for m in tl.static_range(len(MEMBERS)):
        g = tl.load(grad + unit + outer * (out_row - share) + start + m * row, mask=exists, other=0.0)
        g = g.to(tl.float32) * MEMBERS[m][3]
        if KEPT:
            p, q = g, g
            first = _load_bits(saved + 2 * m * plane, plane, BLOCK)
            second = _load_bits(saved + (2 * m + 1) * plane, plane, BLOCK)
        else:
            p, q = -a if MEMBERS[m][1] else a, -b if MEMBERS[m][2] else b
            _, first, second = _choose(p, q, MEMBERS[m][0])
        to_a, to_b = _gate_gradient(p, q, first, second, g, MEMBERS[m][0])
        to_a, to_b = -to_a if MEMBERS[m][1] else to_a, -to_b if MEMBERS[m][2] else to_b
        if m == 0:
            sum_a, sum_b = to_a, to_b
        else:
            sum_a += to_a
            sum_b += to_b
    _store_pairs(grad_x, sum_a, sum_b, sizes, span, SPLIT, PART, WIDE, BLOCK)
