// Gates over index lists, and belief propagation on parity-check codes, with the batch in the vector lanes.
//
// Plain C++17 behind a C interface, without torch or Python headers, compiled once per instruction set like logic/kernels/gates.cpp,
// whose formulas it shares. boolit/graphs/gather.py and boolit/graphs/propagation.py call it through ctypes.

#include <algorithm>
#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "../../logic/kernels/pairs.h"

#if defined(_WIN32)
#define BOOLIT_API extern "C" __declspec(dllexport)
#else
#define BOOLIT_API extern "C" __attribute__((visibility("default")))
#endif

// ------------------------------------------------------------------------------------------- the interface with Python

// Group g joins the rows indices[offsets[g]] … indices[offsets[g + 1] - 1] of a contiguous tensor of shape (rows, batch).
struct BoolitLists {
    std::int32_t threads, is_double, kind, negated, leave_one_out;  // negated: signs change before and after, which turns OR into AND
    std::int64_t groups, batch;
    const std::int64_t *offsets, *indices;
};

// Edges are numbered check by check. The rows of a decoder's state are the priors of the variables, then the messages of the edges from
// checks to variables. The rows of a variable are its prior, then its messages.
struct BoolitCode {
    std::int64_t checks, variables, edges;
    const std::int64_t *check_offsets, *edge_variables, *variable_offsets, *variable_rows;
    const std::int64_t* order;  // of the checks, if the schedule is layered; null if all checks are updated at once
};

// Numbers behind void pointers have the type that is_double says. A stride of 0 repeats one value.
struct BoolitDecoding {
    std::int32_t threads, is_double, kind, early_stop;
    std::int64_t shots, iterations;
    const void* channel;  // (shots, variables)
    std::int64_t channel_stride;
    const std::uint8_t* syndrome;  // (shots, checks), or null
    std::int64_t syndrome_stride;
    const void* weights;  // (iterations, edges)
    std::int64_t iteration_stride, edge_stride;
    double offset, damping;
    const void* memory;  // (variables), or null
    void* logits;        // (shots, variables)
    std::uint8_t *bits, *converged;
    std::int64_t* rounds;  // iterations that each shot took
};

namespace {

constexpr std::int64_t WORTH_A_THREAD = 1 << 18;  // numbers; below, starting threads costs more than they save

// Rows of W numbers, aligned: a vector that crosses a cache line takes twice as long to load.
template <class T>
class Rows {
    struct alignas(W * sizeof(T)) Row {
        T lanes[W];
    };
    std::vector<Row> rows;

public:
    explicit Rows(std::int64_t count) : rows(std::size_t(count)) {}
    T* operator[](std::int64_t i) { return reinterpret_cast<T*>(rows.data()) + i * W; }
};

// ------------------------------------------------------------------------------------------- two operands

template <class T, int kind>
ALWAYS_INLINE Real<T> join(Real<T> x, Real<T> y) {
    if constexpr (kind == XNOR_AIL) return chosen_value<T, 2>({x, y});
    if constexpr (kind == XNOR_IL) return exact_value<T, XNOR_IL>(xnor_il_parts<T>(x, y));
    if constexpr (kind == OR_AIL) return saturated<T>(chosen_value<T, 0>({x, y}), is_certain<T>(true, x, y), T(1), T(0));
    return saturated<T>(exact_value<T, OR_IL>(or_il_parts<T>(x, y)), is_certain<T>(true, x, y), T(1), T(0));
}

// The partial derivatives times g.
template <class T, int kind>
ALWAYS_INLINE Pair<T> gradient(Real<T> x, Real<T> y, Real<T> g) {
    if constexpr (kind == XNOR_IL) return xnor_il_gradient<T>(x, y, g);
    if constexpr (kind == OR_IL) return or_il_gradient<T>(x, y, g);
    constexpr int slot = kind == XNOR_AIL ? 2 : 0;
    const Choice<T> choice = choose<T, slot>({x, y});
    return share<T, slot>(choice.first, choice.second, g);
}

// The result for no operands: OR of nothing is false, and none is an even number.
template <class T, int kind>
constexpr T neutral = (kind == OR_IL || kind == OR_AIL ? T(-1) : T(1)) * std::numeric_limits<T>::infinity();

// ------------------------------------------------------------------------------------------- trees of pairs

// Level 0 of a tree has the k operands. Neighbors are joined level by level, and an odd one out goes on to the next level. Levels lie
// behind each other, a node is a vector of W numbers.
constexpr int parents(int count) { return (count + 1) / 2; }
constexpr int LEVELS = 32;

inline std::int64_t nodes_of(std::int64_t k) { return 4 * k + LEVELS; }

template <class T, int kind>
ALWAYS_INLINE void join_level(const T* level, int count, T* above) {
    for (int i = 0; i + 1 < count; i += 2) store<T>(above + i / 2 * W, join<T, kind>(load<T>(level + i * W), load<T>(level + (i + 1) * W)));
    if (count % 2) store<T>(above + count / 2 * W, load<T>(level + (count - 1) * W));
}

// Join the k operands at the start of `nodes`, which has space for nodes_of(k); return the root.
template <class T, int kind>
const T* join_all(T* nodes, int k) {
    for (; k > 1; k = parents(k)) join_level<T, kind>(nodes, k, nodes + k * W), nodes += k * W;
    return nodes;
}

// For each operand, join all others. Going down, what is outside of a child is what is outside of its parent joined with its sibling:
// 3k - 6 joins, as many as prefixes and suffixes take, but at most 2⌈log2 k⌉ - 2 of them in a row instead of k - 2.
template <class T, int kind>
void leave_each_out(T* nodes, int k, T* outside) {
    if (k < 2) return k ? store<T>(outside, all<T>(neutral<T, kind>)) : void();
    if (k == 2) return store<T>(outside, load<T>(nodes + W)), store<T>(outside + W, load<T>(nodes));
    T *above = nodes + k * W, *outside_above = outside + k * W;
    join_level<T, kind>(nodes, k, above);
    leave_each_out<T, kind>(above, parents(k), outside_above);
    for (int i = 0; i + 1 < k; i += 2) {
        const Real<T> parent = load<T>(outside_above + i / 2 * W), first = load<T>(nodes + i * W), second = load<T>(nodes + (i + 1) * W);
        const Real<T> without_first = join<T, kind>(parent, second), without_second = join<T, kind>(parent, first);
        store<T>(outside + i * W, without_first), store<T>(outside + (i + 1) * W, without_second);
    }
    if (k % 2) store<T>(outside + (k - 1) * W, load<T>(outside_above + k / 2 * W));
}

// leave_each_out for XNOR; returns whether all operands are finite, which is fast. No result is larger than the least of its operands:
// the approximate gate is that operand. The exact one joins odds e^-|x| from both ends: an exponential and a logarithm for each operand,
// not for each join. So that odds do not vanish, they are multiplied by e^shift where all operands but one exceed shift + REACH. With
// or without the factor, a product of two of them is then nothing next to 1, and a result above the smaller operand becomes that one.
template <class T, int kind>
bool leave_each_out_of_xnor(const T* x, int k, T* nodes, T* outside) {
    constexpr T reach = sizeof(T) == 4 ? T(60) : T(600);  // e^-reach is a normal number
    constexpr int longest = 64;                           // weights reach 2^k
    Real<T> least_size = all<T>(std::numeric_limits<T>::max()), next_size = least_size, total = all<T>(0), product = total;
    for (int j = 0; j < k; ++j) {
        const Real<T> value = load<T>(x + j * W), size = size_of<T>(value);
        next_size = least<T>(next_size, most<T>(least_size, size)), least_size = least<T>(least_size, size);
        total += size, product = turned_by<T>(product, value);
    }
    if (k < 4 || k > longest || is_any_infinite<T>(total)) {
        std::memcpy(nodes, x, std::size_t(k) * W * sizeof(T));
        leave_each_out<T, kind>(nodes, k, outside);
        return false;
    }
    const Real<T> shift = most<T>(next_size - reach, all<T>(0));
    Pair<T> before{all<T>(0), all<T>(1)}, behind = before;
    for (int j = 0; kind == XNOR_IL && j < k; ++j) {
        const Expm1<T> odds = fine_expm1<T>(at_least_normal<T>(shift - most<T>(shift, size_of<T>(load<T>(x + j * W)))));
        T* target = nodes + 4 * j * W;
        store<T>(target, odds.value), store<T>(target + W, -odds.minus_one), store<T>(target + 2 * W, before.x), store<T>(target + 3 * W, before.y);
        before = join_odds<T>(before, {odds.value, -odds.minus_one});
    }
    for (int j = k - 1; j >= 0; --j) {
        const Real<T> value = load<T>(x + j * W);
        const Int<T> is_larger = is_negative<T>(bits_of<Int<T>>(least_size) - bits_of<Int<T>>(size_of<T>(value)));
        Real<T> size = chosen<T>(is_larger, least_size, next_size);
        if constexpr (kind == XNOR_IL) {
            const T* source = nodes + 4 * j * W;
            size = least<T>(shift + log_odds<T>(join_odds<T>({load<T>(source + 2 * W), load<T>(source + 3 * W)}, behind)), size);
            behind = join_odds<T>(behind, {load<T>(source), load<T>(source + W)});
        }
        store<T>(outside + j * W, turned_by<T>(turned_by<T>(size, product), value));
    }
    return true;
}

// Add the gradients that the nodes above give to those of a level.
template <class T, int kind>
void join_level_backward(const T* level, int count, const T* grad_above, T* grad) {
    for (int i = 0; i + 1 < count; i += 2) {
        const Pair<T> g = gradient<T, kind>(load<T>(level + i * W), load<T>(level + (i + 1) * W), load<T>(grad_above + i / 2 * W));
        add_to<T>(grad + i * W, g.x), add_to<T>(grad + (i + 1) * W, g.y);
    }
    if (count % 2) add_to<T>(grad + (count - 1) * W, load<T>(grad_above + count / 2 * W));
}

// `nodes` is as join_all leaves it, `grad` starts as zeros.
template <class T, int kind>
void join_all_backward(const T* nodes, int k, const T* grad_root, T* grad) {
    if (k == 1) return store<T>(grad, load<T>(grad_root));
    join_all_backward<T, kind>(nodes + k * W, parents(k), grad_root, grad + k * W);
    join_level_backward<T, kind>(nodes, k, grad + k * W, grad);
}

// `nodes` and `outside` are as leave_each_out leaves them, `grad` and what is behind the gradients of the results start as zeros.
template <class T, int kind>
void leave_each_out_backward(const T* nodes, const T* outside, int k, T* grad_outside, T* grad) {
    if (k == 2) return add_to<T>(grad, load<T>(grad_outside + W)), add_to<T>(grad + W, load<T>(grad_outside));
    const int level = k * W;
    for (int i = 0; i + 1 < k; i += 2) {
        for (int side = 0; side < 2; ++side) {
            const int sibling = (i + 1 - side) * W, parent = level + i / 2 * W;
            const Pair<T> g = gradient<T, kind>(load<T>(outside + parent), load<T>(nodes + sibling), load<T>(grad_outside + (i + side) * W));
            add_to<T>(grad_outside + parent, g.x), add_to<T>(grad + sibling, g.y);
        }
    }
    if (k % 2) add_to<T>(grad_outside + level + k / 2 * W, load<T>(grad_outside + (k - 1) * W));
    leave_each_out_backward<T, kind>(nodes + level, outside + level, parents(k), grad_outside + level, grad + level);
    join_level_backward<T, kind>(nodes, k, grad + level, grad);
}

// ------------------------------------------------------------------------------------------- gates over index lists

// Calls body(begin, end) for shares of `count` items, each of `cost` numbers, in at most `threads` threads. OpenMP would wait until each
// of its threads was there: where other programs hold the cores, for milliseconds after all is done. A helper that comes too late is
// not waited for here: it finds that the work is closed.
template <class Body>
void share_out(std::int64_t threads, std::int64_t count, std::int64_t cost, const Body& body) {
    constexpr int closed = std::numeric_limits<int>::min();
    threads = std::min({threads, count, count * cost / WORTH_A_THREAD});
    const std::int64_t share = threads > 1 ? std::max<std::int64_t>(1, count / (4 * threads)) : count;
    std::atomic<std::int64_t> next{0};
    const auto work = [&] {
        for (std::int64_t begin; (begin = next.fetch_add(share)) < count;) body(begin, std::min(begin + share, count));
    };
    const auto helpers = std::make_shared<std::atomic<int>>(0);  // at work
    const auto help = [helpers, &work] {
        if (helpers->fetch_add(1) >= 0) work();
        helpers->fetch_sub(1);
    };
    try {
        for (; threads > 1; --threads) std::thread(help).detach();
    } catch (const std::system_error&) {}  // no more threads can start
    work();
    for (int none = 0; !helpers->compare_exchange_weak(none, closed); none = 0) std::this_thread::yield();
}

// A group and W lanes of the batch.
struct Tile {
    std::int64_t group, lane, start;
    int n, k;
    Tile(const BoolitLists& of, std::int64_t index)
        : group(index % of.groups), lane(index / of.groups * W), start(of.offsets[group]), n(int(std::min<std::int64_t>(W, of.batch - lane))),
          k(int(of.offsets[group + 1] - start)) {}
};

inline std::int64_t longest(std::int64_t groups, const std::int64_t* offsets) {
    std::int64_t most = 1;
    for (std::int64_t g = 0; g < groups; ++g) most = std::max(most, offsets[g + 1] - offsets[g]);
    return most;
}

template <class T>
void load_operands(const BoolitLists& of, const Tile& tile, const T* x, Real<T> sign, T* nodes) {
    for (int j = 0; j < tile.k; ++j) {
        const std::int64_t row = of.indices[tile.start + j];
        store<T>(nodes + j * W, turned_by<T>(load_some<T>(x + row * of.batch + tile.lane, tile.n), sign));
    }
}

template <class T, int kind>
void forward(const BoolitLists& of, const T* x, T* out) {
    const std::int64_t most = longest(of.groups, of.offsets), blocks = (of.batch + W - 1) / W;
    const Real<T> sign = all<T>(of.negated ? T(-1) : T(1));
    share_out(of.threads, of.groups * blocks, of.offsets[of.groups] / std::max<std::int64_t>(of.groups, 1) * W, [&](std::int64_t begin, std::int64_t end) {
        Rows<T> operands(nodes_of(most)), nodes(nodes_of(most)), outside(nodes_of(most));
        for (std::int64_t index = begin; index < end; ++index) {
            const Tile tile(of, index);
            load_operands<T>(of, tile, x, sign, operands[0]);
            if (of.leave_one_out) {
                if constexpr (kind == XNOR_IL || kind == XNOR_AIL) leave_each_out_of_xnor<T, kind>(operands[0], tile.k, nodes[0], outside[0]);
                else leave_each_out<T, kind>(operands[0], tile.k, outside[0]);
                for (int j = 0; j < tile.k; ++j)
                    store_some<T>(out + (tile.start + j) * of.batch + tile.lane, turned_by<T>(load<T>(outside[j]), sign), tile.n);
            } else {
                const Real<T> value = tile.k > 0 ? load<T>(join_all<T, kind>(operands[0], tile.k)) : all<T>(neutral<T, kind>);
                store_some<T>(out + tile.group * of.batch + tile.lane, turned_by<T>(value, sign), tile.n);
            }
        }
    });
}

// Signs cancel: the gradient of -f(-x) is that of f at -x. Threads share the batch, since groups may have members in common.
template <class T, int kind>
void backward(const BoolitLists& of, const T* x, const T* grad_out, T* grad_x) {
    const std::int64_t space = nodes_of(longest(of.groups, of.offsets));
    const Real<T> sign = all<T>(of.negated ? T(-1) : T(1));
    share_out(of.threads, (of.batch + W - 1) / W, of.offsets[of.groups] * W, [&](std::int64_t begin, std::int64_t end) {
        Rows<T> nodes(space), outside(space), grad_outside(space), grad(space);
        for (std::int64_t index = begin * of.groups; index < end * of.groups; ++index) {
            const Tile tile(of, index);
            if (tile.k == 0) continue;
            const auto used = std::size_t(nodes_of(tile.k)) * W * sizeof(T);
            load_operands<T>(of, tile, x, sign, nodes[0]);
            std::memset(grad[0], 0, used);
            if (of.leave_one_out) {
                std::memset(grad_outside[0], 0, used);
                for (int j = 0; j < tile.k; ++j)
                    store<T>(grad_outside[j], load_some<T>(grad_out + (tile.start + j) * of.batch + tile.lane, tile.n));
                leave_each_out<T, kind>(nodes[0], tile.k, outside[0]);
                if (tile.k > 1) leave_each_out_backward<T, kind>(nodes[0], outside[0], tile.k, grad_outside[0], grad[0]);
            } else {
                alignas(64) T top[W];
                store<T>(top, load_some<T>(grad_out + tile.group * of.batch + tile.lane, tile.n));
                join_all<T, kind>(nodes[0], tile.k);
                join_all_backward<T, kind>(nodes[0], tile.k, top, grad[0]);
            }
            for (int j = 0; j < tile.k; ++j) {
                T* target = grad_x + of.indices[tile.start + j] * of.batch + tile.lane;
                store_some<T>(target, load_some<T>(target, tile.n) + load<T>(grad[j]), tile.n);
            }
        }
    });
}

// Calls body with a number of the type and the kind as a compile-time constant.
template <class Body>
void with_type(bool is_double, int kind, const Body& body) {
    const auto with_kind = [&](auto number) {
        switch (kind) {
            case OR_AIL: return body(number, std::integral_constant<int, OR_AIL>{});
            case XNOR_AIL: return body(number, std::integral_constant<int, XNOR_AIL>{});
            case OR_IL: return body(number, std::integral_constant<int, OR_IL>{});
            default: return body(number, std::integral_constant<int, XNOR_IL>{});
        }
    };
    if (is_double) with_kind(double(0));
    else with_kind(float(0));
}

// ------------------------------------------------------------------------------------------- belief propagation

template <class T>
ALWAYS_INLINE Real<T> finite_sum(Real<T> x, Real<T> y) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    return saturated<T>(x + y, (size_of<T>(x) == infinity) | (size_of<T>(y) == infinity), T(1), T(0));
}

// Decodes W shots at a time, one in each lane. A lane whose shot is finished takes the next one, so that shots that are easy do not
// wait for hard ones. If weights depend on the iteration, lanes start together instead.
template <class T, int kind>
class Decoder {
    const BoolitCode& code;
    const BoolitDecoding& run;
    Rows<T> channel, state, incoming, posterior, nodes, outside;
    std::vector<std::uint32_t> decisions, syndrome;  // a bit for each lane
    std::int64_t shot[W], round[W];
    int active = 0;
    const bool keeps_messages = code.order || run.damping != 0;  // which an iteration reads that it has not written

public:
    Decoder(const BoolitCode& of, const BoolitDecoding& how)
        : code(of), run(how), channel(of.variables), state(of.variables + of.edges), incoming(of.edges), posterior(of.variables),
          nodes(nodes_of(longest(of.checks, of.check_offsets))), outside(nodes_of(longest(of.checks, of.check_offsets))),
          decisions(std::size_t(of.variables)), syndrome(std::size_t(of.checks)) {
        std::fill(shot, shot + W, std::int64_t(-1));
    }

    void decode(const std::vector<std::pair<std::int64_t, std::int64_t>>& queue, std::atomic<std::int64_t>& next) {
        for (;;) {
            const bool may_start = active == 0 || run.iteration_stride == 0;
            std::uint32_t started = 0;
            for (int lane = 0; may_start && lane < W; ++lane) {
                if (shot[lane] >= 0) continue;
                const std::int64_t taken = next.load(std::memory_order_relaxed) < run.shots ? next.fetch_add(1) : run.shots;
                if (taken < run.shots) start(lane, queue[std::size_t(taken)].second), started |= std::uint32_t(1) << lane;
            }
            if (active == 0) return;
            if (started) reset(mask_of<T, 0>(started));
            iterate();
            const std::uint32_t unsatisfied = unsatisfied_lanes();
            for (int lane = 0; lane < W; ++lane) {
                if (shot[lane] < 0) continue;
                const bool satisfied = (unsatisfied >> lane & 1) == 0;
                if (++round[lane] == run.iterations || (satisfied && run.early_stop)) finish(lane, satisfied);
            }
        }
    }

private:
    void start(int lane, std::int64_t index) {
        const T* given = static_cast<const T*>(run.channel) + index * run.channel_stride;
        for (std::int64_t v = 0; run.channel_stride && v < code.variables; ++v) channel[v][lane] = given[v];
        const std::uint32_t bit = std::uint32_t(1) << lane;
        for (std::int64_t c = 0; run.syndrome && c < code.checks; ++c)
            syndrome[c] = run.syndrome[index * run.syndrome_stride + c] ? syndrome[c] | bit : syndrome[c] & ~bit;
        shot[lane] = index, round[lane] = 0, ++active;
    }

    // All lanes that start, at once: numbers of one lane lie in different cache lines.
    void reset(Int<T> started) {
        const T* given = static_cast<const T*>(run.channel);
        for (std::int64_t v = 0; v < code.variables; ++v) {
            if (!run.channel_stride) store<T>(channel[v], all<T>(given[v]));
            store<T>(state[v], chosen<T>(started, load<T>(channel[v]), load<T>(state[v])));
        }
        for (std::int64_t e = 0; e < code.edges; ++e) {
            store<T>(incoming[e], chosen<T>(started, load<T>(channel[code.edge_variables[e]]), load<T>(incoming[e])));
            if (keeps_messages) store<T>(state[code.variables + e], where<T>(~started, load<T>(state[code.variables + e])));
        }
    }

    void finish(int lane, bool satisfied) {
        T* logits = static_cast<T*>(run.logits) + shot[lane] * code.variables;
        std::uint8_t* bits = run.bits + shot[lane] * code.variables;
        const std::int64_t count = code.variables;
        for (std::int64_t v = 0; v < count; ++v) logits[v] = posterior[v][lane];
        for (std::int64_t v = 0; v < count; ++v) bits[v] = logits[v] <= T(0);
        run.converged[shot[lane]] = satisfied, run.rounds[shot[lane]] = round[lane];
        shot[lane] = -1, --active;
    }

    // Sends each of a variable's edges the sum of the rows before its own, plus that of the rows behind it from the last one on: the order
    // in which ldpc adds. Equal priors make ties, and decisions depend on how their sums are rounded. Returns the sum of all rows; adds
    // up sizes of sums, which shows whether one has overflowed.
    template <class Add>
    ALWAYS_INLINE Real<T> update_variable(std::int64_t v, Real<T>& sizes, const Add& add) {
        const std::int64_t *rows = code.variable_rows + code.variable_offsets[v], *last = code.variable_rows + code.variable_offsets[v + 1] - 1;
        Real<T> before = load<T>(state[*rows]), behind = load<T>(state[*last]);
        for (const std::int64_t* row = rows + 1; row <= last; ++row) {
            store<T>(incoming[*row - code.variables], before);
            before = add(before, load<T>(state[*row]));
        }
        for (const std::int64_t* row = last - 1; row > rows; --row) {
            T* target = incoming[*row - code.variables];
            const Real<T> sum = add(load<T>(target), behind);
            store<T>(target, sum);
            sizes += size_of<T>(sum), behind = add(behind, load<T>(state[*row]));
        }
        sizes += size_of<T>(before);
        return before;
    }

    // Calls body with the way to add. Sums rarely overflow: if they do, all is done again with bounds.
    template <class Body>
    ALWAYS_INLINE void with_sums(const Body& body) {
        Real<T> sizes = all<T>(0);
        body(sizes, [](Real<T> x, Real<T> y) __attribute__((always_inline)) { return x + y; });
        if (is_any_infinite<T>(sizes)) body(sizes, finite_sum<T>);
    }

    void update_check(std::int64_t c, const T* weights) {
        const std::int64_t begin = code.check_offsets[c], k = code.check_offsets[c + 1] - begin;
        const bool is_finite = leave_each_out_of_xnor<T, kind>(incoming[begin], int(k), nodes[0], outside[0]);
        const Real<T> sign = bits_of<Real<T>>(mask_of<T, 0>(syndrome[c]));  // negative in lanes whose check is violated
        const T damping = T(run.damping), offset = T(run.offset);
        for (std::int64_t j = 0; j < k; ++j) {
            const Real<T> value = load<T>(outside[j]);
            Real<T> message = turned_by<T>(value, sign) * weights[(begin + j) * run.edge_stride];
            if (offset != 0) message = turned_by<T>(most<T>(size_of<T>(message) - offset, all<T>(0)), message);
            T* target = state[code.variables + begin + j];
            if (damping != 0) message = message * (T(1) - damping) + load<T>(target) * damping;
            const Real<T> bounded = within<T>(message, std::numeric_limits<T>::max());
            store<T>(target, is_finite ? bounded : size_of<T>(value) == std::numeric_limits<T>::infinity() ? message : bounded);
        }
    }

    void iterate() {
        // Lanes differ in their iteration only if weights do not depend on it.
        const int first = int(std::find_if(shot, shot + W, [](std::int64_t index) { return index >= 0; }) - shot);
        const T* weights = static_cast<const T*>(run.weights) + round[first] * run.iteration_stride;
        for (std::int64_t i = 0; i < code.checks; ++i) {
            const std::int64_t c = code.order ? code.order[i] : i;
            if (code.order) with_sums([&](Real<T>& sizes, const auto& add) {
                for (std::int64_t e = code.check_offsets[c]; e < code.check_offsets[c + 1]; ++e) update_variable(code.edge_variables[e], sizes, add);
            });
            update_check(c, weights);
        }
        with_sums([&](Real<T>& sizes, const auto& add) {
            for (std::int64_t v = 0; v < code.variables; ++v) store<T>(posterior[v], update_variable(v, sizes, add));
        });
        for (std::int64_t v = 0; v < code.variables; ++v) {
            const Real<T> positive = size_of<T>(most<T>(all<T>(0), load<T>(posterior[v])));
            decisions[v] = bits_of_mask<T>(is_negative<T>(bits_of<Int<T>>(positive) - 1));  // where it is 0
        }
        const T* memory = static_cast<const T*>(run.memory);
        if (!memory) return;
        for (std::int64_t v = 0; v < code.variables; ++v)
            store<T>(state[v], finite_sum<T>(load<T>(channel[v]) * (T(1) - memory[v]), load<T>(posterior[v]) * memory[v]));
        with_sums([&](Real<T>& sizes, const auto& add) {
            for (std::int64_t v = 0; v < code.variables; ++v) update_variable(v, sizes, add);
        });
    }

    std::uint32_t unsatisfied_lanes() const {
        std::uint32_t unsatisfied = 0;
        for (std::int64_t c = 0; c < code.checks; ++c) {
            std::uint32_t parity = syndrome[c];
            for (std::int64_t e = code.check_offsets[c]; e < code.check_offsets[c + 1]; ++e) parity ^= decisions[code.edge_variables[e]];
            unsatisfied |= parity;
        }
        return unsatisfied;
    }
};

// Shots with many violated checks take longest and start first. If they started last, most lanes would be idle beside them.
template <class T, int kind>
void decode(const BoolitCode& code, const BoolitDecoding& run) {
    std::vector<std::pair<std::int64_t, std::int64_t>> queue;  // satisfied checks, and the shot
    for (std::int64_t i = 0; i < run.shots; ++i) {
        const std::uint8_t* parities = run.syndrome + i * run.syndrome_stride;
        queue.emplace_back(run.syndrome ? std::count(parities, parities + code.checks, 0) : 0, i);
    }
    std::sort(queue.begin(), queue.end());
    std::atomic<std::int64_t> next{0};
    share_out(run.threads, (run.shots + W - 1) / W, code.edges * W * 8, [&](std::int64_t, std::int64_t) {
        if (next < run.shots) Decoder<T, kind>(code, run).decode(queue, next);
    });
}

}  // namespace

// The version of this interface; the loader refuses any other.
BOOLIT_API int boolit_graphs_abi() { return 3; }

BOOLIT_API void boolit_lists_forward(const BoolitLists* of, const void* x, void* out) {
    with_type(of->is_double, of->kind, [&](auto number, auto kind) {
        using T = decltype(number);
        forward<T, kind>(*of, static_cast<const T*>(x), static_cast<T*>(out));
    });
}

// Adds to grad_x.
BOOLIT_API void boolit_lists_backward(const BoolitLists* of, const void* x, const void* grad_out, void* grad_x) {
    with_type(of->is_double, of->kind, [&](auto number, auto kind) {
        using T = decltype(number);
        backward<T, kind>(*of, static_cast<const T*>(x), static_cast<const T*>(grad_out), static_cast<T*>(grad_x));
    });
}

BOOLIT_API void boolit_decode(const BoolitCode* code, const BoolitDecoding* run) {
    if (run->is_double) run->kind == XNOR_IL ? decode<double, XNOR_IL>(*code, *run) : decode<double, XNOR_AIL>(*code, *run);
    else run->kind == XNOR_IL ? decode<float, XNOR_IL>(*code, *run) : decode<float, XNOR_AIL>(*code, *run);
}
