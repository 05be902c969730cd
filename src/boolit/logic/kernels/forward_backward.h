// One pass over a tensor, a block at a time: every gate of the pass reads the block while it is in the nearest cache.
//
// Included once for each instruction set, after the gates. Loops run over whole vectors; a block that does not end with one
// is copied into room of its own first, and its results back.

// ---------------------------------------------------------------- pairs

template <class T, int kind>
ALWAYS_INLINE Parts<T> exact_parts(Pair<T> p, Affine<T> a) {
    if constexpr (kind == OR_IL) p = a.turned(p.x, p.y);
    return kind == OR_IL ? or_il_parts<T>(p.x, p.y) : xnor_il_parts<T>(p.x, p.y);
}

template <class T, int kind>
ALWAYS_INLINE Real<T> exact_value(Parts<T> parts) {
    return kind == OR_IL ? or_il<T>(parts) : xnor_il<T>(parts);
}

// Does a block again of which some result overflowed: so rare that the usual loop only looks whether it happened.
template <class S, class T, bool interleaved, int kind>
__attribute__((noinline)) void saturate_pairs(Affine<T> a, Operands<S, T, interleaved> v, int n, S* out) {
    for (int i = 0; i < n; i += W) {
        const Pair<T> p = v.at(i);
        const auto operand = [&](int j) { return j == 0 ? p.x * a.first_sign : p.y * a.other_sign; };
        const Int<T> certain = is_certain<T>(kind == OR_IL, 2, operand);
        const Real<T> value = exact_value<T, kind>(exact_parts<T, kind>(p, a));
        store_by_pair<S, T, interleaved>(out + i, saturated<S, T>(value, certain, a.scale, a.shift));
    }
}

// An exact gate. Two loops, each with half of the chain of dependent operations and two vectors at a time, keep more of them in flight.
template <class S, class T, bool interleaved, int kind>
void pair_forward(Affine<T> a, Operands<S, T, interleaved> v, int n, S* out) {
    Overflow<S, T> overflow{all<T>(0)};
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
    const auto put = [&](int i, Real<T> value) __attribute__((always_inline)) {
        value = value * a.scale + a.shift;
        overflow.see(value);
        store_by_pair<S, T, interleaved>(out + i, value);
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
    if (overflow.happened()) saturate_pairs<S, T, interleaved, kind>(a, v, n, out);
}

// The partial derivatives times g, for vector i; from the bits where they are kept, else from the operands.
template <class S, class T, bool interleaved, int kind>
ALWAYS_INLINE Pair<T> pair_gradient(Affine<T> a, Operands<S, T, interleaved> v, Bits<const std::uint8_t> bits, const S* grad, int i) {
    constexpr bool is_or = kind == OR_IL || kind == OR_AIL, exact = kind == OR_IL || kind == XNOR_IL;
    const Real<T> g = load_by_pair<S, T, interleaved>(grad + i) * a.scale;
    Pair<T> p{}, gradient;
    if (exact || bits.start == nullptr) p = v.at(i);
    if constexpr (is_or) p = a.turned(p.x, p.y);
    if constexpr (exact) {
        gradient = is_or ? or_il_gradient<T>(p.x, p.y, g) : xnor_il_gradient<T>(p.x, p.y, g);
    } else {
        constexpr int slot = is_or ? 0 : 2;
        Choice<T> choice;
        if (bits.start == nullptr) choice = choice_of<T, slot>(p);
        else choice = {load_bits_of_pairs<S, T, interleaved>(bits.at(0, i)), load_bits_of_pairs<S, T, interleaved>(bits.at(1, i))};
        gradient = share<T, slot>(choice, g);
    }
    return is_or ? a.turned(gradient.x, gradient.y) : gradient;
}

// An exact gate alone; grad_x is laid out as the operands are.
template <class S, class T, bool interleaved, int kind>
void pair_backward(Affine<T> a, Operands<S, T, interleaved> v, const S* grad, int n, S* grad_x) {
    const Bits<const std::uint8_t> none{};
    int i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        const Pair<T> first = pair_gradient<S, T, interleaved, kind>(a, v, none, grad, i);
        const Pair<T> second = pair_gradient<S, T, interleaved, kind>(a, v, none, grad, i + W);
        put_pairs<S, T, interleaved>(grad_x, v.operand, i, first, second);
    }
    for (; i < n; i += W) put_pairs<S, T, interleaved>(grad_x, v.operand, i, pair_gradient<S, T, interleaved, kind>(a, v, none, grad, i));
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
    alignas(64) S values[2 * BLOCK], line[BLOCK];
    if (pass.lanes % W != 0) std::memset(values, 0, sizeof(values));  // for what lies beyond the end of a last vector
    const FewOf<Trio> parts = trios(plan, pass, may_fuse);
    for (std::int64_t index = begin; index < end; ++index) {
        const Block block(pass, index);
        const bool whole = block.n % W == 0;
        Operands<S, T, interleaved> v{x + block.source, pass.operand};
        if (!whole) v = v.staged(block.n, values);
        for (int m = 0; m < parts.count; ++m) {
            const Trio& part = parts.items[m];
            if (part.kinds != 0) {
                trio_forward<S, T, interleaved>(Constants<T>(plan, pass, part), part, pass, block, v, out, kept);
                continue;
            }
            const BoolitGate& gate = plan.gates[pass.first + m];
            const auto call = gate.kind == OR_IL ? pair_forward<S, T, interleaved, OR_IL> : pair_forward<S, T, interleaved, XNOR_IL>;
            S* target = out + block.target + pass.skip * m;
            call(Affine<T>(gate), v, block.n, whole ? target : line);
            if (!whole) std::memcpy(target, line, std::size_t(block.n) * sizeof(S));
        }
    }
}

template <class S, class T, bool interleaved>
void sweep_pairs_back(const BoolitPlan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* grad, const S* x,
                      const std::uint8_t* kept, S* grad_x) {
    alignas(64) S values[2 * BLOCK], line[BLOCK], result[2 * BLOCK];
    alignas(64) T sums[2 * BLOCK];
    std::uint8_t room[2 * BLOCK / 8];
    if (pass.lanes % W != 0) std::memset(values, 0, sizeof(values)), std::memset(line, 0, sizeof(line)), std::memset(room, 0, sizeof(room));
    const FewOf<Trio> parts = trios(plan, pass, may_fuse);
    const Trio& first = parts.items[0];
    const bool exact = pass.count == 1 && first.kinds == 0, together = parts.count == 1 && !exact && kept;
    const Constants<T> of(plan, pass, first);
    for (std::int64_t index = begin; index < end; ++index) {
        const Block block(pass, index);
        const bool whole = block.n % W == 0;
        Operands<S, T, interleaved> v{x ? x + block.source : nullptr, pass.operand};
        if (!whole && x) v = v.staged(block.n, values);
        if (!whole) v.operand = BLOCK;
        S* target = whole ? grad_x + block.source : result;
        if (together) trio_backward<S, T, interleaved>(of, first, pass, block, grad, kept, target, v.operand);
        if (!together && !exact) std::memset(sums, 0, sizeof(sums));
        for (int m = 0; m < pass.count && !together; ++m) {
            const BoolitGate& gate = plan.gates[pass.first + m];
            const S* g = grad + block.target + pass.skip * m;
            Bits<const std::uint8_t> bits = bits_at(plan, pass, block, pass.first + m, kept);
            if (!whole) {
                std::memcpy(line, g, std::size_t(block.n) * sizeof(S)), g = line;
                if (kept) copy_bits(bits, {room, BLOCK / 8}, planes(gate, 2), block.n), bits = {room, BLOCK / 8};
            }
            with_kind(gate.kind, [&](auto kind) {
                if constexpr (kind == OR_IL || kind == XNOR_IL)
                    if (exact) return pair_backward<S, T, interleaved, kind>(Affine<T>(gate), v, g, block.n, target);
                pair_backward_add<S, T, interleaved, kind>(Affine<T>(gate), v, bits, g, block.n, sums);
            });
        }
        for (int i = 0; i < block.n && !together && !exact; i += W)
            put_pairs<S, T, interleaved>(target, v.operand, i, {load<T, T>(sums + i), load<T, T>(sums + BLOCK + i)});
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
        store<T, T>(out + i, saturated<S, T>(group_value<T, kind>(k, v), certain, a.scale, a.shift));
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
