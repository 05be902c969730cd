"""Between a device's memory and vectors of units: where operands and outputs lie, and bits, eight to a byte."""
# mypy: ignore-errors
# ruff: noqa: N803, RET505, SIM108

import triton
import triton.language as tl


@triton.jit
def places_of(
    units,
    length,
    row,
    span,
    start,
    K: tl.constexpr,
    SPLIT: tl.constexpr,
    HALVES: tl.constexpr,
    PARTITION: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The block's units, counted through the whole tensor, where their first operands are, and which of them there are.

    Every division is of the block's own count by one number: then compilers see which places are neighbours.
    """
    own = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    if PARTITION:
        rows = own // length
        unit = own + rows * (row - length) + start
    else:
        unit = own
    if SPLIT:
        source = unit * K
    elif not PARTITION:
        source = unit + (own // span) * (K - 1) * span
    elif HALVES:
        source = unit + rows * (K - 1) * span
    else:  # span units of a group's inner extent, of which the numbers here are multiples
        source = unit + (own // span + rows * ((row - length) // span) + start // span) * (K - 1) * span
    return unit, source, own < units


@triton.jit
def target_of(unit, m: tl.constexpr, row, COUNT: tl.constexpr, PARTITION: tl.constexpr):
    """Where the output of member m of COUNT is."""
    if PARTITION or COUNT == 1:
        return unit
    else:
        return unit + ((unit // row) * (COUNT - 1) + m) * row


@triton.jit
def neighbours_of(units, length, row, start, PARTITION: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    """Where both operands of the block's units are, one beside the other: as long vectors as memory likes best."""
    own = tl.program_id(0).to(INDEX) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
    if PARTITION:
        at = own + (own // (2 * length)) * (2 * (row - length)) + 2 * start
    else:
        at = own
    return at, own < 2 * units


@triton.jit
def widen(x):
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def load_pairs(
    x,
    source,
    mask,
    units,
    length,
    row,
    span,
    start,
    SPLIT: tl.constexpr,
    PARTITION: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if SPLIT:
        at, present = neighbours_of(units, length, row, start, PARTITION, INDEX, BLOCK)
        both = widen(tl.load(x + at, mask=present, other=0.0))
        return tl.split(tl.reshape(both, (BLOCK, 2)))
    else:
        at = x + source
        return widen(tl.load(at, mask=mask, other=0.0)), widen(tl.load(at + span, mask=mask, other=0.0))


@triton.jit
def store_pairs(
    x,
    a,
    b,
    source,
    mask,
    units,
    length,
    row,
    span,
    start,
    SPLIT: tl.constexpr,
    PARTITION: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if SPLIT:
        at, present = neighbours_of(units, length, row, start, PARTITION, INDEX, BLOCK)
        both = tl.reshape(tl.join(a, b), (2 * BLOCK,))
        tl.store(x + at, both.to(x.dtype.element_ty), mask=present)
    else:
        at = x + source
        tl.store(at, a.to(x.dtype.element_ty), mask=mask)
        tl.store(at + span, b.to(x.dtype.element_ty), mask=mask)


@triton.jit
def load_gradient(at, mask, SCALE: tl.constexpr):
    g = widen(tl.load(at, mask=mask, other=0.0))
    return g if SCALE == 1.0 else g * SCALE


@triton.jit
def store_bits(plane, condition, size, BLOCK: tl.constexpr):
    """A bit per unit, eight to a byte."""
    ones = tl.reshape(condition.to(tl.int32), (BLOCK // 8, 8)) << tl.arange(0, 8)[None, :]
    at = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    tl.store(plane + at, tl.sum(ones, axis=1).to(tl.uint8), mask=at < size)


@triton.jit
def store_two_bits(planes, first, second, size, BLOCK: tl.constexpr):
    """Two planes at the price of one exchange between threads."""
    both = first.to(tl.int32) | (second.to(tl.int32) << 8)
    ones = tl.sum(tl.reshape(both, (BLOCK // 8, 8)) << tl.arange(0, 8)[None, :], axis=1)
    at = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    tl.store(planes + at, (ones & 0xFF).to(tl.uint8), mask=at < size)
    tl.store(planes + size + at, (ones >> 8).to(tl.uint8), mask=at < size)


@triton.jit
def load_bits(plane, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    eight = tl.load(plane + at, mask=at < size, other=0).to(tl.int32)
    return tl.reshape((eight[:, None] >> tl.arange(0, 8)[None, :]) & 1, (BLOCK,)) != 0
