// One pass over a tensor, a block at a time: every gate of the pass reads the block while it is in the nearest cache.
//
// Included once for each instruction set, after the gates. Loops run over whole vectors; a block that does not end with one
// is copied into room of its own first, and its results back.

template <class T>
struct Affine {
    T first_sign, other_sign, scale, shift;

    // x and y with the signs of the first operand and of the others. Turned, not multiplied: multipliers are what is scarce.
    ALWAYS_INLINE Pair<T> turned(Real<T> x, Real<T> y) const {
        return {turned_by<T>(x, all<T>(first_sign)), turned_by<T>(y, all<T>(other_sign))};
    }

    explicit Affine(const BoolitGate& gate) : scale(T(gate.scale)), shift(T(gate.shift)) {
        first_sign = gate.flips == 1 || gate.flips == 2 ? T(-1) : T(1);
        other_sign = gate.flips == 1 || gate.flips == 3 ? T(-1) : T(1);
    }
    T sign(int j) const { return j == 0 ? first_sign : other_sign; }
};

// The bit planes of one gate in one block; `plane` is the distance between them. Not there when no bits are kept.
template <class Byte>
struct Bits {
    Byte* start;
    std::int64_t plane;
    Byte* at(int p, int lane) const { return start + p * plane + lane / 8; }
};

template <class Byte>
Bits<Byte> bits_at(const BoolitPlan& plan, const Pass& pass, const Block& block, int gate, Byte* kept) {
    return {kept ? kept + kept_offset(plan, pass, gate) + block.kept : nullptr, pass.bytes_of_plane()};
}

void copy_bits(Bits<const std::uint8_t> from, Bits<std::uint8_t> to, int count, int n) {
    for (int p = 0; p < count; ++p) std::memcpy(to.at(p, 0), from.at(p, 0), std::size_t(n + 7) / 8);
}

// Calls body with the gate's kind as a compile-time constant.
template <class Body>
void with_kind(std::int32_t kind, const Body& body) {
    switch (kind) {
        case OR_AIL: return body(std::integral_constant<int, OR_AIL>{});
        case XNOR_AIL: return body(std::integral_constant<int, XNOR_AIL>{});
        case OR_IL: return body(std::integral_constant<int, OR_IL>{});
        default: return body(std::integral_constant<int, XNOR_IL>{});
    }
}

// ---------------------------------------------------------------- finite in, finite out

// Whether some result of a block may have overflowed. Where S is narrower than T, the largest size so far tells; elsewhere the
// sum of all results, which an infinite one or NaN never leaves (and some huge ones overflow, which costs time only).
template <class S, class T>
struct Overflow {
    Real<T> seen;
    ALWAYS_INLINE void see(Real<T> value) {
        if constexpr (is_16_bit<S>) seen = most<T>(size_of<T>(value), seen);
        else seen += value;
    }
    ALWAYS_INLINE bool happened() const {
        std::uint8_t lanes[W / 8];
        store_bits<T>(lanes, is_16_bit<S> ? seen >= Range<S>::overflow : ~(size_of<T>(seen) <= std::numeric_limits<T>::max()));
        return lanes[0] != 0 || lanes[W / 8 - 1] != 0;  // W is 8 or 16
    }
};

// A result beyond S's largest number, though no infinite operand makes it so, becomes that number. The value is kept within
// T's own range first, as the scale might bring it back.
template <class S, class T>
ALWAYS_INLINE Real<T> saturated(Real<T> value, Int<T> certain, Affine<T> a) {
    const Real<T> out = (certain ? value : within<T>(value, std::numeric_limits<T>::max())) * a.scale + a.shift;
    return certain ? out : within<T>(out, Range<S>::largest);
}

// ---------------------------------------------------------------- pairs

// Where the operands of a block lie: side by side, or `operand` apart.
template <class S, class T, bool interleaved>
struct Operands {
    const S* source;
    std::int64_t operand;

    ALWAYS_INLINE Pair<T> at(int i) const {
        if constexpr (interleaved) return load_pairs<S, T>(source + 2 * i);
        return {load<S, T>(source + i), load<S, T>(source + operand + i)};
    }
    // The same operands with room for whole vectors.
    Operands staged(int n, S* room) const {
        std::memcpy(room, source, std::size_t(interleaved ? 2 * n : n) * sizeof(S));
        if (!interleaved) std::memcpy(room + BLOCK, source + operand, std::size_t(n) * sizeof(S));
        return {room, BLOCK};
    }
};

template <class T, int kind>
ALWAYS_INLINE Choice<T> choose(Pair<T> p, Affine<T> a) {
    if constexpr (kind == OR_AIL) p = a.turned(p.x, p.y);
    return kind == OR_AIL ? or_ail<T>(p.x, p.y) : xnor_ail<T>(p.x, p.y);
}

template <class T, int kind>
ALWAYS_INLINE Parts<T> exact_parts(Pair<T> p, Affine<T> a) {
    if constexpr (kind == OR_IL) p = a.turned(p.x, p.y);
    return kind == OR_IL ? or_il_parts<T>(p.x, p.y) : xnor_il_parts<T>(p.x, p.y);
}

template <class T, int kind>
ALWAYS_INLINE Real<T> exact_value(Parts<T> parts) {
    return kind == OR_IL ? or_il<T>(parts) : xnor_il<T>(parts);
}

template <class T, int kind>
ALWAYS_INLINE Real<T> pair_value(Pair<T> p, Affine<T> a) {
    if constexpr (kind == OR_IL || kind == XNOR_IL) return exact_value<T, kind>(exact_parts<T, kind>(p, a));
    else return choose<T, kind>(p, a).value;
}

// Does a block again of which some result overflowed: so rare that the usual loop only looks whether it happened.
template <class S, class T, bool interleaved, int kind>
__attribute__((noinline)) void saturate_pairs(Affine<T> a, Operands<S, T, interleaved> v, int n, S* out) {
    for (int i = 0; i < n; i += W) {
        const Pair<T> p = v.at(i);
        const auto operand = [&](int j) { return j == 0 ? p.x * a.first_sign : p.y * a.other_sign; };
        const Int<T> certain = is_certain<T>(kind == OR_AIL || kind == OR_IL, 2, operand);
        store_by_pair<S, T, interleaved>(out + i, saturated<S, T>(pair_value<T, kind>(p, a), certain, a));
    }
}

template <class S, class T, bool interleaved, int kind, bool keep>
void pair_forward(Affine<T> a, Operands<S, T, interleaved> v, int n, S* out, Bits<std::uint8_t> bits) {
    Overflow<S, T> overflow{all<T>(0)};
    const auto put = [&](int i, Real<T> value) __attribute__((always_inline)) {
        value = value * a.scale + a.shift;
        overflow.see(value);
        store_by_pair<S, T, interleaved>(out + i, value);
    };
    if constexpr (kind == OR_IL || kind == XNOR_IL) {
        // Two loops, each with half of the chain of dependent operations and two vectors at a time, keep more of them in flight.
        alignas(64) T base[BLOCK], more[BLOCK], dropped[BLOCK];
        const auto keep_parts = [&](int i, Parts<T> parts) __attribute__((always_inline)) {
            store<T, T>(base + i, parts.base), store<T, T>(more + i, parts.more);
            if constexpr (kind == OR_IL) store<T, T>(dropped + i, parts.dropped);
        };
        const auto value_at = [&](int i) __attribute__((always_inline)) {
            Parts<T> parts{load<T, T>(base + i), load<T, T>(more + i), all<T>(-0.0)};
            if constexpr (kind == OR_IL) parts.dropped = load<T, T>(dropped + i);
            return exact_value<T, kind>(parts);
        };
        int i = 0;
        for (; i + 2 * W <= n; i += 2 * W) {
            const Parts<T> first = exact_parts<T, kind>(v.at(i), a), second = exact_parts<T, kind>(v.at(i + W), a);
            keep_parts(i, first), keep_parts(i + W, second);
        }
        for (; i < n; i += W) keep_parts(i, exact_parts<T, kind>(v.at(i), a));
        for (i = 0; i + 2 * W <= n; i += 2 * W) {
            const Real<T> first = value_at(i), second = value_at(i + W);
            put(i, first), put(i + W, second);
        }
        for (; i < n; i += W) put(i, value_at(i));
    } else {
        for (int i = 0; i < n; i += W) {
            const Choice<T> choice = choose<T, kind>(v.at(i), a);
            if constexpr (keep) {
                store_bits_by_pair<S, T, interleaved>(bits.at(0, i), choice.first);
                store_bits_by_pair<S, T, interleaved>(bits.at(1, i), choice.second);
            }
            put(i, choice.value);
        }
    }
    if (overflow.happened()) saturate_pairs<S, T, interleaved, kind>(a, v, n, out);
}

// The partial derivatives times g, for vector i; from the bits where they are kept, else from the operands.
template <class S, class T, bool interleaved, int kind>
ALWAYS_INLINE Pair<T> pair_gradient(Affine<T> a, Operands<S, T, interleaved> v, Bits<const std::uint8_t> bits, const S* grad, int i) {
    const Real<T> g = load_by_pair<S, T, interleaved>(grad + i) * a.scale;
    if constexpr (kind == OR_IL) {
        const Pair<T> p = v.at(i), turned = a.turned(p.x, p.y), gradient = or_il_gradient<T>(turned.x, turned.y, g);
        return a.turned(gradient.x, gradient.y);
    } else if constexpr (kind == XNOR_IL) {
        const Pair<T> p = v.at(i);
        return xnor_il_gradient<T>(p.x, p.y, g);
    } else {
        Choice<T> choice{};
        if (bits.start == nullptr) {
            choice = choose<T, kind>(v.at(i), a);
        } else {
            choice.first = load_bits_by_pair<S, T, interleaved>(bits.at(0, i));
            choice.second = load_bits_by_pair<S, T, interleaved>(bits.at(1, i));
        }
        const Real<T> none = all<T>(0);
        if constexpr (kind == OR_AIL)
            return {(choice.first ? all<T>(a.first_sign) : none) * g, (choice.second ? all<T>(a.other_sign) : none) * g};
        const Real<T> along = choice.second ? all<T>(-1) : all<T>(1);
        return {(choice.first ? none : along) * g, (choice.first ? along : none) * g};
    }
}

// grad_x is laid out as the operands are.
template <class S, class T, bool interleaved, int kind>
void pair_backward(Affine<T> a, Operands<S, T, interleaved> v, Bits<const std::uint8_t> bits, const S* grad, int n, S* grad_x) {
    const auto put = [&](int i, Pair<T> gradient) __attribute__((always_inline)) {
        if constexpr (interleaved) {
            store_pairs<S, T>(grad_x + 2 * i, gradient);
        } else {
            store<S, T>(grad_x + i, gradient.x);
            store<S, T>(grad_x + v.operand + i, gradient.y);
        }
    };
    int i = 0;
    if constexpr (kind == OR_IL || kind == XNOR_IL) {
        for (; i + 2 * W <= n; i += 2 * W) {
            const Pair<T> first = pair_gradient<S, T, interleaved, kind>(a, v, bits, grad, i);
            const Pair<T> second = pair_gradient<S, T, interleaved, kind>(a, v, bits, grad, i + W);
            put(i, first), put(i + W, second);
        }
    }
    for (; i < n; i += W) put(i, pair_gradient<S, T, interleaved, kind>(a, v, bits, grad, i));
}

// The gradient is added to the sums of an ensemble, BLOCK apart.
template <class S, class T, bool interleaved, int kind>
void pair_backward_add(Affine<T> a, Operands<S, T, interleaved> v, Bits<const std::uint8_t> bits, const S* grad, int n, T* sums) {
    for (int i = 0; i < n; i += W) {
        const Pair<T> gradient = pair_gradient<S, T, interleaved, kind>(a, v, bits, grad, i);
        store<T, T>(sums + i, load<T, T>(sums + i) + gradient.x);
        store<T, T>(sums + BLOCK + i, load<T, T>(sums + BLOCK + i) + gradient.y);
    }
}

template <class S, class T, bool interleaved>
void sweep_pairs(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* x, S* out, std::uint8_t* kept) {
    alignas(64) S values[2 * BLOCK] = {}, line[BLOCK];
    std::uint8_t planes_room[2 * BLOCK / 8];
    for (std::int64_t index = begin; index < end; ++index) {
        const Block block(pass, index);
        const bool whole = block.n % W == 0;
        Operands<S, T, interleaved> v{x + block.source, pass.operand};
        if (!whole) v = v.staged(block.n, values);
        for (int m = pass.first; m < pass.first + pass.count; ++m) {
            S* target = out + block.target + pass.skip * (m - pass.first);
            const Bits<std::uint8_t> bits = bits_at(plan, pass, block, m, kept), room{planes_room, BLOCK / 8};
            with_kind(plan.gates[m].kind, [&](auto kind) {
                constexpr bool may_keep = kind == OR_AIL || kind == XNOR_AIL;
                const auto call = kept ? pair_forward<S, T, interleaved, kind, may_keep> : pair_forward<S, T, interleaved, kind, false>;
                call(Affine<T>(plan.gates[m]), v, block.n, whole ? target : line, whole ? bits : room);
            });
            if (whole) continue;
            std::memcpy(target, line, std::size_t(block.n) * sizeof(S));
            if (kept) copy_bits({planes_room, BLOCK / 8}, bits, planes(plan.gates[m], 2), block.n);
        }
    }
}

template <class S, class T, bool interleaved>
void sweep_pairs_back(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* grad, const S* x,
                      const std::uint8_t* kept, S* grad_x) {
    alignas(64) S values[2 * BLOCK] = {}, line[BLOCK] = {}, result[2 * BLOCK];
    alignas(64) T sums[2 * BLOCK];
    std::uint8_t planes_room[2 * BLOCK / 8] = {};
    for (std::int64_t index = begin; index < end; ++index) {
        const Block block(pass, index);
        const bool whole = block.n % W == 0, alone = pass.count == 1;
        Operands<S, T, interleaved> v{x ? x + block.source : nullptr, pass.operand};
        if (!whole && x) v = v.staged(block.n, values);
        if (!whole) v.operand = BLOCK;
        S* target = whole ? grad_x + block.source : result;
        if (!alone) std::memset(sums, 0, sizeof(sums));
        for (int m = pass.first; m < pass.first + pass.count; ++m) {
            const S* g = grad + block.target + pass.skip * (m - pass.first);
            Bits<const std::uint8_t> bits = bits_at(plan, pass, block, m, kept);
            if (!whole) {
                std::memcpy(line, g, std::size_t(block.n) * sizeof(S)), g = line;
                if (kept) copy_bits(bits, {planes_room, BLOCK / 8}, planes(plan.gates[m], 2), block.n), bits = {planes_room, BLOCK / 8};
            }
            with_kind(plan.gates[m].kind, [&](auto kind) {
                const Affine<T> a(plan.gates[m]);
                if (alone) pair_backward<S, T, interleaved, kind>(a, v, bits, g, block.n, target);
                else pair_backward_add<S, T, interleaved, kind>(a, v, bits, g, block.n, sums);
            });
        }
        for (int i = 0; i < block.n && !alone; i += W) {
            const Pair<T> sum{load<T, T>(sums + i), load<T, T>(sums + BLOCK + i)};
            if constexpr (interleaved) store_pairs<S, T>(target + 2 * i, sum);
            else store<S, T>(target + i, sum.x), store<S, T>(target + v.operand + i, sum.y);
        }
        if (whole) continue;
        std::memcpy(grad_x + block.source, result, std::size_t(interleaved ? 2 * block.n : block.n) * sizeof(S));
        if (!interleaved) std::memcpy(grad_x + block.source + pass.operand, result + BLOCK, std::size_t(block.n) * sizeof(S));
    }
}

// ---------------------------------------------------------------- groups of any size

// The operands of a block, one after another, BLOCK apart.
template <class S, class T>
void gather(const S* source, std::int64_t lane, std::int64_t operand, int k, int n, T* values) {
    S column[BLOCK] = {};
    for (int j = 0; j < k; ++j) {
        for (int i = 0; i < n; ++i) column[i] = source[i * lane + j * operand];
        for (int i = 0; i < n; i += W) store<T, T>(values + j * BLOCK + i, load<S, T>(column + i));
    }
}

template <class S, class T>
void scatter(const T* values, std::int64_t lane, std::int64_t operand, int k, int n, S* target) {
    S column[BLOCK];
    for (int j = 0; j < k; ++j) {
        for (int i = 0; i < n; i += W) store<S, T>(column + i, load<T, T>(values + j * BLOCK + i));
        for (int i = 0; i < n; ++i) target[i * lane + j * operand] = column[i];
    }
}

template <class T, int kind, class Operand>
ALWAYS_INLINE Real<T> group_value(int k, const Operand& v) {
    if constexpr (kind == OR_IL) return or_il_k<T>(k, v);
    if constexpr (kind == XNOR_IL) return xnor_il_k<T>(k, v);
    if constexpr (kind == OR_AIL) return or_ail_k<T>(k, v, [](int, Int<T>) {});
    return xnor_ail_k<T>(k, v).value;
}

template <class S, class T, int kind>
__attribute__((noinline)) void saturate_groups(Affine<T> a, const T* values, int k, int n, T* out) {
    for (int i = 0; i < n; i += W) {
        const auto v = [&](int j) { return load<T, T>(values + j * BLOCK + i) * a.sign(j); };
        const Int<T> certain = is_certain<T>(kind == OR_AIL || kind == OR_IL, k, v);
        store<T, T>(out + i, saturated<S, T>(group_value<T, kind>(k, v), certain, a));
    }
}

template <class S, class T, int kind>
void group_forward(Affine<T> a, const T* values, int k, int n, T* out, Bits<std::uint8_t> bits) {
    Overflow<S, T> overflow{all<T>(0)};
    const int index_planes = bits.start != nullptr ? index_bits(k) : 0;
    for (int i = 0; i < n; i += W) {
        const auto v = [&](int j) { return load<T, T>(values + j * BLOCK + i) * a.sign(j); };
        Real<T> value;
        if (kind == OR_AIL && bits.start != nullptr) {
            value = or_ail_k<T>(k, v, [&](int j, Int<T> taken) { store_bits<T>(bits.at(j, i), taken); });
        } else if (kind == XNOR_AIL && bits.start != nullptr) {
            const Taken<T> taken = xnor_ail_k<T>(k, v);
            value = taken.value;
            for (int b = 0; b < index_planes; ++b) store_bits<T>(bits.at(b, i), ((taken.where >> b) & 1) != 0);
            store_bits<T>(bits.at(index_planes, i), taken.minus);
        } else {
            value = group_value<T, kind>(k, v);
        }
        value = value * a.scale + a.shift;
        overflow.see(value);
        store<T, T>(out + i, value);
    }
    if (overflow.happened()) saturate_groups<S, T, kind>(a, values, k, n, out);
}

// Adds to sums, from the bits where they are kept, else from the values. `scratch` has place for 2k vectors.
template <class T, int kind>
void group_backward(Affine<T> a, const T* values, int k, Bits<const std::uint8_t> bits, const T* grad, int n, T* scratch, T* sums) {
    for (int i = 0; i < n; i += W) {
        const Real<T> g = load<T, T>(grad + i) * a.scale;
        const auto v = [&](int j) { return load<T, T>(values + j * BLOCK + i) * a.sign(j); };
        const auto add = [&](int j, Real<T> partial) {
            T* sum = sums + j * BLOCK + i;
            store<T, T>(sum, load<T, T>(sum) + partial * (g * a.sign(j)));
        };
        const auto add_taken = [&](int j, Int<T> taken) { add(j, taken ? all<T>(1) : all<T>(0)); };
        if constexpr (kind == OR_IL) or_il_k_partials<T>(k, v, scratch, add);
        if constexpr (kind == XNOR_IL) xnor_il_k_partials<T>(k, v, scratch, add);
        if constexpr (kind == OR_AIL) {
            if (bits.start == nullptr) or_ail_k<T>(k, v, add_taken);
            else
                for (int j = 0; j < k; ++j) add_taken(j, load_bits<T>(bits.at(j, i)));
        }
        if constexpr (kind == XNOR_AIL) {
            Taken<T> taken{};
            if (bits.start == nullptr) {
                taken = xnor_ail_k<T>(k, v);
            } else {
                const int index_planes = index_bits(k);
                for (int b = 0; b < index_planes; ++b) taken.where |= (load_bits<T>(bits.at(b, i)) & 1) << b;
                taken.minus = load_bits<T>(bits.at(index_planes, i));
            }
            const Real<T> along = taken.minus ? all<T>(-1) : all<T>(1);
            for (int j = 0; j < k; ++j) add(j, taken.where == j ? along : all<T>(0));
        }
    }
}

// Vectors may reach beyond a block's last lane, and so into the byte behind its bits: whole planes are staged.
template <class S, class T>
void sweep_groups(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* x, S* out, std::uint8_t* kept) {
    const int k = int(plan.k);
    std::vector<T> values(std::size_t(k) * BLOCK);
    std::vector<std::uint8_t> planes_room(std::size_t(k + 1) * BLOCK / 8);
    alignas(64) T line[BLOCK];
    for (std::int64_t index = begin; index < end; ++index) {
        const Block block(pass, index);
        gather<S, T>(x + block.source, pass.lane, pass.operand, k, block.n, values.data());
        for (int m = pass.first; m < pass.first + pass.count; ++m) {
            const Bits<std::uint8_t> bits = bits_at(plan, pass, block, m, kept), room{kept ? planes_room.data() : nullptr, BLOCK / 8};
            with_kind(plan.gates[m].kind, [&](auto kind) { group_forward<S, T, kind>(Affine<T>(plan.gates[m]), values.data(), k, block.n, line, room); });
            scatter<S, T>(line, 1, 0, 1, block.n, out + block.target + pass.skip * (m - pass.first));
            if (kept) copy_bits({planes_room.data(), BLOCK / 8}, bits, planes(plan.gates[m], k), block.n);
        }
    }
}

template <class S, class T>
void sweep_groups_back(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* grad, const S* x,
                       const std::uint8_t* kept, S* grad_x) {
    const int k = int(plan.k);
    std::vector<T> values(std::size_t(k) * BLOCK), sums(values.size()), scratch(std::size_t(2 * k) * W);
    std::vector<std::uint8_t> planes_room(std::size_t(k + 1) * BLOCK / 8);
    alignas(64) T line[BLOCK];
    for (std::int64_t index = begin; index < end; ++index) {
        const Block block(pass, index);
        if (x) gather<S, T>(x + block.source, pass.lane, pass.operand, k, block.n, values.data());
        std::memset(sums.data(), 0, sums.size() * sizeof(T));
        for (int m = pass.first; m < pass.first + pass.count; ++m) {
            gather<S, T>(grad + block.target + pass.skip * (m - pass.first), 1, 0, 1, block.n, line);
            if (kept) copy_bits(bits_at(plan, pass, block, m, kept), {planes_room.data(), BLOCK / 8}, planes(plan.gates[m], k), block.n);
            const Bits<const std::uint8_t> room{kept ? planes_room.data() : nullptr, BLOCK / 8};
            with_kind(plan.gates[m].kind, [&](auto kind) {
                group_backward<T, kind>(Affine<T>(plan.gates[m]), values.data(), k, room, line, block.n, scratch.data(), sums.data());
            });
        }
        scatter<S, T>(sums.data(), pass.lane, pass.operand, k, block.n, grad_x + block.source);
    }
}

// ---------------------------------------------------------------- which sweep

template <class S, class T>
void forward(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* x, S* out, std::uint8_t* kept) {
    const auto sweep = plan.k > 2 ? sweep_groups<S, T> : pass.lane == 2 ? sweep_pairs<S, T, true> : sweep_pairs<S, T, false>;
    sweep(plan, pass, begin, end, x, out, kept);
}

template <class S, class T>
void backward(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* grad, const S* x,
              const std::uint8_t* kept, S* grad_x) {
    const auto sweep = plan.k > 2 ? sweep_groups_back<S, T> : pass.lane == 2 ? sweep_pairs_back<S, T, true> : sweep_pairs_back<S, T, false>;
    sweep(plan, pass, begin, end, grad, x, kept, grad_x);
}
