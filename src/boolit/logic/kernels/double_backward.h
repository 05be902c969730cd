// The backward of the backward, from the operands. The backward of a gate f gives g · ∂f/∂x_j to operand j; what comes towards that, τ_j,
// gives Σ τ_j ∂f/∂x_j to g, here "along", and g Σ_j τ_j ∂²f/∂x_i∂x_j to operand i, here "bend".
//
// Included once for each instruction set, after forward_backward.h. Second derivatives are products of first ones and of what these
// lack to 1, each computed without cancellation. An approximate gate has none.

template <class T>
struct Second {
    Real<T> along, bend_x, bend_y;
};

// x - y for x ≤ y as `at_least_normal` has it, and what rounding dropped, whichever is larger (Knuth's TwoSum): e^(x-y) is a factor here.
template <class T>
ALWAYS_INLINE Difference<T> difference_of_any(Real<T> x, Real<T> y) {
    const Real<T> rounded = most<T>(x - y, all<T>(Lanes<T>::least_exp)), back = rounded - x;
    return {rounded, most<T>((x - (rounded - back)) - (y + back), all<T>(-Lanes<T>::half_ulp))};
}

// With u and v the partial derivatives: u(1-u), v(1-v) and -(1-u)(1-v).
template <class T>
ALWAYS_INLINE Second<T> or_il_second(Real<T> x, Real<T> y, Real<T> tx, Real<T> ty) {
    const Real<T> high = most<T>(x, y), low = least<T>(y, x), negative = least<T>(low, all<T>(0));
    const Real<T> from_low = quick_expm1<T>(at_least_normal<T>(minus_size_of<T>(low))).value;
    const Real<T> from_gap = quick_expm1<T>(difference_of_any<T>(negative, high)).value;
    const Real<T> to_high = T(1) + from_low, unit = T(1) / (to_high + from_gap + hole_of<T>(x, y));
    const Real<T> to_low = most<T>(from_low, T(1) + negative) + from_gap, not_low = low > T(0) ? from_low : all<T>(1);
    const Pair<T> of = swapped_unless<T>(x >= y, to_high * unit, to_low * unit);
    const Pair<T> rest = swapped_unless<T>(x >= y, from_gap * unit, not_low * unit);
    const Real<T> cross = rest.x * rest.y;
    return {tx * of.x + ty * of.y, tx * (of.x * rest.x) - ty * cross, ty * (of.y * rest.y) - tx * cross};
}

// -uv twice, and on sizes m ≤ M with q = e^-m, E = e^(m-M) and Q = Eq: E/(1+E)² + qQ/(1+qQ)², which is (1-u²-v²)/2.
template <class T>
ALWAYS_INLINE Second<T> xnor_il_second(Real<T> x, Real<T> y, Real<T> tx, Real<T> ty) {
    const Real<T> size_x = size_of<T>(x), size_y = size_of<T>(y);
    const Real<T> m = least<T>(size_x, size_y), large = most<T>(size_x, size_y);
    const Expm1<T> q = quick_expm1<T>(at_least_normal<T>(-m)), ratio = quick_expm1<T>(at_least_normal<T>(-large, -m));
    const Real<T> large_q = ratio.value * q.value, both = q.value * large_q;
    const Real<T> minus_not_large = ratio.value * q.minus_one + ratio.minus_one;
    const Real<T> of_ratio = T(1) / (T(1) + ratio.value + hole_of<T>(x, y)), of_both = T(1) / (T(1) + both), unit = of_ratio * of_both;
    const Real<T> to_small = -(minus_not_large + minus_not_large * large_q) * unit;
    const Real<T> to_large = -(q.minus_one + q.minus_one * q.value) * ratio.value * unit;
    const Pair<T> sizes = swapped_unless<T>(size_x <= size_y, to_small, to_large);
    const Real<T> u = turned_by<T>(sizes.x, y), v = turned_by<T>(sizes.y, x), straight = u * v;
    const Real<T> cross = ratio.value * of_ratio * of_ratio + both * of_both * of_both;
    return {tx * u + ty * v, ty * cross - tx * straight, tx * cross - ty * straight};
}

// Room for some vectors of each operand.
template <class T>
struct Columns {
    T* room;
    int k;
    ALWAYS_INLINE Real<T> get(int column, int j) const { return load<T, T>(room + (column * k + j) * W); }
    ALWAYS_INLINE void set(int column, int j, Real<T> value) const { store<T, T>(room + (column * k + j) * W, value); }
};

// With p_j = σ(x_j) / P(any): p_j(1-p_j), where 1 - p_j = σ(-x_j) P(any other) / P(any), and -p_i p_j P(none).
template <class T, class Operand, class Towards, class Bend>
ALWAYS_INLINE Real<T> or_il_k_second(int k, const Operand& v, const Towards& towards, Columns<T> room, const Bend& bend) {
    enum { SCALED, REST, BEFORE, ALONG };
    const Largest<T> top = largest_of<T>(k, v);
    const Real<T> floor = least<T>(top.value, all<T>(0)), unscale = exp_of<T>(floor).value;
    Int<T> none = top.value == -std::numeric_limits<T>::infinity();
    Real<T> any = all<T>(0), nothing = all<T>(1);
    for (int j = 0; j < k; ++j) {
        const Real<T> p = v(j), scaled = none ? all<T>(1) : event<T>(p, floor).scaled, decay = exp_of<T>(minus_size_of<T>(p)).value;
        const Real<T> rest = (p > T(0) ? decay : all<T>(1)) / (T(1) + decay);
        none = Int<T>{};
        room.set(SCALED, j, scaled), room.set(REST, j, rest), room.set(BEFORE, j, any);
        any += scaled * (T(1) - any * unscale);
        nothing *= rest;
    }
    const Real<T> unit = top.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : T(1) / any;
    Real<T> along = all<T>(0);
    for (int j = 0; j < k; ++j) {
        room.set(ALONG, j, along);
        along += towards(j) * (room.get(SCALED, j) * unit);
    }
    Real<T> after = all<T>(0), along_after = all<T>(0);
    for (int j = k - 1; j >= 0; --j) {
        const Real<T> scaled = room.get(SCALED, j), before = room.get(BEFORE, j), p = scaled * unit;
        const Real<T> lack = room.get(REST, j) * ((before + after * (T(1) - before * unscale)) * unit);
        bend(j, p * (towards(j) * lack - nothing * (room.get(ALONG, j) + along_after)));
        after += scaled * (T(1) - after * unscale);
        along_after += towards(j) * p;
    }
    return along;
}

// On sizes, with t_j = tanh(size_j / 2), T their product, R_j that of the others: -F_j t_j (1-R_j²) / (1-T²) with F_j the first
// derivative, and (1-t_i²)(1-t_j²) (1+T²) / 2(1-T²)² · Π of the rest, which is summed over j by the rule for products.
template <class T, class Operand, class Towards, class Bend>
ALWAYS_INLINE Real<T> xnor_il_k_second(int k, const Operand& v, const Towards& towards, Columns<T> room, const Bend& bend) {
    enum { TANH, SCALED, SLOPE, BEFORE, APART, SUM };
    Real<T> apart_before = all<T>(0), sum_before = all<T>(0);
    const auto toward_size = [&](int j) __attribute__((always_inline)) { return v(j) < T(0) ? -towards(j) : towards(j); };
    const Accord<T> of = accord<T>(k, v, [&](int j, Agreement<T> one, Real<T> before) __attribute__((always_inline)) {
        const Real<T> slope = one.scaled + one.scaled * one.t;
        room.set(TANH, j, one.t), room.set(SCALED, j, one.scaled), room.set(SLOPE, j, slope);
        room.set(BEFORE, j, before), room.set(APART, j, apart_before), room.set(SUM, j, sum_before);
        sum_before = sum_before * one.t + before * (toward_size(j) * slope);
        apart_before = apart_before * one.t + one.scaled;
    });
    const Real<T> whole = T(1) / (of.apart * (T(1) + of.product)), unit = of.hole ? all<T>(std::numeric_limits<T>::quiet_NaN()) : whole;
    const Real<T> cross = T(0.5) * (T(1) + of.product * of.product) * unit;
    Real<T> along = all<T>(0), after = all<T>(1), apart_after = all<T>(0), sum_after = all<T>(0);
    for (int j = k - 1; j >= 0; --j) {
        const Real<T> t = room.get(TANH, j), scaled = room.get(SCALED, j), slope = room.get(SLOPE, j), before = room.get(BEFORE, j);
        const Real<T> others = before * after, first = others * slope * unit, toward = toward_size(j);
        const Real<T> lack = (room.get(APART, j) * after + apart_after) * (T(1) + others) * unit;
        const Real<T> rest = room.get(SUM, j) * after + before * sum_after;
        const Real<T> along_size = (slope * unit) * (cross * rest) - toward * (first * t * lack);
        bend(j, of.minus ^ (v(j) < T(0)) ? -along_size : along_size);
        along += toward * first;
        apart_after = apart_after * t + scaled;
        sum_after = sum_after * t + after * (toward * slope);
        after *= t;
    }
    return of.minus ? -along : along;
}

template <class T, int kind, class Operand, class Towards, class Bend>
ALWAYS_INLINE Real<T> second_of(int k, const Operand& v, const Towards& towards, Columns<T> room, const Bend& bend) {
    if constexpr (kind == OR_AIL) {
        Real<T> along = all<T>(0);
        or_ail_k<T>(k, v, [&](int j, Int<T> taken) __attribute__((always_inline)) { along += where<T>(taken, towards(j)); });
        return along;
    } else if constexpr (kind == XNOR_AIL) {
        const Taken<T> taken = xnor_ail_k<T>(k, v);
        Real<T> along = all<T>(0);
        for (int j = 0; j < k; ++j) along += where<T>(taken.where == j, towards(j));
        return taken.minus ? -along : along;
    } else if (k == 2) {
        const Second<T> of = kind == OR_IL ? or_il_second<T>(v(0), v(1), towards(0), towards(1)) : xnor_il_second<T>(v(0), v(1), towards(0), towards(1));
        bend(0, of.bend_x), bend(1, of.bend_y);
        return of.along;
    } else {
        return kind == OR_IL ? or_il_k_second<T>(k, v, towards, room, bend) : xnor_il_k_second<T>(k, v, towards, room, bend);
    }
}

// Adds to sums what x gets; `line` has the gradient first, and then what it gets.
template <class T, int kind>
void gate_double_backward(Affine<T> a, const T* values, const T* towards, int k, int n, T* scratch, T* line, T* sums) {
    for (int i = 0; i < n; i += W) {
        const Real<T> g = load<T, T>(line + i) * a.scale;
        const auto v = [&](int j) __attribute__((always_inline)) { return load<T, T>(values + j * BLOCK + i) * a.sign(j); };
        const auto toward = [&](int j) __attribute__((always_inline)) { return load<T, T>(towards + j * BLOCK + i) * a.sign(j); };
        const auto bend = [&](int j, Real<T> value) __attribute__((always_inline)) {
            T* sum = sums + j * BLOCK + i;
            store<T, T>(sum, load<T, T>(sum) + value * (g * a.sign(j)));
        };
        store<T, T>(line + i, second_of<T, kind>(k, v, toward, Columns<T>{scratch, k}, bend) * a.scale);
    }
}

template <class S, class T>
void double_backward(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* towards, const S* grad, const S* x,
                     S* to_grad, S* to_x) {
    const int k = int(plan.k);
    std::vector<T> values(std::size_t(k) * BLOCK), toward(values.size()), sums(values.size()), scratch(std::size_t(6 * k) * W);
    alignas(64) T line[BLOCK];
    for (std::int64_t index = begin; index < end; ++index) {
        const Block block(pass, index);
        gather<S, T>(x + block.source, pass.lane, pass.operand, k, block.n, values.data());
        gather<S, T>(towards + block.source, pass.lane, pass.operand, k, block.n, toward.data());
        std::memset(sums.data(), 0, sums.size() * sizeof(T));
        for (int m = pass.first; m < pass.first + pass.count; ++m) {
            const std::int64_t place = block.target + pass.skip * (m - pass.first);
            gather<S, T>(grad + place, 1, 0, 1, block.n, line);
            with_kind(plan.gates[m].kind, [&](auto kind) {
                gate_double_backward<T, kind>(Affine<T>(plan.gates[m]), values.data(), toward.data(), k, block.n, scratch.data(), line, sums.data());
            });
            scatter<S, T>(line, 1, 0, 1, block.n, to_grad + place);
        }
        scatter<S, T>(sums.data(), pass.lane, pass.operand, k, block.n, to_x + block.source);
    }
}
