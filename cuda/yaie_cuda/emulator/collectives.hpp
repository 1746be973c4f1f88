// Where the threads of a warp or a block meet: shuffles, votes, matrix instructions, barriers.
#pragma once
#include "block.hpp"

namespace emu {

inline void wait_as(State state, const char* operation, Where at) {
    Block& b = block();
    Fiber& f = *b.current;
    f.state = state;
    f.operation = operation;
    f.at = at;
    b.warp[f.warp].ready &= ~(1u << f.thread.lane);
    pass_on();
}

// Another collective that some lane of `mask` is already waiting in.
inline const Group* conflicting(const Warp& warp, uint32_t mask, const char* operation) {
    for (uint32_t pending = warp.pending; pending; pending &= pending - 1) {
        const Group& group = warp.groups[__builtin_ctz(pending)];
        if ((group.mask & mask) && (group.mask != mask || std::strcmp(group.operation, operation) != 0)) return &group;
    }
    return nullptr;
}

// The lanes of `mask` meet; `work(lanes)` is done once, by the last to arrive.
template <class Work>
inline void meet(uint32_t mask, const char* operation, Where at, Work work) {
    Block& b = block();
    Fiber& f = *b.current;
    Warp& warp = b.warp[f.warp];
    const uint32_t bit = 1u << f.thread.lane;
    if (!(mask & bit)) fail(at, "%s: mask %08x does not name the calling lane %u", operation, mask, f.thread.lane);
    if (mask & ~warp.live)
        fail(at, "%s: mask %08x names lanes that have ended or do not exist (%08x)", operation, mask,
             mask & ~warp.live);
    if (const Group* other = conflicting(warp, mask, operation))
        fail(at, "%s with mask %08x, while lanes %08x of the warp wait in %s with mask %08x at %s", operation, mask,
             other->arrived, other->operation, other->mask, describe(other->at).c_str());
    Group& group = warp.groups[__builtin_ctz(mask)];
    if (!group.arrived) {
        group.mask = mask;
        group.operation = operation;
        group.at = at;
        warp.pending |= 1u << __builtin_ctz(mask);
    }
    group.arrived |= bit;
    // Two clocks in turn: a lane that runs on to its next collective must not order the others after that one.
    char* order = &group.order[group.turn & 1];
    release(order);
    if (group.arrived != mask) {
        wait_as(State::in_collective, operation, at);
        acquire(order);
        return;
    }
    acquire(order);
    work(warp.lanes);
    release(order);
    group.arrived = 0;
    ++group.turn;
    warp.pending &= ~(1u << __builtin_ctz(mask));
    for (uint32_t rest = mask & ~bit; rest; rest &= rest - 1)
        make_ready(b.fibers[f.warp * warp_lanes + unsigned(__builtin_ctz(rest))]);
}

inline Lane& my_lane() {
    Block& b = block();
    return b.warp[b.current->warp].lanes[b.current->thread.lane];
}

template <class Each>
inline void for_lanes(uint32_t mask, Each each) {
    for (; mask; mask &= mask - 1) each(unsigned(__builtin_ctz(mask)));
}

void sync_warp(uint32_t mask, Where at) {
    meet(mask, "__syncwarp", at, [](Lane*) {});
}

uint64_t exchange(uint32_t mask, uint64_t value, unsigned source, const char* operation, Where at) {
    Lane& mine = my_lane();
    std::memcpy(mine.given, &value, sizeof value);
    mine.source = source;
    meet(mask, operation, at, [mask](Lane* lanes) {
        for_lanes(mask, [=](unsigned i) {
            const unsigned from = lanes[i].source;
            // What a lane outside of the mask holds is undefined: it reads as NaN, so that use of it shows.
            if (mask >> from & 1u)
                std::memcpy(lanes[i].taken, lanes[from].given, 8);
            else
                std::memset(lanes[i].taken, 0xff, 8);
        });
    });
    std::memcpy(&value, mine.taken, sizeof value);
    return value;
}

uint32_t ballot(uint32_t mask, bool predicate, const char* operation, Where at) {
    Lane& mine = my_lane();
    mine.given[0] = predicate;
    meet(mask, operation, at, [mask](Lane* lanes) {
        uint32_t votes = 0;
        for_lanes(mask, [&](unsigned i) { votes |= lanes[i].given[0] << i; });
        for_lanes(mask, [=](unsigned i) { lanes[i].taken[0] = votes; });
    });
    return mine.taken[0];
}

inline uint32_t combine(Reduction reduction, uint32_t a, uint32_t b) {
    switch (reduction) {
        case Reduction::add: return a + b;
        case Reduction::min: return a < b ? a : b;
        case Reduction::max: return a < b ? b : a;
        case Reduction::min_signed: return int32_t(a) < int32_t(b) ? a : b;
        case Reduction::max_signed: return int32_t(a) < int32_t(b) ? b : a;
        case Reduction::bit_and: return a & b;
        case Reduction::bit_or: return a | b;
        case Reduction::bit_xor: return a ^ b;
    }
    return 0;
}

uint32_t reduce(uint32_t mask, uint32_t value, Reduction reduction, Where at) {
    Lane& mine = my_lane();
    mine.given[0] = value;
    meet(mask, "__reduce_sync", at, [mask, reduction](Lane* lanes) {
        uint32_t rest = mask & (mask - 1), all = lanes[__builtin_ctz(mask)].given[0];
        for_lanes(rest, [&](unsigned i) { all = combine(reduction, all, lanes[i].given[0]); });
        for_lanes(mask, [=](unsigned i) { lanes[i].taken[0] = all; });
    });
    return mine.taken[0];
}

// ---- barriers ------------------------------------------------------------------------------------------------
inline void meet_at(Barrier& barrier, unsigned threads, const char* operation, Where at) {
    Block& b = block();
    Fiber& f = *b.current;
    if (!barrier.count) {
        barrier.threads = threads;
        barrier.at = at;
    }
    barrier.waiting[f.warp] |= 1u << f.thread.lane;
    char* order = &barrier.order[barrier.turn & 1];
    release(order);
    if (++barrier.count < threads) {
        wait_as(State::at_barrier, operation, at);
        acquire(order);
        return;
    }
    barrier.count = 0;
    ++barrier.turn;
    barrier.waiting[f.warp] &= ~(1u << f.thread.lane);
    for (unsigned w = 0; w < b.warps; ++w) {
        for_lanes(barrier.waiting[w], [&](unsigned i) { make_ready(b.fibers[w * warp_lanes + i]); });
        barrier.waiting[w] = 0;
    }
    acquire(order);
}

void sync_block(Where at) {
    Block& b = block();
    Barrier& barrier = b.barriers[0];
    if (b.ended) fail(at, "__syncthreads after %u threads of the block have ended", b.ended);
    if (barrier.count && (barrier.at.line != at.line || std::strcmp(barrier.at.file, at.file) != 0))
        fail(at, "__syncthreads, while %u threads wait in another one at %s", barrier.count,
             describe(barrier.at).c_str());
    meet_at(barrier, b.threads, "__syncthreads", at);
}

void sync_named(unsigned id, unsigned threads, Where at) {
    if (id == 0 || id >= most_barriers) fail(at, "named_barrier: %u; 1 to 15 are allowed", id);
    if (threads == 0 || threads % warp_lanes) fail(at, "named_barrier: %u threads are not whole warps", threads);
    Barrier& barrier = block().barriers[id];
    if (barrier.count && barrier.threads != threads)
        fail(at, "named_barrier %u for %u threads, while others expect %u", id, threads, barrier.threads);
    meet_at(barrier, threads, "named_barrier", at);
}

// ---- matrices: fragment layouts of the PTX manual, "Matrix fragments for mma.m16n8k16" -----------------------------
void load_matrix(uint32_t (&result)[4], uint4 row, bool transposed, Where at) {
    Lane& mine = my_lane();
    std::memcpy(mine.given, &row, sizeof row);
    meet(~0u, transposed ? "ldmatrix_x4_trans" : "ldmatrix_x4", at, [transposed](Lane* lanes) {
        uint16_t matrix[4][8][8];
        for (int i = 0; i < 32; ++i) std::memcpy(matrix[i / 8][i % 8], lanes[i].given, 16);
        for (int i = 0; i < 32; ++i)
            for (int m = 0; m < 4; ++m) {
                const int r = i / 4, c = i % 4 * 2;
                const uint16_t low = transposed ? matrix[m][c][r] : matrix[m][r][c];
                const uint16_t high = transposed ? matrix[m][c + 1][r] : matrix[m][r][c + 1];
                lanes[i].taken[m] = low | uint32_t(high) << 16;
            }
    });
    std::memcpy(result, mine.taken, sizeof result);
}

inline float half_as_float(uint32_t half, Format format) {
    float value;
    if (format == Format::bfloat16) {
        const uint32_t bits = half << 16;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    const auto bits = uint16_t(half);
    _Float16 narrow;
    std::memcpy(&narrow, &bits, sizeof narrow);
    return float(narrow);
}

inline void multiply_all(Lane* lanes, Format format) {
    float a[16][16], b[16][8], d[16][8] = {};
    for (int i = 0; i < 32; ++i) {
        const int r = i / 4, c = i % 4 * 2;
        for (int h = 0; h < 2; ++h) {
            for (int k = 0; k < 4; ++k)
                a[r + 8 * (k & 1)][c + 8 * (k >> 1) + h] = half_as_float(lanes[i].given[k] >> 16 * h & 0xffff, format);
            for (int k = 0; k < 2; ++k)
                b[c + 8 * k + h][r] = half_as_float(lanes[i].given[4 + k] >> 16 * h & 0xffff, format);
        }
    }
    for (int r = 0; r < 16; ++r)
        for (int k = 0; k < 16; ++k)
            for (int c = 0; c < 8; ++c) d[r][c] += a[r][k] * b[k][c];
    for (int i = 0; i < 32; ++i) {
        const int r = i / 4, c = i % 4 * 2;
        const float mine[4] = {d[r][c], d[r][c + 1], d[r + 8][c], d[r + 8][c + 1]};
        std::memcpy(lanes[i].taken, mine, sizeof mine);
    }
}

void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Format format, Where at) {
    Lane& mine = my_lane();
    std::memcpy(mine.given, a, sizeof a);
    mine.given[4] = b0;
    mine.given[5] = b1;
    meet(~0u, "mma_m16n8k16", at, [format](Lane* lanes) { multiply_all(lanes, format); });
    float product[4];
    std::memcpy(product, mine.taken, sizeof product);
    for (int i = 0; i < 4; ++i) d[i] += product[i];
}

}  // namespace emu
