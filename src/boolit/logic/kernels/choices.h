// Approximate gates of pairs: one read of the operands serves up to three gates, and so does one write of the gradient.
//
// Included once for each instruction set, after memory.h. `kinds` says which of OR, AND and XNOR there are (see Trio), as a constant
// of the compiler; constants, outputs and bits come in an array of three, by slot.

constexpr int SLOTS = 3;
constexpr bool may_fuse = BOOLIT_MOVEMASK != 0;  // elsewhere vectors are made of so many small ones that it hardly pays, and compiling takes long

template <class T, int slot>
ALWAYS_INLINE Real<T> chosen_value(Pair<T> p) {
    const Extremes<T> of = extremes<T>(p.x, p.y);
    return slot == 0 ? or_ail<T>(of) : slot == 1 ? and_ail<T>(of) : xnor_ail<T>(of, p.x, p.y);
}

template <class T, int slot>
ALWAYS_INLINE Choice<T> choice_of(Pair<T> p) {
    return slot == 0 ? or_choice<T>(p.x, p.y) : slot == 1 ? and_choice<T>(p.x, p.y) : xnor_choice<T>(p.x, p.y).choice;
}

// What a gradient g of the value gives to the operands.
template <class T, int slot>
ALWAYS_INLINE Pair<T> share(Choice<T> choice, Real<T> g) {
    if constexpr (slot != 2) return {where<T>(~choice.first, g), where<T>(~choice.second, g)};
    const Real<T> along = turned_by<T>(g, bits_of<Real<T>>(choice.second));
    return {where<T>(choice.first, along), where<T>(~choice.first, along)};
}

// Several gates of interleaved pairs put the lanes in the order of memory, for which two operands need less than three values.
template <class S, bool interleaved, int kinds>
constexpr bool are_lanes_ordered = interleaved && is_shuffled<S> && (kinds & (kinds - 1)) != 0;

template <int kinds, class Body>
ALWAYS_INLINE void for_slots(const Body& body) {
    if constexpr ((kinds & SOME_OR) != 0) body(std::integral_constant<int, 0>{});
    if constexpr ((kinds & SOME_AND) != 0) body(std::integral_constant<int, 1>{});
    if constexpr ((kinds & SOME_XNOR) != 0) body(std::integral_constant<int, 2>{});
}

template <class Body>
void with_kinds(int kinds, const Body& body) {
    if (kinds == SOME_OR) return body(std::integral_constant<int, SOME_OR>{});
    if (kinds == SOME_AND) return body(std::integral_constant<int, SOME_AND>{});
    if (kinds == SOME_XNOR) return body(std::integral_constant<int, SOME_XNOR>{});
    if constexpr (may_fuse) {
        if (kinds == 3) return body(std::integral_constant<int, 3>{});
        if (kinds == 5) return body(std::integral_constant<int, 5>{});
        if (kinds == 6) return body(std::integral_constant<int, 6>{});
        return body(std::integral_constant<int, 7>{});
    }
}

// The constants of a trio's gates: AND is not OR of negated operands here, and XNOR of -x and y is minus XNOR.
template <class T>
struct Constants {
    T turn, scale[SLOTS], shift[SLOTS];

    Constants(const BoolitPlan& plan, const Pass& pass, const Trio& trio) : turn(trio.turned == 1 ? T(-1) : T(1)), scale{}, shift{} {
        for (int slot = 0; slot < SLOTS; ++slot) {
            const BoolitGate& gate = plan.gates[pass.first + trio.place[slot]];
            const T sign = slot == 1 ? T(-1) : slot == 2 ? turn : T(1);
            scale[slot] = sign * T(gate.scale), shift[slot] = T(gate.shift);
        }
    }
};

// ---------------------------------------------------------------- forward

template <class S, class T, bool interleaved, int slot>
__attribute__((noinline)) void saturate_chosen(T turn, T scale, T shift, Operands<S, T, interleaved> v, int n, S* out) {
    for (int i = 0; i < n; i += W) {
        Pair<T> p = v.at(i);
        p.x *= turn;
        const auto operand = [&](int j) { return (j == 0 ? p.x : p.y) * T(slot == 1 ? -1 : 1); };
        const Int<T> certain = is_certain<T>(slot != 2, 2, operand);
        store_by_pair<S, T, interleaved>(out + i, saturated<S, T>(chosen_value<T, slot>(p), certain, scale, shift));
    }
}

template <class S>
struct Outlets {
    S* out[SLOTS];
    Bits<std::uint8_t> bits[SLOTS];
};

template <class S, class T, bool interleaved, int kinds, bool keep>
void choose_forward(Constants<T> of, Operands<S, T, interleaved> v, int n, Outlets<S> to) {
    constexpr bool ordered = are_lanes_ordered<S, interleaved, kinds>;
    Overflow<S, T> overflow{all<T>(0)};
    for (int i = 0; i < n; i += W) {
        Pair<T> p = v.at(i);
        p.x = turned_by<T>(p.x, all<T>(of.turn));
        if constexpr (ordered) p = in_order<T>(p);
        for_slots<kinds>([&](auto slot) __attribute__((always_inline)) {
            Real<T> value;
            if constexpr (keep) {
                Choice<T> choice;
                if constexpr (slot == 2) {
                    const XnorChoice<T> xnor = xnor_choice<T>(p.x, p.y);
                    choice = xnor.choice, value = xnor.value;
                } else {
                    choice = choice_of<T, slot>(p), value = chosen_value<T, slot>(p);
                }
                store_bits_by_pair<S, T, interleaved && !ordered>(to.bits[slot].at(0, i), choice.first);
                store_bits_by_pair<S, T, interleaved && !ordered>(to.bits[slot].at(1, i), choice.second);
            } else {
                value = chosen_value<T, slot>(p);
            }
            value = value * of.scale[slot] + of.shift[slot];
            overflow.see(value);
            store_by_pair<S, T, interleaved && !ordered>(to.out[slot] + i, value);
        });
    }
    if (overflow.happened())
        for_slots<kinds>([&](auto slot) {
            saturate_chosen<S, T, interleaved, slot>(of.turn, of.scale[slot], of.shift[slot], v, n, to.out[slot]);
        });
}

// The gates of a trio on one block. One that does not end with a vector goes through room of its own.
template <class S, class T, bool interleaved>
void trio_forward(const Constants<T>& of, const Trio& trio, const Pass& pass, const Block& block, Operands<S, T, interleaved> v, S* out,
                  std::uint8_t* kept) {
    alignas(64) S lines[SLOTS * BLOCK];
    std::uint8_t room[2 * SLOTS * BLOCK / 8];
    const bool whole = block.n % W == 0;
    Outlets<S> to, staged;
    for (int slot = 0; slot < SLOTS; ++slot) {
        to.out[slot] = out + block.target + pass.skip * trio.place[slot], to.bits[slot] = {kept + block.kept + 2 * trio.place[slot] * block.plane, block.plane};
        staged.out[slot] = lines + slot * BLOCK, staged.bits[slot] = {room + 2 * slot * BLOCK / 8, BLOCK / 8};
    }
    with_kinds(trio.kinds, [&](auto kinds) {
        if (kept) choose_forward<S, T, interleaved, kinds, true>(of, v, block.n, whole ? to : staged);
        else choose_forward<S, T, interleaved, kinds, false>(of, v, block.n, whole ? to : staged);
    });
    for (int slot = 0; slot < SLOTS && !whole; ++slot) {
        if ((trio.kinds >> slot & 1) == 0) continue;
        std::memcpy(to.out[slot], staged.out[slot], std::size_t(block.n) * sizeof(S));
        if (kept) copy_bits({staged.bits[slot].start, BLOCK / 8}, to.bits[slot], 2, block.n);
    }
}

// ---------------------------------------------------------------- backward

template <class S>
struct Inlets {
    const S* grad[SLOTS];
    Bits<const std::uint8_t> bits[SLOTS];
};

// grad_x is laid out as the operands are, `operand` apart where they are not interleaved. Bits are read for 32 lanes at a time.
template <class S, class T, bool interleaved, int kinds>
void choose_backward(Constants<T> of, Inlets<S> from, int n, S* grad_x, std::int64_t operand) {
    constexpr bool ordered = are_lanes_ordered<S, interleaved, kinds>;
    const auto words_at = [&](int i, int bytes) __attribute__((always_inline)) {
        struct {
            std::uint32_t of[SLOTS][2];
        } words{};
        for_slots<kinds>([&](auto slot) __attribute__((always_inline)) {
            for (int p = 0; p < 2; ++p) std::memcpy(&words.of[slot][p], from.bits[slot].at(p, i), std::size_t(bytes));
        });
        return words;
    };
    const auto sum_at = [&](int i, auto words, auto bit) __attribute__((always_inline)) {
        Pair<T> sum{};
        for_slots<kinds>([&](auto slot) __attribute__((always_inline)) {
            const Real<T> g = load_by_pair<S, T, interleaved && !ordered>(from.grad[slot] + i) * of.scale[slot];
            const Choice<T> choice{mask_of_pairs<S, T, interleaved && !ordered, bit>(words.of[slot][0]),
                                   mask_of_pairs<S, T, interleaved && !ordered, bit>(words.of[slot][1])};
            const Pair<T> gradient = share<T, slot>(choice, g);
            if constexpr ((kinds & ((1 << slot) - 1)) == 0) sum = gradient;
            else sum.x += gradient.x, sum.y += gradient.y;
        });
        sum.x = turned_by<T>(sum.x, all<T>(of.turn));
        if constexpr (ordered) sum = as_split<T>(sum);
        return sum;
    };
    const auto two = [&](int i, auto words, auto bit) __attribute__((always_inline)) {
        put_pairs<S, T, interleaved>(grad_x, operand, i, sum_at(i, words, bit), sum_at(i + W, words, std::integral_constant<int, bit + W>{}));
    };
    int i = 0;
    for (; may_fuse && i + 32 <= n; i += 32) {
        const auto words = words_at(i, 4);
        two(i, words, std::integral_constant<int, 0>{});
        if constexpr (W == 8) two(i + 16, words, std::integral_constant<int, 16>{});
    }
    for (; i < n; i += W) put_pairs<S, T, interleaved>(grad_x, operand, i, sum_at(i, words_at(i, W / 8), std::integral_constant<int, 0>{}));
}

template <class S, class T, bool interleaved>
void trio_backward(const Constants<T>& of, const Trio& trio, const Pass& pass, const Block& block, const S* grad, const std::uint8_t* kept,
                   S* grad_x, std::int64_t operand) {
    alignas(64) S lines[SLOTS * BLOCK];
    std::uint8_t room[2 * SLOTS * BLOCK / 8];
    const bool whole = block.n % W == 0;
    Inlets<S> from;
    for (int slot = 0; slot < SLOTS; ++slot) {
        from.grad[slot] = grad + block.target + pass.skip * trio.place[slot], from.bits[slot] = {kept + block.kept + 2 * trio.place[slot] * block.plane, block.plane};
        if (whole || (trio.kinds >> slot & 1) == 0) continue;
        const Bits<std::uint8_t> staged{room + 2 * slot * BLOCK / 8, BLOCK / 8};
        std::memcpy(lines + slot * BLOCK, from.grad[slot], std::size_t(block.n) * sizeof(S)), copy_bits(from.bits[slot], staged, 2, block.n);
        from.grad[slot] = lines + slot * BLOCK, from.bits[slot] = {staged.start, staged.plane};
    }
    with_kinds(trio.kinds, [&](auto kinds) { choose_backward<S, T, interleaved, kinds>(of, from, block.n, grad_x, operand); });
}
