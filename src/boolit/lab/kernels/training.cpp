// Kernels for stacked training, in float32: optimizer steps, batch normalization and image look-up.
//
// Plain C++17 behind a C interface; no torch header is needed. On x86-64 with GCC and glibc each loop is compiled for three
// instruction sets, and the dynamic linker chooses one. A row (one run, or one feature of one run) is always computed in the
// same order, so its numbers depend neither on other rows nor on the number of threads.

#include <cmath>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(_WIN32)
#define BOOLIT_API extern "C" __declspec(dllexport)
#else
#define BOOLIT_API extern "C" __attribute__((visibility("default")))
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

namespace {

constexpr std::int64_t CHUNK = 1024;                // elements summed in float32 before they are added in float64
constexpr std::int64_t ELEMENTS_PER_THREAD = 32768;  // with fewer, waking a thread costs more than it saves

template <class Work>
void parallel(std::int64_t units, std::int64_t elements, const Work& work) {
#ifdef _OPENMP
    const std::int64_t useful = elements / ELEMENTS_PER_THREAD;
    const int available = omp_in_parallel() ? 1 : omp_get_max_threads();
    const int threads = int(useful < available ? useful : available);
    if (threads > 1) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (std::int64_t unit = 0; unit < units; ++unit) work(unit);
        return;
    }
#endif
    for (std::int64_t unit = 0; unit < units; ++unit) work(unit);
}

}  // namespace

// ------------------------------------------------------------------------------------------------------ optimizer steps

enum Rule : std::int32_t { SGD, ADAM, ADAMW };

// One step on the rows of a (runs, columns) matrix. Columns come in `parts` of `sizes`, one per parameter of the network, with
// gradients (runs, size), a factor on the learning rate and one on the weight decay. `numbers` is (runs, 8): see Numbers.
struct BoolitStep {
    std::int32_t rule, parts;
    std::int64_t runs, columns;
    float *values, *first, *second;
    const std::int64_t* sizes;
    const float *rate_factors, *decay_factors, *numbers;
    const float* const* gradients;
};

namespace {

// SGD: first is the momentum. Adam: first is 1 - beta1 and second 1 - beta2; root is 1 / sqrt(1 - beta2^step).
// minus is the negative learning rate, for Adam divided by 1 - beta1^step; shrinkage is AdamW's rate * decay.
struct Numbers {
    float decay, first, second, beta2, eps, minus, root, shrinkage;
};

CLONES void sgd(std::int64_t n, float* value, float* velocity, const float* gradient, Numbers by) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        velocity[i] = velocity[i] * by.first + (gradient[i] + value[i] * by.decay);
        value[i] += velocity[i] * by.minus;
    }
}

CLONES void adam(std::int64_t n, float* value, float* mean, float* square, const float* gradient, Numbers by) {
    const float keep = 1 - by.first;
    const bool near = by.first < 0.5f;  // torch.lerp measures from the nearer end
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
        const float old = value[i] * (1 - by.shrinkage), slope = gradient[i] + old * by.decay, way = slope - mean[i];
        mean[i] = near ? mean[i] + by.first * way : slope - way * keep;
        square[i] = square[i] * by.beta2 + (slope * by.second) * slope;
        value[i] = old + mean[i] / (std::sqrt(square[i]) * by.root + by.eps) * by.minus;
    }
}

}  // namespace

BOOLIT_API void boolit_step(const BoolitStep* step) {
    parallel(step->runs, step->runs * step->columns, [&](std::int64_t run) {
        const Numbers of_run = reinterpret_cast<const Numbers*>(step->numbers)[run];
        std::int64_t at = run * step->columns;
        for (int part = 0; part < step->parts; at += step->sizes[part++]) {
            Numbers by = of_run;
            by.minus *= step->rate_factors[part];
            by.decay = step->rule == ADAMW ? 0 : by.decay * step->decay_factors[part];
            by.shrinkage = step->rule == ADAMW ? by.shrinkage * step->rate_factors[part] * step->decay_factors[part] : 0;
            const std::int64_t n = step->sizes[part];
            const float* const gradient = step->gradients[part] + run * n;
            if (step->rule == SGD) sgd(n, step->values + at, step->first + at, gradient, by);
            else adam(n, step->values + at, step->first + at, step->second + at, gradient, by);
        }
    });
}

// -------------------------------------------------------------------------------------------------- batch normalization

// Rows of `samples` elements, `features` rows per run. weight and bias may be views with a stride between runs; everything else
// is contiguous. scale is 1 / sqrt(variance + eps). Forward writes out, mean, scale and the running statistics; backward reads
// the gradient `above` and writes out and the gradients of weight and bias.
struct BoolitNorm {
    std::int64_t rows, samples, features, weight_stride, bias_stride;
    double eps, momentum;
    const float *x, *above, *weight, *bias;
    float *out, *mean, *scale, *running_mean, *running_var, *weight_gradient, *bias_gradient;
};

namespace {

CLONES double sum(std::int64_t n, const float* x) {
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += CHUNK) {
        const std::int64_t end = n - begin < CHUNK ? n : begin + CHUNK;
        float partial = 0;
#pragma omp simd reduction(+ : partial)
        for (std::int64_t i = begin; i < end; ++i) partial += x[i];
        total += double(partial);
    }
    return total;
}

// Sum of above * (x - mean); with above = nullptr, of (x - mean) squared.
CLONES double centered_sum(std::int64_t n, const float* x, const float* above, float mean) {
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += CHUNK) {
        const std::int64_t end = n - begin < CHUNK ? n : begin + CHUNK;
        float partial = 0;
        if (above == nullptr) {
#pragma omp simd reduction(+ : partial)
            for (std::int64_t i = begin; i < end; ++i) partial += (x[i] - mean) * (x[i] - mean);
        } else {
#pragma omp simd reduction(+ : partial)
            for (std::int64_t i = begin; i < end; ++i) partial += (x[i] - mean) * above[i];
        }
        total += double(partial);
    }
    return total;
}

CLONES void scale_row(std::int64_t n, const float* x, float* out, float mean, float slope, float bias) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * slope + bias;
}

CLONES void scale_row_backward(std::int64_t n, const float* x, const float* above, float* out, float mean, float slope,
                               float above_mean, float share) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) out[i] = (above[i] - above_mean - (x[i] - mean) * share) * slope;
}

float parameter(const BoolitNorm& norm, const float* values, std::int64_t stride, std::int64_t row) {
    return values[row / norm.features * stride + row % norm.features];
}

}  // namespace

BOOLIT_API void boolit_normalize(const BoolitNorm* norm) {
    const std::int64_t n = norm->samples;
    parallel(norm->rows, norm->rows * n, [&](std::int64_t row) {
        const float* const x = norm->x + row * n;
        const double mean = sum(n, x) / double(n), squares = centered_sum(n, x, nullptr, float(mean));
        const double scale = 1 / std::sqrt(squares / double(n) + norm->eps), keep = 1 - norm->momentum;
        norm->mean[row] = float(mean), norm->scale[row] = float(scale);
        norm->running_mean[row] = float(norm->momentum * mean + keep * double(norm->running_mean[row]));
        norm->running_var[row] = float(norm->momentum * (squares / double(n - 1)) + keep * double(norm->running_var[row]));
        const float slope = norm->scale[row] * parameter(*norm, norm->weight, norm->weight_stride, row);
        scale_row(n, x, norm->out + row * n, float(mean), slope, parameter(*norm, norm->bias, norm->bias_stride, row));
    });
}

BOOLIT_API void boolit_normalize_backward(const BoolitNorm* norm) {
    const std::int64_t n = norm->samples;
    parallel(norm->rows, norm->rows * n, [&](std::int64_t row) {
        const float *const x = norm->x + row * n, *const above = norm->above + row * n;
        const double total = sum(n, above), product = centered_sum(n, x, above, norm->mean[row]);
        const double scale = double(norm->scale[row]);
        norm->weight_gradient[row] = float(product * scale);
        norm->bias_gradient[row] = float(total);
        const float slope = norm->scale[row] * parameter(*norm, norm->weight, norm->weight_stride, row);
        scale_row_backward(n, x, above, norm->out + row * n, norm->mean[row], slope, float(total / double(n)),
                           float(product * scale * scale / double(n)));
    });
}

// ---------------------------------------------------------------------------------------------------------- image look-up

// Images (count, height, width) of items of `size` bytes. The pixel (x, y) of out is the one at floor(origin · (x, y, 1)), or 0
// outside the image. An origin has a row for x and one for y, of three numbers in units of 2^-32.
struct BoolitWarp {
    std::int32_t size;
    std::int64_t count, height, width;
    const void* images;
    const std::int64_t* origins;
    void* out;
};

namespace {

template <class Item>
void look_up(const BoolitWarp& warp, std::int64_t number) {
    const std::int64_t height = warp.height, width = warp.width;
    const Item* const image = static_cast<const Item*>(warp.images) + number * height * width;
    const std::int64_t *const across = warp.origins + number * 6, *const down = across + 3;
    Item* out = static_cast<Item*>(warp.out) + number * height * width;
    for (std::int64_t row = 0; row < height; ++row) {
        std::int64_t x = across[1] * row + across[2], y = down[1] * row + down[2];
        for (std::int64_t column = 0; column < width; ++column, x += across[0], y += down[0]) {
            // A negative place is a large unsigned one, so one comparison per axis suffices.
            const auto left = std::uint64_t(x >> 32), top = std::uint64_t(y >> 32);
            const bool inside = left < std::uint64_t(width) && top < std::uint64_t(height);
            *out++ = inside ? image[top * std::uint64_t(width) + left] : Item(0);
        }
    }
}

}  // namespace

BOOLIT_API void boolit_look_up(const BoolitWarp* warp) {
    const auto loop = warp->size == 1   ? look_up<std::uint8_t>
                      : warp->size == 4 ? look_up<std::uint32_t>
                                        : look_up<std::uint64_t>;
    parallel(warp->count, warp->count * warp->height * warp->width, [&](std::int64_t number) { loop(*warp, number); });
}

// Version of this interface; the loader refuses another.
BOOLIT_API int boolit_training_abi() { return 4; }
