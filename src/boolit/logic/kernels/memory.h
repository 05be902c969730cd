// Between memory and vectors: the stored types, interleaved pairs, masks as bits; and blocks, with all their gates need of memory.
//
// Included once for each instruction set, after vector_math.h. S is the stored type, T the type of the arithmetic: float for
// the 16-bit types, which are widened exactly and rounded once, to nearest even.

typedef std::uint32_t Words __attribute__((vector_size(4 * W)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * W)));

template <class S>
constexpr bool is_16_bit = sizeof(S) == 2;

// The largest finite number of S, and the least that S rounds to infinity.
template <class S>
struct Range {
    static constexpr S largest = std::numeric_limits<S>::max(), overflow = std::numeric_limits<S>::infinity();
};
template <>
struct Range<bfloat16> {
    static constexpr float largest = 0x1.fep127f, overflow = 0x1.ffp127f;
};
template <>
struct Range<float16> {
    static constexpr float largest = 65504, overflow = 65520;
};

template <class S>
ALWAYS_INLINE Real<float> widen(Words bits) {
    if constexpr (std::is_same<S, bfloat16>::value) return bits_of<Real<float>>(bits << 16);
    // float16: put exponent and fraction in place, then multiply the difference of the biases away; subnormals come out right
    const Words magnitude = (bits & 0x7fffu) << 13;
    const Words finite = bits_of<Words>(bits_of<Real<float>>(magnitude) * 0x1p112f);
    const Words special = magnitude >= 0x0f800000u ? Words{} + 0x7f800000u : Words{};
    return bits_of<Real<float>>(finite | special | (bits & 0x8000u) << 16);
}

template <class S>
ALWAYS_INLINE Words narrow(Real<float> value) {
    const Words bits = bits_of<Words>(value);
    if constexpr (std::is_same<S, bfloat16>::value)
        return value != value ? Words{} + 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const Words magnitude = bits & 0x7fffffffu;
    const Words normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    // adding ½ leaves the bits of a subnormal, rounded to even, at the bottom of the sum
    const Words tiny = bits_of<Words>(bits_of<Real<float>>(magnitude) + 0.5f) - 0x3f000000u;
    const Words finite = magnitude < 0x38800000u ? tiny : normal;
    const Words bounded = magnitude >= 0x477ff000u ? Words{} + 0x7c00u : finite;  // from 65520 on: infinity
    return (bits >> 16 & 0x8000u) | (magnitude > 0x7f800000u ? Words{} + 0x7e00u : bounded);
}

// W neighbouring values.
template <class S, class T>
ALWAYS_INLINE Real<T> load(const S* source) {
    if constexpr (is_16_bit<S>) {
        Halves halves;
        std::memcpy(&halves, source, sizeof(halves));
        return widen<S>(__builtin_convertvector(halves, Words));
    } else {
        Real<T> values;
        std::memcpy(&values, source, sizeof(values));
        return values;
    }
}

template <class S, class T>
ALWAYS_INLINE void store(S* target, Real<T> values) {
    if constexpr (is_16_bit<S>) {
        const Halves halves = __builtin_convertvector(narrow<S>(values), Halves);
        std::memcpy(target, &halves, sizeof(halves));
    } else {
        std::memcpy(target, &values, sizeof(values));
    }
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define BOOLIT_SHUFFLE(a, b, index) __builtin_shufflevector(a, b, index...)
#endif
#endif

// Picks the lanes offset + step·i of two vectors laid end to end, where step·i wraps into the second (see the callers).
template <class V, int... index>
ALWAYS_INLINE V pick(V a, V b, std::integer_sequence<int, index...>) {
#ifdef BOOLIT_SHUFFLE
    return BOOLIT_SHUFFLE(a, b, index);
#else
    typedef typename std::conditional<sizeof(a[0]) == 4, std::int32_t, std::int64_t>::type One;
    typedef One Index __attribute__((vector_size(sizeof(V))));
    return __builtin_shuffle(a, b, Index{index...});
#endif
}

// W pairs whose operands lie side by side are split by shuffles within 128 bits, one each, so that the groups of 4 lanes come in
// another order than in memory: lanes 4g … 4g+3 hold pairs 2g, 2g+1, W/2+2g and W/2+2g+1. Where vectors are not shuffled so, or
// pairs are not split at all, the order is that of memory.
template <class S>
constexpr bool is_shuffled = sizeof(S) == 4 && BOOLIT_MOVEMASK != 0;

template <bool shuffled>
constexpr int pair_of(int lane) {
    return shuffled ? lane % 4 / 2 * (W / 2) + lane / 4 * 2 + lane % 2 : lane;
}
template <bool shuffled>
constexpr int lane_of(int pair) {
    return shuffled ? pair % (W / 2) / 2 * 4 + pair / (W / 2) * 2 + pair % 2 : pair;
}

template <bool shuffled, int operand, int... lane>
std::integer_sequence<int, (2 * pair_of<shuffled>(lane) + operand)...> split(std::integer_sequence<int, lane...>);
// Place i of the memory behind `start` has operand i % 2 of pair (start + i) / 2; operands y are W lanes beyond operands x.
template <bool shuffled, int start, int... i>
std::integer_sequence<int, (lane_of<shuffled>((start + i) / 2) + i % 2 * W)...> joined(std::integer_sequence<int, i...>);
template <int... pair>
std::integer_sequence<int, lane_of<true>(pair)...> lanes_by_pair(std::integer_sequence<int, pair...>);
template <int... lane>
std::integer_sequence<int, pair_of<true>(lane)...> pairs_by_lane(std::integer_sequence<int, lane...>);

using Count = std::make_integer_sequence<int, W>;

// W pairs whose operands lie side by side.
template <class S, class T>
ALWAYS_INLINE Pair<T> load_pairs(const S* source) {
    if constexpr (is_16_bit<S>) {  // a word holds a pair, the first operand in its low half
        Words words;
        std::memcpy(&words, source, sizeof(words));
        return {widen<S>(words & 0xffffu), widen<S>(words >> 16)};
    } else {
        const Real<T> low = load<S, T>(source), high = load<S, T>(source + W);
        return {pick(low, high, decltype(split<is_shuffled<S>, 0>(Count{})){}), pick(low, high, decltype(split<is_shuffled<S>, 1>(Count{})){})};
    }
}

template <class S, class T>
ALWAYS_INLINE void store_pairs(S* target, Pair<T> pair) {
    if constexpr (is_16_bit<S>) {
        const Words words = narrow<S>(pair.x) | narrow<S>(pair.y) << 16;
        std::memcpy(target, &words, sizeof(words));
    } else {
        store<S, T>(target, pick(pair.x, pair.y, decltype(joined<is_shuffled<S>, 0>(Count{})){}));
        store<S, T>(target + W, pick(pair.x, pair.y, decltype(joined<is_shuffled<S>, W>(Count{})){}));
    }
}

// Pairs in the order of `load_pairs`, put into that of memory, and back.
template <class T>
ALWAYS_INLINE Pair<T> in_order(Pair<T> p) {
    return {pick(p.x, p.x, decltype(lanes_by_pair(Count{})){}), pick(p.y, p.y, decltype(lanes_by_pair(Count{})){})};
}

template <class T>
ALWAYS_INLINE Pair<T> as_split(Pair<T> p) {
    return {pick(p.x, p.x, decltype(pairs_by_lane(Count{})){}), pick(p.y, p.y, decltype(pairs_by_lane(Count{})){})};
}

// One value for each of W pairs, whose lanes are in the order of `load_pairs`, where pairs are interleaved.
template <class S, class T, bool interleaved>
ALWAYS_INLINE Real<T> load_by_pair(const S* source) {
    const Real<T> values = load<S, T>(source);
    if constexpr (interleaved && is_shuffled<S>) return pick(values, values, decltype(pairs_by_lane(Count{})){});
    else return values;
}

template <class S, class T, bool interleaved>
ALWAYS_INLINE void store_by_pair(S* target, Real<T> values) {
    if constexpr (interleaved && is_shuffled<S>) store<S, T>(target, pick(values, values, decltype(lanes_by_pair(Count{})){}));
    else store<S, T>(target, values);
}

// ---------------------------------------------------------------- masks ⇄ bits: lane i is bit i % 8 of byte i / 8

template <int... i>
ALWAYS_INLINE Int<float> powers_of_two(std::integer_sequence<int, i...>) {
    return Int<float>{(1 << i)...};
}

// Of the bits from `from` on.
template <class T, int from>
ALWAYS_INLINE Int<T> mask_of(std::uint32_t bits) {
    const Int<float> power = powers_of_two(Count{}) << from;
    return __builtin_convertvector(((Int<float>{} + std::int32_t(bits)) & power) == power, Int<T>);
}

template <class T>
ALWAYS_INLINE void store_bits(std::uint8_t* target, Int<T> mask) {
    const Int<float> narrow_mask = __builtin_convertvector(mask, Int<float>);
    std::uint32_t bits = 0;
#if BOOLIT_MOVEMASK == 512
    bits = _mm512_movepi32_mask(bits_of<__m512i>(narrow_mask));
#elif BOOLIT_MOVEMASK == 256
    bits = std::uint32_t(_mm256_movemask_ps(bits_of<__m256>(narrow_mask)));
#elif defined(__SSE2__)
    struct Two {
        __m128 low, high;
    };
    const Two halves = bits_of<Two>(narrow_mask);
    bits = std::uint32_t(_mm_movemask_ps(halves.low) | _mm_movemask_ps(halves.high) << 4);
#else
    const Int<float> set = narrow_mask & powers_of_two(Count{});
    for (int i = 0; i < W; ++i) bits |= std::uint32_t(set[i]);
#endif
    std::memcpy(target, &bits, W / 8);
}

template <class T>
ALWAYS_INLINE Int<T> load_bits(const std::uint8_t* source) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, source, W / 8);
    return mask_of<T, 0>(bits);
}

// The same for W pairs, in the order of memory, so that those of a cut vector end in the bytes that are kept of it. Where a vector
// has one byte, they do in any order.
template <class S, bool interleaved>
constexpr bool are_bits_ordered = interleaved && is_shuffled<S> && W > 8;

template <class S, class T, bool interleaved>
ALWAYS_INLINE void store_bits_by_pair(std::uint8_t* target, Int<T> mask) {
    if constexpr (are_bits_ordered<S, interleaved>) store_bits<T>(target, pick(mask, mask, decltype(lanes_by_pair(Count{})){}));
    else store_bits<T>(target, mask);
}

template <class S, class T, bool interleaved, int from>
ALWAYS_INLINE Int<T> mask_of_pairs(std::uint32_t bits) {
    const Int<T> mask = mask_of<T, from>(bits);
    if constexpr (are_bits_ordered<S, interleaved>) return pick(mask, mask, decltype(pairs_by_lane(Count{})){});
    else return mask;
}

template <class S, class T, bool interleaved>
ALWAYS_INLINE Int<T> load_bits_of_pairs(const std::uint8_t* source) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, source, W / 8);
    return mask_of_pairs<S, T, interleaved, 0>(bits);
}

// ---------------------------------------------------------------- a block's gates: their constants, and the bits kept

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

// Two that follow each other: where operands lie apart, a whole line of the cache of each. Half lines in turn take half as long again.
template <class S, class T, bool interleaved>
ALWAYS_INLINE void put_pairs(S* target, std::int64_t operand, int i, Pair<T> first, Pair<T> second) {
    if constexpr (interleaved) {
        store_pairs<S, T>(target + 2 * i, first), store_pairs<S, T>(target + 2 * (i + W), second);
    } else {
        store<S, T>(target + i, first.x), store<S, T>(target + i + W, second.x);
        store<S, T>(target + operand + i, first.y), store<S, T>(target + operand + i + W, second.y);
    }
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
