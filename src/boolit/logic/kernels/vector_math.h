// Vectors of W lanes, and exp, expm1 and log1p on them.
//
// Included once for each instruction set, inside a namespace of its own, so it has no include guard on purpose; W is the
// number of lanes that suits the set. The series are Taylor's, cut where the next term falls below a tenth of the unit
// round-off; their coefficients are what they say they are.

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
    static constexpr int exp_terms = 8;          // (ln2/2)^8 / 9! < 2^-30
    static constexpr int log_terms = 5;          // (1/5)^12 / 13 < 2^-31
    static constexpr int atanh_terms = 7;        // (1/3)^16 / 17 < 2^-29
    static constexpr float lowest_exp = -104.7f;  // rounds to n = -151 = -(bias + mantissa + 1): e^x is less than half the least subnormal
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
    static constexpr int exp_terms = 14;  // (ln2/2)^14 / 15! < 2^-61
    static constexpr int log_terms = 11;  // (1/5)^24 / 25 < 2^-60
    static constexpr int atanh_terms = 16;  // (1/3)^34 / 35 < 2^-58
    static constexpr double lowest_exp = -745.9;  // n = -1076
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

constexpr double inverse_factorial(int n) { return n <= 1 ? 1.0 : inverse_factorial(n - 1) / n; }

// Σ r^i / (i+2)!: expm1(r) = r + r² · this.
template <class T, int i = 0>
ALWAYS_INLINE Real<T> exp_series(Real<T> r) {
    if constexpr (i + 2 >= Lanes<T>::exp_terms)
        return all<T>(T(inverse_factorial(i + 2)));
    else
        return T(inverse_factorial(i + 2)) + r * exp_series<T, i + 1>(r);
}

// Σ 2 z^i / (2i+3): 2 atanh(s) = 2s + s z · this, with z = s².
template <class T, int terms, int i = 0>
ALWAYS_INLINE Real<T> atanh_series(Real<T> z) {
    if constexpr (i + 1 >= terms)
        return all<T>(T(2.0 / (2 * i + 3)));
    else
        return T(2.0 / (2 * i + 3)) + z * atanh_series<T, terms, i + 1>(z);
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

// e^x / sink, e^x and e^x - 1, each to about one unit in the last place, and what rounding dropped from the last.
template <class T>
struct Exp {
    Real<T> lifted, value, minus_one, dropped;
};

// e^(rounded + dropped), for a sum from lowest_exp, where it is 0, to 0.
template <class T>
ALWAYS_INLINE Exp<T> exp_of(Difference<T> x) {
    using L = Lanes<T>;
    const Real<T> shifted = x.rounded * T(1.44269504088896340736) + rounder<T>;
    const Real<T> n = shifted - rounder<T>;
    const Real<T> r = ((x.rounded - n * L::ln2_high) - n * L::ln2_low) + x.dropped;
    const Real<T> tail = r * r * exp_series<T>(r), p = r + tail;
    const Int<T> exponent = bits_of<Int<T>>(shifted) - bits_of<Int<T>>(all<T>(rounder<T> - T(L::bias + L::mantissa + 1)));
    const Real<T> field = bits_of<Real<T>>(Int<T>(exponent << L::mantissa));  // 0 for the least n
    const Real<T> scale = field * sink<T>, lifted = field * p + field, minus_one = scale * p + (scale - T(1));
    const Real<T> dropped = (((scale - T(1)) - minus_one) + scale * p) + scale * ((r - p) + tail);
    return {lifted, lifted * sink<T>, minus_one, dropped};
}

// For x ≤ 0; NaN counts as -infinity.
template <class T>
ALWAYS_INLINE Exp<T> exp_of(Real<T> x) {
    return exp_of<T>(Difference<T>{most<T>(x, all<T>(Lanes<T>::lowest_exp)), all<T>(0)});
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
    const Real<T> s = f / (T(2) + f);
    const Real<T> z = s * s;
    const Real<T> small = e * L::ln2_low - s * (f - z * atanh_series<T, L::log_terms>(z));
    return e * L::ln2_high + (f + small);
}

// The same for t ≤ 2, where e is 0 or 1: f within -0.3 … 0.5, so |s| ≤ 1/5.
template <class T>
ALWAYS_INLINE Real<T> log1p_up_to_2(Real<T> t) {
    using L = Lanes<T>;
    Real<T> f, high, low;
    if constexpr (sizeof(T) == 4) {
        const Int<T> halve = t > T(0.41421356);
        f = halve ? T(0.5) * t - T(0.5) : t;
        high = halve ? all<T>(L::ln2_high) : all<T>(0), low = halve ? all<T>(L::ln2_low) : all<T>(0);
    } else {  // GCC takes a comparison apart where a vector is wider than a register; so the nearest integer to 1.2 t, but 1 at most
        const Real<T> e = least<T>((t * T(1.2) + rounder<T>) - rounder<T>, all<T>(1));
        f = (t - e) * (T(1) - T(0.5) * e);
        high = e * L::ln2_high, low = e * L::ln2_low;
    }
    const Real<T> s = f / (T(2) + f);
    const Real<T> z = s * s;
    return high + (f + (low - s * (f - z * atanh_series<T, L::log_terms>(z))));
}
