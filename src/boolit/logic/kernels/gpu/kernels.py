"""The two Triton kernels, forward and backward: one launch each, whatever the gates, type, layout, group size and ensemble.

A contiguous tensor is seen as units, one for each group and inner position, in the order the output has them; ``row`` of them
have the outer index in common, and the operands of a unit lie ``span`` apart. A block of the grid computes BLOCK units. In a
duplicate ensemble its operands are loaded once, for all gates; in a partition the grid's second number says whose share it is.

Approximate gates keep planes of bits, a bit per unit: OR which operands it took, XNOR the index of the one it took, and a sign.
A member is (kind, whether the sign of its first operand changes, the others', scale, shift, planes of bits).
"""
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from boolit.logic.kernels.gpu.groups import group_partial, group_state, group_value, operand
from boolit.logic.kernels.gpu.math import OR_AIL, XNOR_AIL, constant
from boolit.logic.kernels.gpu.memory import (
    load_bits,
    load_gradient,
    load_pairs,
    places_of,
    store_bits,
    store_pairs,
    store_two_bits,
    target_of,
)
from boolit.logic.kernels.gpu.pairs import choice_gradient, finish, flip_if, kept_partial, kept_state, pair_gradient, pair_value


@triton.jit
def forward(
    x,
    out,
    kept,
    outer,
    row,
    span,
    part,
    inner,
    MEMBERS: tl.constexpr,
    K: tl.constexpr,
    SPLIT: tl.constexpr,
    HALVES: tl.constexpr,
    PARTITION: tl.constexpr,
    EXTRA: tl.constexpr,
    KEEP: tl.constexpr,
    LARGEST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Values and, with KEEP, bits. A share of a partition has ``part`` units of a row; the first EXTRA have ``inner`` more."""
    if PARTITION:
        start = tl.full((), 0, INDEX)
        for m in tl.static_range(len(MEMBERS)):
            length = tl.full((), part, INDEX) + (inner if m < EXTRA else 0)
            if tl.program_id(1) == m:
                _forward_block(
                    x,
                    out,
                    kept,
                    outer,
                    row,
                    span,
                    length,
                    start,
                    (MEMBERS[m],),
                    K,
                    SPLIT,
                    HALVES,
                    True,
                    KEEP,
                    LARGEST,
                    INDEX,
                    BLOCK,
                )
            kept += MEMBERS[m][5] * ((outer * length + 7) // 8)
            start += length
    else:
        length = tl.full((), row, INDEX)
        _forward_block(x, out, kept, outer, row, span, length, 0, MEMBERS, K, SPLIT, HALVES, False, KEEP, LARGEST, INDEX, BLOCK)


@triton.jit
def _forward_block(
    x,
    out,
    kept,
    outer,
    row,
    span,
    length,
    start,
    MEMBERS: tl.constexpr,
    K: tl.constexpr,
    SPLIT: tl.constexpr,
    HALVES: tl.constexpr,
    PARTITION: tl.constexpr,
    KEEP: tl.constexpr,
    LARGEST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    units = outer * length
    unit, source, mask = places_of(units, length, row, span, start, K, SPLIT, HALVES, PARTITION, INDEX, BLOCK)
    plane = (units + 7) // 8
    if K == 2:
        a, b = load_pairs(x, source, mask, units, length, row, span, start, SPLIT, PARTITION, INDEX, BLOCK)
    else:
        at = x + source
    for m in tl.static_range(len(MEMBERS)):
        if K == 2:
            value, finite, first, second = pair_value(flip_if(a, MEMBERS[m][1]), flip_if(b, MEMBERS[m][2]), MEMBERS[m][0])
            if KEEP:
                store_two_bits(kept, first, second, plane, BLOCK)
        else:
            value, finite, index, condition = group_value(at, span, mask, MEMBERS[m][0], K, MEMBERS[m][1])
            if KEEP and MEMBERS[m][0] == XNOR_AIL:
                for bit in tl.static_range(MEMBERS[m][5] - 1):
                    store_bits(kept + bit * plane, (index >> bit) & 1, plane, BLOCK)
                store_bits(kept + (MEMBERS[m][5] - 1) * plane, condition, plane, BLOCK)
            elif KEEP:
                place, target = at, kept
                for j in range(K):
                    p = operand(place, mask, MEMBERS[m][1])
                    store_bits(target, tl.where(condition, ~(p <= 0.0), index == j), plane, BLOCK)
                    place += span
                    target += plane
        result = finish(value, finite, MEMBERS[m][0], MEMBERS[m][3], MEMBERS[m][4], LARGEST)
        target = out + target_of(unit, m, row, len(MEMBERS), PARTITION)
        tl.store(target, result.to(out.dtype.element_ty), mask=mask)
        kept += MEMBERS[m][5] * plane


@triton.jit
def backward(
    grad,
    saved,
    grad_x,
    outer,
    row,
    span,
    part,
    inner,
    MEMBERS: tl.constexpr,
    K: tl.constexpr,
    SPLIT: tl.constexpr,
    HALVES: tl.constexpr,
    PARTITION: tl.constexpr,
    EXTRA: tl.constexpr,
    KEPT: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of x, from the bits (KEPT) or from x."""
    if PARTITION:
        start = tl.full((), 0, INDEX)
        for m in tl.static_range(len(MEMBERS)):
            length = tl.full((), part, INDEX) + (inner if m < EXTRA else 0)
            if tl.program_id(1) == m:
                _backward_block(
                    grad,
                    saved,
                    grad_x,
                    outer,
                    row,
                    span,
                    length,
                    start,
                    (MEMBERS[m],),
                    K,
                    SPLIT,
                    HALVES,
                    True,
                    KEPT,
                    INDEX,
                    BLOCK,
                )
            if KEPT:
                saved += MEMBERS[m][5] * ((outer * length + 7) // 8)
            start += length
    else:
        length = tl.full((), row, INDEX)
        _backward_block(grad, saved, grad_x, outer, row, span, length, 0, MEMBERS, K, SPLIT, HALVES, False, KEPT, INDEX, BLOCK)


@triton.jit
def _backward_block(
    grad,
    saved,
    grad_x,
    outer,
    row,
    span,
    length,
    start,
    MEMBERS: tl.constexpr,
    K: tl.constexpr,
    SPLIT: tl.constexpr,
    HALVES: tl.constexpr,
    PARTITION: tl.constexpr,
    KEPT: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    units = outer * length
    unit, source, mask = places_of(units, length, row, span, start, K, SPLIT, HALVES, PARTITION, INDEX, BLOCK)
    plane = (units + 7) // 8
    if K == 2:
        if not KEPT:
            a, b = load_pairs(saved, source, mask, units, length, row, span, start, SPLIT, PARTITION, INDEX, BLOCK)
        for m in tl.static_range(len(MEMBERS)):
            g = load_gradient(grad + target_of(unit, m, row, len(MEMBERS), PARTITION), mask, MEMBERS[m][3])
            if KEPT:
                first, second = load_bits(saved, plane, BLOCK), load_bits(saved + plane, plane, BLOCK)
                to_a, to_b = choice_gradient(first, second, g, MEMBERS[m][0])
                saved += 2 * plane
            else:
                to_a, to_b = pair_gradient(flip_if(a, MEMBERS[m][1]), flip_if(b, MEMBERS[m][2]), g, MEMBERS[m][0])
            to_a, to_b = flip_if(to_a, MEMBERS[m][1]), flip_if(to_b, MEMBERS[m][2])
            if m == 0:
                sum_a, sum_b = to_a, to_b
            else:
                sum_a += to_a
                sum_b += to_b
        store_pairs(grad_x, sum_a, sum_b, source, mask, units, length, row, span, start, SPLIT, PARTITION, INDEX, BLOCK)
    else:
        states, gradients = (), ()
        bits = saved
        for m in tl.static_range(len(MEMBERS)):
            gradients = gradients + (
                load_gradient(grad + target_of(unit, m, row, len(MEMBERS), PARTITION), mask, MEMBERS[m][3]),
            )
            if KEPT:
                states = states + (kept_state(bits, plane, MEMBERS[m][0], MEMBERS[m][5], BLOCK),)
                bits += MEMBERS[m][5] * plane
            else:
                states = states + (group_state(saved + source, span, mask, MEMBERS[m][0], K, MEMBERS[m][1]),)
        target = grad_x + source
        place = saved if KEPT else saved + source
        for j in range(K):
            total = constant(gradients[0], 0.0)
            planes = place
            for m in tl.static_range(len(MEMBERS)):
                if KEPT:
                    partial = kept_partial(planes, plane, j, states[m], MEMBERS[m][0], total, BLOCK)
                    planes += MEMBERS[m][5] * plane
                else:
                    partial = group_partial(operand(place, mask, MEMBERS[m][1]), j, states[m], MEMBERS[m][0])
                along = partial * gradients[m]
                # what has no part in an approximate gate's value has none in an infinite gradient
                if MEMBERS[m][0] == OR_AIL or MEMBERS[m][0] == XNOR_AIL:
                    along = tl.where(partial == 0.0, constant(total, 0.0), along)
                total += flip_if(along, MEMBERS[m][1])
            tl.store(target, total.to(grad_x.dtype.element_ty), mask=mask)
            target += span
            if KEPT:
                place += plane
            else:
                place += span
