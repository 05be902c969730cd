// boolit's kernels for training many runs at once: an optimiser's step, batch normalisation, gathered and warped batches, hits.
//
// Plain C++17 behind a C interface, as gates.cpp: no torch header is needed to build it. The loops are compiled once for each
// instruction set and chosen when the library is loaded.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(_WIN32)
#define BOOLIT_API extern "C" __declspec(dllexport)
#else
#define BOOLIT_API extern "C" __attribute__((visibility("default")))
#endif

// ------------------------------------------------------------------------------------------- the interface with Python

enum Type : std::int32_t { FLOAT32, FLOAT64 };
enum Rule : std::int32_t { SGD, ADAM, ADAMW };
enum Number { DECAY, FIRST, SECOND, BETA2, EPS, NUMBERS };  // of each run: FIRST is SGD's momentum, or 1 − beta1; SECOND 1 − beta2
enum Now { MINUS, ROOT, SHRINKAGE, NOWS };                  // of each run in this step

constexpr std::int64_t BLOCK = 4096;  // elements of a row that are updated together
constexpr std::int64_t CHUNK = 1024;  // elements of a row that are summed in their own type
constexpr std::int64_t TILE = 16;     // samples that are laid out together

// Gradients come in parts, one per parameter, each (runs, its size); everything else is (runs, columns), or of each run.
struct BoolitUpdate {
    std::int32_t type, rule, decays, parts;
    std::int64_t runs, columns;
    void *values, *first, *second;
    const void *factors, *numbers, *now;  // factors may be null
    const void* const* gradients;
    const std::int64_t* sizes;

    std::int64_t blocks_of_run() const {
        std::int64_t blocks = 0;
        for (int part = 0; part < parts; ++part) blocks += (sizes[part] + BLOCK - 1) / BLOCK;
        return blocks;
    }
};

// Rows of `samples` elements, `features` of them in each run; weights and biases of two runs lie as far apart as is said, all
// else is contiguous. scale is 1 / sqrt(variance + eps). Forward writes out, mean, scale and the running statistics; backward
// takes the gradient above and writes out and the gradients of weight and bias.
struct BoolitNorm {
    std::int32_t type, relu;  // whether ReLU follows
    std::int64_t rows, samples, features, weight_stride, bias_stride;
    double eps, momentum;
    const void *x, *above, *weight, *bias;
    void *out, *mean, *scale, *running_mean, *running_var, *weight_gradient, *bias_gradient;
};

// Stored samples (count, features), of which each run takes some: bytes, each replaced by its entry in a table, to
// (runs, samples, features); or numbers, to (runs, features, samples).
struct BoolitGather {
    std::int32_t type, bytes;  // the type of what is written, and whether bytes are read
    std::int64_t runs, samples, features, count;
    const void *stored, *table;
    const std::int64_t* rows;
    void* out;
};

// Images (count, height, width) of items of `size` bytes. The pixel at (x, y) of out is the one at floor(origin · (x, y, 1)), 0 where
// that is outside; an origin has two rows, for x and y, of three numbers in units of 2^-32.
struct BoolitWarp {
    std::int32_t size;
    std::int64_t count, height, width;
    const void* images;
    const std::int64_t* origins;
    void* out;
};

// Outputs (runs, classes, samples), of which the largest should be the target's, an int64; or, where there is one output, its
// sign the target's, of the same type. Targets of two runs lie `stride` apart.
struct BoolitHits {
    std::int32_t type, signs;
    std::int64_t runs, classes, samples, stride;
    const void *outputs, *targets;
    std::uint8_t* hits;
};

namespace {

// One run of an update.
template <class T>
struct Row {
    T *values, *first, *second;
    const T *factors, *numbers, *now;
    Row(const BoolitUpdate& step, std::int64_t run)
        : values(static_cast<T*>(step.values) + run * step.columns),
          first(static_cast<T*>(step.first) + run * step.columns),
          second(static_cast<T*>(step.second) + run * step.columns),
          factors(static_cast<const T*>(step.factors)),
          numbers(static_cast<const T*>(step.numbers) + run * NUMBERS),
          now(static_cast<const T*>(step.now) + run * NOWS) {}
};

// ------------------------------------------------------------------------------------------ the loops, once for each set

#define ALWAYS_INLINE inline __attribute__((always_inline))

#define BOOLIT_BYTES 16
namespace baseline {
#include "training_loops.h"
}  // namespace baseline
#undef BOOLIT_BYTES

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define BOOLIT_X86_64_LEVELS 1

#define BOOLIT_BYTES 32
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
namespace x86_64_v3 {
#include "training_loops.h"
}  // namespace x86_64_v3
#pragma GCC pop_options
#undef BOOLIT_BYTES

#define BOOLIT_BYTES 64
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
namespace x86_64_v4 {
#include "training_loops.h"
}  // namespace x86_64_v4
#pragma GCC pop_options
#undef BOOLIT_BYTES
#endif

enum Level { BASELINE, V3, V4 };

// BOOLIT_INSTRUCTIONS=baseline or x86-64-v3 holds it back, for comparison.
Level choose_level() {
    Level best = BASELINE;
#ifdef BOOLIT_X86_64_LEVELS
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) best = V3;
    if (best == V3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        best = V4;
#endif
    const char* wish = std::getenv("BOOLIT_INSTRUCTIONS");
    if (wish != nullptr && std::strcmp(wish, "baseline") == 0) return BASELINE;
    if (wish != nullptr && std::strcmp(wish, "x86-64-v3") == 0 && best >= V3) return V3;
    return best;
}

const Level level = choose_level();

#ifdef BOOLIT_X86_64_LEVELS
#define CHOOSE(function) (level == V4 ? x86_64_v4::function : level == V3 ? x86_64_v3::function : baseline::function)
#else
#define CHOOSE(function) (baseline::function)
#endif

// ------------------------------------------------------------------------------------------------- sharing out the work

constexpr std::int64_t WORTH_A_THREAD = 32768;  // elements; below, waking threads costs more than they save

template <class Work>
void share_out(std::int64_t units, std::int64_t elements, const Work& work) {
#ifdef _OPENMP
    const std::int64_t useful = elements / WORTH_A_THREAD;
    const int most = omp_in_parallel() ? 1 : omp_get_max_threads();
    const int threads = int(useful < most ? useful : most);
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        {
            const std::int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
            work(units * me / team, units * (me + 1) / team);
        }
        return;
    }
#endif
    work(0, units);
}

template <class Plan>
void run(void (*loop)(const Plan&, std::int64_t, std::int64_t), const Plan& plan, std::int64_t units, std::int64_t elements) {
    share_out(units, elements, [&](std::int64_t begin, std::int64_t end) { loop(plan, begin, end); });
}

}  // namespace

// The number of this interface; the loader refuses another.
BOOLIT_API int boolit_training_abi() { return 2; }

BOOLIT_API const char* boolit_training_instructions() {
    return level == V4 ? "x86-64-v4" : level == V3 ? "x86-64-v3" : "baseline";
}

BOOLIT_API void boolit_update(const BoolitUpdate* step) {
    run(step->type == FLOAT32 ? CHOOSE(update<float>) : CHOOSE(update<double>), *step, step->runs * step->blocks_of_run(),
        step->runs * step->columns);
}

BOOLIT_API void boolit_normalise(const BoolitNorm* norm) {
    run(norm->type == FLOAT32 ? CHOOSE(normalise<float>) : CHOOSE(normalise<double>), *norm, norm->rows,
        norm->rows * norm->samples);
}

BOOLIT_API void boolit_normalise_backward(const BoolitNorm* norm) {
    run(norm->type == FLOAT32 ? CHOOSE(normalise_backward<float>) : CHOOSE(normalise_backward<double>), *norm, norm->rows,
        norm->rows * norm->samples);
}

// 0 if all was well, 1 if a row is not there: then nothing is written.
BOOLIT_API int boolit_gather(const BoolitGather* gather) {
    for (std::int64_t at = 0; at < gather->runs * gather->samples; ++at)
        if (gather->rows[at] < 0 || gather->rows[at] >= gather->count) return 1;
    const std::int64_t elements = gather->runs * gather->samples * gather->features;
    if (gather->bytes)
        run(gather->type == FLOAT32 ? CHOOSE(gather_bytes<float>) : CHOOSE(gather_bytes<double>), *gather,
            gather->runs * gather->samples, elements);
    else
        run(gather->type == FLOAT32 ? CHOOSE(gather_numbers<float>) : CHOOSE(gather_numbers<double>), *gather,
            gather->runs * ((gather->samples + TILE - 1) / TILE), elements);
    return 0;
}

BOOLIT_API void boolit_warp(const BoolitWarp* warp) {
    const auto loop = warp->size == 1   ? CHOOSE(look_up<std::uint8_t>)
                      : warp->size == 4 ? CHOOSE(look_up<std::uint32_t>)
                                        : CHOOSE(look_up<std::uint64_t>);
    run(loop, *warp, warp->count, warp->count * warp->height * warp->width);
}

BOOLIT_API void boolit_hits(const BoolitHits* hits) {
    const std::int64_t elements = hits->runs * hits->classes * hits->samples;
    if (hits->signs)
        run(hits->type == FLOAT32 ? CHOOSE(compare_signs<float>) : CHOOSE(compare_signs<double>), *hits, hits->runs, elements);
    else
        run(hits->type == FLOAT32 ? CHOOSE(find_hits<float>) : CHOOSE(find_hits<double>), *hits, hits->runs, elements);
}
