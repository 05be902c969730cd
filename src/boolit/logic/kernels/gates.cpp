// Logic gates on groups of channels, forward and backward, in one pass over memory.
//
// Plain C++17 behind a C interface, without torch or Python headers: one binary serves every torch. The file is compiled once per
// instruction set, each into its own library; boolit/logic/cpu.py chooses one and calls it through ctypes.

#include <algorithm>
#include <memory>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "pairs.h"

#if defined(_WIN32)
#define BOOLIT_API extern "C" __declspec(dllexport)
#else
#define BOOLIT_API extern "C" __attribute__((visibility("default")))
#endif

// ------------------------------------------------------------------------------------------- the interface with Python

enum Type : std::int32_t { FLOAT32, FLOAT64, BFLOAT16, FLOAT16 };

// value = scale · base(±operands) + shift. Signs of the operands change for: 0 none, 1 all, 2 the first, 3 the second.
struct BoolitGate {
    std::int32_t kind, flips;
    double scale, shift;
    std::int64_t start, size;  // the groups it reads
};

// A contiguous tensor seen as (outer, groups · k, inner).
struct BoolitLayout {
    std::int32_t type, halves, duplicate, count;  // halves: operand j of a group is `groups` channels beyond operand j - 1
    std::int64_t outer, groups, k, inner;
};

namespace {

// ------------------------------------------------------------------------------------------- which gates read which memory

// Runs shorter than SHORT share a block, in which MARGIN numbers stay free: a conversion writes whole vectors.
constexpr std::int64_t SHORT = 64, MARGIN = 16;

// One exact gate (no slots), or up to three approximate ones that share their operands: OR, AND and XNOR of x and y, or of -x and y.
struct Part {
    int slots = 0, turned = -1;  // turned: whether they read -x, or -1 if that is all the same
    int gate[SLOTS] = {};        // by slot, where there is one; an exact gate is gate[0]

    bool admit(const BoolitGate& candidate, int index) {
        const bool is_xnor = candidate.kind == XNOR_AIL;
        const int slot = is_xnor ? 2 : candidate.flips % 2, turn = is_xnor ? -1 : candidate.flips / 2;
        if (slots >> slot & 1 || (turn >= 0 && turned >= 0 && turn != turned) || (SIMD == 0 && slots != 0)) return false;
        slots |= 1 << slot, gate[slot] = index;
        if (turn >= 0) turned = turn;
        return true;
    }
};

// Gates that read the same groups: `segments` runs of `lanes` groups whose operands lie at fixed distances.
struct Pass {
    int first, count;                   // gates
    std::int64_t segments, lanes;       // number of runs, and their length
    std::int64_t rows;                  // runs of a block: several if they are short
    std::int64_t lane, operand;         // distance of neighboring groups, and of the operands of a group
    std::int64_t source, target, skip;  // start of the first run, and the distance of the gates' outputs
    std::int64_t runs, source_run, source_outer, target_run, target_outer;  // segment s is run s % runs of outer index s / runs
    std::int64_t kept;                  // start of its bits
    int planes;                         // of a gate: two for each pair
    std::vector<Part> parts;

    std::int64_t blocks_of_segment() const { return (lanes + BLOCK - 1) / BLOCK; }
    std::int64_t blocks() const { return rows > 1 ? (segments + rows - 1) / rows : segments * blocks_of_segment(); }
    // Bytes of one plane of one gate for the first `some` segments; all blocks but the last have the same size.
    std::int64_t plane_bytes(std::int64_t some) const { return some / rows * ((rows * lanes + 7) / 8) + (some % rows * lanes + 7) / 8; }
    std::int64_t kept_bytes() const { return std::int64_t(count) * planes * plane_bytes(segments); }
    // Whether the operands of a run follow those of the run before.
    bool is_packed() const { return lane == 2 && runs == 1 && source_outer == 2 * lanes; }
};

// A stretch of one run, or `rows` short ones. Its bits lie together: plane after plane, each of `plane` bytes.
struct Block {
    const Pass& pass;
    int n, plane, rows;
    std::int64_t segment, begin, outer, run;  // its first run, and the first lane
    std::int64_t source, target, kept;        // where they lie

    Block(const Pass& of, std::int64_t index) : pass(of) {
        const std::int64_t each = pass.blocks_of_segment();
        segment = index / each * pass.rows, begin = index % each * BLOCK, outer = segment / pass.runs, run = segment % pass.runs;
        kept = pass.kept + std::int64_t(pass.count) * pass.planes * (pass.plane_bytes(segment) + begin / 8);
        locate();
    }

    // Becomes the next block, without the divisions above: they take as long as many pairs.
    void advance() {
        kept += std::int64_t(pass.count) * pass.planes * plane, begin += BLOCK;
        if (begin >= pass.lanes) {
            begin = 0, segment += pass.rows, run += pass.rows;
            if (pass.rows > 1) outer += run / pass.runs, run %= pass.runs;
            else if (run == pass.runs) run = 0, ++outer;
        }
        locate();
    }

    void locate() {
        rows = int(std::min(pass.segments - segment, pass.rows));
        n = rows > 1 ? int(rows * pass.lanes) : int(std::min<std::int64_t>(pass.lanes - begin, BLOCK)), plane = (n + 7) / 8;
        source = pass.source + outer * pass.source_outer + run * pass.source_run + begin * pass.lane;
        target = pass.target + outer * pass.target_outer + run * pass.target_run + begin;
    }

    // Calls body(first lane, lanes, source, target) for each of its runs.
    template <class Body>
    void for_rows(const Body& body) const {
        if (rows == 1) return body(0, n, source, target);
        std::int64_t from = source, to = target, run = segment % pass.runs;
        for (int row = 0; row < rows; ++row) {
            body(int(row * pass.lanes), int(pass.lanes), from, to);
            const bool is_last = ++run == pass.runs;
            from += is_last ? pass.source_outer - (run - 1) * pass.source_run : pass.source_run;
            to += is_last ? pass.target_outer - (run - 1) * pass.target_run : pass.target_run;
            if (is_last) run = 0;
        }
    }
};

constexpr int AHEAD = 2;  // blocks between the one that is computed and the one that is fetched

// Calls body(block, the block to fetch) for some blocks of a pass.
template <class Body>
void for_blocks(const Pass& pass, std::int64_t begin, std::int64_t end, const Body& body) {
    if (begin >= end) return;
    Block block(pass, begin), later(pass, std::min(begin + AHEAD, end - 1));
    for (std::int64_t index = begin + 1;; ++index) {
        body(block, later);
        if (index == end) return;
        block.advance();
        if (index + AHEAD < end) later.advance();
    }
}

struct Plan {
    BoolitLayout layout;
    std::vector<BoolitGate> gates;
    std::vector<Pass> passes;
    std::vector<std::pair<int, int>> tree;  // children of node k + t: leaves are 0 … k-1, the last node is the root
    std::int64_t kept_bytes = 0;

    Plan(const BoolitLayout& of, const BoolitGate* all) : layout(of), gates(all, all + of.count) {
        std::int64_t out_groups = 0, out_start = 0;
        for (const BoolitGate& gate : gates) out_groups += gate.size;
        for (int m = 0; m < of.count; m += of.duplicate ? of.count : 1) {
            if (gates[m].size == 0) continue;
            passes.push_back(make_pass(m, of.duplicate ? of.count : 1, out_start, out_groups));
            out_start += gates[m].size;
        }
        if (std::all_of(gates.begin(), gates.end(), [](const BoolitGate& gate) { return gate.kind == OR_AIL || gate.kind == XNOR_AIL; }))
            for (Pass& pass : passes) pass.kept = kept_bytes, kept_bytes += pass.kept_bytes();
        grow_tree();
    }

    Pass make_pass(int first, int count, std::int64_t out_start, std::int64_t out_groups) const {
        const std::int64_t start = gates[first].start, size = gates[first].size, inner = layout.inner, k = layout.k;
        Pass pass{};
        pass.first = first, pass.count = count, pass.planes = int(2 * (k - 1));
        pass.source = (layout.halves ? start : start * k) * inner, pass.target = out_start * inner, pass.skip = size * inner;
        pass.source_outer = layout.groups * k * inner, pass.target_outer = out_groups * inner;
        if (layout.halves) {  // all groups of an outer index are one run
            pass.lane = 1, pass.operand = layout.groups * inner, pass.lanes = size * inner, pass.runs = 1;
        } else if (inner != 1) {  // a run is the inner extent of one group
            pass.lane = 1, pass.operand = inner, pass.lanes = inner, pass.runs = size;
            pass.source_run = k * inner, pass.target_run = inner;
        } else {
            pass.lane = k, pass.operand = 1, pass.lanes = size, pass.runs = 1;
        }
        pass.segments = layout.outer * pass.runs;
        if (!layout.halves && inner == 1 && count == 1 && size == layout.groups) {
            pass.lanes *= layout.outer, pass.segments = 1;  // one gate on rows that follow each other: one long run
        }
        pass.rows = k == 2 && 0 < pass.lanes && pass.lanes < SHORT ? (BLOCK - MARGIN) / pass.lanes : 1;
        for (int m = first; m < first + count; ++m) {
            const bool exact = gates[m].kind == OR_IL || gates[m].kind == XNOR_IL;
            const auto admits = [&](Part& part) { return part.slots != 0 && !exact && part.admit(gates[m], m); };
            if (std::any_of(pass.parts.begin(), pass.parts.end(), admits)) continue;
            Part part;
            if (exact) part.gate[0] = m;
            else part.admit(gates[m], m);
            pass.parts.push_back(part);
        }
        return pass;
    }

    // Neighbours are joined level by level; an odd one out goes on to the next level. So children keep the order of the operands.
    void grow_tree() {
        std::vector<int> level(std::size_t(layout.k)), next;
        for (int j = 0; j < layout.k; ++j) level[j] = j;
        for (; level.size() > 1; level.swap(next)) {
            next.clear();
            for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
                next.push_back(int(layout.k) + int(tree.size()));
                tree.push_back({level[i], level[i + 1]});
            }
            if (level.size() % 2) next.push_back(level.back());
        }
    }
};

template <class T>
Affine<T> affine_of(const BoolitGate& gate) {
    return {T(gate.flips == 1 || gate.flips == 2 ? -1 : 1), T(gate.flips == 1 || gate.flips == 3 ? -1 : 1), T(gate.scale), T(gate.shift)};
}

// Calls body with the kind of an exact gate's loops as a compile-time constant.
template <class Body>
void with_exact(const BoolitGate& gate, const Body& body) {
    if (gate.kind == XNOR_IL) return body(std::integral_constant<int, XNOR_IL>{});
    if (gate.flips == 0) return body(std::integral_constant<int, OR_IL>{});
    if (gate.flips == 1) return body(std::integral_constant<int, AND_IL>{});
    return body(std::integral_constant<int, TURNED_OR_IL>{});
}

// Constants of the gates of a part; AND is not OR of negated operands here, and XNOR of -x and y is minus XNOR.
template <class T>
Trio<T> trio_of(const Plan& plan, const Part& part) {
    Trio<T> trio{};
    trio.turn = part.turned == 1 ? T(-1) : T(1);
    for (int slot = 0; slot < SLOTS; ++slot) {
        const BoolitGate& gate = plan.gates[part.gate[slot]];
        const T sign = slot == 1 ? T(-1) : slot == 2 ? trio.turn : T(1);
        trio.scale[slot] = sign * T(gate.scale), trio.shift[slot] = T(gate.shift);
    }
    return trio;
}

void copy_planes(Bits<const std::uint8_t> from, Bits<std::uint8_t> to, int n) {
    for (int p = 0; p < 2; ++p) std::memcpy(to.at(p, 0), from.at(p, 0), std::size_t(n + 7) / 8);
}

template <class Byte>
Bits<Byte> bits_at(const Pass& pass, const Block& block, int gate, Byte* kept) {
    return {kept + block.kept + std::int64_t(gate - pass.first) * pass.planes * block.plane, block.plane};
}

// The operands of a block, to and from a buffer in which runs follow each other. The conversion of a run may write up to a vector more.
template <class S, class T, bool interleaved>
void narrow_pairs(const T* values, const Block& block, S* grad_x) {
    const std::int64_t operand = block.pass.operand;
    if (interleaved && block.pass.is_packed()) return narrow_all<S, T>(values, 2 * block.n, grad_x + block.source, false);
    block.for_rows([&](int first, int n, std::int64_t source, std::int64_t) {
        narrow_all<S, T>(values + (interleaved ? 2 * first : first), interleaved ? 2 * n : n, grad_x + source, false);
        if (!interleaved) narrow_all<S, T>(values + BLOCK + first, n, grad_x + source + operand, false);
    });
}

template <class S, class T, bool interleaved>
void widen_pairs(const S* x, const Block& block, T* values) {
    const std::int64_t operand = block.pass.operand;
    if (interleaved && block.pass.is_packed()) return widen_all<S, T>(x + block.source, 2 * block.n, values);
    block.for_rows([&](int first, int n, std::int64_t source, std::int64_t) {
        widen_all<S, T>(x + source, interleaved ? 2 * n : n, values + (interleaved ? 2 * first : first));
        if (!interleaved) widen_all<S, T>(x + source + operand, n, values + BLOCK + first);
    });
}

// ------------------------------------------------------------------------------------------- pairs

// S is the stored type, T that of the arithmetic. A block of another type, or one that does not end with a whole vector, is copied to
// a buffer first, and its results back.
template <class S, class T, bool interleaved>
void forward_pairs(const Plan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* x, S* out, std::uint8_t* kept) {
    alignas(64) T values[2 * BLOCK] = {}, lines[SLOTS * BLOCK];
    std::uint8_t bits[2 * SLOTS * BLOCK / 8];
    for_blocks(pass, begin, end, [&](const Block& block, const Block& later) {
        const bool direct = std::is_same<S, T>::value && block.n % W == 0 && block.rows == 1;
        Pairs<const T, interleaved> v{values, BLOCK};
        if (direct) v = {reinterpret_cast<const T*>(x) + block.source, pass.operand, later.source - block.source};
        else widen_pairs<S, T, interleaved>(x, block, values);
        const std::int64_t ahead = direct ? later.target - block.target : 0;
        const auto target_of = [&](int gate) { return out + block.target + pass.skip * (gate - pass.first); };
        const auto put_line = [&](int gate, const T* line) {
            block.for_rows([&](int first, int n, std::int64_t, std::int64_t target) {
                narrow_all<S, T>(line + first, n, out + target + pass.skip * (gate - pass.first), true);
            });
        };
        for (const Part& part : pass.parts) {
            if (part.slots == 0) {
                const BoolitGate& gate = plan.gates[part.gate[0]];
                T* line = direct ? reinterpret_cast<T*>(target_of(part.gate[0])) : lines;
                with_exact(gate, [&](auto kind) { exact_forward<T, interleaved, kind>(affine_of<T>(gate), v, block.n, line, ahead); });
                if (!direct) put_line(part.gate[0], lines);
                continue;
            }
            Trio<T> trio = trio_of<T>(plan, part);
            trio.ahead = ahead;
            for (int slot = 0; slot < SLOTS; ++slot) {
                trio.out[slot] = direct ? reinterpret_cast<T*>(target_of(part.gate[slot])) : lines + slot * BLOCK;
                trio.bits[slot] = direct ? bits_at(pass, block, part.gate[slot], kept) : Bits<std::uint8_t>{bits + 2 * slot * BLOCK / 8, BLOCK / 8};
            }
            approximate_forward<T, interleaved>(trio, part.slots, kept != nullptr, v, block.n);
            for (int slot = 0; slot < SLOTS && !direct; ++slot) {
                if ((part.slots >> slot & 1) == 0) continue;
                put_line(part.gate[slot], lines + slot * BLOCK);
                if (kept) copy_planes({trio.bits[slot].start, BLOCK / 8}, bits_at(pass, block, part.gate[slot], kept), block.n);
            }
        }
    });
}

// From x, or from the bits if all gates are approximate. Several parts add up in `sums`.
template <class S, class T, bool interleaved>
void backward_pairs(const Plan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* grad, const S* x,
                    const std::uint8_t* kept, S* grad_x) {
    alignas(64) T values[2 * BLOCK] = {}, lines[SLOTS * BLOCK] = {}, redone[SLOTS * BLOCK], result[2 * BLOCK], sums[2 * BLOCK];
    std::uint8_t bits[2 * SLOTS * BLOCK / 8] = {};
    for_blocks(pass, begin, end, [&](const Block& block, const Block& later) {
        const bool direct = std::is_same<S, T>::value && block.n % W == 0 && block.rows == 1, alone = pass.parts.size() == 1;
        Pairs<const T, interleaved> v{values, BLOCK};
        if (direct) v = {reinterpret_cast<const T*>(x) + block.source, pass.operand, later.source - block.source};
        else if (x) widen_pairs<S, T, interleaved>(x, block, values);
        const std::int64_t ahead = direct ? later.target - block.target : 0;
        Pairs<T, interleaved> target{result, BLOCK};
        if (direct && alone) target = {reinterpret_cast<T*>(grad_x) + block.source, pass.operand, v.ahead};
        const auto gradient_of = [&](int gate, T* line) {
            const S* of_gate = grad + pass.skip * (gate - pass.first);
            if (direct) return const_cast<T*>(reinterpret_cast<const T*>(of_gate + block.target));
            block.for_rows([&](int first, int n, std::int64_t, std::int64_t target) { widen_all<S, T>(of_gate + target, n, line + first); });
            return line;
        };
        for (const Part& part : pass.parts) {
            if (part.slots == 0) {
                const BoolitGate& gate = plan.gates[part.gate[0]];
                const T* line = gradient_of(part.gate[0], lines);
                with_exact(gate, [&](auto kind) { exact_backward<T, interleaved, kind>(affine_of<T>(gate), v, line, block.n, target, ahead); });
            } else {
                Trio<T> trio = trio_of<T>(plan, part);
                trio.ahead = ahead;
                for (int slot = 0; slot < SLOTS; ++slot) trio.out[slot] = redone + slot * BLOCK, trio.bits[slot] = {bits + 2 * slot * BLOCK / 8, BLOCK / 8};
                if (!kept) approximate_forward<T, interleaved>(trio, part.slots, true, v, block.n);
                for (int slot = 0; slot < SLOTS; ++slot) {
                    if ((part.slots >> slot & 1) == 0) continue;
                    trio.out[slot] = gradient_of(part.gate[slot], lines + slot * BLOCK);
                    if (!kept) continue;
                    const Bits<const std::uint8_t> from = bits_at(pass, block, part.gate[slot], kept);
                    if (direct) trio.bits[slot] = {const_cast<std::uint8_t*>(from.start), from.plane};
                    else copy_planes(from, trio.bits[slot], block.n);
                }
                approximate_backward<T, interleaved>(trio, part.slots, block.n, target);
            }
            if (alone) continue;
            const bool is_first = &part == &pass.parts.front();
            for (int i = 0; i < 2 * BLOCK; i += W) store<T>(sums + i, is_first ? load<T>(result + i) : load<T>(sums + i) + load<T>(result + i));
        }
        if (!direct || !alone) narrow_pairs<S, T, interleaved>(alone ? result : sums, block, grad_x);
    });
}

// ------------------------------------------------------------------------------------------- groups of k > 2: trees of pairs

// Columns of BLOCK numbers, one for each node of a tree.
template <class T>
struct Columns {
    std::vector<T> memory;
    T* start;
    explicit Columns(std::size_t count) : memory(count * BLOCK + 64 / sizeof(T)) {
        void* place = memory.data();
        std::size_t space = memory.size() * sizeof(T);
        start = static_cast<T*>(std::align(64, count * BLOCK * sizeof(T), place, space));
    }
    T* at(int column) const { return start + std::int64_t(column) * BLOCK; }
};

// OR, AND or XNOR of k operands as the same gate of two, on a block. The values of inner nodes are neither negated nor normalized.
template <class T>
struct Tree {
    const Plan& plan;
    const BoolitGate& gate;
    T sign, scale, shift;
    int slot;

    Tree(const Plan& of, int index)
        : plan(of), gate(of.gates[index]), sign(gate.flips == 1 ? T(-1) : T(1)), scale(sign * T(gate.scale)), shift(T(gate.shift)),
          slot(gate.kind == XNOR_AIL ? 2 : gate.flips) {}

    bool is_exact() const { return gate.kind == OR_IL || gate.kind == XNOR_IL; }
    int root() const { return int(plan.layout.k + std::int64_t(plan.tree.size()) - 1); }

    // Of one node: bits go to, or come from, a buffer of two planes.
    Trio<T> trio(T* out, std::uint8_t* bits) const {
        Trio<T> trio{};
        trio.turn = T(1), trio.scale[slot] = T(1), trio.out[slot] = out, trio.bits[slot] = {bits, BLOCK / 8};
        return trio;
    }

    void forward(const Columns<T>& nodes, int n, Bits<std::uint8_t> kept) const {
        std::uint8_t bits[2 * BLOCK / 8];
        for (std::size_t t = 0; t < plan.tree.size(); ++t) {
            const auto [left, right] = plan.tree[t];
            const Pairs<const T, false> v{nodes.at(left), std::int64_t(right - left) * BLOCK};
            T* out = nodes.at(int(plan.layout.k + std::int64_t(t)));
            if (is_exact()) with_exact(gate, [&](auto kind) { exact_forward<T, false, kind>({sign, sign, sign, T(0)}, v, n, out, 0); });
            else approximate_forward<T, false>(trio(out, bits), 1 << slot, kept.start != nullptr, v, n);
            if (kept.start) copy_planes({bits, BLOCK / 8}, {kept.at(int(2 * t), 0), kept.plane}, n);
        }
    }

    // From the gradients of the root to those of the leaves; nodes hold the values if the gate is exact.
    void backward(const Columns<T>& nodes, const Columns<T>& gradients, int n, Bits<std::uint8_t> kept) const {
        std::uint8_t bits[2 * BLOCK / 8] = {};
        for (std::size_t t = plan.tree.size(); t-- > 0;) {
            const auto [left, right] = plan.tree[t];
            const std::int64_t distance = std::int64_t(right - left) * BLOCK;
            T* grad = gradients.at(int(plan.layout.k + std::int64_t(t)));
            const Pairs<const T, false> v{nodes.at(left), distance};
            const Pairs<T, false> target{gradients.at(left), distance};
            if (is_exact()) {
                with_exact(gate, [&](auto kind) { exact_backward<T, false, kind>({sign, sign, sign, T(0)}, v, grad, n, target, 0); });
            } else {
                copy_planes({kept.at(int(2 * t), 0), kept.plane}, {bits, BLOCK / 8}, n);
                approximate_backward<T, false>(trio(grad, bits), 1 << slot, n, target);
            }
        }
    }
};

template <class S, class T>
void gather(const S* source, std::int64_t lane, std::int64_t operand, int k, int n, const Columns<T>& to) {
    S column[BLOCK];
    for (int j = 0; j < k; ++j, source += operand) {
        for (int i = 0; i < n && lane != 1; ++i) column[i] = source[i * lane];
        widen_all<S, T>(lane == 1 ? source : column, n, to.at(j));
    }
}

template <class S, class T>
void scatter(const Columns<T>& from, std::int64_t lane, std::int64_t operand, int k, int n, S* target) {
    S column[BLOCK];
    for (int j = 0; j < k; ++j, target += operand) {
        narrow_all<S, T>(from.at(j), n, lane == 1 ? target : column, false);
        for (int i = 0; i < n && lane != 1; ++i) target[i * lane] = column[i];
    }
}

template <class S, class T>
void forward_trees(const Plan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* x, S* out, std::uint8_t* kept) {
    const int k = int(plan.layout.k);
    const Columns<T> nodes(std::size_t(2 * k - 1));
    alignas(64) T line[BLOCK];
    for_blocks(pass, begin, end, [&](const Block& block, const Block&) {
        gather<S, T>(x + block.source, pass.lane, pass.operand, k, block.n, nodes);
        for (int m = pass.first; m < pass.first + pass.count; ++m) {
            const Tree<T> tree(plan, m);
            tree.forward(nodes, block.n, kept ? bits_at(pass, block, m, kept) : Bits<std::uint8_t>{});
            for (int i = 0; i < block.n; i += W) {
                const Real<T> value = load<T>(nodes.at(tree.root()) + i);
                store<T>(line + i, saturated<T>(value, size_of<T>(value) == std::numeric_limits<T>::infinity(), tree.scale, tree.shift));
            }
            narrow_all<S, T>(line, block.n, out + block.target + pass.skip * (m - pass.first), true);
        }
    });
}

template <class S, class T>
void backward_trees(const Plan& plan, const Pass& pass, std::int64_t begin, std::int64_t end, const S* grad, const S* x,
                    const std::uint8_t* kept, S* grad_x) {
    const int k = int(plan.layout.k);
    const Columns<T> nodes(std::size_t(kept ? 1 : 2 * k - 1)), gradients(std::size_t(2 * k - 1)), sums{std::size_t(k)};
    std::vector<std::uint8_t> buffer(std::size_t(kept ? 0 : pass.planes) * BLOCK / 8);
    for_blocks(pass, begin, end, [&](const Block& block, const Block&) {
        if (!kept) gather<S, T>(x + block.source, pass.lane, pass.operand, k, block.n, nodes);
        for (int m = pass.first; m < pass.first + pass.count; ++m) {
            const Tree<T> tree(plan, m);
            Bits<std::uint8_t> bits{tree.is_exact() ? nullptr : buffer.data(), BLOCK / 8};
            if (kept) bits = bits_at(pass, block, m, const_cast<std::uint8_t*>(kept));
            else tree.forward(nodes, block.n, bits);
            T* top = gradients.at(tree.root());
            widen_all<S, T>(grad + block.target + pass.skip * (m - pass.first), block.n, top);
            for (int i = 0; i < block.n; i += W) store<T>(top + i, load<T>(top + i) * tree.scale);
            tree.backward(nodes, gradients, block.n, bits);
            for (int i = 0; i < k * BLOCK; i += W)
                store<T>(sums.start + i, m == pass.first ? load<T>(gradients.start + i) : load<T>(sums.start + i) + load<T>(gradients.start + i));
        }
        scatter<S, T>(sums, pass.lane, pass.operand, k, block.n, grad_x + block.source);
    });
}

// ------------------------------------------------------------------------------------------- threads and types

constexpr std::int64_t WORTH_A_THREAD = 32768;  // elements; below, waking threads costs more than they save

template <class Body>
void share_out(const Plan& plan, const Body& body) {
#ifdef _OPENMP
    const BoolitLayout& of = plan.layout;
    const std::int64_t useful = of.outer * of.groups * of.k * of.inner / WORTH_A_THREAD;
    const int threads = int(std::min<std::int64_t>(useful, omp_in_parallel() ? 1 : omp_get_max_threads()));
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        for (const Pass& pass : plan.passes) {
            const std::int64_t blocks = pass.blocks(), me = omp_get_thread_num(), team = omp_get_num_threads();
            body(pass, blocks * me / team, blocks * (me + 1) / team);
        }
        return;
    }
#endif
    for (const Pass& pass : plan.passes) body(pass, 0, pass.blocks());
}

template <class S, class T>
void forward(const Plan& plan, const void* x, void* out, std::uint8_t* kept) {
    share_out(plan, [&](const Pass& pass, std::int64_t begin, std::int64_t end) {
        const auto sweep = plan.layout.k > 2 ? forward_trees<S, T> : pass.lane == 2 ? forward_pairs<S, T, true> : forward_pairs<S, T, false>;
        sweep(plan, pass, begin, end, static_cast<const S*>(x), static_cast<S*>(out), kept);
    });
}

template <class S, class T>
void backward(const Plan& plan, const void* grad, const void* x, const std::uint8_t* kept, void* grad_x) {
    share_out(plan, [&](const Pass& pass, std::int64_t begin, std::int64_t end) {
        const auto sweep = plan.layout.k > 2 ? backward_trees<S, T> : pass.lane == 2 ? backward_pairs<S, T, true> : backward_pairs<S, T, false>;
        sweep(plan, pass, begin, end, static_cast<const S*>(grad), static_cast<const S*>(x), kept, static_cast<S*>(grad_x));
    });
}

}  // namespace

// The version of this interface; the loader refuses any other.
BOOLIT_API int boolit_abi() { return 5; }

BOOLIT_API int boolit_threads() {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

BOOLIT_API void* boolit_plan(const BoolitLayout* layout, const BoolitGate* gates) { return new Plan(*layout, gates); }

BOOLIT_API void boolit_free(void* plan) { delete static_cast<Plan*>(plan); }

// Bytes that boolit_forward writes to `kept`; 0 if a gate is exact.
BOOLIT_API std::int64_t boolit_kept_bytes(const void* plan) { return static_cast<const Plan*>(plan)->kept_bytes; }

// `kept` may be null: then a backward needs x.
BOOLIT_API void boolit_forward(const void* opaque, const void* x, void* out, std::uint8_t* kept) {
    const Plan& plan = *static_cast<const Plan*>(opaque);
    switch (plan.layout.type) {
        case FLOAT32: return forward<float, float>(plan, x, out, kept);
        case FLOAT64: return forward<double, double>(plan, x, out, kept);
        case BFLOAT16: return forward<bfloat16, float>(plan, x, out, kept);
        default: return forward<float16, float>(plan, x, out, kept);
    }
}

// Exactly one of x and kept is not null.
BOOLIT_API void boolit_backward(const void* opaque, const void* grad, const void* x, const std::uint8_t* kept, void* grad_x) {
    const Plan& plan = *static_cast<const Plan*>(opaque);
    switch (plan.layout.type) {
        case FLOAT32: return backward<float, float>(plan, grad, x, kept, grad_x);
        case FLOAT64: return backward<double, double>(plan, grad, x, kept, grad_x);
        case BFLOAT16: return backward<bfloat16, float>(plan, grad, x, kept, grad_x);
        default: return backward<float16, float>(plan, grad, x, kept, grad_x);
    }
}
