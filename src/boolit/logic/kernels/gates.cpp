// boolit's kernels: logic gates on groups of channels, forward and backward, in one pass over memory.
//
// Plain C++17 behind a C interface: no torch header is needed to build it, and one binary serves every torch. The gates
// themselves are compiled once for each instruction set (see the includes at the middle) and chosen when the library is used.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

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

enum Kind : std::int32_t { OR_AIL, XNOR_AIL, OR_IL, XNOR_IL };
enum Type : std::int32_t { FLOAT32, FLOAT64, BFLOAT16, FLOAT16 };
constexpr int MOST_GATES = 16;

struct BoolitGate {
    std::int32_t kind, flips;  // flips of the operands' signs: 0 none, 1 all, 2 the first, 3 all but the first
    double scale, shift;       // value = scale · base + shift
    std::int64_t start, size;  // which groups it reads
};

// A contiguous tensor seen as (outer, groups · k, inner).
struct BoolitPlan {
    std::int32_t type, halves, duplicate, count;
    std::int64_t outer, groups, k, inner;
    BoolitGate gates[MOST_GATES];
};

namespace {

struct bfloat16 {
    std::uint16_t bits;
};
struct float16 {
    std::uint16_t bits;
};

constexpr int BLOCK = 256;

// At most one for each gate, in memory that is there: allocating some is what a small call would feel most.
template <class Item>
struct FewOf {
    int count;
    Item items[MOST_GATES];

    FewOf() : count(0) {}
    void add(const Item& item) { items[count++] = item; }
    const Item* begin() const { return items; }
    const Item* end() const { return items + count; }
};

int index_bits(std::int64_t k) {
    int bits = 0;
    while ((std::int64_t(1) << bits) < k) ++bits;
    return bits;
}

// Bit planes kept of a gate for its backward: OR keeps which operands it took; XNOR takes one, and keeps its index in binary
// and the sign of its gradient.
int planes(const BoolitGate& gate, std::int64_t k) {
    return gate.kind == OR_AIL ? int(k) : gate.kind == XNOR_AIL ? index_bits(k) + 1 : 0;
}

// What some gates do together: `segments` runs of `lanes` groups whose operands lie at fixed distances.
struct Pass {
    int first, count;                    // the gates
    std::int64_t segments, lanes;        // how many runs, how long
    std::int64_t lane, operand;          // distance of neighbouring groups, and of one group's operands
    std::int64_t source, target, skip;   // where the first run starts, and how far the gates' outputs lie apart
    std::int64_t runs, source_run, source_outer, target_run, target_outer;  // segment s is run s % runs of outer s / runs
    std::int64_t kept;                   // where its bits start
    int planes;                          // of all of its gates

    std::int64_t blocks_of_segment() const { return (lanes + BLOCK - 1) / BLOCK; }
    std::int64_t blocks() const { return segments * blocks_of_segment(); }
    std::int64_t kept_bytes() const { return planes * segments * ((lanes + 7) / 8); }
};

// A block's bits lie together: plane after plane, each of `plane` bytes.
struct Block {
    int n, plane;
    std::int64_t source, target, kept;
    Block(const Pass& pass, std::int64_t index) {
        const std::int64_t each = pass.blocks_of_segment(), segment = index / each, begin = index % each * BLOCK;
        const std::int64_t outer = segment / pass.runs, run = segment % pass.runs;
        n = int(pass.lanes - begin < BLOCK ? pass.lanes - begin : BLOCK), plane = (n + 7) / 8;
        source = pass.source + outer * pass.source_outer + run * pass.source_run + begin * pass.lane;
        target = pass.target + outer * pass.target_outer + run * pass.target_run + begin;
        kept = pass.kept + pass.planes * (segment * ((pass.lanes + 7) / 8) + begin / 8);
    }
};

Pass make_pass(const BoolitPlan& plan, int first, int count, std::int64_t out_start, std::int64_t out_groups, std::int64_t kept) {
    const std::int64_t start = plan.gates[first].start, size = plan.gates[first].size;
    const std::int64_t channels = plan.groups * plan.k, inner = plan.inner, k = plan.k;
    Pass pass{};
    pass.first = first, pass.count = count, pass.kept = kept;
    for (int m = first; m < first + count; ++m) pass.planes += planes(plan.gates[m], k);
    pass.source = (plan.halves ? start : start * k) * inner;
    pass.target = out_start * inner, pass.skip = size * inner;
    pass.source_outer = channels * inner, pass.target_outer = out_groups * inner;
    if (plan.halves) {  // all groups of an outer index in one run
        pass.lane = 1, pass.operand = plan.groups * inner, pass.lanes = size * inner, pass.runs = 1;
    } else if (inner != 1) {  // a run is one group's inner extent
        pass.lane = 1, pass.operand = inner, pass.lanes = inner, pass.runs = size;
        pass.source_run = k * inner, pass.target_run = inner;
    } else {
        pass.lane = k, pass.operand = 1, pass.lanes = size, pass.runs = 1;
    }
    pass.segments = plan.outer * pass.runs;
    if (!plan.halves && inner == 1 && out_groups == plan.groups && count == 1 && size == plan.groups) {
        pass.lanes *= plan.outer, pass.segments = 1;  // one gate on rows that follow each other: one long run
    }
    return pass;
}

FewOf<Pass> passes(const BoolitPlan& plan) {
    FewOf<Pass> all;
    std::int64_t out_groups = 0, out_start = 0, kept = 0;
    for (int m = 0; m < plan.count; ++m) out_groups += plan.gates[m].size;
    for (int m = 0; m < plan.count; m += plan.duplicate ? plan.count : 1) {
        if (plan.gates[m].size == 0) continue;
        const int count = plan.duplicate ? plan.count : 1;
        const Pass pass = make_pass(plan, m, count, out_start, out_groups, kept);
        all.add(pass);
        out_start += plan.gates[m].size;
        kept += pass.kept_bytes();
    }
    return all;
}

// The approximate gates of two operands are three, up to the signs of values and gradients: OR, AND and XNOR of x and y; and the same
// of -x and y. Those that differ share all they can.
enum { SOME_OR = 1, SOME_AND = 2, SOME_XNOR = 4 };
struct Trio {
    int kinds = 0, turned = -1;  // which of the three; whether of -x and y, -1 where that is all the same
    int place[3] = {};           // of the gates in their pass

    // False if the gate is exact, or of a kind that is there, or of x where the others are of -x.
    bool admit(const BoolitGate& gate, int index) {
        if (gate.kind != OR_AIL && gate.kind != XNOR_AIL) return false;
        const int slot = gate.kind == XNOR_AIL ? 2 : gate.flips % 2;  // flips of all operands, or of all but the first: AND
        const int turn = gate.kind == XNOR_AIL ? -1 : gate.flips / 2;
        if (kinds >> slot & 1 || (turn >= 0 && turned >= 0 && turn != turned)) return false;
        kinds |= 1 << slot, place[slot] = index;
        if (turn >= 0) turned = turn;
        return true;
    }
};

// All gates of the pass if they are such a trio and may go together, else each that is approximate alone: one for each gate.
FewOf<Trio> trios(const BoolitPlan& plan, const Pass& pass, bool together_too) {
    Trio together;
    bool fit = together_too || pass.count == 1;
    FewOf<Trio> found;
    for (int m = 0; m < pass.count; ++m) {
        Trio alone;
        alone.admit(plan.gates[pass.first + m], m);
        found.add(alone);
        fit = fit && together.admit(plan.gates[pass.first + m], m);
    }
    if (fit) found.items[0] = together, found.count = 1;
    return found;
}

// ----------------------------------------------------------------------------------------- the gates, once for each set

#define ALWAYS_INLINE inline __attribute__((always_inline))

#define BOOLIT_LANES 8
#define BOOLIT_MOVEMASK 0
namespace baseline {
#include "vector_math.h"
#include "gate_math.h"
#include "memory.h"
#include "choices.h"
#include "forward_backward.h"
#include "double_backward.h"
}  // namespace baseline
#undef BOOLIT_LANES
#undef BOOLIT_MOVEMASK

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define BOOLIT_X86_64_LEVELS 1
// The exact gates take two vectors at a time; GCC weaves them together only if it schedules before it allocates registers.

#define BOOLIT_LANES 8
#define BOOLIT_MOVEMASK 256
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#pragma GCC optimize("schedule-insns,sched-pressure")
namespace x86_64_v3 {
#include "vector_math.h"
#include "gate_math.h"
#include "memory.h"
#include "choices.h"
#include "forward_backward.h"
#include "double_backward.h"
}  // namespace x86_64_v3
#pragma GCC pop_options
#undef BOOLIT_LANES
#undef BOOLIT_MOVEMASK

#define BOOLIT_LANES 16
#define BOOLIT_MOVEMASK 512
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#pragma GCC optimize("schedule-insns,sched-pressure")
namespace x86_64_v4 {
#include "vector_math.h"
#include "gate_math.h"
#include "memory.h"
#include "choices.h"
#include "forward_backward.h"
#include "double_backward.h"
}  // namespace x86_64_v4
#pragma GCC pop_options
#undef BOOLIT_LANES
#undef BOOLIT_MOVEMASK
#endif

enum Level { BASELINE, V3, V4 };

Level best_level() {
#ifdef BOOLIT_X86_64_LEVELS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return V4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return V3;
#endif
    return BASELINE;
}

// BOOLIT_INSTRUCTIONS=baseline or x86-64-v3 holds it back, for comparison.
Level choose_level() {
    const Level best = best_level();
    const char* wish = std::getenv("BOOLIT_INSTRUCTIONS");
    if (wish != nullptr && std::strcmp(wish, "baseline") == 0) return BASELINE;
    if (wish != nullptr && std::strcmp(wish, "x86-64-v3") == 0 && best >= V3) return V3;
    return best;
}

const Level level = choose_level();

// ------------------------------------------------------------------------------------------------- sharing out the work

constexpr std::int64_t WORTH_A_THREAD = 32768;  // elements; below, waking threads costs more than they save

template <class Body>
void share_out(const BoolitPlan& plan, const FewOf<Pass>& all, const Body& body) {
#ifdef _OPENMP
    const std::int64_t elements = plan.outer * plan.groups * plan.k * plan.inner;
    const std::int64_t useful = elements / WORTH_A_THREAD;
    const int most = omp_in_parallel() ? 1 : omp_get_max_threads();
    const int threads = int(useful < most ? useful : most);
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        for (const Pass& pass : all) {
            const std::int64_t blocks = pass.blocks(), me = omp_get_thread_num(), team = omp_get_num_threads();
            body(pass, blocks * me / team, blocks * (me + 1) / team);
        }
        return;
    }
#else
    (void)plan;
#endif
    for (const Pass& pass : all) body(pass, 0, pass.blocks());
}

template <class S, class T>
void run_forward(const BoolitPlan& plan, const void* x, void* out, std::uint8_t* kept) {
    auto sweep = baseline::forward<S, T>;
#ifdef BOOLIT_X86_64_LEVELS
    if (level == V3) sweep = x86_64_v3::forward<S, T>;
    if (level == V4) sweep = x86_64_v4::forward<S, T>;
#endif
    share_out(plan, passes(plan), [&](const Pass& pass, std::int64_t begin, std::int64_t end) {
        sweep(plan, pass, begin, end, static_cast<const S*>(x), static_cast<S*>(out), kept);
    });
}

template <class S, class T>
void run_backward(const BoolitPlan& plan, const void* grad, const void* x, const std::uint8_t* kept, void* grad_x) {
    auto sweep = baseline::backward<S, T>;
#ifdef BOOLIT_X86_64_LEVELS
    if (level == V3) sweep = x86_64_v3::backward<S, T>;
    if (level == V4) sweep = x86_64_v4::backward<S, T>;
#endif
    share_out(plan, passes(plan), [&](const Pass& pass, std::int64_t begin, std::int64_t end) {
        sweep(plan, pass, begin, end, static_cast<const S*>(grad), static_cast<const S*>(x), kept, static_cast<S*>(grad_x));
    });
}

template <class S, class T>
void run_double_backward(const BoolitPlan& plan, const void* towards, const void* grad, const void* x, void* to_grad, void* to_x) {
    auto sweep = baseline::double_backward<S, T>;
#ifdef BOOLIT_X86_64_LEVELS
    if (level == V3) sweep = x86_64_v3::double_backward<S, T>;
    if (level == V4) sweep = x86_64_v4::double_backward<S, T>;
#endif
    share_out(plan, passes(plan), [&](const Pass& pass, std::int64_t begin, std::int64_t end) {
        sweep(plan, pass, begin, end, static_cast<const S*>(towards), static_cast<const S*>(grad), static_cast<const S*>(x),
              static_cast<S*>(to_grad), static_cast<S*>(to_x));
    });
}

}  // namespace

// The number of this interface; the loader refuses another.
BOOLIT_API int boolit_abi() { return 2; }

BOOLIT_API const char* boolit_instructions() { return level == V4 ? "x86-64-v4" : level == V3 ? "x86-64-v3" : "baseline"; }

BOOLIT_API int boolit_threads() {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

// How many bytes boolit_forward writes to `kept`.
BOOLIT_API std::int64_t boolit_kept_bytes(const BoolitPlan* plan) {
    std::int64_t total = 0;
    for (const Pass& pass : passes(*plan)) total += pass.kept_bytes();
    return total;
}

// kept may be null: then no backward can follow without x.
BOOLIT_API void boolit_forward(const BoolitPlan* plan, const void* x, void* out, std::uint8_t* kept) {
    switch (plan->type) {
        case FLOAT32: return run_forward<float, float>(*plan, x, out, kept);
        case FLOAT64: return run_forward<double, double>(*plan, x, out, kept);
        case BFLOAT16: return run_forward<bfloat16, float>(*plan, x, out, kept);
        default: return run_forward<float16, float>(*plan, x, out, kept);
    }
}

// Exactly one of x and kept is not null; kept suffices when every gate is approximate.
BOOLIT_API void boolit_backward(const BoolitPlan* plan, const void* grad, const void* x, const std::uint8_t* kept, void* grad_x) {
    switch (plan->type) {
        case FLOAT32: return run_backward<float, float>(*plan, grad, x, kept, grad_x);
        case FLOAT64: return run_backward<double, double>(*plan, grad, x, kept, grad_x);
        case BFLOAT16: return run_backward<bfloat16, float>(*plan, grad, x, kept, grad_x);
        default: return run_backward<float16, float>(*plan, grad, x, kept, grad_x);
    }
}

// The backward of boolit_backward, from x: what `towards`, a gradient of its grad_x, gives to its grad and to x.
BOOLIT_API void boolit_double_backward(const BoolitPlan* plan, const void* towards, const void* grad, const void* x, void* to_grad, void* to_x) {
    switch (plan->type) {
        case FLOAT32: return run_double_backward<float, float>(*plan, towards, grad, x, to_grad, to_x);
        case FLOAT64: return run_double_backward<double, double>(*plan, towards, grad, x, to_grad, to_x);
        case BFLOAT16: return run_double_backward<bfloat16, float>(*plan, towards, grad, x, to_grad, to_x);
        default: return run_double_backward<float16, float>(*plan, towards, grad, x, to_grad, to_x);
    }
}
