"""exp and log1p in Triton, with the polynomials of vector_math.h.

Products are fused with sums where `tl.fma` says so and nowhere else (the launch turns off what compilers would fuse), so that
Triton's interpreter computes what a device does. Divisions are rounded correctly: `/` alone is not, in float32.
"""
# mypy: ignore-errors
# ruff: noqa: N803, RET505

import triton
import triton.language as tl


def _numbers(*digits: str) -> tl.constexpr:
    return tl.constexpr(tuple(float.fromhex(number) for number in digits))


# (e^r - 1 - r) / r² for |r| ≤ ln2/2, and (2 atanh(s) - 2s) / (2s)³ as a polynomial of (2s)², for |s| ≤ 1/3; the last term first
EXP_32 = _numbers("0x1.6d117ap-10", "0x1.120bdep-7", "0x1.555518p-5", "0x1.5554dcp-3", "0x1p-1")
EXP_64 = _numbers(
    *(
        "0x1.af39091a8441ap-26",
        "0x1.2891d2ecb3ed9p-22",
        "0x1.71de0d863c737p-19",
        "0x1.a019b8cbe6585p-16",
        "0x1.a01a01a7ce75dp-13",
    ),
    *("0x1.6c16c1789caa1p-10", "0x1.11111111109a6p-7", "0x1.5555555553d38p-5", "0x1.5555555555556p-3", "0x1.0000000000001p-1"),
)
ATANH_32 = _numbers("0x0p0", "0x1.130324p-11", "0x1.2122bcp-9", "0x1.99ad7cp-7", "0x1.55554cp-4")
ATANH_64 = _numbers(
    *(
        "0x1.4b37dcfe84abcp-24",
        "0x1.684f4e9c48d37p-23",
        "0x1.eb98d0629b7acp-21",
        "0x1.10ac0430038acp-18",
        "0x1.3b18b983dd78cp-16",
    ),
    *("0x1.745cf0719db9fp-14", "0x1.c71c727285525p-12", "0x1.24924923d2b49p-9", "0x1.999999999a3f5p-7", "0x1.5555555555555p-4"),
)
# By type: bits of the fraction, exponent's bias, and ln 2 in two parts of which n · the first is exact
FRACTION_32, FRACTION_64 = tl.constexpr(23), tl.constexpr(52)
BIAS_32, BIAS_64 = tl.constexpr(127), tl.constexpr(1023)
LN2_HIGH_32, LN2_LOW_32 = tl.constexpr(0.693359375), tl.constexpr(-2.12194440054690581e-4)
LN2_HIGH_64, LN2_LOW_64 = tl.constexpr(float.fromhex("0x1.62e42fefap-1")), tl.constexpr(float.fromhex("0x1.cf79abc9e3b3ap-40"))
LEAST_32, LEAST_64 = tl.constexpr(-88.0), tl.constexpr(-709.1)  # the exponent's field of e^x is 0 there, and so is e^x
LOWEST_32, LOWEST_64 = tl.constexpr(-104.7), tl.constexpr(-745.9)  # e^x is less than half the least subnormal
LARGEST_32, LARGEST_64 = tl.constexpr(float.fromhex("0x1.fffffep127")), tl.constexpr(float.fromhex("0x1.fffffffffffffp1023"))
LOG2_E, LN2 = tl.constexpr(1.44269504088896340736), tl.constexpr(0.6931471805599453)
INFINITY = tl.constexpr(float("inf"))
OR_AIL, XNOR_AIL, OR_IL, XNOR_IL = (tl.constexpr(kind) for kind in range(4))


@triton.jit
def by_type(like, single: tl.constexpr, double: tl.constexpr):
    """The constant of the type, everywhere."""
    if like.dtype == tl.float64:
        return tl.full(like.shape, double, tl.float64)
    else:
        return tl.full(like.shape, single, tl.float32)


@triton.jit
def constant(like, value: tl.constexpr):
    """The number in the type, everywhere."""
    return tl.full(like.shape, value, like.dtype)


@triton.jit
def nan_like(like):
    """NaN in the type, everywhere (a constant of the module could not be compared with itself)."""
    return tl.full(like.shape, float("nan"), like.dtype)


@triton.jit
def divide(a, b):
    """a / b, rounded correctly."""
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def as_bits(x):
    """The integers of the same bits."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True)
    else:
        return x.to(tl.int32, bitcast=True)


@triton.jit
def turn_by(x, y):
    """x with its sign changed where y has a minus sign."""
    if x.dtype == tl.float64:
        return (as_bits(x) ^ (as_bits(y) & -0x8000000000000000)).to(tl.float64, bitcast=True)
    else:
        return (as_bits(x) ^ (as_bits(y) & -0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def most(a, b):
    """The larger; where either is NaN, b."""
    return tl.where(a > b, a, b)


@triton.jit
def least(a, b):
    """The smaller; where either is NaN, b."""
    return tl.where(a < b, a, b)


@triton.jit
def polynomial(x, single: tl.constexpr, double: tl.constexpr):
    """Horner's scheme."""
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
def scaled_exp(x, dropped, LIFT: tl.constexpr):
    """e^(x + dropped) = scale · (1 + r + tail) for x from LEAST to 0; LIFT: from LOWEST, times 2^(bits of the fraction + 1)."""
    double: tl.constexpr = x.dtype == tl.float64
    fraction: tl.constexpr = FRACTION_64 if double else FRACTION_32
    # adding this leaves the nearest integer, and the bias, in the low bits of the sum
    offset: tl.constexpr = 3 * 2 ** (fraction - 1) + (BIAS_64 if double else BIAS_32) + (fraction + 1 if LIFT else 0)
    shift = constant(x, offset)
    shifted = tl.fma(x, constant(x, LOG2_E), shift)
    n = shifted - shift
    if double:
        r = tl.fma(n, constant(x, -LN2_LOW_64), tl.fma(n, constant(x, -LN2_HIGH_64), x)) + dropped
    else:
        r = tl.fma(n, constant(x, -LN2), x) + dropped  # ln 2 rounded is wrong by less than 5u, as |n| ≤ 151
    scale = (as_bits(shifted) << fraction).to(x.dtype, bitcast=True)
    tail = r * r * polynomial(r, EXP_32, EXP_64)
    return scale, r, tail


@triton.jit
def expm1_of(x, dropped):
    """e^(x + dropped) and it minus 1, both right to about 1u, for x ≤ 0. What is no normal number is 0; so is that of NaN."""
    scale, r, tail = scaled_exp(most(x, by_type(x, LEAST_32, LEAST_64)), dropped, False)
    p = r + tail
    return tl.fma(scale, p, scale), tl.fma(scale, p, scale - 1.0)


@triton.jit
def lifted_exp(x):
    """e^x · 2^(bits of the fraction + 1) for x ≤ 0, where a subnormal e^x has all its digits."""
    scale, r, tail = scaled_exp(most(x, by_type(x, LOWEST_32, LOWEST_64)), constant(x, 0.0), True)
    return tl.fma(scale, r + tail, scale)


@triton.jit
def sink(x):
    """What undoes the lift of `lifted_exp`."""
    return x * by_type(x, 2.0**-24, 2.0**-53)


@triton.jit
def atanh_excess(double_s):
    """2 atanh(s) / 2s - 1 from 2s, for |s| ≤ 1/3."""
    z = double_s * double_s
    return z * polynomial(z, ATANH_32, ATANH_64)


@triton.jit
def plus_log1p(base, t, dropped):
    """base + log1p(t + dropped) for 0 ≤ t ≤ 2: log(1 + c) + 2 atanh((t - c) / (2 + t + c)) with c = 1 for t > ½, else 0."""
    large = t > 0.5
    c = tl.where(large, constant(t, 1.0), constant(t, 0.0))
    double_s = divide((t - c) + dropped, tl.fma(t + c, constant(t, 0.5), constant(t, 1.0)))
    start = base + tl.where(large, constant(t, LN2), constant(t, 0.0))
    return tl.fma(double_s, 1.0 + atanh_excess(double_s), start)


@triton.jit
def has_nan(x, y):
    """Where either is NaN."""
    return (x != x) | (y != y)


@triton.jit
def difference_of(x, y):
    """x - y for x ≤ y and |x| ≥ |y|, and what rounding dropped from it: nothing where e^(x-y) is no normal number."""
    floor = by_type(x, LEAST_32, LEAST_64)
    rounded = most(x - y, floor)
    return rounded, tl.where(rounded > floor, (x - rounded) - y, constant(x, 0.0))
