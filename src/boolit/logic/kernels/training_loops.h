// The loops of training.cpp: what is done to many runs in a step of their training, a part of the work at a time.
//
// Included once for each instruction set, inside a namespace of its own, so it has no include guard on purpose. Every element
// takes the same vector operations wherever it lies: a tail is padded to a whole vector, and blocks begin where rows do. So a
// row's numbers depend neither on the rows beside it nor on how the work is shared out.

template <class T>
struct Lanes {
    static constexpr int W = BOOLIT_BYTES / int(sizeof(T));
    using One = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
    typedef T Real __attribute__((vector_size(BOOLIT_BYTES)));
    typedef One Int __attribute__((vector_size(BOOLIT_BYTES)));
};
template <class T>
using Real = typename Lanes<T>::Real;
template <class T>
using Int = typename Lanes<T>::Int;

template <class T>
ALWAYS_INLINE Real<T> all(T value) {
    return value - Real<T>{};
}

#if BOOLIT_BYTES == 32
template <class T>
ALWAYS_INLINE Int<T> tail_mask(int n) {
    if constexpr (sizeof(T) == 4) return Int<T>{0, 1, 2, 3, 4, 5, 6, 7} < std::int32_t(n);
    else return Int<T>{0, 1, 2, 3} < std::int64_t(n);
}
#endif

// The first n elements, and `padding` in the lanes of a tail.
template <class T>
ALWAYS_INLINE Real<T> load(const T* from, int n, Real<T> padding) {
    if (n >= Lanes<T>::W) {
        Real<T> x;
        std::memcpy(&x, from, sizeof x);
        return x;
    }
#if BOOLIT_BYTES == 64
    if constexpr (sizeof(T) == 4) return (Real<T>)_mm512_mask_loadu_ps((__m512)padding, __mmask16((1u << n) - 1), from);
    else return (Real<T>)_mm512_mask_loadu_pd((__m512d)padding, __mmask8((1u << n) - 1), from);
#elif BOOLIT_BYTES == 32
    const auto mask = tail_mask<T>(n);
    if constexpr (sizeof(T) == 4) return mask ? (Real<T>)_mm256_maskload_ps(from, (__m256i)mask) : padding;
    else return mask ? (Real<T>)_mm256_maskload_pd(from, (__m256i)mask) : padding;
#else
    for (int lane = 0; lane < n; ++lane) padding[lane] = from[lane];
    return padding;
#endif
}

template <class T>
ALWAYS_INLINE Real<T> load(const T* from, int n) {
    const Real<T> nothing = {};
    return load(from, n, nothing);
}

template <class T>
ALWAYS_INLINE void store(T* to, Real<T> x, int n) {
    if (n >= Lanes<T>::W) {
        std::memcpy(to, &x, sizeof x);
        return;
    }
#if BOOLIT_BYTES == 64
    if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(to, __mmask16((1u << n) - 1), (__m512)x);
    else _mm512_mask_storeu_pd(to, __mmask8((1u << n) - 1), (__m512d)x);
#elif BOOLIT_BYTES == 32
    if constexpr (sizeof(T) == 4) _mm256_maskstore_ps(to, (__m256i)tail_mask<T>(n), (__m256)x);
    else _mm256_maskstore_pd(to, (__m256i)tail_mask<T>(n), (__m256d)x);
#else
    for (int lane = 0; lane < n; ++lane) to[lane] = x[lane];
#endif
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

// By halves: lane by lane it would be a chain of as many additions.
template <class T>
ALWAYS_INLINE double sum_of_lanes(Real<T> x) {
#if BOOLIT_BYTES == 64
    if constexpr (sizeof(T) == 4) return double(_mm512_reduce_add_ps((__m512)x));
    else return _mm512_reduce_add_pd((__m512d)x);
#else
    T lanes[Lanes<T>::W];
    std::memcpy(lanes, &x, sizeof x);
    for (int half = Lanes<T>::W / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return double(lanes[0]);
#endif
}

// `count` sums over the elements of a row: in lanes over a chunk, in double over chunks, so that a long row loses nothing.
template <class T, int count, class Term>
ALWAYS_INLINE void sums(std::int64_t n, double* totals, const Term& term) {
    constexpr int W = Lanes<T>::W;
    for (int which = 0; which < count; ++which) totals[which] = 0;
    for (std::int64_t begin = 0; begin < n; begin += CHUNK) {
        const std::int64_t end = n - begin < CHUNK ? n : begin + CHUNK;
        Real<T> even[count] = {}, odd[count] = {};
        std::int64_t at = begin;
        for (; at + 2 * W <= end; at += 2 * W) {
            term(at, W, even);
            term(at + W, W, odd);
        }
        if (at < end) term(at, int(end - at < W ? end - at : W), even);
        if (at + W < end) term(at + W, int(end - at - W), odd);
        for (int which = 0; which < count; ++which) totals[which] += sum_of_lanes<T>(even[which] + odd[which]);
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
ALWAYS_INLINE Real<T> scaled(Real<T> x, Real<T> centre, Real<T> slope, Real<T> bias) {
    return (x - centre) * slope + bias;
}

// Where `by` is at most 0, 0; NaN passes, as in torch.
template <class T>
ALWAYS_INLINE Real<T> masked(Real<T> x, Real<T> by) {
    const Real<T> zero = {};
    return by <= zero ? zero : x;
}

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
        const auto own = [&](const void* values, std::int64_t stride) {
            return static_cast<const T*>(values)[row / norm.features * stride + row % norm.features];
        };
        double total, squares;
        sums<T, 1>(n, &total, [&](std::int64_t at, int lanes, Real<T>* partial) { partial[0] += load(x + at, lanes); });
        const double mean = total / double(n);
        const Real<T> centre = all(T(mean));
        sums<T, 1>(n, &squares, [&](std::int64_t at, int lanes, Real<T>* partial) {
            const Real<T> apart = load(x + at, lanes, centre) - centre;
            partial[0] += apart * apart;
        });
        const double variance = squares / double(n);
        const T scale = T(1 / std::sqrt(variance + norm.eps));
        means[row] = T(mean), scales[row] = scale;
        running_mean[row] = T(norm.momentum * mean + keep * double(running_mean[row]));
        running_var[row] = T(norm.momentum * (squares / double(n - 1)) + keep * double(running_var[row]));
        const Real<T> slope = all(T(scale * own(norm.weight, norm.weight_stride))), bias = all(own(norm.bias, norm.bias_stride));
        for (std::int64_t at = 0; at < n; at += W) {
            const int lanes = n - at < W ? int(n - at) : W;
            const Real<T> result = scaled<T>(load(x + at, lanes), centre, slope, bias);
            store(out + at, norm.relu ? masked<T>(result, result) : result, lanes);
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
        const T scale = static_cast<const T*>(norm.scale)[row];
        const auto own = [&](const void* values, std::int64_t stride) {
            return static_cast<const T*>(values)[row / norm.features * stride + row % norm.features];
        };
        const T weight = own(norm.weight, norm.weight_stride);
        const Real<T> centre = all(static_cast<const T*>(norm.mean)[row]);
        // Through ReLU goes what the forward pass left above 0; it is found again, as cheaply as it would be read.
        const Real<T> bias = all(own(norm.bias, norm.bias_stride)), factor = all(T(scale * weight));
        const auto through = [&](Real<T> slope, Real<T> input) {
            return norm.relu ? masked<T>(slope, scaled<T>(input, centre, factor, bias)) : slope;
        };
        double total[2];  // of the gradient above, and of its products with the centred inputs
        sums<T, 2>(n, total, [&](std::int64_t at, int lanes, Real<T>* partial) {
            const Real<T> input = load(x + at, lanes), slope = through(load(above + at, lanes), input);
            partial[0] += slope;  // 0 in the lanes of a padded tail
            partial[1] += slope * (input - centre);
        });
        static_cast<T*>(norm.weight_gradient)[row] = T(total[1] * double(scale));
        static_cast<T*>(norm.bias_gradient)[row] = T(total[0]);
        const Real<T> mean = all(T(total[0] / double(n)));
        const Real<T> share = all(T(total[1] * double(scale) * double(scale) / double(n)));
        for (std::int64_t at = 0; at < n; at += W) {
            const int lanes = n - at < W ? int(n - at) : W;
            const Real<T> input = load(x + at, lanes), slope = through(load(above + at, lanes), input);
            store(out + at, (slope - mean - (input - centre) * share) * factor, lanes);
        }
    }
}

// ---------------------------------------------------------------------------------------------------- gathered batches

template <class T>
void gather_bytes(const BoolitGather& gather, std::int64_t begin, std::int64_t end) {
    const std::int64_t features = gather.features;
    const T* const table = static_cast<const T*>(gather.table);
    for (std::int64_t sample = begin; sample < end; ++sample) {
        const std::uint8_t* const from = static_cast<const std::uint8_t*>(gather.stored) + gather.rows[sample] * features;
        T* const to = static_cast<T*>(gather.out) + sample * features;
        std::int64_t at = 0;
#if BOOLIT_BYTES == 64
        if constexpr (sizeof(T) == 4)
            for (; at + 16 <= features; at += 16) {
                const __m512i places = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(from + at)));
                _mm512_storeu_ps(to + at, _mm512_i32gather_ps(places, table, 4));
            }
#elif BOOLIT_BYTES == 32
        if constexpr (sizeof(T) == 4)
            for (; at + 8 <= features; at += 8) {
                const __m256i places = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(from + at)));
                _mm256_storeu_ps(to + at, _mm256_i32gather_ps(table, places, 4));
            }
#endif
        for (; at < features; ++at) to[at] = table[from[at]];
    }
}

template <class T>
void gather_numbers(const BoolitGather& gather, std::int64_t begin, std::int64_t end) {
    const std::int64_t features = gather.features, samples = gather.samples, tiles = (samples + TILE - 1) / TILE;
    for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t run = tile / tiles, first = tile % tiles * TILE;
        const int n = int(samples - first < TILE ? samples - first : TILE);
        const T* from[TILE];
        for (int sample = 0; sample < n; ++sample)
            from[sample] = static_cast<const T*>(gather.stored) + gather.rows[run * samples + first + sample] * features;
        T* const to = static_cast<T*>(gather.out) + run * features * samples + first;
        if (n == TILE)
            for (std::int64_t feature = 0; feature < features; ++feature) {
                T column[TILE];
#pragma GCC unroll 16
                for (int sample = 0; sample < TILE; ++sample) column[sample] = from[sample][feature];
                std::memcpy(to + feature * samples, column, sizeof column);
            }
        else
            for (std::int64_t feature = 0; feature < features; ++feature)
                for (int sample = 0; sample < n; ++sample) to[feature * samples + sample] = from[sample][feature];
    }
}

// Along a row the place of a pixel moves by the same step, so two additions find it. A negative place is a large unsigned one.
template <class Item>
void look_up(const BoolitWarp& warp, std::int64_t begin, std::int64_t end) {
    const std::int64_t height = warp.height, width = warp.width;
    for (std::int64_t number = begin; number < end; ++number) {
        const Item* const image = static_cast<const Item*>(warp.images) + number * height * width;
        const std::int64_t* const across = warp.origins + number * 6, *const down = across + 3;
        Item* out = static_cast<Item*>(warp.out) + number * height * width;
        for (std::int64_t row = 0; row < height; ++row) {
            std::int64_t x = across[1] * row + across[2], y = down[1] * row + down[2];
            for (std::int64_t column = 0; column < width; ++column, x += across[0], y += down[0]) {
                const auto left = std::uint64_t(x >> 32), top = std::uint64_t(y >> 32);
                const bool inside = left < std::uint64_t(width) && top < std::uint64_t(height);
                *out++ = inside ? image[top * std::uint64_t(width) + left] : Item(0);
            }
        }
    }
}

// ----------------------------------------------------------------------------------------------------------------- hits

// Of one output: whether it and its target are on the same side of the line between no and yes.
template <class T>
void compare_signs(const BoolitHits& of, std::int64_t begin, std::int64_t end) {
    for (std::int64_t run = begin; run < end; ++run) {
        const T* const outputs = static_cast<const T*>(of.outputs) + run * of.samples;
        const T* const targets = static_cast<const T*>(of.targets) + run * of.stride;
        for (std::int64_t at = 0; at < of.samples; ++at)
            of.hits[run * of.samples + at] = (outputs[at] > T(0)) == (targets[at] > T(0.5));
    }
}

// As torch.max: the first of the largest, where NaN is larger than any number.
template <class T>
void find_hits(const BoolitHits& of, std::int64_t begin, std::int64_t end) {
    constexpr int W = Lanes<T>::W;
    for (std::int64_t run = begin; run < end; ++run) {
        const T* const outputs = static_cast<const T*>(of.outputs) + run * of.classes * of.samples;
        const std::int64_t* const targets = static_cast<const std::int64_t*>(of.targets) + run * of.stride;
        for (std::int64_t at = 0; at < of.samples; at += W) {
            const int n = of.samples - at < W ? int(of.samples - at) : W;
            Real<T> best = load(outputs + at, n);
            Int<T> place = {};
            for (std::int64_t number = 1; number < of.classes; ++number) {
                const Real<T> value = load(outputs + number * of.samples + at, n);
                const Int<T> better = (value > best) | ((value != value) & (best == best));
                best = better ? value : best;
                place = better ? place - place + typename Lanes<T>::One(number) : place;
            }
            for (int lane = 0; lane < n; ++lane)
                of.hits[run * of.samples + at + lane] = place[lane] == targets[at + lane];
        }
    }
}
