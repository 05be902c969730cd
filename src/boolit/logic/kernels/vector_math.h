// Vectors of W lanes, and exp, expm1 and log1p on them.
//
// Included once for each instruction set, inside a namespace of its own, so it has no include guard on purpose; W is the
// number of lanes that suits the set. The polynomials are Chebyshev's near-minimax ones on the intervals named beside them;
// tests/logic/test_coefficients.py derives them again. Each adds less than a fifth of the unit round-off to its function.

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
    // (e^r - 1 - r) / r² for |r| ≤ ln2/2
    static constexpr float exp_series[] = {0x1p-1f, 0x1.5554dcp-3f, 0x1.555518p-5f, 0x1.120bdep-7f, 0x1.6d117ap-10f};
    // (2 atanh(s)/s - 2) / s², as a polynomial of s² from 0 to 1/4
    static constexpr float log_series[] = {0x1.555554p-1f, 0x1.999c14p-2f, 0x1.242056p-2f, 0x1.d5ce5cp-3f, 0x1.09f92cp-3f, 0x1.4298b2p-2f};
    // The same from 0 to 0.0763
    static constexpr float atanh_series[] = {0x1.555554p-1f, 0x1.999fa2p-2f, 0x1.230b5ap-2f, 0x1.02b3a8p-2f};
    static constexpr bool one_step = true;   // n ≤ 151: n · ln 2 with ln 2 rounded to float is wrong by less than 5u
    static constexpr float ln2 = 0.6931471805599453f;
    static constexpr float least_exp = -87.3f;    // e^x is a normal number above
    static constexpr float lowest_exp = -104.7f;  // rounds to n = -151 = -(bias + mantissa + 1): e^x is less than half the least subnormal
    static constexpr float no_exp = -103.98f;  // n = -150: e^x / sink is the least normal number or less, which sinks to 0
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
    static constexpr double log_series[] = {0x1.5555555555555p-1, 0x1.9999999999982p-2,  0x1.249249249409cp-2, 0x1.c71c71c58156bp-3,
                                            0x1.745d17a833b94p-3, 0x1.3b13a3184d90ap-3,  0x1.1112632e765f2p-3, 0x1.e1b6c1f3ca95dp-4,
                                            0x1.b116e91f2dcfep-4, 0x1.76524ce0b6671p-4,  0x1.bff5d5842ce7fp-4, -0x1.7b097a148d046p-7,
                                            0x1.4f3162758726ep-2, -0x1.79de6d69a866cp-2, 0x1.cff32677aa2f2p-2};
    static constexpr double atanh_series[] = {0x1.5555555555556p-1, 0x1.9999999998c78p-2, 0x1.24924925b0768p-2,
                                              0x1.c71c709b8823cp-3, 0x1.745d659e22d5fp-3, 0x1.3b083a1016c14p-3,
                                              0x1.120bce0e616c7p-3, 0x1.c93886e9c3291p-4, 0x1.28c12372b8b18p-3};
    static constexpr bool one_step = false;
    static constexpr double ln2 = 0.6931471805599453;
    static constexpr double least_exp = -708.3;
    static constexpr double lowest_exp = -745.9;  // n = -1076
    static constexpr double no_exp = -745.14;
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

// What rounding dropped from x, where nothing is known of it.
struct Nothing {};

// x = n ln 2 + r with |r| ≤ ln2/2: r, and n + more in the exponent's place of a number.
template <class T>
struct Reduced {
    Real<T> r;
    Int<T> exponent;
};

template <class T, bool one_step, class Dropped>
ALWAYS_INLINE Reduced<T> reduced(Real<T> x, Dropped dropped, int more) {
    using L = Lanes<T>;
    const T shift = rounder<T> + T(more);
    const Real<T> shifted = x * T(1.44269504088896340736) + shift, n = shifted - shift;
    Real<T> r = one_step ? x - n * L::ln2 : (x - n * L::ln2_high) - n * L::ln2_low;
    if constexpr (!std::is_same<Dropped, Nothing>::value) r += dropped;
    return {r, bits_of<Int<T>>(shifted) << L::mantissa};
}

// e^x / sink, e^x and e^x - 1, each to about one unit in the last place, and what rounding dropped from the last.
template <class T>
struct Exp {
    Real<T> lifted, value, minus_one, dropped;
};

// e^(rounded + dropped), for a sum from lowest_exp, where it is 0, to 0.
template <class T>
ALWAYS_INLINE Exp<T> exp_of(Difference<T> x) {
    using L = Lanes<T>;
    const Reduced<T> of = reduced<T, false>(x.rounded, x.dropped, L::bias + L::mantissa + 1);
    const Real<T> tail = of.r * of.r * polynomial<T>(L::exp_series, of.r), p = of.r + tail;
    const Real<T> field = bits_of<Real<T>>(of.exponent), scale = field * sink<T>;  // 0 for the least n
    const Real<T> lifted = field * p + field, minus_one = scale * p + (scale - T(1));
    const Real<T> dropped = (((scale - T(1)) - minus_one) + scale * p) + scale * ((of.r - p) + tail);
    return {lifted, lifted * sink<T>, minus_one, dropped};
}

// For x ≤ 0; NaN counts as -infinity.
template <class T>
ALWAYS_INLINE Exp<T> exp_of(Real<T> x) {
    return exp_of<T>(Difference<T>{most<T>(x, all<T>(Lanes<T>::lowest_exp)), all<T>(0)});
}

// The exponentials of pairs, in as few operations as will do: fewer digits of ln 2, where they do not count (without a fused
// multiplication they do).
template <class T>
constexpr bool one_step = Lanes<T>::one_step && BOOLIT_MOVEMASK != 0;

// e^x 2^lift, where that is a normal number.
template <class T, class Dropped>
ALWAYS_INLINE Real<T> raised_exp(Real<T> x, Dropped dropped, int lift) {
    const Reduced<T> of = reduced<T, one_step<T>>(x, dropped, lift);
    const Real<T> value = T(1) + of.r * (T(1) + of.r * polynomial<T>(Lanes<T>::exp_series, of.r));
    return bits_of<Real<T>>(bits_of<Int<T>>(value) + of.exponent);
}

// e^x / sink for x ≤ 0; NaN counts as -infinity.
template <class T>
ALWAYS_INLINE Real<T> lifted_exp(Real<T> x) {
    return raised_exp<T>(most<T>(x, all<T>(Lanes<T>::no_exp)), Nothing{}, Lanes<T>::mantissa + 1);
}

// e^x and e^(x - y), for x ≤ y and |x| ≥ |y|, where what is smaller than a normal number need not be told from 0.
template <class T>
ALWAYS_INLINE Real<T> normal_exp(Real<T> x) {
    return raised_exp<T>(most<T>(x, all<T>(Lanes<T>::least_exp)), Nothing{}, 0);
}
template <class T>
ALWAYS_INLINE Difference<T> normal_difference(Real<T> x, Real<T> y) {
    const Real<T> rounded = most<T>(x - y, all<T>(Lanes<T>::least_exp));
    return {rounded, most<T>((x - rounded) - y, all<T>(-1))};
}
template <class T>
ALWAYS_INLINE Real<T> normal_exp(Difference<T> x) {
    return raised_exp<T>(x.rounded, x.dropped, 0);
}

// The same with e^x - 1.
template <class T>
struct Expm1 {
    Real<T> value, minus_one;
};
template <class T, class Dropped>
ALWAYS_INLINE Expm1<T> normal_expm1(Real<T> x, Dropped dropped) {
    const Reduced<T> of = reduced<T, one_step<T>>(x, dropped, Lanes<T>::bias);
    const Real<T> scale = bits_of<Real<T>>(of.exponent);
    const Real<T> p = of.r + of.r * of.r * polynomial<T>(Lanes<T>::exp_series, of.r);
    return {scale * p + scale, scale * p + (scale - T(1))};
}
template <class T>
ALWAYS_INLINE Expm1<T> normal_expm1(Real<T> x) {
    return normal_expm1<T>(most<T>(x, all<T>(Lanes<T>::least_exp)), Nothing{});
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

// For 0 ≤ t ≤ 2, as 2 atanh(s) with s = t / (2 + t), of which 2s = t - st.
template <class T>
ALWAYS_INLINE Real<T> log1p_up_to_2(Real<T> t) {
    const Real<T> s = t / (T(2) + t), z = s * s;
    return t - s * (t - z * polynomial<T>(Lanes<T>::log_series, z));
}

// For t ≥ 0. With 1 + t = 2^e (1 + f) and f within √½ - 1 … √2 - 1, f = 2^-e t + (2^-e - 1) is rounded once: no digit of a
// small t is lost.
template <class T>
ALWAYS_INLINE Real<T> log1p_of(Real<T> t) {
    using L = Lanes<T>;
    constexpr typename L::One one = L::bias << L::mantissa, fraction = (typename L::One(1) << L::mantissa) - 1;
    const Int<T> above = bits_of<Int<T>>(T(1) + t) - L::root_half;  // not negative, since 1 + t ≥ 1
    const Real<T> e = bits_of<Real<T>>((above >> L::mantissa) + bits_of<Int<T>>(all<T>(rounder<T>))) - rounder<T>;
    const Real<T> scale = bits_of<Real<T>>(one - (above & ~fraction));
    const Real<T> f = scale * t + (scale - T(1));
    const Real<T> s = f / (T(2) + f), z = s * s;  // |s| ≤ 0.1716, z ≤ 0.0295
    const Real<T> small = e * L::ln2_low - s * (f - z * polynomial<T>(L::atanh_series, z));
    return e * L::ln2_high + (f + small);
}
