// Which fiber runs next, and what is said when none can.
#pragma once
#include "block.hpp"

namespace emu {

inline uint64_t next_random(Block& b) {  // xorshift64, Marsaglia 2003
    b.random ^= b.random << 13;
    b.random ^= b.random >> 7;
    b.random ^= b.random << 17;
    return b.random;
}

// The first ready fiber at or after `start`, round the block once.
inline Fiber* ready_from(Block& b, unsigned start) {
    for (unsigned i = 0; i <= b.warps; ++i) {
        const unsigned w = (start / warp_lanes + i) % b.warps;
        uint32_t ready = b.warp[w].ready;
        if (i == 0) ready &= ~0u << start % warp_lanes;
        if (i == b.warps) ready &= ~(~0u << start % warp_lanes);
        if (ready) return &b.fibers[w * warp_lanes + unsigned(__builtin_ctz(ready))];
    }
    return nullptr;
}

inline Fiber* choose(Block& b) {
    const Launch& what = b.run->what;
    const bool from_host = !b.in_kernel();
    if (what.schedule == Schedule::seeded) return ready_from(b, unsigned(next_random(b) % b.threads));
    const unsigned after = from_host ? 0 : (b.current->linear + 1) % b.threads;
    if (what.schedule == Schedule::round_robin) return ready_from(b, after);
    // One warp runs as far as it can, then the next one; with a seed, any other one.
    if (!from_host) {
        const Warp& own = b.warp[b.current->warp];
        const uint32_t later = own.ready & ~((2u << b.current->thread.lane) - 1u);
        const uint32_t ready = later ? later : own.ready;
        if (ready) return &b.fibers[b.current->warp * warp_lanes + unsigned(__builtin_ctz(ready))];
    }
    if (what.seed) return ready_from(b, unsigned(next_random(b) % b.warps) * warp_lanes);
    return ready_from(b, from_host ? 0 : (b.current->warp + 1) % b.warps * warp_lanes);
}

// "threads 0-31 wait in __syncthreads at tile.cuh:12; threads 32-63 ended", in runs of equal state.
inline std::string who_waits_where(const Block& b) {
    std::string text;
    for (unsigned first = 0, last; first < b.threads; first = last) {
        const Fiber& f = b.fibers[first];
        for (last = first + 1; last < b.threads; ++last) {
            const Fiber& g = b.fibers[last];
            const bool same =
                g.state == f.state &&
                (f.state == State::ended || (g.at.line == f.at.line && std::strcmp(g.at.file, f.at.file) == 0 &&
                                             std::strcmp(g.operation, f.operation) == 0));
            if (!same) break;
        }
        char line[160];
        const char* threads = last == first + 1 ? "thread" : "threads";
        std::snprintf(line, sizeof line, last == first + 1 ? "%s%s %u " : "%s%s %u-%u ", first ? "; " : "", threads,
                      first, last - 1);
        text += line;
        if (f.state == State::ended)
            text += "ended";
        else if (f.state == State::ready)
            text += "can go on";
        else
            text += std::string("wait in ") + f.operation + " at " + describe(f.at);
        if (text.size() > 1500) return text + "; ...";
    }
    return text;
}

}  // namespace emu
