// Vectors of W lanes, and exp, expm1 and log1p on them.
//
// Included once for each instruction set, inside a namespace of its own, so it has no include guard on purpose; W is the
// number of lanes that suits the set. The polynomials are Chebyshev's near-minimax ones on the intervals named beside them;
// tests/logic/test_coefficients.py derives them again. Each adds less than 0.3u to its function.

constexpr int W = BOOLIT_LANES;

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
    typedef float Real __attribute__((vector_size(4 * W)));
    typedef std::int32_t Int __attribute__((vector_size(4 * W)));
    using One = std::int32_t;
    static constexpr int mantissa = 23;
    static constexpr One bias = 127, root_half = 0x3f3504f3;
    // (e^r - 1 - r) / r² for |r| ≤ ln2/2, and for |r| ≤ ln2/16
    static constexpr float exp_series[] = {0x1p-1f, 0x1.5554dcp-3f, 0x1.555518p-5f, 0x1.120bdep-7f, 0x1.6d117ap-10f};
    static constexpr float short_exp_series[] = {0x1p-1f, 0x1.555b7ep-3f, 0x1.55597p-5f};
    // (2 atanh(s) - 2s) / (2s)³ as a polynomial of (2s)², for |s| ≤ 1/3
    static constexpr float atanh_series[] = {0x1.55554cp-4f, 0x1.99ad7cp-7f, 0x1.2122bcp-9f, 0x1.130324p-11f};
    static constexpr float ln2 = 0.6931471805599453f;
    static constexpr float least_exp = -88.0f;    // rounds to n = -bias: 2^n has 0 in its exponent's field, and is 0
    static constexpr float lowest_exp = -104.7f;  // rounds to n = -151 = -(bias + mantissa + 1): e^x is less than half the least subnormal
    static constexpr float half_ulp = 0x1p-18f;   // of least_exp
    static constexpr float certain = 40.0f;       // 1 + e^-40 rounds to 1, and e^40 does not overflow
    static constexpr float ln2_high = 0.693359375f;  // 9 significant bits: n · ln2_high is exact
    static constexpr float ln2_low = float(0.6931471805599453094172321214581766 - 0.693359375);
};

template <>
struct Lanes<double> {
    typedef double Real __attribute__((vector_size(8 * W)));
    typedef std::int64_t Int __attribute__((vector_size(8 * W)));
    using One = std::int64_t;
    static constexpr int mantissa = 52;
    static constexpr One bias = 1023, root_half = 0x3fe6a09e667f3bcd;
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
    static constexpr double certain = 80.0;
    static constexpr double ln2_high = 0x1.62e42fefap-1;  // 36 significant bits
    static constexpr double ln2_low = double(0.693147180559945309417232121458176568L - 0x1.62e42fefap-1L);
};

template <class T>
using Real = typename Lanes<T>::Real;
template <class T>
using Int = typename Lanes<T>::Int;

// Adding this leaves the nearest integer in the low bits of the sum.
template <class T>
constexpr T rounder = T(3) * T(typename Lanes<T>::One(1) << (Lanes<T>::mantissa - 1));

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

// Maximum and minimum; where either operand is NaN, both give the second. Compilers do not find these instructions in a ?:.
#if BOOLIT_MOVEMASK == 0
template <class T>
ALWAYS_INLINE Real<T> most(Real<T> a, Real<T> b) {
    return a > b ? a : b;
}
template <class T>
ALWAYS_INLINE Real<T> least(Real<T> a, Real<T> b) {
    return a < b ? a : b;
}
#else
#if BOOLIT_MOVEMASK == 512
typedef __m512 Single;
typedef __m512d Wide;
#define BOOLIT_SINGLE(name) _mm512_##name##_ps
#define BOOLIT_WIDE(name) _mm512_##name##_pd
#else
typedef __m256 Single;
typedef __m256d Wide;
#define BOOLIT_SINGLE(name) _mm256_##name##_ps
#define BOOLIT_WIDE(name) _mm256_##name##_pd
#endif
#define BOOLIT_EXTREMUM(ours, theirs)                                                                        \
    template <class T>                                                                                       \
    ALWAYS_INLINE Real<T> ours(Real<T> a, Real<T> b) {                                                       \
        if constexpr (sizeof(T) == 4) return bits_of<Real<T>>(BOOLIT_SINGLE(theirs)(bits_of<Single>(a), bits_of<Single>(b))); \
        else {                                                                                               \
            struct Two {                                                                                     \
                Wide low, high;                                                                              \
            };                                                                                               \
            const Two p = bits_of<Two>(a), q = bits_of<Two>(b);                                              \
            return bits_of<Real<T>>(Two{BOOLIT_WIDE(theirs)(p.low, q.low), BOOLIT_WIDE(theirs)(p.high, q.high)}); \
        }                                                                                                    \
    }
BOOLIT_EXTREMUM(most, max)
BOOLIT_EXTREMUM(least, min)
#undef BOOLIT_EXTREMUM
#undef BOOLIT_SINGLE
#undef BOOLIT_WIDE
#endif

// Σ c[i] x^i.
template <class T, std::size_t n, std::size_t i = 0>
ALWAYS_INLINE Real<T> polynomial(const T (&c)[n], Real<T> x) {
    if constexpr (i + 1 == n) return all<T>(c[i]);
    else return c[i] + x * polynomial<T, n, i + 1>(c, x);
}

// x - y for x ≤ y, and what rounding dropped from it if |x| ≥ |y|. No less than lowest_exp, where e^(x - y) is 0; so it is
// beside an infinity, two equal ones included.
template <class T>
struct Difference {
    Real<T> rounded, dropped;
};

template <class T>
ALWAYS_INLINE Difference<T> difference(Real<T> x, Real<T> y) {
    const Real<T> rounded = most<T>(x - y, all<T>(Lanes<T>::lowest_exp));
    return {rounded, most<T>((x - rounded) - y, all<T>(-1))};
}

// An exponent field reaches down to -bias only, so e^x is computed lifted; sunk in the end, a subnormal one is rounded once.
template <class T>
constexpr T sink = T(1) / T(typename Lanes<T>::One(1) << (Lanes<T>::mantissa + 1));

// e^x and e^x - 1, each to about one unit in the last place, and what rounding dropped from the latter.
template <class T>
struct Exp {
    Real<T> value, minus_one, dropped;
};

// e^(rounded + dropped), for a sum from lowest_exp, where it is 0, to 0.
template <class T>
ALWAYS_INLINE Exp<T> exp_of(Difference<T> x) {
    using L = Lanes<T>;
    constexpr T shift = rounder<T> + T(L::bias + L::mantissa + 1);
    const Real<T> shifted = x.rounded * T(1.44269504088896340736) + shift, n = shifted - shift;
    const Real<T> r = (x.rounded - n * L::ln2_high) - n * L::ln2_low + x.dropped;
    const Real<T> tail = r * r * polynomial<T>(L::exp_series, r), p = r + tail;
    const Real<T> field = bits_of<Real<T>>(bits_of<Int<T>>(shifted) << L::mantissa), scale = field * sink<T>;  // 0 for the least n
    const Real<T> minus_one = scale * p + (scale - T(1));
    const Real<T> dropped = (((scale - T(1)) - minus_one) + scale * p) + scale * ((r - p) + tail);
    return {(field * p + field) * sink<T>, minus_one, dropped};
}

// For x ≤ 0; NaN counts as -infinity.
template <class T>
ALWAYS_INLINE Exp<T> exp_of(Real<T> x) {
    return exp_of<T>(Difference<T>{most<T>(x, all<T>(Lanes<T>::lowest_exp)), all<T>(0)});
}

// ---------------------------------------------------------------- exponentials of pairs: as few operations as will do

// e^x - 1 too, where wanted.
template <class T>
struct Expm1 {
    Real<T> value, minus_one;
};

// e^x 2^lift = scale e^r, where that is a normal number.
template <class T>
struct Scaled {
    Real<T> scale, r;
};

// float32 with a fused multiplication: n ln 2 with ln 2 rounded to float is wrong by less than 5u, as |n| ≤ 151.
template <class T>
constexpr bool is_fused_single = sizeof(T) == 4 && BOOLIT_MOVEMASK != 0;

template <class T>
ALWAYS_INLINE Scaled<T> scaled(Difference<T> x, int lift) {
    using L = Lanes<T>;
    const T shift = rounder<T> + T(L::bias + lift);
    const Real<T> shifted = x.rounded * T(1.44269504088896340736) + shift, n = shifted - shift;
    const Real<T> scale = bits_of<Real<T>>(bits_of<Int<T>>(shifted) << L::mantissa);
    if constexpr (is_fused_single<T>) return {scale, (x.rounded - n * L::ln2) + x.dropped};
    else return {scale, (x.rounded - n * L::ln2_high) - n * L::ln2_low + x.dropped};
}

// The same in float32 by eighths: x = n ln2/8 + r, with a polynomial of r that is two terms shorter. Shifted by 20 bits, n adds
// n / 8 to the exponent and i = n modulo 8 to the top of the fraction: the table has 2^(i/8) less that i. A look-up takes n itself, since
// it heeds the lowest bits only.
#if BOOLIT_MOVEMASK != 0
ALWAYS_INLINE Scaled<float> scaled_by_eighths(Difference<float> x, int lift) {
    constexpr std::int32_t a = 0x3f800000, b = 0x3f7b95c2, c = 0x3f7837f0, d = 0x3f75fed7;
    constexpr std::int32_t e = 0x3f7504f3, f = 0x3f75672a, g = 0x3f7744fd, h = 0x3f7ac0c7;
    const float shift = rounder<float> + float(8 * lift);
    const Real<float> shifted = x.rounded * float(8 * 1.44269504088896340736) + shift, n = shifted - shift;
    const Int<float> bits = bits_of<Int<float>>(shifted);
#if BOOLIT_MOVEMASK == 512
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
ALWAYS_INLINE Expm1<T> fine_expm1(Difference<T> x, int lift = 0) {
    const Scaled<T> of = scaled<T>(x, lift);
    const Real<T> p = of.r + of.r * of.r * polynomial<T>(Lanes<T>::exp_series, of.r);
    return {of.scale + of.scale * p, (of.scale - T(1)) + of.scale * p};
}

// The same by the table, where there is one: e^x - 1 is then wrong by as much as e^x is.
template <class T>
ALWAYS_INLINE Expm1<T> quick_expm1(Difference<T> x, int lift = 0) {
#if BOOLIT_MOVEMASK != 0
    if constexpr (sizeof(T) == 4) {
        const Scaled<T> of = scaled_by_eighths(x, lift);
        const Real<T> rise = of.scale * of.r, slope = T(1) + of.r * polynomial<T>(Lanes<T>::short_exp_series, of.r);
        return {of.scale + rise * slope, (of.scale - T(1)) + rise * slope};
    }
#endif
    return fine_expm1<T>(x, lift);
}

// Arguments of exponentials of which only the normal numbers count: what is smaller is 0, or no better than 0. NaN counts as -infinity.
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

// e^x / sink for x ≤ 0, and 0 at lowest_exp, where the exponent's field is 0; NaN counts as -infinity.
template <class T>
ALWAYS_INLINE Real<T> lifted_exp(Real<T> x) {
    return quick_expm1<T>({most<T>(x, all<T>(Lanes<T>::lowest_exp)), all<T>(-0.0)}, Lanes<T>::mantissa + 1).value;
}

// a - b·c, where b·c is nearly a: rounded once.
template <class T>
ALWAYS_INLINE Real<T> residual(Real<T> a, Real<T> b, Real<T> c) {
#if BOOLIT_MOVEMASK == 0  // no fused multiplication: halves of the mantissas, whose products are exact
    constexpr typename Lanes<T>::One mask = ~((typename Lanes<T>::One(1) << (Lanes<T>::mantissa / 2 + 1)) - 1);
    const Real<T> b_high = bits_of<Real<T>>(bits_of<Int<T>>(b) & mask), c_high = bits_of<Real<T>>(bits_of<Int<T>>(c) & mask);
    const Real<T> b_low = b - b_high, c_low = c - c_high;
    return (((a - b_high * c_high) - b_high * c_low) - b_low * c_high) - b_low * c_low;
#else
    return a - b * c;
#endif
}

// 2 atanh(s) / 2s - 1 from double_s = 2s, for |s| ≤ 1/3.
template <class T>
ALWAYS_INLINE Real<T> atanh_excess(Real<T> double_s) {
    const Real<T> z = double_s * double_s;
    return z * polynomial<T>(Lanes<T>::atanh_series, z);
}

// base + log1p(t + dropped) for 0 ≤ t ≤ 2, as log(1 + c) + 2 atanh((t - c) / (2 + t + c)) with c = 1 for t > ½, else 0: |s| ≤ 0.2.
template <class T>
ALWAYS_INLINE Real<T> plus_log1p(Real<T> base, Real<T> t, Real<T> dropped = all<T>(-0.0)) {
    const Int<T> large = t > T(0.5);
    const Real<T> c = where<T>(large, all<T>(1)), double_s = ((t - c) + dropped) / (T(1) + T(0.5) * (t + c));
    const Real<T> excess = atanh_excess<T>(double_s), start = base + where<T>(large, all<T>(Lanes<T>::ln2));
#if BOOLIT_MOVEMASK == 0  // no fused multiplication: this rounds a small product and a sum, the other way two numbers as large as 2s
    return start + (double_s + double_s * excess);
#else
    return start + double_s * (T(1) + excess);
#endif
}

// For t ≥ 0. With 1 + t = 2^e (1 + f) and f within √½ - 1 … √2 - 1, f = 2^-e t + (2^-e - 1) is rounded once: no digit of a
// small t is lost; and neither is one of f, as log1p(f) = f - s(f - 2s(2s)² P) with s = f / (2 + f).
template <class T>
ALWAYS_INLINE Real<T> log1p_of(Real<T> t) {
    using L = Lanes<T>;
    constexpr typename L::One one = L::bias << L::mantissa, fraction = (typename L::One(1) << L::mantissa) - 1;
    const Int<T> above = bits_of<Int<T>>(T(1) + t) - L::root_half;  // not negative, since 1 + t ≥ 1
    const Real<T> e = bits_of<Real<T>>((above >> L::mantissa) + bits_of<Int<T>>(all<T>(rounder<T>))) - rounder<T>;
    const Real<T> scale = bits_of<Real<T>>(one - (above & ~fraction));
    const Real<T> f = scale * t + (scale - T(1)), half = T(0.5) * f;
    const Real<T> double_s = f / (T(1) + half), z = double_s * double_s;
    const Real<T> small = e * L::ln2_low - double_s * (half - z * polynomial<T>(L::atanh_series, z));
    return e * L::ln2_high + (f + small);
}
