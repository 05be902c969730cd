// A block of groups: its gates' constants, the bits kept of it, its operands, and results that must stay finite.
//
// Included once for each instruction set, after memory.h.

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
    int plane;
    Byte* at(int p, int lane) const { return start + p * plane + lane / 8; }
};

template <class Byte>
Bits<Byte> bits_at(const BoolitPlan& plan, const Pass& pass, const Block& block, int gate, Byte* kept) {
    if (kept == nullptr) return {nullptr, 0};
    int before = 0;
    for (int m = pass.first; m < gate; ++m) before += planes(plan.gates[m], plan.k);
    return {kept + block.kept + before * block.plane, block.plane};
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
ALWAYS_INLINE Real<T> saturated(Real<T> value, Int<T> certain, T scale, T shift) {
    const Real<T> out = (certain ? value : within<T>(value, std::numeric_limits<T>::max())) * scale + shift;
    return certain ? out : within<T>(out, Range<S>::largest);
}

// ---------------------------------------------------------------- pairs

template <class S, class T, bool interleaved>
ALWAYS_INLINE void put_pairs(S* target, std::int64_t operand, int i, Pair<T> pair) {
    if constexpr (interleaved) store_pairs<S, T>(target + 2 * i, pair);
    else store<S, T>(target + i, pair.x), store<S, T>(target + operand + i, pair.y);
}

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
