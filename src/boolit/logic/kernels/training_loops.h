// The loops of training.cpp: optimiser steps and batch normalisation of many runs, a part of the work at a time.
//
// Included once for each instruction set, inside a namespace of its own, so it has no include guard on purpose. Every element
// takes the same vector operations wherever it lies: a tail is padded to a whole vector, and blocks begin where rows do. So a
// row's numbers depend neither on the rows beside it nor on how the work is shared out.

template <class T>
struct Lanes {
    static constexpr int W = BOOLIT_BYTES / int(sizeof(T));
    typedef T Real __attribute__((vector_size(BOOLIT_BYTES)));
};
template <class T>
using Real = typename Lanes<T>::Real;

template <class T>
ALWAYS_INLINE Real<T> all(T value) {
    return value - Real<T>{};
}

template <class T>
ALWAYS_INLINE Real<T> load(const T* from, int n) {
    Real<T> x = {};
    if (n >= Lanes<T>::W)
        std::memcpy(&x, from, sizeof x);
    else
        for (int lane = 0; lane < n; ++lane) x[lane] = from[lane];
    return x;
}

template <class T>
ALWAYS_INLINE void store(T* to, Real<T> x, int n) {
    if (n >= Lanes<T>::W)
        std::memcpy(to, &x, sizeof x);
    else
        for (int lane = 0; lane < n; ++lane) to[lane] = x[lane];
}

template <class T>
ALWAYS_INLINE Real<T> root(Real<T> x) {
#if BOOLIT_BYTES == 64
    if constexpr (sizeof(T) == 4) return (Real<T>)_mm512_sqrt_ps((__m512)x);
    else return (Real<T>)_mm512_sqrt_pd((__m512d)x);
#elif BOOLIT_BYTES == 32
    if constexpr (sizeof(T) == 4) return (Real<T>)_mm256_sqrt_ps((__m256)x);
    else return (Real<T>)_mm256_sqrt_pd((__m256d)x);
#else
    for (int lane = 0; lane < Lanes<T>::W; ++lane) x[lane] = std::sqrt(x[lane]);
    return x;
#endif
}

// A sum over the elements of a row: in lanes over a chunk, in double over chunks, so that a long row loses nothing.
template <class T, class Term>
ALWAYS_INLINE void sums(std::int64_t n, double* totals, const Term& term) {
    constexpr int W = Lanes<T>::W;
    for (std::int64_t begin = 0; begin < n; begin += CHUNK) {
        const std::int64_t end = n - begin < CHUNK ? n : begin + CHUNK;
        Real<T> partial[2][2] = {};
        std::int64_t at = begin;
        for (; at + 2 * W <= end; at += 2 * W)
            for (int half = 0; half < 2; ++half) term(at + half * W, W, partial[half]);
        for (int half = 0; at < end; at += W, ++half) term(at, int(end - at < W ? end - at : W), partial[half]);
        for (int which = 0; which < 2; ++which) {
            const Real<T> both = partial[0][which] + partial[1][which];
            double total = 0;
            for (int lane = 0; lane < W; ++lane) total += double(both[lane]);
            totals[which] += total;
        }
    }
}

// ------------------------------------------------------------------------------------------------------ optimiser steps

// One step of the elements [begin, end) of a row; `gradient` is the row's own for them.
template <class T, Rule rule, bool decays>
void update_row(const Row<T>& row, const T* gradient, std::int64_t begin, std::int64_t end) {
    constexpr int W = Lanes<T>::W;
    const Real<T> decay = all(row.numbers[DECAY]), first = all(row.numbers[FIRST]), second = all(row.numbers[SECOND]);
    const Real<T> beta2 = all(row.numbers[BETA2]), eps = all(row.numbers[EPS]);
    const Real<T> minus = all(row.now[MINUS]), correction = all(row.now[ROOT]), shrinkage = all(row.now[SHRINKAGE]);
    const Real<T> rest = all(T(1)) - first;
    const bool near = row.numbers[FIRST] < T(0.5);  // which end of the line a step is measured from, as torch.lerp
    for (std::int64_t at = begin; at < end; at += W) {
        const int n = end - at < W ? int(end - at) : W;
        Real<T> value = load(row.values + at, n), slope = load(gradient + (at - begin), n), moment = load(row.first + at, n);
        const Real<T> factor = row.factors ? load(row.factors + at, n) : all(T(1));
        if (decays && rule == ADAMW) value = value * (all(T(1)) - shrinkage * factor);
        if (decays && rule != ADAMW) slope = slope + value * decay;
        Real<T> change;
        if (rule == SGD) {
            moment = moment * first + slope;
            change = moment;
        } else {
            const Real<T> way = slope - moment;
            moment = near ? moment + first * way : slope - way * rest;
            const Real<T> square = load(row.second + at, n) * beta2 + (slope * second) * slope;
            store(row.second + at, square, n);
            change = moment / (root<T>(square) * correction + eps);
        }
        store(row.first + at, moment, n);
        store(row.values + at, value + (row.factors ? change * factor : change) * minus, n);
    }
}

template <class T>
void update(const BoolitUpdate& step, std::int64_t begin, std::int64_t end) {
    static constexpr void (*rules[3][2])(const Row<T>&, const T*, std::int64_t, std::int64_t) = {
        {update_row<T, SGD, false>, update_row<T, SGD, true>},
        {update_row<T, ADAM, false>, update_row<T, ADAM, true>},
        {update_row<T, ADAMW, false>, update_row<T, ADAMW, true>}};
    const auto rule = rules[step.rule][step.decays != 0];
    const std::int64_t blocks = step.blocks_of_run();
    for (std::int64_t run = begin / blocks; run * blocks < end; ++run) {
        const Row<T> row(step, run);
        std::int64_t block = run * blocks, column = 0;
        for (int part = 0; part < step.parts; column += step.sizes[part++]) {
            const std::int64_t size = step.sizes[part];
            const T* gradient = static_cast<const T*>(step.gradients[part]) + run * size;
            for (std::int64_t start = 0; start < size; start += BLOCK, ++block) {
                const std::int64_t stop = size - start < BLOCK ? size : start + BLOCK;
                if (begin <= block && block < end) rule(row, gradient + start, column + start, column + stop);
            }
        }
    }
}

// --------------------------------------------------------------------------------------------------- batch normalisation

template <class T>
void normalise(const BoolitNorm& norm, std::int64_t begin, std::int64_t end) {
    constexpr int W = Lanes<T>::W;
    const std::int64_t n = norm.samples;
    const double keep = 1 - norm.momentum;
    T *const means = static_cast<T*>(norm.mean), *const scales = static_cast<T*>(norm.scale);
    T *const running_mean = static_cast<T*>(norm.running_mean), *const running_var = static_cast<T*>(norm.running_var);
    for (std::int64_t row = begin; row < end; ++row) {
        const T* const x = static_cast<const T*>(norm.x) + row * n;
        T* const out = static_cast<T*>(norm.out) + row * n;
        double total[2] = {0, 0}, squares[2] = {0, 0};
        sums<T>(n, total, [&](std::int64_t at, int lanes, Real<T>* partial) { partial[0] += load(x + at, lanes); });
        const double mean = total[0] / double(n);
        const Real<T> centre = all(T(mean));
        sums<T>(n, squares, [&](std::int64_t at, int lanes, Real<T>* partial) {
            Real<T> apart = load(x + at, lanes) - centre;
            for (int lane = lanes; lane < W; ++lane) apart[lane] = 0;
            partial[0] += apart * apart;
        });
        const double variance = squares[0] / double(n);
        const T scale = T(1 / std::sqrt(variance + norm.eps));
        means[row] = T(mean), scales[row] = scale;
        running_mean[row] = T(norm.momentum * mean + keep * double(running_mean[row]));
        running_var[row] = T(norm.momentum * (squares[0] / double(n - 1)) + keep * double(running_var[row]));
        const Real<T> slope = all(T(scale * static_cast<const T*>(norm.weight)[row])), bias = all(static_cast<const T*>(norm.bias)[row]);
        for (std::int64_t at = 0; at < n; at += W) {
            const int lanes = n - at < W ? int(n - at) : W;
            store(out + at, (load(x + at, lanes) - centre) * slope + bias, lanes);
        }
    }
}

template <class T>
void normalise_backward(const BoolitNorm& norm, std::int64_t begin, std::int64_t end) {
    constexpr int W = Lanes<T>::W;
    const std::int64_t n = norm.samples;
    for (std::int64_t row = begin; row < end; ++row) {
        const T* const x = static_cast<const T*>(norm.x) + row * n;
        const T* const above = static_cast<const T*>(norm.above) + row * n;
        T* const out = static_cast<T*>(norm.out) + row * n;
        const T scale = static_cast<const T*>(norm.scale)[row], weight = static_cast<const T*>(norm.weight)[row];
        const Real<T> centre = all(static_cast<const T*>(norm.mean)[row]);
        double total[2] = {0, 0};  // of the gradient above, and of its products with the centred inputs
        sums<T>(n, total, [&](std::int64_t at, int lanes, Real<T>* partial) {
            const Real<T> slope = load(above + at, lanes);  // 0 in the lanes of a padded tail
            partial[0] += slope;
            partial[1] += slope * (load(x + at, lanes) - centre);
        });
        static_cast<T*>(norm.weight_gradient)[row] = T(total[1] * double(scale));
        static_cast<T*>(norm.bias_gradient)[row] = T(total[0]);
        const Real<T> mean = all(T(total[0] / double(n))), factor = all(T(scale * weight));
        const Real<T> share = all(T(total[1] * double(scale) * double(scale) / double(n)));
        for (std::int64_t at = 0; at < n; at += W) {
            const int lanes = n - at < W ? int(n - at) : W;
            const Real<T> apart = load(x + at, lanes) - centre;
            store(out + at, (load(above + at, lanes) - mean - apart * share) * factor, lanes);
        }
    }
}
