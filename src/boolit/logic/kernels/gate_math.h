// The gates on vectors of W groups, in the arithmetic type T (float or double). logic/exact.py derives the formulas.
//
// Included once for each instruction set, after vector_math.h. A pair gate takes two operands; the others read operand j of
// any number k through `v(j)`. Masks have all bits set where true.

template <class T>
struct Pair {
    Real<T> x, y;
};

// NaN where either operand is, 0 elsewhere (a mask of all ones is a NaN).
template <class T>
ALWAYS_INLINE Real<T> hole_of(Real<T> x, Real<T> y) {
#if BOOLIT_MOVEMASK == 256  // one comparison; compilers make two
    if constexpr (sizeof(T) == 4) return bits_of<Real<T>>(_mm256_cmp_ps(bits_of<__m256>(x), bits_of<__m256>(y), _CMP_UNORD_Q));
#endif
    return bits_of<Real<T>>(Int<T>((x != x) | (y != y)));
}

// The two values, changed for each other where the mask is 0.
template <class T>
ALWAYS_INLINE Pair<T> swapped_unless(Int<T> mask, Real<T> a, Real<T> b) {
    const Real<T> chosen = mask ? a : b;
    return {chosen, bits_of<Real<T>>(bits_of<Int<T>>(a) ^ bits_of<Int<T>>(b) ^ bits_of<Int<T>>(chosen))};
}

// ---------------------------------------------------------------- two operands, approximate

// Chosen so that a NaN ends in one of them.
template <class T>
struct Extremes {
    Real<T> high, low;
};

template <class T>
ALWAYS_INLINE Extremes<T> extremes(Real<T> x, Real<T> y) {
    return {most<T>(x, y), least<T>(y, x)};
}

// x + y where both are positive, the larger elsewhere.
template <class T>
ALWAYS_INLINE Real<T> or_ail(Extremes<T> of) {
    return of.high + most<T>(all<T>(0), of.low);
}

// x + y where both are negative, the smaller elsewhere.
template <class T>
ALWAYS_INLINE Real<T> and_ail(Extremes<T> of) {
    return of.low + least<T>(all<T>(0), of.high);
}

// The one of smaller size, with the sign of the product.
template <class T>
ALWAYS_INLINE Real<T> xnor_ail(Extremes<T> of, Real<T> x, Real<T> y) {
    const Real<T> value = most<T>(-of.high, of.low);
    return bits_of<Real<T>>(bits_of<Int<T>>(value) | bits_of<Int<T>>(hole_of<T>(x, y)));
}

// What is kept for a backward. Of OR and AND: whether the first operand is left out, and the second; of XNOR: whether the second
// is left out, and whether the gradient changes its sign.
template <class T>
struct Choice {
    Int<T> first, second;
};

// NaN counts as positive, so that it is taken, whichever operand it is.
template <class T>
ALWAYS_INLINE Choice<T> or_choice(Real<T> x, Real<T> y) {
    const Int<T> one = (x <= T(0)) | (y <= T(0)), larger = (x >= y) | (x != x);
    return {~larger & one, larger & one};
}

template <class T>
ALWAYS_INLINE Choice<T> and_choice(Real<T> x, Real<T> y) {
    const Int<T> one = (x >= T(0)) | (y >= T(0)), smaller = (x <= y) | (x != x);
    return {~smaller & one, smaller & one};
}

// The value too, which is nearly there.
template <class T>
struct XnorChoice {
    Choice<T> choice;
    Real<T> value;
};

template <class T>
ALWAYS_INLINE XnorChoice<T> xnor_choice(Real<T> x, Real<T> y) {
    const Int<T> smaller = (size_of<T>(x) <= size_of<T>(y)) | (x != x), both = bits_of<Int<T>>(x) ^ bits_of<Int<T>>(y);
    const Int<T> taken = bits_of<Int<T>>(y) ^ (both & smaller);
    const Real<T> other = bits_of<Real<T>>(both ^ taken);
    return {{smaller, other < T(0)}, turned_by<T>(bits_of<Real<T>>(taken), other)};
}

// ---------------------------------------------------------------- certain events

// Where a gate's value is rightly infinite, told from all of its operands.
template <class T, class Operand>
ALWAYS_INLINE Int<T> is_certain(bool is_or, int k, const Operand& v) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    Int<T> any{}, every = ~Int<T>{};
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j);
        any |= p == infinity;
        every &= is_or ? p == -infinity : size_of<T>(p) == infinity;
    }
    return is_or ? any | every : every;
}

// x within ±limit; NaN stays.
template <class T>
ALWAYS_INLINE Real<T> within(Real<T> x, T limit) {
    return least<T>(all<T>(limit), most<T>(all<T>(-limit), x));
}

// ---------------------------------------------------------------- two operands, exact

// A value comes in two steps, for loops to run them apart: a base and what is to be added to it, once a logarithm is taken; and for
// OR what rounding dropped from the latter, without which the error exceeds 4u·c where e^-|low| + e^gap is a little more than ½.
template <class T>
struct Parts {
    Real<T> base, more, dropped;
};

// high + max(low, 0) and e^-|low| + e^(min(low,0) - high); high and low are chosen so that a NaN ends in one of them.
template <class T>
ALWAYS_INLINE Parts<T> or_il_parts(Real<T> x, Real<T> y) {
    const Real<T> high = most<T>(x, y), low = least<T>(y, x);
    const Real<T> from_low = lifted_exp<T>(minus_size_of<T>(low)), from_gap = lifted_exp<T>(least<T>(low, all<T>(0)) - high);
    const Real<T> t = from_low + from_gap, dropped = from_gap - (t - from_low);
    return {high + most<T>(all<T>(0), low), t * sink<T>, dropped * sink<T>};
}

template <class T>
ALWAYS_INLINE Real<T> or_il(Parts<T> parts) {
    return plus_log1p<T>(parts.base, parts.more, parts.dropped);
}

// The partial derivatives times g.
template <class T>
ALWAYS_INLINE Pair<T> or_il_gradient(Real<T> x, Real<T> y, Real<T> g) {
    const Real<T> high = most<T>(x, y), low = least<T>(y, x), negative = least<T>(low, all<T>(0));
    const Real<T> from_low = quick_expm1<T>(at_least_normal<T>(minus_size_of<T>(low))).value;
    const Real<T> from_gap = quick_expm1<T>(at_least_normal<T>(negative, high)).value;
    const Real<T> to_high = T(1) + from_low, unit = g / (to_high + from_gap + hole_of<T>(x, y));
    const Real<T> to_low = most<T>(from_low, T(1) + negative) + from_gap;  // e^min(low,0) + e^gap, since 1 + x ≤ e^x
    const Pair<T> partials = swapped_unless<T>(x >= y, to_high, to_low);
    return {partials.x * unit, partials.y * unit};
}

// On sizes m ≤ M with q = e^-m, E = e^(m-M) and Q = Eq: |f| = 2 atanh(s) with s = (1-q)(1-Q) / (1+q+Q+qQ) for M < 1, and
// |f| = m + 2 atanh(s) with s = -(1-q)(E+Q) / (2+E+qQ) beyond: |s| ≤ 1/3. Gives 0 or m, and 2s, with the sign of f.
template <class T>
ALWAYS_INLINE Parts<T> xnor_il_parts(Real<T> x, Real<T> y) {
    const Real<T> size_x = size_of<T>(x), size_y = size_of<T>(y);
    const Real<T> m = least<T>(size_x, size_y), large = most<T>(size_x, size_y);
    const Expm1<T> q = fine_expm1<T>(at_least_normal<T>(-m)), ratio = fine_expm1<T>(at_least_normal<T>(m - large));
    const Int<T> few = large < T(1);
    const Real<T> large_q = ratio.value * q.value, minus_not_large = ratio.value * q.minus_one + ratio.minus_one;
    const Real<T> above = (q.minus_one + q.minus_one) * (few ? minus_not_large : ratio.value + large_q);
    const Real<T> below = (T(1) + q.value * large_q) + (few ? q.value + large_q : T(1) + ratio.value);
    const Real<T> sign = bits_of<Real<T>>(bits_of<Int<T>>(x) ^ bits_of<Int<T>>(y));
    return {turned_by<T>(where<T>(~few, m), sign) + hole_of<T>(x, y), turned_by<T>(above / below, sign), all<T>(-0.0)};
}

template <class T>
ALWAYS_INLINE Real<T> xnor_il(Parts<T> parts) {
    return (parts.base + parts.more) + parts.more * atanh_excess<T>(parts.more);  // without a base, 2s is not rounded again
}

// The partial derivatives times g: ∂/∂m = (1-Q)(1+Q) / ((1+E)(1+qQ)) and ∂/∂M = (1-q)(1+q) E / ((1+E)(1+qQ)).
template <class T>
ALWAYS_INLINE Pair<T> xnor_il_gradient(Real<T> x, Real<T> y, Real<T> g) {
    const Real<T> size_x = size_of<T>(x), size_y = size_of<T>(y);
    const Real<T> m = least<T>(size_x, size_y), large = most<T>(size_x, size_y);
    const Expm1<T> q = quick_expm1<T>(at_least_normal<T>(-m)), ratio = quick_expm1<T>(at_least_normal<T>(-large, -m));
    const Real<T> large_q = ratio.value * q.value, minus_not_large = ratio.value * q.minus_one + ratio.minus_one;
    const Real<T> below = T(1) + ratio.value, unit = -g / (below + below * (q.value * large_q) + hole_of<T>(x, y));
    const Real<T> to_small = minus_not_large + minus_not_large * large_q;
    const Real<T> to_large = (q.minus_one + q.minus_one * q.value) * ratio.value;
    const Pair<T> partials = swapped_unless<T>(size_x <= size_y, to_small, to_large);
    return {turned_by<T>(partials.x * unit, y), turned_by<T>(partials.y * unit, x)};
}

// ---------------------------------------------------------------- k operands, approximate

// take(j, mask) is told which operands the value came from. NaN counts as positive.
template <class T, class Operand, class Take>
ALWAYS_INLINE Real<T> or_ail_k(int k, const Operand& v, const Take& take) {
    Real<T> sum = all<T>(0), largest = v(0);
    Int<T> where{}, some{};
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j);
        const Int<T> positive = ~(p <= T(0)), larger = p > largest;
        sum += positive ? p : all<T>(0);
        largest = larger ? p : largest;
        where = larger ? Int<T>{} + j : where;
        some |= positive;
    }
    for (int j = 0; j < k; ++j) take(j, some ? ~(v(j) <= T(0)) : where == j);
    return some ? sum : largest;
}

template <class T>
struct Taken {
    Real<T> value;
    Int<T> where, minus;  // index of the operand taken, and whether its gradient changes its sign
};

template <class T, class Operand>
ALWAYS_INLINE Taken<T> xnor_ail_k(int k, const Operand& v) {
    Real<T> taken = v(0);
    Int<T> where{}, minus = taken < T(0);
    for (int j = 1; j < k; ++j) {
        const Real<T> p = v(j);
        const Int<T> smaller = ((size_of<T>(p) < size_of<T>(taken)) | (p != p)) & (taken == taken);  // a NaN, once taken, stays
        taken = smaller ? p : taken;
        where = smaller ? Int<T>{} + j : where;
        minus ^= p < T(0);
    }
    minus ^= taken < T(0);
    return {minus ? -taken : taken, where, minus};
}

// ---------------------------------------------------------------- k operands, exact: every sum has positive terms only

// σ(p)·e^-floor and softplus(p), with floor = min(largest operand, 0) ≥ min(p, 0): σ(p) keeps its digits where it would
// underflow without the factor.
template <class T>
struct Event {
    Real<T> scaled, softplus;
};

template <class T>
ALWAYS_INLINE Event<T> event(Real<T> p, Real<T> floor) {
    const Real<T> decay = exp_of<T>(minus_size_of<T>(p)).value;
    const Real<T> lift = exp_of<T>(difference<T>(least<T>(p, all<T>(0)), floor)).value;
    return {lift / (T(1) + decay), plus_log1p<T>(p > T(0) ? p : all<T>(0), decay)};
}

// A sum that carries what rounding drops from it (Kahan); an infinite one carries nothing.
template <class T>
struct Sum {
    Real<T> value, carried;
    ALWAYS_INLINE void add(Real<T> term) {
        const Real<T> y = term - carried, next = value + y;
        const Real<T> dropped = (next - value) - y;
        carried = size_of<T>(dropped) <= std::numeric_limits<T>::max() ? dropped : all<T>(0);
        value = next;
    }
};

template <class T>
struct Largest {
    Real<T> value;
    Int<T> hole;
};

template <class T, class Operand>
ALWAYS_INLINE Largest<T> largest_of(int k, const Operand& v) {
    Largest<T> top{v(0), Int<T>{}};
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j);
        top.value = p > top.value ? p : top.value;
        top.hole |= p != p;
    }
    return top;
}

// f = h + Σ softplus(others) + log1p(e^-max(h,0) · e^-min(h,0) P(any of the others)), h the largest operand. The probability grows
// by σ · P(none so far) from one operand to the next.
template <class T, class Operand>
ALWAYS_INLINE Real<T> or_il_k(int k, const Operand& v) {
    const Largest<T> top = largest_of<T>(k, v);
    const Real<T> floor = least<T>(top.value, all<T>(0)), unscale = exp_of<T>(floor).value;
    Real<T> carried = v(0);
    Sum<T> any{}, soft{};
    for (int j = 1; j < k; ++j) {
        const Real<T> p = v(j);
        const Int<T> larger = p > carried;
        const Event<T> other = event<T>(larger ? carried : p, floor);
        carried = larger ? p : carried;
        any.add(other.scaled * (T(1) - any.value * unscale));
        soft.add(other.softplus);
    }
    const Real<T> rest = any.value * exp_of<T>(-most<T>(top.value, all<T>(0))).value;
    const Real<T> value = top.value + soft.value + log1p_of<T>(rest);
    return top.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : value;
}

// ∂f/∂x_j = σ(x_j) / P(any); give(j, partial) is called for each operand. `room` has place for k vectors.
template <class T, class Operand, class Give>
ALWAYS_INLINE void or_il_k_partials(int k, const Operand& v, T* room, const Give& give) {
    const Largest<T> top = largest_of<T>(k, v);
    const Real<T> floor = least<T>(top.value, all<T>(0)), unscale = exp_of<T>(floor).value;
    Int<T> none = top.value == -std::numeric_limits<T>::infinity();  // then the first operand is the largest
    Real<T> any = all<T>(0);
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j), scaled = none ? all<T>(1) : event<T>(p, floor).scaled;
        none = Int<T>{};
        std::memcpy(room + j * W, &scaled, sizeof(scaled));
        any += scaled * (T(1) - any * unscale);
    }
    const Real<T> unit = top.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : T(1) / any;
    for (int j = 0; j < k; ++j) {
        Real<T> scaled;
        std::memcpy(&scaled, room + j * W, sizeof(scaled));
        give(j, scaled * unit);
    }
}

// t = tanh(size/2), and (1 - t)·e^smallest, which does not underflow. A product of many t's multiplies their errors, so t is
// improved by what rounding dropped on the way to it.
template <class T>
struct Agreement {
    Real<T> t, scaled;
};

template <class T>
ALWAYS_INLINE Agreement<T> agreement(Real<T> size, Real<T> smallest) {
    const Exp<T> q = exp_of<T>(-size);
    const Real<T> below = T(2) + q.minus_one, below_dropped = ((T(2) - below) + q.minus_one) + q.dropped;
    const Real<T> whole = T(1) / below, rough = -q.minus_one * whole;
    const Real<T> missing = residual<T>(-q.minus_one, rough, below) - (q.dropped + rough * below_dropped);
    return {rough + missing * whole, T(2) * exp_of<T>(difference<T>(-size, -smallest)).value * whole};
}

// Π tanh(|x_j|/2), 1 minus it times e^smallest, and the signs.
template <class T>
struct Accord {
    Real<T> smallest, product, apart;
    Int<T> minus, hole;
};

// note(j, one, product) is told of each operand, and the product of those before it.
template <class T, class Operand, class Note>
ALWAYS_INLINE Accord<T> accord(int k, const Operand& v, const Note& note) {
    Accord<T> of{size_of<T>(v(0)), all<T>(1), all<T>(0), Int<T>{}, Int<T>{}};
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j), size = size_of<T>(p);
        of.smallest = size < of.smallest ? size : of.smallest;
        of.minus ^= p < T(0);
        of.hole |= p != p;
    }
    Int<T> certain = of.smallest == std::numeric_limits<T>::infinity();  // then the first operand is the smallest
    for (int j = 0; j < k; ++j) {
        Agreement<T> one = agreement<T>(size_of<T>(v(j)), of.smallest);
        one.scaled = certain ? all<T>(2) : one.scaled;
        certain = Int<T>{};
        note(j, one, of.product);
        of.apart = of.apart * one.t + one.scaled;
        of.product *= one.t;
    }
    return of;
}

// |f| = log1p(2 Πt / (1 - Πt)); beyond `certain` the least size is split off.
template <class T, class Operand>
ALWAYS_INLINE Real<T> xnor_il_k(int k, const Operand& v) {
    const Accord<T> of = accord<T>(k, v, [](int, Agreement<T>, Real<T>) {});
    const Real<T> part = of.smallest < Lanes<T>::certain ? of.smallest : all<T>(Lanes<T>::certain);
    const Real<T> size = (of.smallest - part) + log1p_of<T>(T(2) * of.product / (of.apart * exp_of<T>(-part).value));
    return of.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : (of.minus ? -size : size);
}

// ∂|f|/∂size_j = Π_{i≠j} t_i · (1 - t_j²) / (1 - Πt²). `room` has place for 2k vectors.
template <class T, class Operand, class Give>
ALWAYS_INLINE void xnor_il_k_partials(int k, const Operand& v, T* room, const Give& give) {
    const Accord<T> of = accord<T>(k, v, [&](int j, Agreement<T> one, Real<T> before) {
        const Real<T> along = before * (one.scaled + one.scaled * one.t);
        std::memcpy(room + 2 * j * W, &one.t, sizeof(one.t));
        std::memcpy(room + (2 * j + 1) * W, &along, sizeof(along));
    });
    const Real<T> whole = T(1) / (of.apart * (T(1) + of.product));
    const Real<T> unit = of.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : whole;
    Real<T> after = all<T>(1);
    for (int j = k - 1; j >= 0; --j) {
        Real<T> t, along;
        std::memcpy(&t, room + 2 * j * W, sizeof(t));
        std::memcpy(&along, room + (2 * j + 1) * W, sizeof(along));
        along = along * after * unit;
        give(j, of.minus ^ (v(j) < T(0)) ? -along : along);
        after *= t;
    }
}
