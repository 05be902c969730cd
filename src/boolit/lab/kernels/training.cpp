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

enum Rule : std::int64_t { SGD, ADAM, ADAMW };

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

// One step on the rows of a (runs, columns) matrix. Columns come in `parts` of `sizes`, one per parameter of the network, with
// gradients (runs, size), a factor on the learning rate and one on the weight decay.
BOOLIT_API void boolit_step(std::int64_t rule, std::int64_t parts, std::int64_t runs, std::int64_t columns, float* values,
                            float* first, float* second, const std::int64_t* sizes, const float* rate_factors,
                            const float* decay_factors, const Numbers* numbers, const float* const* gradients) {
    parallel(runs, runs * columns, [&](std::int64_t run) {
        std::int64_t at = run * columns;
        for (std::int64_t part = 0; part < parts; at += sizes[part++]) {
            Numbers by = numbers[run];
            by.minus *= rate_factors[part];
            by.decay = rule == ADAMW ? 0 : by.decay * decay_factors[part];
            by.shrinkage = rule == ADAMW ? by.shrinkage * rate_factors[part] * decay_factors[part] : 0;
            const std::int64_t n = sizes[part];
            const float* const gradient = gradients[part] + run * n;
            if (rule == SGD) sgd(n, values + at, first + at, gradient, by);
            else adam(n, values + at, first + at, second + at, gradient, by);
        }
    });
}

// -------------------------------------------------------------------------------------------------- batch normalization

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

float parameter(const float* values, std::int64_t features, std::int64_t stride, std::int64_t row) {
    return values[row / features * stride + row % features];
}

}  // namespace

// Rows of n samples, `features` rows per run. weight and bias may be views with a stride between runs; everything else is
// contiguous. Writes out, mean, scale = 1 / sqrt(variance + eps) and the running statistics.
BOOLIT_API void boolit_normalize(std::int64_t rows, std::int64_t n, std::int64_t features, std::int64_t weight_stride,
                                 std::int64_t bias_stride, double eps, double momentum, const float* x, const float* weight,
                                 const float* bias, float* out, float* mean, float* scale, float* running_mean,
                                 float* running_var) {
    parallel(rows, rows * n, [&](std::int64_t row) {
        const float* const of_row = x + row * n;
        const double center = sum(n, of_row) / double(n), squares = centered_sum(n, of_row, nullptr, float(center));
        const double keep = 1 - momentum;
        mean[row] = float(center), scale[row] = float(1 / std::sqrt(squares / double(n) + eps));
        running_mean[row] = float(momentum * center + keep * double(running_mean[row]));
        running_var[row] = float(momentum * (squares / double(n - 1)) + keep * double(running_var[row]));
        const float slope = scale[row] * parameter(weight, features, weight_stride, row);
        scale_row(n, of_row, out + row * n, float(center), slope, parameter(bias, features, bias_stride, row));
    });
}

// Reads the gradient `above`, and writes out and the gradients of weight and bias.
BOOLIT_API void boolit_normalize_backward(std::int64_t rows, std::int64_t n, std::int64_t features, std::int64_t weight_stride,
                                          const float* x, const float* above, const float* weight, const float* mean,
                                          const float* scale, float* out, float* weight_gradient, float* bias_gradient) {
    parallel(rows, rows * n, [&](std::int64_t row) {
        const float *const of_row = x + row * n, *const above_row = above + row * n;
        const double total = sum(n, above_row), product = centered_sum(n, of_row, above_row, mean[row]);
        const double factor = double(scale[row]);
        weight_gradient[row] = float(product * factor);
        bias_gradient[row] = float(total);
        const float slope = scale[row] * parameter(weight, features, weight_stride, row);
        scale_row_backward(n, of_row, above_row, out + row * n, mean[row], slope, float(total / double(n)),
                           float(product * factor * factor / double(n)));
    });
}

// ---------------------------------------------------------------------------------------------------------- image look-up

namespace {

template <class Item>
void look_up(std::int64_t height, std::int64_t width, const void* from, const std::int64_t* across, void* to) {
    const auto* const image = static_cast<const Item*>(from);
    const std::int64_t* const down = across + 3;
    auto* out = static_cast<Item*>(to);
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

// Images (count, height, width) of items of `size` bytes. The pixel (x, y) of out is the one at floor(origin · (x, y, 1)), or 0
// outside the image. An origin has a row for x and one for y, of three numbers in units of 2^-32.
BOOLIT_API void boolit_look_up(std::int64_t size, std::int64_t count, std::int64_t height, std::int64_t width,
                               const char* images, const std::int64_t* origins, char* out) {
    const auto loop = size == 1 ? look_up<std::uint8_t> : size == 4 ? look_up<std::uint32_t> : look_up<std::uint64_t>;
    const std::int64_t bytes = size * height * width;
    parallel(count, count * height * width, [&](std::int64_t number) {
        loop(height, width, images + number * bytes, origins + number * 6, out + number * bytes);
    });
}

// Version of this interface; the loader refuses another.
BOOLIT_API int boolit_training_abi() { return 5; }
