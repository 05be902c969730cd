// Vectors of W numbers: loading, storing, shuffling, masks as bits, and exp, expm1 and log1p.
//
// W suits the instruction set the file is compiled for. The polynomials are near-minimax ones from Chebyshev interpolation on
// the intervals given beside them (tests/logic/test_coefficients.py derives them again); each adds less than 0.3u to its function.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ALWAYS_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int W = 16, SIMD = 512;
#define BOOLIT_AVX512 1
typedef __m512 Single;
typedef __m512d Wide;
#define BOOLIT_SINGLE(name) _mm512_##name##_ps
#define BOOLIT_WIDE(name) _mm512_##name##_pd
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int W = 8, SIMD = 256;
#define BOOLIT_AVX2 1
typedef __m256 Single;
typedef __m256d Wide;
#define BOOLIT_SINGLE(name) _mm256_##name##_ps
#define BOOLIT_WIDE(name) _mm256_##name##_pd
#else
constexpr int W = 8, SIMD = 0;  // no fused multiplication is assumed
#endif

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
    typedef float Real __attribute__((vector_size(4 * W)));
    typedef std::int32_t Int __attribute__((vector_size(4 * W)));
    using One = std::int32_t;
    static constexpr int mantissa = 23;
    static constexpr One bias = 127;
    // (e^r - 1 - r) / r² for |r| ≤ ln2/2, and for |r| ≤ ln2/16
    static constexpr float exp_series[] = {0x1p-1f, 0x1.5554dcp-3f, 0x1.555518p-5f, 0x1.120bdep-7f, 0x1.6d117ap-10f};
    static constexpr float short_exp_series[] = {0x1p-1f, 0x1.555b7ep-3f, 0x1.55597p-5f};
    // (2 atanh(s) - 2s) / (2s)³ as a polynomial of (2s)², for |s| ≤ 1/3
    static constexpr float atanh_series[] = {0x1.55554cp-4f, 0x1.99ad7cp-7f, 0x1.2122bcp-9f, 0x1.130324p-11f};
    static constexpr float ln2 = 0.6931471805599453f;
    static constexpr float least_exp = -88.0f;    // rounds to n = -bias: 2^n has the exponent field 0 and is 0
    static constexpr float lowest_exp = -104.7f;  // rounds to n = -(bias + mantissa + 1): e^x is below half the least subnormal
    static constexpr float half_ulp = 0x1p-18f;   // of least_exp
    static constexpr float ln2_high = 0.693359375f;  // 9 significant bits: n · ln2_high is exact
    static constexpr float ln2_low = float(0.6931471805599453094172321214581766 - 0.693359375);
};

template <>
struct Lanes<double> {
    typedef double Real __attribute__((vector_size(8 * W)));
    typedef std::int64_t Int __attribute__((vector_size(8 * W)));
    using One = std::int64_t;
    static constexpr int mantissa = 52;
    static constexpr One bias = 1023;
    static constexpr double exp_series[] = {0x1.0000000000001p-1,  0x1.5555555555556p-3,  0x1.5555555553d38p-5,  0x1.11111111109a6p-7,
                                            0x1.6c16c1789caa1p-10, 0x1.a01a01a7ce75dp-13, 0x1.a019b8cbe6585p-16, 0x1.71de0d863c737p-19,
                                            0x1.2891d2ecb3ed9p-22, 0x1.af39091a8441ap-26};
    static constexpr double atanh_series[] = {0x1.5555555555555p-4,  0x1.999999999a3f5p-7,  0x1.24924923d2b49p-9,  0x1.c71c727285525p-12,
                                              0x1.745cf0719db9fp-14, 0x1.3b18b983dd78cp-16, 0x1.10ac0430038acp-18, 0x1.eb98d0629b7acp-21,
                                              0x1.684f4e9c48d37p-23, 0x1.4b37dcfe84abcp-24};
    static constexpr double ln2 = 0.6931471805599453;
    static constexpr double least_exp = -709.1;
    static constexpr double lowest_exp = -745.9;  // n = -1076
    static constexpr double half_ulp = 0x1p-44;
    static constexpr double ln2_high = 0x1.62e42fefap-1;  // 36 significant bits
    static constexpr double ln2_low = double(0.693147180559945309417232121458176568L - 0x1.62e42fefap-1L);
};

template <class T>
using Real = typename Lanes<T>::Real;
template <class T>
using Int = typename Lanes<T>::Int;

template <class T>
struct Pair {
    Real<T> x, y;
};

template <class To, class From>
ALWAYS_INLINE To bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

template <class T>
ALWAYS_INLINE Real<T> all(T value) {
    return value - Real<T>{};
}

// |x|
template <class T>
ALWAYS_INLINE Real<T> size_of(Real<T> x) {
    return bits_of<Real<T>>(bits_of<Int<T>>(x) & std::numeric_limits<typename Lanes<T>::One>::max());
}

// -|x|
template <class T>
ALWAYS_INLINE Real<T> minus_size_of(Real<T> x) {
    return bits_of<Real<T>>(bits_of<Int<T>>(x) | std::numeric_limits<typename Lanes<T>::One>::min());
}

// x with its sign changed where y is negative (or -0).
template <class T>
ALWAYS_INLINE Real<T> turned_by(Real<T> x, Real<T> y) {
    return bits_of<Real<T>>(bits_of<Int<T>>(x) ^ (bits_of<Int<T>>(y) & std::numeric_limits<typename Lanes<T>::One>::min()));
}

// x where the mask is set, 0 elsewhere.
template <class T>
ALWAYS_INLINE Real<T> where(Int<T> mask, Real<T> x) {
    return bits_of<Real<T>>(bits_of<Int<T>>(x) & mask);
}

// x with its sign changed where the mask is set.
template <class T>
ALWAYS_INLINE Real<T> turned_where(Int<T> mask, Real<T> x) {
    return turned_by<T>(x, bits_of<Real<T>>(mask));
}

// The result of a comparison: lanes of ones and zeros, or with AVX-512 one bit for each float. There, compilers convert lanes to bits and
// back at every operation.
#ifdef BOOLIT_AVX512
template <class T>
using Mask = typename std::conditional<sizeof(T) == 4, __mmask16, Int<T>>::type;

template <class T>
ALWAYS_INLINE Real<T> where(__mmask16 mask, Real<T> x) {
    return bits_of<Real<T>>(_mm512_maskz_mov_ps(mask, bits_of<__m512>(x)));
}

template <class T>
ALWAYS_INLINE Real<T> turned_where(__mmask16 mask, Real<T> x) {
    return bits_of<Real<T>>(_mm512_mask_xor_ps(bits_of<__m512>(x), mask, bits_of<__m512>(x), _mm512_set1_ps(-0.0f)));
}

#define BOOLIT_COMPARISON(name, operation, predicate)                                                                                  \
    template <class T>                                                                                                                 \
    ALWAYS_INLINE Mask<T> name(Real<T> a, Real<T> b) {                                                                                 \
        if constexpr (sizeof(T) == 4) return _mm512_cmp_ps_mask(bits_of<__m512>(a), bits_of<__m512>(b), predicate);                    \
        else return a operation b;                                                                                                     \
    }
#else
template <class T>
using Mask = Int<T>;

#define BOOLIT_COMPARISON(name, operation, predicate)  \
    template <class T>                                 \
    ALWAYS_INLINE Mask<T> name(Real<T> a, Real<T> b) { \
        return a operation b;                          \
    }
#endif
BOOLIT_COMPARISON(is_below, <, _CMP_LT_OQ)
BOOLIT_COMPARISON(is_at_most, <=, _CMP_LE_OQ)
BOOLIT_COMPARISON(is_at_least, >=, _CMP_GE_OQ)
BOOLIT_COMPARISON(differs, !=, _CMP_NEQ_UQ)

// Maximum and minimum; where either operand is NaN, both return the second. Compilers do not find these instructions in a ?:.
#ifdef BOOLIT_SINGLE
#define BOOLIT_EXTREMUM(ours, theirs)                                                                        \
    template <class T>                                                                                       \
    ALWAYS_INLINE Real<T> ours(Real<T> a, Real<T> b) {                                                       \
        if constexpr (sizeof(T) == 4) {                                                                      \
            return bits_of<Real<T>>(BOOLIT_SINGLE(theirs)(bits_of<Single>(a), bits_of<Single>(b)));          \
        } else {                                                                                             \
            struct Two {                                                                                     \
                Wide low, high;                                                                              \
            };                                                                                               \
            const Two p = bits_of<Two>(a), q = bits_of<Two>(b);                                              \
            return bits_of<Real<T>>(Two{BOOLIT_WIDE(theirs)(p.low, q.low), BOOLIT_WIDE(theirs)(p.high, q.high)}); \
        }                                                                                                    \
    }
BOOLIT_EXTREMUM(most, max)
BOOLIT_EXTREMUM(least, min)
#else
template <class T>
ALWAYS_INLINE Real<T> most(Real<T> a, Real<T> b) {
    return a > b ? a : b;
}
template <class T>
ALWAYS_INLINE Real<T> least(Real<T> a, Real<T> b) {
    return a < b ? a : b;
}
#endif

// x within ±limit; NaN stays.
template <class T>
ALWAYS_INLINE Real<T> within(Real<T> x, T limit) {
    return least<T>(all<T>(limit), most<T>(all<T>(-limit), x));
}

// NaN where either operand is, 0 elsewhere (a mask of all ones is a NaN).
template <class T>
ALWAYS_INLINE Real<T> hole_of(Real<T> x, Real<T> y) {
#ifdef BOOLIT_AVX2  // one comparison; compilers make two
    if constexpr (sizeof(T) == 4) return bits_of<Real<T>>(_mm256_cmp_ps(bits_of<__m256>(x), bits_of<__m256>(y), _CMP_UNORD_Q));
#endif
    return bits_of<Real<T>>(Int<T>((x != x) | (y != y)));
}

// The two values, exchanged where the mask is 0.
template <class T>
ALWAYS_INLINE Pair<T> swapped_unless(Int<T> mask, Real<T> a, Real<T> b) {
    return {mask ? a : b, mask ? b : a};
}

// ---------------------------------------------------------------- memory

template <class T>
ALWAYS_INLINE Real<T> load(const T* source) {
    Real<T> values;
    std::memcpy(&values, source, sizeof(values));
    return values;
}

template <class T>
ALWAYS_INLINE void store(T* target, Real<T> values) {
    std::memcpy(target, &values, sizeof(values));
}

template <class T>
ALWAYS_INLINE Real<T> load_some(const T* source, int n) {
    if (n == W) return load<T>(source);
    Real<T> values{};
    std::memcpy(&values, source, std::size_t(n) * sizeof(T));
    return values;
}

template <class T>
ALWAYS_INLINE void store_some(T* target, Real<T> values, int n) {
    std::memcpy(target, &values, std::size_t(n) * sizeof(T));
}

template <class T>
ALWAYS_INLINE void add_to(T* target, Real<T> values) {
    store<T>(target, load<T>(target) + values);
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define BOOLIT_SHUFFLE(a, b, index) __builtin_shufflevector(a, b, index...)
#endif
#endif

// The lanes of two vectors laid end to end, by index.
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

// W pairs whose operands lie side by side are split by one shuffle within 128 bits per operand, so that lanes 4g … 4g+3 hold the
// pairs 2g, 2g+1, W/2+2g and W/2+2g+1. Where vectors are not shuffled like this, the order is that of memory.
template <class T>
constexpr bool is_shuffled = sizeof(T) == 4 && SIMD != 0;

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

template <class T>
ALWAYS_INLINE Pair<T> load_pairs(const T* source) {
    const Real<T> low = load<T>(source), high = load<T>(source + W);
    return {pick(low, high, decltype(split<is_shuffled<T>, 0>(Count{})){}), pick(low, high, decltype(split<is_shuffled<T>, 1>(Count{})){})};
}

template <class T>
ALWAYS_INLINE void store_pairs(T* target, Pair<T> pair) {
    store<T>(target, pick(pair.x, pair.y, decltype(joined<is_shuffled<T>, 0>(Count{})){}));
    store<T>(target + W, pick(pair.x, pair.y, decltype(joined<is_shuffled<T>, W>(Count{})){}));
}

// From the order of `load_pairs` to that of memory, and back.
template <class V>
ALWAYS_INLINE V in_order(V lanes) {
    return pick(lanes, lanes, decltype(lanes_by_pair(Count{})){});
}
template <class V>
ALWAYS_INLINE V as_split(V lanes) {
    return pick(lanes, lanes, decltype(pairs_by_lane(Count{})){});
}

// One value for each of W pairs; interleaved pairs have their lanes in the order of `load_pairs`.
template <class T, bool interleaved>
ALWAYS_INLINE Real<T> load_by_pair(const T* source) {
    if constexpr (interleaved && is_shuffled<T>) return as_split(load<T>(source));
    else return load<T>(source);
}

template <class T, bool interleaved>
ALWAYS_INLINE void store_by_pair(T* target, Real<T> values) {
    if constexpr (interleaved && is_shuffled<T>) store<T>(target, in_order(values));
    else store<T>(target, values);
}

// ---------------------------------------------------------------- masks as bits: lane i is bit i % 8 of byte i / 8

template <int... i>
ALWAYS_INLINE Int<float> powers_of_two(std::integer_sequence<int, i...>) {
    return Int<float>{(1 << i)...};
}

// The mask of W bits, starting with bit `from`.
template <class T, int from>
ALWAYS_INLINE Int<T> mask_of(std::uint32_t bits) {
    const Int<float> power = powers_of_two(Count{}) << from;
    return __builtin_convertvector(((Int<float>{} + std::int32_t(bits)) & power) == power, Int<T>);
}

template <class T>
ALWAYS_INLINE std::uint32_t bits_of_mask(Int<T> mask) {
    const Int<float> narrow_mask = __builtin_convertvector(mask, Int<float>);
#if defined(BOOLIT_AVX512)
    return _mm512_movepi32_mask(bits_of<__m512i>(narrow_mask));
#elif defined(BOOLIT_AVX2)
    return std::uint32_t(_mm256_movemask_ps(bits_of<__m256>(narrow_mask)));
#elif defined(__SSE2__)
    struct Two {
        __m128 low, high;
    };
    const Two halves = bits_of<Two>(narrow_mask);
    return std::uint32_t(_mm_movemask_ps(halves.low) | _mm_movemask_ps(halves.high) << 4);
#else
    const Int<float> set = narrow_mask & powers_of_two(Count{});
    std::uint32_t bits = 0;
    for (int i = 0; i < W; ++i) bits |= std::uint32_t(set[i]);
    return bits;
#endif
}

// The lanes of 8 pairs may be in any order: those of a cut vector end in its own byte. Those of 16 must be in the order of memory.
template <class T>
ALWAYS_INLINE void store_bits(std::uint8_t* target, Mask<T> mask) {
    std::uint32_t bits;
    if constexpr (std::is_same<Mask<T>, Int<T>>::value) bits = bits_of_mask<T>(mask);
    else bits = mask;
    std::memcpy(target, &bits, W / 8);
}

// Compilers compare vectors that are wider than a register number by number, so signs are made to masks instead.
template <class T>
ALWAYS_INLINE Int<T> is_negative(Int<T> x) {
    return x >> (8 * sizeof(T) - 1);
}

template <class T>
ALWAYS_INLINE bool is_any_infinite(Real<T> x) {  // or NaN
    return bits_of_mask<T>(is_negative<T>(bits_of<Int<T>>(all<T>(std::numeric_limits<T>::max())) - bits_of<Int<T>>(size_of<T>(x)))) != 0;
}

template <class T>
ALWAYS_INLINE Real<T> chosen(Int<T> mask, Real<T> a, Real<T> b) {
    return bits_of<Real<T>>((bits_of<Int<T>>(a) & mask) | (bits_of<Int<T>>(b) & ~mask));
}

// ---------------------------------------------------------------- 16-bit types: widened exactly, rounded once to nearest even

struct bfloat16 {
    std::uint16_t bits;
};
struct float16 {
    std::uint16_t bits;
};

typedef std::uint32_t Words __attribute__((vector_size(4 * W)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * W)));

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

template <class S>
constexpr float largest_of = std::is_same<S, bfloat16>::value ? 0x1.fep127f : 65504.0f;

// n numbers from one type to another; T may be written up to the next multiple of W.
template <class S, class T>
void widen_all(const S* source, int n, T* target) {
    if constexpr (std::is_same<S, T>::value) {
        std::memcpy(target, source, std::size_t(n) * sizeof(T));
    } else {
        for (int i = 0; i < n; i += W) {
            Halves halves{};
            std::memcpy(&halves, source + i, std::size_t(n - i < W ? n - i : W) * sizeof(S));
            store<T>(target + i, widen<S>(__builtin_convertvector(halves, Words)));
        }
    }
}

// With `bounded`, a finite number beyond the largest of S becomes that number.
template <class S, class T>
void narrow_all(const T* source, int n, S* target, bool bounded) {
    if constexpr (std::is_same<S, T>::value) {
        std::memcpy(target, source, std::size_t(n) * sizeof(T));
    } else {
        for (int i = 0; i < n; i += W) {
            Real<T> values = load<T>(source + i);
            if (bounded) values = size_of<T>(values) <= std::numeric_limits<T>::max() ? within<T>(values, largest_of<S>) : values;
            const Halves halves = __builtin_convertvector(narrow<S>(values), Halves);
            std::memcpy(target + i, &halves, std::size_t(n - i < W ? n - i : W) * sizeof(S));
        }
    }
}

// ---------------------------------------------------------------- exponentials and logarithms

// Adding this leaves the nearest integer in the low bits of the sum.
template <class T>
constexpr T rounder = T(3) * T(typename Lanes<T>::One(1) << (Lanes<T>::mantissa - 1));

// An exponent field reaches down to -bias only, so small e^x are computed lifted by 1 / sink and are then rounded once.
template <class T>
constexpr T sink = T(1) / T(typename Lanes<T>::One(1) << (Lanes<T>::mantissa + 1));

// Σ c[i] x^i.
template <class T, std::size_t n, std::size_t i = 0>
ALWAYS_INLINE Real<T> polynomial(const T (&c)[n], Real<T> x) {
    if constexpr (i + 1 == n) return all<T>(c[i]);
    else return c[i] + x * polynomial<T, n, i + 1>(c, x);
}

// A difference of two numbers, and what rounding dropped from it.
template <class T>
struct Difference {
    Real<T> rounded, dropped;
};

// The argument of an exponential of which only normal numbers count: smaller ones are 0, or no better than 0. NaN counts as -infinity.
template <class T>
ALWAYS_INLINE Difference<T> at_least_normal(Real<T> x) {
    return {most<T>(x, all<T>(Lanes<T>::least_exp)), all<T>(-0.0)};
}

// x - y, for x ≤ y and |x| ≥ |y|.
template <class T>
ALWAYS_INLINE Difference<T> at_least_normal(Real<T> x, Real<T> y) {
    const Real<T> rounded = most<T>(x - y, all<T>(Lanes<T>::least_exp));
    return {rounded, most<T>((x - rounded) - y, all<T>(-Lanes<T>::half_ulp))};
}

// e^x 2^lift = scale e^r, where that is a normal number.
template <class T>
struct Scaled {
    Real<T> scale, r;
};

template <class T>
ALWAYS_INLINE Scaled<T> scaled(Difference<T> x, int lift) {
    using L = Lanes<T>;
    const T shift = rounder<T> + T(L::bias + lift);
    const Real<T> shifted = x.rounded * T(1.44269504088896340736) + shift, n = shifted - shift;
    const Real<T> scale = bits_of<Real<T>>(bits_of<Int<T>>(shifted) << L::mantissa);
    // With fused multiplication n ln 2 with ln 2 rounded to float is wrong by less than 5u, as |n| ≤ 151.
    if constexpr (sizeof(T) == 4 && SIMD != 0) return {scale, (x.rounded - n * L::ln2) + x.dropped};
    else return {scale, (x.rounded - n * L::ln2_high) - n * L::ln2_low + x.dropped};
}

// The same in float32 by eighths: x = n ln2/8 + r, with a polynomial of r that is two terms shorter. Shifted by 20 bits, n adds
// n / 8 to the exponent and i = n modulo 8 to the top of the fraction: the table has 2^(i/8) less that i. The look-up reads only
// the lowest bits of its index, so it can take n itself.
#ifdef BOOLIT_SINGLE
ALWAYS_INLINE Scaled<float> scaled_by_eighths(Difference<float> x, int lift) {
    constexpr std::int32_t a = 0x3f800000, b = 0x3f7b95c2, c = 0x3f7837f0, d = 0x3f75fed7;
    constexpr std::int32_t e = 0x3f7504f3, f = 0x3f75672a, g = 0x3f7744fd, h = 0x3f7ac0c7;
    const float shift = rounder<float> + float(8 * lift);
    const Real<float> shifted = x.rounded * float(8 * 1.44269504088896340736) + shift, n = shifted - shift;
    const Int<float> bits = bits_of<Int<float>>(shifted);
#ifdef BOOLIT_AVX512
    const __m512i table = _mm512_setr_epi32(a, b, c, d, e, f, g, h, a, b, c, d, e, f, g, h);
    const Int<float> root = bits_of<Int<float>>(_mm512_permutexvar_epi32(bits_of<__m512i>(bits), table));
#else
    const __m256i table = _mm256_setr_epi32(a, b, c, d, e, f, g, h);
    const Int<float> root = bits_of<Int<float>>(_mm256_permutevar8x32_epi32(table, bits_of<__m256i>(bits)));
#endif
    return {bits_of<Real<float>>(root + (bits << 20)), (x.rounded - n * (Lanes<float>::ln2 / 8)) + x.dropped};
}
#endif

// e^x 2^lift and e^x - 1, both right to about 1u.
template <class T>
struct Expm1 {
    Real<T> value, minus_one;
};

template <class T>
ALWAYS_INLINE Expm1<T> fine_expm1(Difference<T> x, int lift = 0) {
    const Scaled<T> of = scaled<T>(x, lift);
    const Real<T> p = of.r + of.r * of.r * polynomial<T>(Lanes<T>::exp_series, of.r);
    return {of.scale + of.scale * p, (of.scale - T(1)) + of.scale * p};
}

// The same by the table, where there is one: e^x - 1 is then wrong by as much as e^x is.
template <class T>
ALWAYS_INLINE Expm1<T> quick_expm1(Difference<T> x, int lift = 0) {
#ifdef BOOLIT_SINGLE
    if constexpr (sizeof(T) == 4) {
        const Scaled<T> of = scaled_by_eighths(x, lift);
        const Real<T> rise = of.scale * of.r, slope = T(1) + of.r * polynomial<T>(Lanes<T>::short_exp_series, of.r);
        return {of.scale + rise * slope, (of.scale - T(1)) + rise * slope};
    }
#endif
    return fine_expm1<T>(x, lift);
}

// e^x / sink for x ≤ 0, and 0 at lowest_exp, where the exponent field is 0; NaN counts as -infinity.
template <class T>
ALWAYS_INLINE Real<T> lifted_exp(Real<T> x) {
    return quick_expm1<T>({most<T>(x, all<T>(Lanes<T>::lowest_exp)), all<T>(-0.0)}, Lanes<T>::mantissa + 1).value;
}

// 2 atanh(s) / 2s - 1 from double_s = 2s, for |s| ≤ 1/3.
template <class T>
ALWAYS_INLINE Real<T> atanh_excess(Real<T> double_s) {
    const Real<T> z = double_s * double_s;
    return z * polynomial<T>(Lanes<T>::atanh_series, z);
}

// base + log1p(t + dropped) for 0 ≤ t ≤ 2, as log(1 + c) + 2 atanh((t - c) / (2 + t + c)) with c = 1 for t > ½, else 0: |s| ≤ 0.2.
template <class T>
ALWAYS_INLINE Real<T> plus_log1p(Real<T> base, Real<T> t, Real<T> dropped) {
    const Int<T> large = t > T(0.5);
    const Real<T> c = where<T>(large, all<T>(1)), double_s = ((t - c) + dropped) / (T(1) + T(0.5) * (t + c));
    const Real<T> excess = atanh_excess<T>(double_s), start = base + where<T>(large, all<T>(Lanes<T>::ln2));
    // Without fused multiplication, rounding a small product and a sum is better than rounding two numbers as large as 2s.
    if constexpr (SIMD == 0) return start + (double_s + double_s * excess);
    else return start + double_s * (T(1) + excess);
}
