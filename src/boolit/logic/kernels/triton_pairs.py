"""Triton kernels for pairs of operands, with the formulas and polynomials of pairs.h.

Products are fused with sums where `tl.fma` says so and nowhere else, so that Triton's interpreter computes what a device does.
Divisions are rounded correctly.
"""
# mypy: ignore-errors
# ruff: noqa: E501, N803, RET505, SIM109

import triton
import triton.language as tl

# By type: bits of the fraction, exponent bias, ln 2 in two parts of which n · the first is exact, and where e^x becomes 0
FRACTION_32, FRACTION_64, BIAS_32, BIAS_64 = tl.constexpr(23), tl.constexpr(52), tl.constexpr(127), tl.constexpr(1023)
LN2_HIGH, LN2_LOW = tl.constexpr(float.fromhex("0x1.62e42fefap-1")), tl.constexpr(float.fromhex("0x1.cf79abc9e3b3ap-40"))
LEAST_32, LEAST_64, LOWEST_32, LOWEST_64 = tl.constexpr(-88.0), tl.constexpr(-709.1), tl.constexpr(-104.7), tl.constexpr(-745.9)
LARGEST_32, LARGEST_64 = tl.constexpr(float.fromhex("0x1.fffffep127")), tl.constexpr(float.fromhex("0x1.fffffffffffffp1023"))
LOG2_E, LN2, INFINITY = tl.constexpr(1.44269504088896340736), tl.constexpr(0.6931471805599453), tl.constexpr(float("inf"))
OR_AIL, XNOR_AIL, OR_IL, XNOR_IL = (tl.constexpr(kind) for kind in range(4))


def _series(digits: str) -> tuple[float, ...]:
    return tl.constexpr(tuple(float.fromhex(number) for number in digits.split()))


# (e^r - 1 - r) / r² for |r| ≤ ln2/2, and (2 atanh(s) - 2s) / (2s)³ as a polynomial of (2s)² for |s| ≤ 1/3; the last term first
EXP_32 = _series("0x1.6d117ap-10 0x1.120bdep-7 0x1.555518p-5 0x1.5554dcp-3 0x1p-1")
EXP_64 = _series(
    "0x1.af39091a8441ap-26 0x1.2891d2ecb3ed9p-22 0x1.71de0d863c737p-19 0x1.a019b8cbe6585p-16 0x1.a01a01a7ce75dp-13 "
    "0x1.6c16c1789caa1p-10 0x1.11111111109a6p-7 0x1.5555555553d38p-5 0x1.5555555555556p-3 0x1.0000000000001p-1"
)
ATANH_32 = _series("0x0p0 0x1.130324p-11 0x1.2122bcp-9 0x1.99ad7cp-7 0x1.55554cp-4")
ATANH_64 = _series(
    "0x1.4b37dcfe84abcp-24 0x1.684f4e9c48d37p-23 0x1.eb98d0629b7acp-21 0x1.10ac0430038acp-18 0x1.3b18b983dd78cp-16 "
    "0x1.745cf0719db9fp-14 0x1.c71c727285525p-12 0x1.24924923d2b49p-9 0x1.999999999a3f5p-7 0x1.5555555555555p-4"
)


@triton.jit
def by_type(like, single: tl.constexpr, double: tl.constexpr):
    return tl.full(like.shape, double if like.dtype == tl.float64 else single, like.dtype)


@triton.jit
def constant(like, value: tl.constexpr):
    return tl.full(like.shape, value, like.dtype)


@triton.jit
def divide(a, b):
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def turn_by(x, y):  # x with its sign changed where y has a minus sign
    if x.dtype == tl.float64:
        return (x.to(tl.int64, bitcast=True) ^ (y.to(tl.int64, bitcast=True) & -0x8000000000000000)).to(
            tl.float64, bitcast=True
        )
    else:
        return (x.to(tl.int32, bitcast=True) ^ (y.to(tl.int32, bitcast=True) & -0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def most(a, b):  # where either is NaN, b
    return tl.where(a > b, a, b)


@triton.jit
def least(a, b):
    return tl.where(a < b, a, b)


@triton.jit
def polynomial(x, single: tl.constexpr, double: tl.constexpr):
    if x.dtype == tl.float64:
        total = constant(x, double[0])
        for i in tl.static_range(1, 10):
            total = tl.fma(total, x, constant(x, double[i]))
    else:
        total = constant(x, single[0])
        for i in tl.static_range(1, 5):
            total = tl.fma(total, x, constant(x, single[i]))
    return total


@triton.jit
def expm1_of(x, dropped, LIFT: tl.constexpr):
    """Return e^(x + dropped) and it minus 1 for x ≤ 0; e^x is 2^(bits of the fraction + 1) times as large with LIFT."""
    double: tl.constexpr = x.dtype == tl.float64
    fraction: tl.constexpr = FRACTION_64 if double else FRACTION_32
    # adding this leaves the nearest integer, and the bias, in the low bits of the sum
    offset: tl.constexpr = 3 * 2 ** (fraction - 1) + (BIAS_64 if double else BIAS_32) + (fraction + 1 if LIFT else 0)
    x = most(x, by_type(x, LOWEST_32, LOWEST_64) if LIFT else by_type(x, LEAST_32, LEAST_64))
    shift = constant(x, offset)
    shifted = tl.fma(x, constant(x, LOG2_E), shift)
    n = shifted - shift
    if double:
        r = tl.fma(n, constant(x, -LN2_LOW), tl.fma(n, constant(x, -LN2_HIGH), x)) + dropped
        scale = (shifted.to(tl.int64, bitcast=True) << fraction).to(tl.float64, bitcast=True)
    else:
        r = tl.fma(n, constant(x, -LN2), x) + dropped  # ln 2 rounded is wrong by less than 5u, as |n| ≤ 151
        scale = (shifted.to(tl.int32, bitcast=True) << fraction).to(tl.float32, bitcast=True)
    p = r + r * r * polynomial(r, EXP_32, EXP_64)
    return tl.fma(scale, p, scale), tl.fma(scale, p, scale - 1.0)


@triton.jit
def sink(x):  # undoes the lift
    return x * by_type(x, 2.0**-24, 2.0**-53)


@triton.jit
def atanh_excess(double_s):  # 2 atanh(s) / 2s - 1 from 2s, for |s| ≤ 1/3
    z = double_s * double_s
    return z * polynomial(z, ATANH_32, ATANH_64)


@triton.jit
def has_nan(x, y):
    return (x != x) | (y != y)


@triton.jit
def difference_of(x, y):
    """Return x - y for x ≤ y and |x| ≥ |y|, and what rounding dropped from it: nothing where e^(x-y) is no normal number."""
    floor = by_type(x, LEAST_32, LEAST_64)
    rounded = most(x - y, floor)
    return rounded, tl.where(rounded > floor, (x - rounded) - y, constant(x, 0.0))


@triton.jit
def or_il(x, y):
    """Return high + max(low, 0) + log1p(t), t = e^-|low| + e^(min(low, 0) - high); log1p(t) = log(1+c) + 2 atanh(…), c 0 or 1."""
    zero = constant(x, 0.0)
    high, low = most(x, y), least(y, x)
    from_low, _ = expm1_of(-tl.abs(low), zero, True)
    from_gap, _ = expm1_of(least(low, zero) - high, zero, True)
    t = from_low + from_gap
    dropped = sink(from_gap - (t - from_low))  # without it the error exceeds 4u·c where the sum is a little more than ½
    t = sink(t)
    c = tl.where(t > 0.5, constant(t, 1.0), zero)
    double_s = divide((t - c) + dropped, tl.fma(t + c, constant(t, 0.5), constant(t, 1.0)))
    start = high + most(zero, low) + tl.where(t > 0.5, constant(t, LN2), zero)
    return tl.fma(double_s, 1.0 + atanh_excess(double_s), start)


@triton.jit
def or_il_gradient(x, y, g):
    high, low, zero = most(x, y), least(y, x), constant(x, 0.0)
    negative = least(low, zero)
    from_low, _ = expm1_of(-tl.abs(low), zero, False)
    gap, dropped = difference_of(negative, high)
    from_gap, _ = expm1_of(gap, dropped, False)
    to_high = 1.0 + from_low
    unit = tl.where(has_nan(x, y), constant(x, float("nan")), divide(g, to_high + from_gap))
    to_low = most(from_low, 1.0 + negative) + from_gap  # e^min(low,0) + e^gap, since 1 + x ≤ e^x
    return tl.where(x >= y, to_high, to_low) * unit, tl.where(x >= y, to_low, to_high) * unit


@triton.jit
def xnor_il(x, y):
    """Return the value from sizes m ≤ M with q = e^-m, E = e^(m-M) and Q = Eq, as in pairs.h."""
    zero = constant(x, 0.0)
    m, large = least(tl.abs(x), tl.abs(y)), most(tl.abs(x), tl.abs(y))
    q, q_minus_one = expm1_of(-m, zero, False)
    ratio, ratio_minus_one = expm1_of(m - large, zero, False)
    few, large_q = large < 1.0, ratio * q
    minus_not_large = tl.fma(ratio, q_minus_one, ratio_minus_one)
    above = (q_minus_one + q_minus_one) * tl.where(few, minus_not_large, ratio + large_q)
    below = tl.fma(q, large_q, constant(x, 1.0)) + tl.where(few, q + large_q, 1.0 + ratio)
    double_s = divide(above, below)
    size = tl.fma(double_s, atanh_excess(double_s), tl.where(few, zero, m) + double_s)
    return tl.where(has_nan(x, y), constant(x, float("nan")), turn_by(turn_by(size, x), y))


@triton.jit
def xnor_il_gradient(x, y, g):
    m, large = least(tl.abs(x), tl.abs(y)), most(tl.abs(x), tl.abs(y))
    q, q_minus_one = expm1_of(-m, constant(x, 0.0), False)
    gap, dropped = difference_of(-large, -m)
    ratio, ratio_minus_one = expm1_of(gap, dropped, False)
    large_q, below = ratio * q, 1.0 + ratio
    minus_not_large = tl.fma(ratio, q_minus_one, ratio_minus_one)
    unit = divide(-g, tl.fma(below, q * large_q, below))
    unit = tl.where(has_nan(x, y), constant(x, float("nan")), unit)
    to_small, to_large = tl.fma(minus_not_large, large_q, minus_not_large), tl.fma(q_minus_one, q, q_minus_one) * ratio
    first = tl.abs(x) <= tl.abs(y)
    return turn_by(tl.where(first, to_small, to_large) * unit, y), turn_by(tl.where(first, to_large, to_small) * unit, x)


@triton.jit
def choose(x, y, KIND: tl.constexpr):
    """Return the value of an approximate gate and its bits: which operands OR takes; that XNOR takes the second, and a sign."""
    if KIND == OR_AIL:
        either, larger = (x <= 0.0) | (y <= 0.0), (x >= y) | (x != x)
        return tl.where(either, tl.where(larger, x, y), x + y), larger | ~either, ~(either & larger)
    else:
        smaller = (tl.abs(x) <= tl.abs(y)) | (x != x)
        taken, minus = tl.where(smaller, x, y), tl.where(smaller, y, x) < 0.0
        return tl.where(minus, -taken, taken), ~smaller, minus


@triton.jit
def gate_value(x, y, KIND: tl.constexpr, SCALE: tl.constexpr, SHIFT: tl.constexpr, LARGEST: tl.constexpr):
    """Return scale · base + shift, bounded unless an infinite operand makes it infinite, and the bits to keep."""
    if KIND == OR_IL:
        value = or_il(x, y)
        first, second = x == x, x == x
    elif KIND == XNOR_IL:
        value = xnor_il(x, y)
        first, second = x == x, x == x
    else:
        value, first, second = choose(x, y, KIND)
    if KIND == OR_AIL or KIND == OR_IL:  # XNOR is no larger than its operands
        top = by_type(value, LARGEST_32, LARGEST_64)
        value = tl.where((value > top) & (x < INFINITY) & (y < INFINITY), top, value)
    result, top = value * constant(value, SCALE) + constant(value, SHIFT), constant(value, LARGEST)
    bounded = tl.where(result > top, top, tl.where(result < -top, -top, result))
    return tl.where(tl.abs(value) < INFINITY, bounded, result), first, second


@triton.jit
def gate_gradient(x, y, first, second, g, KIND: tl.constexpr):
    zero = constant(g, 0.0)
    if KIND == OR_IL:
        return or_il_gradient(x, y, g)
    elif KIND == XNOR_IL:
        return xnor_il_gradient(x, y, g)
    elif KIND == OR_AIL:
        return tl.where(first, g, zero), tl.where(second, g, zero)
    else:
        along = tl.where(second, -g, g)
        return tl.where(first, zero, along), tl.where(first, along, zero)


# ------------------------------------------------------------------------------------------------ memory
# A tensor is seen as units, one for each group and inner position. `row` of them have the outer index in common, of which a
# share of a partition reads `share`, from `start` on; the operands of a unit lie `span` apart. A block computes BLOCK units.


@triton.jit
def places(
    share,
    row,
    span,
    start,
    SPLIT: tl.constexpr,
    PART: tl.constexpr,
    WIDE: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the block's COUNT · BLOCK numbers, where they are in x, and the outer index."""
    own = tl.program_id(0).to(tl.int64 if WIDE else tl.int32) * (COUNT * BLOCK) + tl.arange(0, COUNT * BLOCK)
    outer = own // (COUNT * share)
    unit = own + outer * (COUNT * (row - share)) + COUNT * start if PART else own  # simple, to be read in long vectors
    return own, unit if SPLIT else unit + unit // span * span, outer


@triton.jit
def load_pairs(
    x, units, share, row, span, start, SPLIT: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    if SPLIT:  # operands side by side: as long vectors as memory likes best
        own, at, _ = places(share, row, span, start, SPLIT, PART, WIDE, 2, BLOCK)
        both = tl.load(x + at, mask=own < 2 * units, other=0.0)
        a, b = tl.split(tl.reshape(both, (BLOCK, 2)))
    else:
        own, at, _ = places(share, row, span, start, SPLIT, PART, WIDE, 1, BLOCK)
        a, b = tl.load(x + at, mask=own < units, other=0.0), tl.load(x + at + span, mask=own < units, other=0.0)
    if a.dtype == tl.float64:
        return a, b
    else:
        return a.to(tl.float32), b.to(tl.float32)


@triton.jit
def store_pairs(
    x, a, b, units, share, row, span, start, SPLIT: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    if SPLIT:
        own, at, _ = places(share, row, span, start, SPLIT, PART, WIDE, 2, BLOCK)
        tl.store(x + at, tl.reshape(tl.join(a, b), (2 * BLOCK,)).to(x.dtype.element_ty), mask=own < 2 * units)
    else:
        own, at, _ = places(share, row, span, start, SPLIT, PART, WIDE, 1, BLOCK)
        tl.store(x + at, a.to(x.dtype.element_ty), mask=own < units)
        tl.store(x + at + span, b.to(x.dtype.element_ty), mask=own < units)


@triton.jit
def store_bits(planes, first, second, size, BLOCK: tl.constexpr):
    """Store a bit per unit, eight to a byte, in two planes."""
    both = first.to(tl.int32) | (second.to(tl.int32) << 8)
    bits = tl.sum(tl.reshape(both, (BLOCK // 8, 8)) << tl.arange(0, 8)[None, :], axis=1)
    at = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    tl.store(planes + at, (bits & 0xFF).to(tl.uint8), mask=at < size)
    tl.store(planes + size + at, (bits >> 8).to(tl.uint8), mask=at < size)


@triton.jit
def load_bits(plane, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    eight = tl.load(plane + at, mask=at < size, other=0).to(tl.int32)
    return tl.reshape((eight[:, None] >> tl.arange(0, 8)[None, :]) & 1, (BLOCK,)) != 0


@triton.jit
def forward(x, out, kept, units, share, row, span, start, out_row, MEMBERS: tl.constexpr, SPLIT: tl.constexpr,
            PART: tl.constexpr, KEEP: tl.constexpr, LARGEST: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Compute values and, with KEEP, bits. A member is (kind, whether the signs of its operands change, scale, shift)."""
    a, b = load_pairs(x, units, share, row, span, start, SPLIT, PART, WIDE, BLOCK)
    own, _, outer = places(share, row, span, start, True, PART, WIDE, 1, BLOCK)
    plane = (units + 7) // 8
    for m in tl.static_range(len(MEMBERS)):
        p, q = -a if MEMBERS[m][1] else a, -b if MEMBERS[m][2] else b
        value, first, second = gate_value(p, q, MEMBERS[m][0], MEMBERS[m][3], MEMBERS[m][4], LARGEST)
        target = out + own + outer * (out_row - share) + start + m * row
        tl.store(target, value.to(out.dtype.element_ty), mask=own < units)
        if KEEP:
            store_bits(kept + 2 * m * plane, first, second, plane, BLOCK)


@triton.jit
def backward(grad, saved, grad_x, units, share, row, span, start, out_row, MEMBERS: tl.constexpr, SPLIT: tl.constexpr,
             PART: tl.constexpr, KEPT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Compute the gradient of x from the bits (KEPT) or from x."""
    own, _, outer = places(share, row, span, start, True, PART, WIDE, 1, BLOCK)
    plane = (units + 7) // 8
    if not KEPT:
        a, b = load_pairs(saved, units, share, row, span, start, SPLIT, PART, WIDE, BLOCK)
    for m in tl.static_range(len(MEMBERS)):
        g = tl.load(grad + own + outer * (out_row - share) + start + m * row, mask=own < units, other=0.0)
        g = (g if g.dtype == tl.float64 else g.to(tl.float32)) * MEMBERS[m][3]
        if KEPT:
            p, q = g, g
            first, second = load_bits(saved + 2 * m * plane, plane, BLOCK), load_bits(saved + (2 * m + 1) * plane, plane, BLOCK)
        else:
            p, q = -a if MEMBERS[m][1] else a, -b if MEMBERS[m][2] else b
            _, first, second = choose(p, q, MEMBERS[m][0])
        to_a, to_b = gate_gradient(p, q, first, second, g, MEMBERS[m][0])
        to_a, to_b = -to_a if MEMBERS[m][1] else to_a, -to_b if MEMBERS[m][2] else to_b
        if m == 0:
            sum_a, sum_b = to_a, to_b
        else:
            sum_a += to_a
            sum_b += to_b
    store_pairs(grad_x, sum_a, sum_b, units, share, row, span, start, SPLIT, PART, WIDE, BLOCK)
