// Gates of two operands, in the arithmetic type T (float or double): formulas on vectors of W pairs, and loops over a block.
//
// boolit/logic/reference.py derives the formulas. `interleaved` says whether the operands of a pair lie side by side or apart.
// Loops run over whole vectors: buffers have space for a multiple of W numbers. Masks have all bits set where true.

#pragma once

#include "vector_math.h"

constexpr int BLOCK = 512;  // pairs that are computed together, while they are in the nearest cache

enum Kind : std::int32_t { OR_AIL, XNOR_AIL, OR_IL, XNOR_IL, AND_IL, TURNED_OR_IL };  // Python knows the first four

// ---------------------------------------------------------------- approximate: values

// The larger and the smaller operand, of -x and -y if `negated`, chosen so that a NaN ends in one of them.
template <class T>
struct Extremes {
    Real<T> high, low;
};

template <class T, bool negated = false>
ALWAYS_INLINE Extremes<T> extremes(Pair<T> p) {
    if constexpr (negated) return {-least<T>(p.x, p.y), -most<T>(p.y, p.x)};
    return {most<T>(p.x, p.y), least<T>(p.y, p.x)};
}

// Three slots: OR, AND and XNOR. AND is not computed as OR of negated operands, so that the three share the extremes.
// OR is x + y where both are positive and the larger elsewhere, AND x + y where both are negative and the smaller elsewhere, XNOR
// the operand of smaller size with the sign of the product.
template <class T, int slot>
ALWAYS_INLINE Real<T> chosen_value(Pair<T> p) {
    const Extremes<T> of = extremes<T>(p);
    if constexpr (slot == 0) return of.high + most<T>(all<T>(0), of.low);
    if constexpr (slot == 1) return of.low + least<T>(all<T>(0), of.high);
    const Real<T> value = most<T>(-of.high, of.low);
    return bits_of<Real<T>>(bits_of<Int<T>>(value) | bits_of<Int<T>>(hole_of<T>(p.x, p.y)));
}

// The bits kept for the backward. OR and AND: whether the first operand is left out, and the second; XNOR: whether the second is left
// out, and whether the gradient changes its sign. At a tie the first operand is taken; NaN is taken, whichever operand it is.
template <class T>
struct Choice {
    Mask<T> first, second;
    Real<T> value;
};

template <class T, int slot>
ALWAYS_INLINE Choice<T> choose(Pair<T> p) {
    const Real<T> x = p.x, y = p.y, zero = all<T>(0);
    if constexpr (slot == 2) {
        const Mask<T> smaller = is_at_most<T>(size_of<T>(x), size_of<T>(y)) | differs<T>(x, x);
        const Int<T> both = bits_of<Int<T>>(x) ^ bits_of<Int<T>>(y);
        const Int<T> taken = bits_of<Int<T>>(y) ^ bits_of<Int<T>>(where<T>(smaller, bits_of<Real<T>>(both)));
        const Real<T> other = bits_of<Real<T>>(both ^ taken);
        return {smaller, is_below<T>(other, zero), turned_by<T>(bits_of<Real<T>>(taken), other)};
    } else {
        const Mask<T> either = slot == 0 ? is_at_most<T>(x, zero) | is_at_most<T>(y, zero) : is_at_least<T>(x, zero) | is_at_least<T>(y, zero);
        const Mask<T> first = (slot == 0 ? is_at_least<T>(x, y) : is_at_most<T>(x, y)) | differs<T>(x, x);
        return {Mask<T>(~first & either), Mask<T>(first & either), chosen_value<T, slot>(p)};
    }
}

// The gradients of the two operands, given the bits of `choose` and the gradient g of the gate's value.
template <class T, int slot, class M>
ALWAYS_INLINE Pair<T> share(M first, M second, Real<T> g) {
    if constexpr (slot != 2) return {where<T>(~first, g), where<T>(~second, g)};
    const Real<T> along = turned_where<T>(second, g);
    return {where<T>(first, along), where<T>(~first, along)};
}

// ---------------------------------------------------------------- exact: values and gradients

// A value comes in two steps, so that loops can run them apart: a base, and the argument of the logarithm that is added to it. For OR
// also what rounding dropped from the latter: without it the error exceeds 4u·c where e^-|low| + e^gap is a little more than ½.
template <class T>
struct Parts {
    Real<T> base, more, dropped;
};

// high + max(low, 0) and e^-|low| + e^(min(low,0) - high); if `negated`, for -x and -y.
template <class T, bool negated = false>
ALWAYS_INLINE Parts<T> or_il_parts(Real<T> x, Real<T> y) {
    const auto [high, low] = extremes<T, negated>({x, y});
    const Real<T> from_low = lifted_exp<T>(minus_size_of<T>(low)), from_gap = lifted_exp<T>(least<T>(low, all<T>(0)) - high);
    const Real<T> t = from_low + from_gap, dropped = from_gap - (t - from_low);
    return {high + most<T>(all<T>(0), low), t * sink<T>, dropped * sink<T>};
}

// On sizes m ≤ M with q = e^-m, E = e^(m-M) and Q = Eq: |f| = 2 atanh(s) with s = (1-q)(1-Q) / (1+q+Q+qQ) for M < 1, and
// |f| = m + 2 atanh(s) with s = -(1-q)(E+Q) / (2+E+qQ) beyond: |s| ≤ 1/3. Returns 0 or m, and 2s, with the sign of f.
template <class T>
ALWAYS_INLINE Parts<T> xnor_il_parts(Real<T> x, Real<T> y) {
    const Real<T> minus_x = minus_size_of<T>(x), minus_y = minus_size_of<T>(y);
    const Real<T> minus_m = most<T>(minus_x, minus_y), minus_large = least<T>(minus_x, minus_y);
    const Expm1<T> q = fine_expm1<T>(at_least_normal<T>(minus_m)), ratio = fine_expm1<T>(at_least_normal<T>(minus_large - minus_m));
    const Int<T> few = minus_large > T(-1);
    const Real<T> large_q = ratio.value * q.value, minus_not_large = ratio.value * q.minus_one + ratio.minus_one;
    const Real<T> above = (q.minus_one + q.minus_one) * (few ? minus_not_large : ratio.value + large_q);
    const Real<T> below = (T(1) + q.value * large_q) + (few ? q.value + large_q : T(1) + ratio.value);
    const Real<T> sign = bits_of<Real<T>>(bits_of<Int<T>>(x) ^ bits_of<Int<T>>(y));
    return {hole_of<T>(x, y) - turned_by<T>(where<T>(~few, minus_m), sign), turned_by<T>(above / below, sign), all<T>(-0.0)};
}

template <class T, int kind>
ALWAYS_INLINE Real<T> exact_value(Parts<T> parts) {
    if constexpr (kind != XNOR_IL) return plus_log1p<T>(parts.base, parts.more, parts.dropped);
    return (parts.base + parts.more) + parts.more * atanh_excess<T>(parts.more);  // without a base, 2s is not rounded again
}

// The partial derivatives times g; if `negated`, at -x and -y.
template <class T, bool negated = false>
ALWAYS_INLINE Pair<T> or_il_gradient(Real<T> x, Real<T> y, Real<T> g) {
    const auto [high, low] = extremes<T, negated>({x, y});
    const Real<T> negative = least<T>(low, all<T>(0));
    const Real<T> from_low = quick_expm1<T>(at_least_normal<T>(minus_size_of<T>(low))).value;
    const Real<T> from_gap = quick_expm1<T>(at_least_normal<T>(negative, high)).value;
    const Real<T> to_high = T(1) + from_low, unit = g / (to_high + from_gap + hole_of<T>(x, y));
    const Real<T> to_low = most<T>(from_low, T(1) + negative) + from_gap;  // e^min(low,0) + e^gap, since 1 + x ≤ e^x
    const Pair<T> partials = swapped_unless<T>(negated ? x <= y : x >= y, to_high, to_low);
    return {partials.x * unit, partials.y * unit};
}

// The partial derivatives times g: ∂/∂m = (1-Q)(1+Q) / ((1+E)(1+qQ)) and ∂/∂M = (1-q)(1+q) E / ((1+E)(1+qQ)).
template <class T>
ALWAYS_INLINE Pair<T> xnor_il_gradient(Real<T> x, Real<T> y, Real<T> g) {
    const Real<T> minus_x = minus_size_of<T>(x), minus_y = minus_size_of<T>(y);
    const Real<T> minus_m = most<T>(minus_x, minus_y), minus_large = least<T>(minus_x, minus_y);
    const Expm1<T> q = quick_expm1<T>(at_least_normal<T>(minus_m)), ratio = quick_expm1<T>(at_least_normal<T>(minus_large, minus_m));
    const Real<T> large_q = ratio.value * q.value, minus_not_large = ratio.value * q.minus_one + ratio.minus_one;
    const Real<T> below = T(1) + ratio.value, unit = -g / (below + below * (q.value * large_q) + hole_of<T>(x, y));
    const Real<T> to_small = minus_not_large + minus_not_large * large_q;
    const Real<T> to_large = (q.minus_one + q.minus_one * q.value) * ratio.value;
    const Pair<T> partials = swapped_unless<T>(minus_x >= minus_y, to_small, to_large);
    return {turned_by<T>(partials.x * unit, y), turned_by<T>(partials.y * unit, x)};
}

// ---------------------------------------------------------------- XNOR of many: odds are joined, one logarithm at the end

// log(even / odd) = n log 2 + 2 atanh(s), where n is the largest for which odd · 2^n ≤ even. Without n, even - odd is at hand.
template <class T>
ALWAYS_INLINE Real<T> log_odds(Pair<T> odds) {
    using L = Lanes<T>;
    constexpr auto fraction = (typename L::One(1) << L::mantissa) - 1;
    const Real<T> even = odds.x + odds.y;
    const Int<T> distance = bits_of<Int<T>>(even) - bits_of<Int<T>>(odds.x), doublings = distance & ~is_negative<T>(distance) & ~fraction;
    const Real<T> odd = bits_of<Real<T>>(bits_of<Int<T>>(odds.x) + doublings);
    const Real<T> difference = chosen<T>(is_negative<T>(-doublings), even - odd, odds.y);
    const Real<T> n = bits_of<Real<T>>((doublings >> L::mantissa) + bits_of<Int<T>>(all<T>(rounder<T>))) - rounder<T>;
    const Real<T> double_s = (difference + difference) / (even + odd);
    return n * L::ln2_high + (double_s + (double_s * atanh_excess<T>(double_s) + n * L::ln2_low));
}

// A parity as a pair: the weight of odd, and that of even minus that of odd. Weights are not normalized, and nothing is subtracted.
template <class T>
ALWAYS_INLINE Pair<T> join_odds(Pair<T> a, Pair<T> b) {
    return {(a.x + a.y) * b.x + a.x * (b.x + b.y), a.y * b.y};
}

// ---------------------------------------------------------------- finite in, finite out

// Where a gate's value is rightly infinite.
template <class T>
ALWAYS_INLINE Int<T> is_certain(bool is_or, Real<T> x, Real<T> y) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    if (is_or) return (x == infinity) | (y == infinity) | ((x == -infinity) & (y == -infinity));
    return (size_of<T>(x) == infinity) & (size_of<T>(y) == infinity);
}

// A result beyond the largest number, though no infinite operand makes it so, becomes that number. The value is bounded first, as the
// scale might bring it back.
template <class T>
ALWAYS_INLINE Real<T> saturated(Real<T> value, Int<T> certain, T scale, T shift) {
    constexpr T largest = std::numeric_limits<T>::max();
    const Real<T> out = (certain ? value : within<T>(value, largest)) * scale + shift;
    return certain ? out : within<T>(out, largest);
}

// Whether a result of a block may have overflowed: their sum never leaves infinity or NaN. (Large finite results may overflow the
// sum, which only costs time.) Blocks in which it happened are computed again by a slower loop.
template <class T>
ALWAYS_INLINE bool is_not_finite(Real<T> sum) {
    return bits_of_mask<T>(~(size_of<T>(sum) <= std::numeric_limits<T>::max())) != 0;
}

// ---------------------------------------------------------------- a block's operands and results

// Brings the lines of numbers that will be read, or written, into the cache. Hardware does that for long runs, but not beyond a page, and
// too late for runs that are written: without it, rows and images take up to 1.6 times as long.
template <bool write, class T>
ALWAYS_INLINE void fetch_lines(const T* start, int count) {
    for (int i = 0; i < count; i += int(64 / sizeof(T))) __builtin_prefetch(start + i, write);
}

// The pairs of a block, which are read (const T) or written (T).
template <class T, bool interleaved>
struct Pairs {
    using Number = std::remove_const_t<T>;
    T* start;
    std::int64_t distance;   // of the operands of a pair, if not interleaved
    std::int64_t ahead = 0;  // distance of the pairs that `fetch` asks for

    ALWAYS_INLINE Pair<Number> at(int i) const {
        if constexpr (interleaved) return load_pairs<Number>(start + 2 * i);
        return {load<Number>(start + i), load<Number>(start + distance + i)};
    }

    ALWAYS_INLINE void put(int i, Pair<Number> pair) const {
        if constexpr (interleaved) store_pairs<T>(start + 2 * i, pair);
        else store<T>(start + i, pair.x), store<T>(start + distance + i, pair.y);
    }

    // Two vectors that follow each other: where operands lie apart, a whole cache line of each. Half lines in turn take 1.5 times as long.
    ALWAYS_INLINE void put(int i, Pair<Number> first, Pair<Number> second) const {
        if constexpr (interleaved) {
            put(i, first), put(i + W, second);
        } else {
            store<T>(start + i, first.x), store<T>(start + i + W, second.x);
            store<T>(start + distance + i, first.y), store<T>(start + distance + i + W, second.y);
        }
    }

    ALWAYS_INLINE void fetch(int i) const {
        constexpr bool write = !std::is_const<T>::value;
        fetch_lines<write>(start + ahead + (interleaved ? 2 * i : i), interleaved ? 2 * W : W);
        if constexpr (!interleaved) fetch_lines<write>(start + distance + ahead + i, W);
    }
};

// The bit planes of one gate in one block; `plane` is the distance between the two.
template <class Byte>
struct Bits {
    Byte* start;
    int plane;
    Byte* at(int p, int lane) const { return start + p * plane + (lane >> 3); }
};

// ---------------------------------------------------------------- approximate gates: one read of the operands serves up to three

enum { HAS_OR = 1, HAS_AND = 2, HAS_XNOR = 4 };
constexpr int SLOTS = 3;

// Constants, outputs and bits by slot. `turn` is -1 if the gates read -x and y, as implications do.
template <class T>
struct Trio {
    T turn, scale[SLOTS], shift[SLOTS];
    T* out[SLOTS];
    Bits<std::uint8_t> bits[SLOTS];
    std::int64_t ahead = 0;  // distance of the outputs, or their gradients, to fetch
};

// Several gates on interleaved pairs put the lanes in the order of memory first, since there are two operands and three values. Vectors of
// 16 pairs need that for their bits.
template <class T, bool interleaved, int slots>
constexpr bool are_lanes_ordered = interleaved && is_shuffled<T> && ((slots & (slots - 1)) != 0 || W > 8);

// Not those of one gate on images: two runs that are read and one that is written need no help.
template <bool interleaved, int slots>
constexpr bool are_outputs_fetched = interleaved || (slots & (slots - 1)) != 0;

template <int slots, class Body>
ALWAYS_INLINE void for_slots(const Body& body) {
    if constexpr ((slots & HAS_OR) != 0) body(std::integral_constant<int, 0>{});
    if constexpr ((slots & HAS_AND) != 0) body(std::integral_constant<int, 1>{});
    if constexpr ((slots & HAS_XNOR) != 0) body(std::integral_constant<int, 2>{});
}

template <class T, bool interleaved, int slot>
__attribute__((noinline)) void saturate_chosen(const Trio<T>& of, Pairs<const T, interleaved> v, int n) {
    for (int i = 0; i < n; i += W) {
        Pair<T> p = v.at(i);
        p.x *= of.turn;
        const T sign = slot == 1 ? -1 : 1;
        const Real<T> value = saturated<T>(chosen_value<T, slot>(p), is_certain<T>(slot != 2, p.x * sign, p.y * sign), of.scale[slot], of.shift[slot]);
        store_by_pair<T, interleaved>(of.out[slot] + i, value);
    }
}

template <class T, bool interleaved, int slots, bool keep>
void choose_forward(const Trio<T> of, Pairs<const T, interleaved> v, int n) {
    constexpr bool ordered = are_lanes_ordered<T, interleaved, slots>;
    Real<T> sum = all<T>(0);
    for (int i = 0; i < n; i += W) {
        Pair<T> p = v.at(i);
        v.fetch(i);
        p.x = turned_by<T>(p.x, all<T>(of.turn));
        if constexpr (ordered) p = {in_order(p.x), in_order(p.y)};
        for_slots<slots>([&](auto slot) __attribute__((always_inline)) {
            Real<T> value;
            if constexpr (keep) {
                const Choice<T> choice = choose<T, slot>(p);
                value = choice.value;
                store_bits<T>(of.bits[slot].at(0, i), choice.first);
                store_bits<T>(of.bits[slot].at(1, i), choice.second);
            } else {
                value = chosen_value<T, slot>(p);
            }
            value = value * of.scale[slot] + of.shift[slot];
            sum += value;
            store_by_pair<T, interleaved && !ordered>(of.out[slot] + i, value);
            if constexpr (are_outputs_fetched<interleaved, slots>) fetch_lines<true>(of.out[slot] + of.ahead + i, W);
        });
    }
    if (is_not_finite<T>(sum)) for_slots<slots>([&](auto slot) { saturate_chosen<T, interleaved, slot>(of, v, n); });
}

// Here `of.out` holds the gradients of the outputs. Bits are read for 32 lanes at a time.
template <class T, bool interleaved, int slots>
void choose_backward(const Trio<T> of, int n, Pairs<T, interleaved> grad_x) {
    constexpr bool ordered = are_lanes_ordered<T, interleaved, slots>;
    struct Read {
        std::uint32_t words[SLOTS][2];
    };
    const auto words_at = [&](int i, int bytes) __attribute__((always_inline)) {
        Read read{};
        for_slots<slots>([&](auto slot) __attribute__((always_inline)) {
            for (int p = 0; p < 2; ++p) std::memcpy(&read.words[slot][p], of.bits[slot].at(p, i), std::size_t(bytes));
        });
        return read;
    };
    const auto sum_at = [&](int i, Read read, auto bit) __attribute__((always_inline)) {
        Pair<T> sum{};
        for_slots<slots>([&](auto slot) __attribute__((always_inline)) {
            const Real<T> g = load_by_pair<T, interleaved && !ordered>(of.out[slot] + i) * of.scale[slot];
            if constexpr (are_outputs_fetched<interleaved, slots>) fetch_lines<false>(of.out[slot] + of.ahead + i, W);
            const Pair<T> gradient = share<T, slot>(mask_of<T, bit>(read.words[slot][0]), mask_of<T, bit>(read.words[slot][1]), g);
            if constexpr ((slots & ((1 << slot) - 1)) == 0) sum = gradient;
            else sum.x += gradient.x, sum.y += gradient.y;
        });
        sum.x = turned_by<T>(sum.x, all<T>(of.turn));
        if constexpr (ordered) sum = {as_split(sum.x), as_split(sum.y)};
        return sum;
    };
    const auto two = [&](int i, Read read, auto bit) __attribute__((always_inline)) {
        grad_x.put(i, sum_at(i, read, bit), sum_at(i + W, read, std::integral_constant<int, bit + W>{}));
        grad_x.fetch(i), grad_x.fetch(i + W);
    };
    int i = 0;
    for (; SIMD != 0 && i + 32 <= n; i += 32) {
        const Read read = words_at(i, 4);
        two(i, read, std::integral_constant<int, 0>{});
        if constexpr (W == 8) two(i + 16, read, std::integral_constant<int, 16>{});
    }
    for (; i < n; i += W) grad_x.put(i, sum_at(i, words_at(i, W / 8), std::integral_constant<int, 0>{}));
}

// Calls body with a set of slots as a compile-time constant. Without SIMD, gates are not fused: it would hardly pay.
template <class Body>
void with_slots(int slots, const Body& body) {
    if (slots == HAS_OR) return body(std::integral_constant<int, HAS_OR>{});
    if (slots == HAS_AND) return body(std::integral_constant<int, HAS_AND>{});
    if (slots == HAS_XNOR) return body(std::integral_constant<int, HAS_XNOR>{});
    if constexpr (SIMD != 0) {
        if (slots == 3) return body(std::integral_constant<int, 3>{});
        if (slots == 5) return body(std::integral_constant<int, 5>{});
        if (slots == 6) return body(std::integral_constant<int, 6>{});
        return body(std::integral_constant<int, 7>{});
    }
}

template <class T, bool interleaved>
void approximate_forward(const Trio<T>& of, int slots, bool keep, Pairs<const T, interleaved> v, int n) {
    with_slots(slots, [&](auto constant) {
        if (keep) choose_forward<T, interleaved, constant, true>(of, v, n);
        else choose_forward<T, interleaved, constant, false>(of, v, n);
    });
}

template <class T, bool interleaved>
void approximate_backward(const Trio<T>& of, int slots, int n, Pairs<T, interleaved> grad_x) {
    with_slots(slots, [&](auto constant) { choose_backward<T, interleaved, constant>(of, n, grad_x); });
}

// ---------------------------------------------------------------- exact gates: scale · base(±x, ±y) + shift

// Signs cost as much as a tenth of the time, so AND has its own loops; only implications turn their operands.
template <class T>
struct Affine {
    T first_sign, second_sign, scale, shift;
};

template <class T, int kind>
ALWAYS_INLINE Pair<T> operands(Pair<T> p, Affine<T> a) {
    if constexpr (kind == TURNED_OR_IL) return {turned_by<T>(p.x, all<T>(a.first_sign)), turned_by<T>(p.y, all<T>(a.second_sign))};
    return p;
}

template <class T, int kind>
ALWAYS_INLINE Parts<T> exact_parts(Pair<T> p, Affine<T> a) {
    if constexpr (kind == XNOR_IL) return xnor_il_parts<T>(p.x, p.y);
    p = operands<T, kind>(p, a);
    return or_il_parts<T, kind == AND_IL>(p.x, p.y);
}

template <class T, bool interleaved, int kind>
__attribute__((noinline)) void saturate_exact(Affine<T> a, Pairs<const T, interleaved> v, int n, T* out) {
    for (int i = 0; i < n; i += W) {
        const Pair<T> p = v.at(i);
        const Int<T> certain = is_certain<T>(kind != XNOR_IL, p.x * a.first_sign, p.y * a.second_sign);
        store_by_pair<T, interleaved>(out + i, saturated<T>(exact_value<T, kind>(exact_parts<T, kind>(p, a)), certain, a.scale, a.shift));
    }
}

// Two loops, each with half of the chain of dependent operations and two vectors at a time, keep more of them in flight.
template <class T, bool interleaved, int kind>
void exact_forward(Affine<T> a, Pairs<const T, interleaved> v, int n, T* out, std::int64_t ahead) {
    Real<T> sum = all<T>(0);
    alignas(64) T base[BLOCK], more[BLOCK], dropped[BLOCK];
    const auto keep_parts = [&](int i, Parts<T> parts) __attribute__((always_inline)) {
        store<T>(base + i, parts.base), store<T>(more + i, parts.more);
        if constexpr (kind != XNOR_IL) store<T>(dropped + i, parts.dropped);
    };
    const auto value_at = [&](int i) __attribute__((always_inline)) {
        Parts<T> parts{load<T>(base + i), load<T>(more + i), all<T>(-0.0)};
        if constexpr (kind != XNOR_IL) parts.dropped = load<T>(dropped + i);
        return exact_value<T, kind>(parts);
    };
    const auto put = [&](int i, Real<T> value) __attribute__((always_inline)) {
        value = value * a.scale + a.shift;
        sum += value;
        store_by_pair<T, interleaved>(out + i, value);
        fetch_lines<true>(out + ahead + i, W);
    };
    int i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        const Parts<T> first = exact_parts<T, kind>(v.at(i), a), second = exact_parts<T, kind>(v.at(i + W), a);
        keep_parts(i, first), keep_parts(i + W, second);
        v.fetch(i), v.fetch(i + W);
    }
    for (; i < n; i += W) keep_parts(i, exact_parts<T, kind>(v.at(i), a));
    for (i = 0; i + 2 * W <= n; i += 2 * W) {
        const Real<T> first = value_at(i), second = value_at(i + W);
        put(i, first), put(i + W, second);
    }
    for (; i < n; i += W) put(i, value_at(i));
    if (is_not_finite<T>(sum)) saturate_exact<T, interleaved, kind>(a, v, n, out);
}

template <class T, bool interleaved, int kind>
void exact_backward(Affine<T> a, Pairs<const T, interleaved> v, const T* grad, int n, Pairs<T, interleaved> grad_x, std::int64_t ahead) {
    const T scale = kind == XNOR_IL ? a.scale : a.scale * a.first_sign;
    const auto gradient_at = [&](int i) __attribute__((always_inline)) {
        const Pair<T> p = operands<T, kind>(v.at(i), a);
        const Real<T> g = load_by_pair<T, interleaved>(grad + i) * scale;
        fetch_lines<false>(grad + ahead + i, W);
        if constexpr (kind == XNOR_IL) return xnor_il_gradient<T>(p.x, p.y, g);
        const Pair<T> gradient = or_il_gradient<T, kind == AND_IL>(p.x, p.y, g);
        if constexpr (kind == TURNED_OR_IL) return Pair<T>{gradient.x, -gradient.y};  // the signs differ
        return gradient;
    };
    int i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        const Pair<T> first = gradient_at(i), second = gradient_at(i + W);
        grad_x.put(i, first, second);
        v.fetch(i), v.fetch(i + W), grad_x.fetch(i), grad_x.fetch(i + W);
    }
    for (; i < n; i += W) grad_x.put(i, gradient_at(i));
}
