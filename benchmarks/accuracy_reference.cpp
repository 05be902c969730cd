// OR and XNOR of k logits and their partial derivatives in long double, and the worst error of results given to it.
// accuracy.py compiles this when it runs. Every sum has terms of one sign, and what rounding drops from a difference of
// logits is put back, so that the relative error is some k · 2^-64.

#include <cfloat>
#include <cmath>
#include <cstdint>

typedef long double Real;

// e^(x - y)
static Real exp_of_difference(Real x, Real y) {
    if (x == y) return 1;
    const Real rounded = x - y, back = rounded - x, dropped = (x - (rounded - back)) - (y + back);
    return rounded < -12000 ? 0 : expl(rounded) * (1 + dropped);
}

// softplus(x) · e^-floor, with floor = 0 where x > 0
static Real softplus(Real x, Real floor) {
    if (x > 0) return x + log1pl(expl(-x));
    const Real e = expl(x);
    return exp_of_difference(x, floor) * (e < 0x1p-40L ? 1 - e / 2 : log1pl(e) / e);
}

static Real or_of(const double* x, int k, Real* partial) {
    int top = 0;
    for (int j = 1; j < k; ++j) top = x[j] > x[top] ? j : top;
    const Real high = x[top], floor = high < 0 ? high : 0, unscale = expl(floor);
    Real others = 0;
    for (int j = 0; j < k; ++j) others += j == top ? 0 : softplus(x[j], floor);
    const Real sum = others * unscale, total = others + softplus(high, floor), all = total * unscale;
    const Real any = floor == 0 ? -expm1l(-all) : total * (all == 0 ? 1 : -expm1l(-all) / all);
    for (int j = 0; j < k; ++j)
        partial[j] = (x[j] > 0 ? 1 / (1 + expl(-(Real)x[j])) : exp_of_difference(x[j], floor) / (1 + expl(x[j]))) / any;
    if (high > 0) return high + (sum + log1pl(expl(-high) * -expm1l(-sum)));
    return high + log1pl((1 + expl(high)) * others * (sum == 0 ? 1 : expm1l(sum) / sum));
}

static Real xnor_of(const double* x, int k, Real* partial) {
    Real least = fabsl(x[0]), product = 1, apart = 0;
    bool minus = false;
    for (int j = 0; j < k; ++j) least = fminl(least, fabsl(x[j])), minus ^= x[j] < 0;
    for (int j = 0; j < k; ++j) {
        const Real size = fabsl(x[j]), whole = 1 + expl(-size), t = -expm1l(-size) / whole;
        partial[j] = product;  // of those before
        apart = apart * t + 2 * exp_of_difference(-size, -least) / whole;
        product *= t;
    }
    Real after = 1;
    for (int j = k - 1; j >= 0; --j) {
        const Real size = fabsl(x[j]), whole = 1 + expl(-size), t = -expm1l(-size) / whole;
        const Real along = partial[j] * after * (2 * exp_of_difference(-size, -least) / whole) * (1 + t) / (apart * (1 + product));
        partial[j] = minus ^ (x[j] < 0) ? -along : along;
        after *= t;
    }
    const Real size = least < 30 ? log1pl(2 * product / (apart * expl(-least))) : least + log1pl(product) - logl(apart);
    return minus ? -size : size;
}

// base: 0 OR, 1 XNOR. For each of n groups: the value, c = max(|f|, Σ|x ∂f/∂x|), and the partial derivatives.
extern "C" void solve(int base, std::int64_t n, int k, const double* x, Real* value, Real* c, Real* partial) {
    for (std::int64_t i = 0; i < n; ++i) {
        Real* mine = partial + i * k;
        value[i] = (base ? xnor_of : or_of)(x + i * k, k, mine);
        Real sum = 0;
        for (int j = 0; j < k; ++j) sum += fabsl(x[i * k + j] * mine[j]);
        c[i] = fmaxl(fabsl(value[i]), sum);
    }
}

struct Worst {
    double value, gradient;         // the largest errors, in units of u·c and u
    std::int64_t value_at, gradient_at;
    std::int64_t not_finite;
};

// Results of (base - mean) / sd. Errors of derivatives are counted in units of u · reach. An error counts as far as it exceeds `subnormal`, of the base and of the result. `narrow` is the
// unit round-off of a stored type narrower than u's, whose one rounding is taken off too. `largest`: the type's largest number.
extern "C" void compare(std::int64_t n, int k, const Real* value, const Real* c, const Real* partial, const double* got,
                        const double* gradient, const double* reach, double mean, double sd, double u, double narrow, double subnormal, double largest, Worst* worst) {
    *worst = {0, 0, 0, 0, 0};
    for (std::int64_t i = 0; i < n; ++i) {
        const Real exact = fminl(largest, fmaxl(-largest, (value[i] - mean) / sd));
        const Real unit = u * (mean == 0 && sd == 1 ? c[i] : (c[i] + fabsl(value[i]) + fabsl((Real)mean)) / sd);
        const Real error = fabsl(got[i] - exact) - (sd == 1 ? subnormal : subnormal + subnormal / sd) - narrow * fabsl(exact);
        const double ratio = error <= 0 ? 0 : double(error / unit);
        if (!std::isfinite(got[i])) ++worst->not_finite;
        else if (ratio > worst->value) worst->value = ratio, worst->value_at = i;
        for (int j = 0; j < k; ++j) {
            const Real slope = partial[i * k + j] / sd, limit = fmaxl(fabsl(slope), 1e-30L / sd);
            const Real off = fabsl(gradient[i * k + j] - slope) - narrow * fabsl(slope) - (narrow ? subnormal : 0);
            const double units = off <= 0 ? 0 : double(off / (u * limit * reach[i]));
            if (!std::isfinite(gradient[i * k + j])) ++worst->not_finite;
            else if (units > worst->gradient) worst->gradient = units, worst->gradient_at = i;
        }
    }
}
