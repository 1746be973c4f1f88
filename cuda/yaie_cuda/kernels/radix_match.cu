// Matches a batch of prompts against a flattened radix tree: how far each one is known, and where its path ends.
//
// After Mini-YAIE's radix_ops. Nodes are numbered breadth first, so that a node's children are neighbours; they are
// sorted by the first token of their runs, which are never empty below the roots. One warp per prompt: it finds the
// child by a search with 32 probes a round, and compares 128 tokens a round. Grid: (ceil(prompts / warps per block)).
#include "warp.cuh"

struct Params {
    const int32_t* node_tokens;    // the runs of all nodes, end to end
    const int32_t* token_starts;   // [nodes + 1]: where each node's run begins
    const int32_t* child_starts;   // [nodes + 1]: the children of n are child_starts[n] up to child_starts[n + 1]
    const int32_t* roots;          // [prompts]: where each prompt starts; -1: nothing is known
    const int32_t* prompt_tokens;  // all prompts, end to end
    const int32_t* prompt_starts;  // [prompts + 1]
    int32_t* lengths;              // [prompts]: how many leading tokens are known
    int32_t* nodes;                // [prompts]: the node whose run holds the last known token, or the root
    int32_t prompts;
    int32_t unused;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

constexpr uint32_t ALL = 0xffffffffu;
constexpr int LOADS = 4;  // rounds of a comparison that are under way at once

// The child of `node` whose run begins with `token`, or -1. The children that may be it are cut to a 32nd per round.
__device__ __forceinline__ int child_of(const Params& p, int node, int token) {
    const int lane = threadIdx.x % 32;
    int low = p.child_starts[node], high = p.child_starts[node + 1];  // the last one that is not above, if any
    while (high - low > 0) {
        const int step = (high - low + 31) / 32, probe = low + lane * step;
        const bool not_above = probe < high && p.node_tokens[p.token_starts[probe]] <= token;
        const int last = __popc(__ballot_sync(ALL, not_above)) - 1;
        if (last < 0) return -1;
        if (step == 1) return p.node_tokens[p.token_starts[low + last]] == token ? low + last : -1;
        low += last * step;
        high = min(high, low + step);
    }
    return -1;
}

// The length of the common run at the head of a and b, both of `length` tokens.
__device__ __forceinline__ int common(const int32_t* a, const int32_t* b, int length) {
    const int lane = threadIdx.x % 32;
    for (int done = 0; done < length; done += LOADS * 32) {
        bool ends[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int at = done + i * 32 + lane;
            ends[i] = at >= length || a[at] != b[at];
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const uint32_t differ = __ballot_sync(ALL, ends[i]);
            if (differ) return done + i * 32 + __ffs(differ) - 1;
        }
    }
    return length;
}

extern "C" __global__ void __launch_bounds__(THREADS) radix_match(const __grid_constant__ Params p) {
    const int prompt = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (prompt >= p.prompts) return;  // whole warps
    const int32_t* tokens = p.prompt_tokens + p.prompt_starts[prompt];
    const int length = p.prompt_starts[prompt + 1] - p.prompt_starts[prompt];
    int node = p.roots[prompt], known = 0;
    while (node >= 0 && known < length) {
        const int child = child_of(p, node, tokens[known]);
        if (child < 0) break;
        node = child;
        const int first = p.token_starts[child], run = p.token_starts[child + 1] - first;
        const int same = common(p.node_tokens + first, tokens + known, min(run, length - known));
        known += same;
        if (same < run) break;
    }
    if (threadIdx.x % 32 == 0) {
        p.lengths[prompt] = known;
        p.nodes[prompt] = node;
    }
}
