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
    return bits_of<Real<T>>(Int<T>((x != x) | (y != y)));
}

// Which operands an approximate gate took its value from.
template <class T>
struct Choice {
    Real<T> value;
    Int<T> first, second;
};

// ---------------------------------------------------------------- two operands, approximate

template <class T>
ALWAYS_INLINE Choice<T> or_ail(Real<T> x, Real<T> y) {
    const Int<T> both = (x > T(0)) & (y > T(0));
    const Int<T> larger = (x >= y) | (x != x);  // so that NaN is taken, whichever operand it is
    return {both ? x + y : (larger ? x : y), both | larger, both | ~larger};
}

// first: the second operand was taken; second: the gradient changes its sign.
template <class T>
ALWAYS_INLINE Choice<T> xnor_ail(Real<T> x, Real<T> y) {
    const Int<T> smaller = (size_of<T>(x) <= size_of<T>(y)) | (x != x);
    const Real<T> taken = smaller ? x : y;
    const Int<T> minus = (smaller ? y : x) < T(0);
    return {minus ? -taken : taken, ~smaller, minus};
}

// ---------------------------------------------------------------- two operands, exact

// low - high, and what rounding dropped from it, for low ≤ high ≤ 0 (elsewhere it is not wanted); -1 beside an infinity,
// where e^(low - high) is 0.
template <class T>
struct Difference {
    Real<T> rounded, dropped;
};

template <class T>
ALWAYS_INLINE Difference<T> difference(Real<T> low, Real<T> high) {
    const Real<T> rounded = low == high ? all<T>(0) : low - high;  // equal infinities differ by nothing
    return {rounded, low == high ? all<T>(0) : most<T>((low - rounded) - high, all<T>(-1))};
}

// high and low are chosen so that a NaN ends in one of them.
template <class T>
ALWAYS_INLINE Real<T> or_il(Real<T> x, Real<T> y) {
    const Real<T> high = most<T>(x, y), low = least<T>(y, x);
    const Real<T> from_low = exp_of<T>(minus_size_of<T>(low)).value;
    const Real<T> from_gap = exp_of<T>(least<T>(low, all<T>(0)) - high).value;
    return high + most<T>(all<T>(0), low) + log1p_of<T>(from_low + from_gap);
}

template <class T>
ALWAYS_INLINE Pair<T> or_il_partials(Real<T> x, Real<T> y) {
    const Int<T> first = x >= y;
    const Real<T> high = most<T>(x, y), low = least<T>(y, x);
    const Difference<T> gap = difference<T>(least<T>(low, all<T>(0)), high);
    const Real<T> from_low = exp_of<T>(minus_size_of<T>(low)).value;
    const Real<T> raw = exp_of<T>(gap.rounded).value;
    const Real<T> from_gap = raw + raw * gap.dropped;
    const Real<T> unit = T(1) / (T(1) + from_low + from_gap + hole_of<T>(x, y));
    const Real<T> to_high = (T(1) + from_low) * unit;
    const Real<T> to_low = ((low > T(0) ? all<T>(1) : from_low) + from_gap) * unit;
    return {first ? to_high : to_low, first ? to_low : to_high};
}

// On sizes m ≤ M with q = e^-m and E = e^(m-M): |f| = log1p((1-q)(1-Eq) / (q (1+E))); beyond `certain` both are shifted down.
template <class T>
ALWAYS_INLINE Real<T> xnor_il(Real<T> x, Real<T> y) {
    constexpr T certain = Lanes<T>::certain;
    const Real<T> size_x = size_of<T>(x), size_y = size_of<T>(y);
    const Real<T> m = least<T>(size_x, size_y), large = most<T>(size_x, size_y);
    const Real<T> part = least<T>(m, all<T>(certain));
    const Exp<T> q = exp_of<T>(-part), ratio = exp_of<T>(m == large ? all<T>(0) : m - large);
    const Real<T> not_large = -(ratio.value * q.minus_one + ratio.minus_one);
    const Real<T> log = log1p_of<T>(-q.minus_one * not_large / (q.value + q.value * ratio.value));
    const Real<T> size = large > m + certain ? m : (m - part) + log;  // a certain operand leaves the other as it is
    return turned_by<T>(turned_by<T>(size, x), y) + hole_of<T>(x, y);
}

// ∂/∂m = (1-Q)(1+Q) / ((1+E)(1+qQ)) and ∂/∂M = (1-q)(1+q) E / ((1+E)(1+qQ)), with Q = Eq.
template <class T>
ALWAYS_INLINE Pair<T> xnor_il_partials(Real<T> x, Real<T> y) {
    const Real<T> size_x = size_of<T>(x), size_y = size_of<T>(y);
    const Int<T> first = size_x <= size_y;
    const Real<T> m = least<T>(size_x, size_y), large = most<T>(size_x, size_y);
    const Difference<T> gap = difference<T>(-large, -m);
    const Exp<T> q = exp_of<T>(-m), raw = exp_of<T>(gap.rounded);
    const Real<T> slip = raw.value * gap.dropped, ratio = raw.value + slip;
    const Real<T> large_q = ratio * q.value, not_large = -(ratio * q.minus_one + (raw.minus_one + slip));
    const Real<T> unit = T(1) / ((T(1) + ratio) * (T(1) + q.value * large_q) + hole_of<T>(x, y));
    const Real<T> to_small = (not_large + not_large * large_q) * unit;
    const Real<T> to_large = -(q.minus_one + q.minus_one * q.value) * ratio * unit;
    return {turned_by<T>(first ? to_small : to_large, y), turned_by<T>(first ? to_large : to_small, x)};
}

// ---------------------------------------------------------------- k operands, approximate

// take(j, mask) is told which operands the value came from.
template <class T, class Operand, class Take>
ALWAYS_INLINE Real<T> or_ail_k(int k, const Operand& v, const Take& take) {
    Real<T> sum = all<T>(0), largest = v(0);
    Int<T> where{}, some{}, hole{};
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j);
        const Int<T> positive = p > T(0), larger = p > largest;
        sum += positive ? p : all<T>(0);
        largest = larger ? p : largest;
        where = larger ? Int<T>{} + j : where;
        some |= positive;
        hole |= p != p;
    }
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j);
        take(j, (some & (p > T(0))) | (~some & (where == j)) | (p != p));
    }
    return hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : (some ? sum : largest);
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

// σ(p)·e^-floor, σ(-p) and softplus(p), with floor = min(largest operand, 0) ≥ min(p, 0): σ(p) keeps its digits where it
// would underflow without the factor.
template <class T>
struct Event {
    Real<T> scaled, complement, softplus;
};

template <class T>
ALWAYS_INLINE Event<T> event(Real<T> p, Real<T> floor) {
    const Int<T> positive = p > T(0);
    const Real<T> decay = exp_of<T>(positive ? -p : p).value;
    const Difference<T> gap = difference<T>(least<T>(p, all<T>(0)), floor);
    const Real<T> lift = exp_of<T>(gap.rounded).value, whole = T(1) / (T(1) + decay);
    return {(lift + lift * gap.dropped) * whole, (positive ? decay : all<T>(1)) * whole,
            (positive ? p : all<T>(0)) + log1p_of<T>(decay)};
}

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

// f = h + Σ softplus(others) + log1p(e^-max(h,0) · e^-min(h,0) P(any of the others)), h the largest operand.
template <class T, class Operand>
ALWAYS_INLINE Real<T> or_il_k(int k, const Operand& v) {
    const Largest<T> top = largest_of<T>(k, v);
    const Int<T> positive = top.value > T(0);
    const Real<T> floor = positive ? all<T>(0) : top.value;
    Real<T> carried = v(0), any = all<T>(0), soft = all<T>(0);
    for (int j = 1; j < k; ++j) {
        const Real<T> p = v(j);
        const Int<T> larger = p > carried;
        const Event<T> other = event<T>(larger ? carried : p, floor);
        carried = larger ? p : carried;
        any = any * other.complement + other.scaled;
        soft += other.softplus;
    }
    const Real<T> rest = any * exp_of<T>(positive ? -top.value : all<T>(0)).value;
    return top.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : top.value + soft + log1p_of<T>(rest);
}

// ∂f/∂x_j = σ(x_j) / P(any); give(j, partial) is called for each operand.
template <class T, class Operand, class Give>
ALWAYS_INLINE void or_il_k_partials(int k, const Operand& v, const Give& give) {
    const Largest<T> top = largest_of<T>(k, v);
    const Real<T> floor = top.value > T(0) ? all<T>(0) : top.value;
    Real<T> any = all<T>(0);
    for (int j = 0; j < k; ++j) {
        const Event<T> one = event<T>(v(j), floor);
        any = any * one.complement + one.scaled;
    }
    const Real<T> unit = top.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : T(1) / any;
    for (int j = 0; j < k; ++j) give(j, event<T>(v(j), floor).scaled * unit);
}

// t = tanh(size/2), and (1 - t)·e^smallest, which does not underflow.
template <class T>
struct Agreement {
    Real<T> t, scaled;
};

template <class T>
ALWAYS_INLINE Agreement<T> agreement(Real<T> size, Real<T> smallest) {
    const Exp<T> q = exp_of<T>(-size);
    const Difference<T> gap = difference<T>(-size, -smallest);
    const Real<T> lift = exp_of<T>(gap.rounded).value, whole = T(1) / (T(1) + q.value);
    return {-q.minus_one * whole, T(2) * (lift + lift * gap.dropped) * whole};
}

// Π tanh(|x_j|/2), 1 minus it times e^smallest, and the signs.
template <class T>
struct Accord {
    Real<T> smallest, product, apart;
    Int<T> minus, hole;
};

template <class T, class Operand>
ALWAYS_INLINE Accord<T> accord(int k, const Operand& v) {
    Accord<T> of{size_of<T>(v(0)), all<T>(1), all<T>(0), Int<T>{}, Int<T>{}};
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j), size = size_of<T>(p);
        of.smallest = size < of.smallest ? size : of.smallest;
        of.minus ^= p < T(0);
        of.hole |= p != p;
    }
    for (int j = 0; j < k; ++j) {
        const Agreement<T> one = agreement<T>(size_of<T>(v(j)), of.smallest);
        of.apart = of.apart * one.t + one.scaled;
        of.product *= one.t;
    }
    return of;
}

// |f| = log1p(2 Πt / (1 - Πt)); beyond `certain` the least size is split off, as for a pair.
template <class T, class Operand>
ALWAYS_INLINE Real<T> xnor_il_k(int k, const Operand& v) {
    const Accord<T> of = accord<T>(k, v);
    const Real<T> part = of.smallest < Lanes<T>::certain ? of.smallest : all<T>(Lanes<T>::certain);
    const Real<T> size = (of.smallest - part) + log1p_of<T>(T(2) * of.product / (of.apart * exp_of<T>(-part).value));
    return of.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : (of.minus ? -size : size);
}

// ∂|f|/∂size_j = Π_{i≠j} t_i · (1 - t_j²) / (1 - Πt²); `before` has room for the products of the operands before each.
template <class T, class Operand, class Give>
ALWAYS_INLINE void xnor_il_k_partials(int k, const Operand& v, T* before, const Give& give) {
    const Accord<T> of = accord<T>(k, v);
    Real<T> running = all<T>(1);
    for (int j = 0; j < k; ++j) {
        std::memcpy(before + j * W, &running, sizeof(running));
        running *= agreement<T>(size_of<T>(v(j)), of.smallest).t;
    }
    const Real<T> whole = T(1) / (of.apart * (T(1) + of.product));
    const Real<T> unit = of.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : whole;
    running = all<T>(1);
    for (int j = k - 1; j >= 0; --j) {
        const Real<T> p = v(j);
        const Agreement<T> one = agreement<T>(size_of<T>(p), of.smallest);
        Real<T> ahead;
        std::memcpy(&ahead, before + j * W, sizeof(ahead));
        const Real<T> along = ahead * running * one.scaled * (T(1) + one.t) * unit;
        give(j, of.minus ^ (p < T(0)) ? -along : along);
        running *= one.t;
    }
}
