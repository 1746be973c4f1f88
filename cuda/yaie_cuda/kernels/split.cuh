// How the keys of a batch are split over a fixed number of blocks, worked out on the device by every warp for itself.
//
// The host knows shapes only (a CUDA graph freezes what it says), the lengths lie in device memory. So each block adds
// up the lengths, picks one split size for the whole batch, and finds its own piece by a prefix sum: at a batch of 128
// that is some 20 shuffles, under a microsecond, and there is no plan kernel, no table and no copy to keep up to date.
#pragma once
#include "warp.cuh"

__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

__device__ __forceinline__ int warp_sum(int x) {
#pragma unroll
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ __forceinline__ int warp_prefix_sum(int x, int lane) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, x, step);
        if (lane >= step) x += before;
    }
    return x;
}

struct Piece {
    int sequence, part, parts, first_item;  // part `part` of `parts`, which are items first_item, first_item + 1, ...
};

// The piece with number `item` when sequence i has parts(i) of them; sequence -1 behind the last. One warp.
template <class Parts>
__device__ __forceinline__ Piece find_piece(int item, int num_seqs, int lane, Parts parts) {
    int before = 0;
    for (int base = 0; base < num_seqs; base += 32) {
        const int mine = base + lane < num_seqs ? parts(base + lane) : 0;
        const int after = before + warp_prefix_sum(mine, lane);
        const uint32_t beyond = __ballot_sync(0xffffffffu, item < after);
        if (beyond) {
            const int source = __ffs(static_cast<int>(beyond)) - 1;
            const int count = __shfl_sync(0xffffffffu, mine, source);
            const int first = __shfl_sync(0xffffffffu, after, source) - count;
            return {base + source, item - first, count, first};
        }
        before = __shfl_sync(0xffffffffu, after, 31);
    }
    return {-1, 0, 0, 0};
}

constexpr int kLeastChunk = 4;    // steps: 256 tokens, so that parts add less than 3 % to the bytes moved
constexpr int kStepsToStart = 2;  // what filling and draining a pipeline costs, in steps

// The split size in steps. length(i) is the length of sequence i in steps, `heads` how often each sequence is worked
// on, `slots` how many blocks run at once. Of 1 to `rounds` pieces per slot the one with the shortest estimated time is
// taken, since 1.2 rounds of whole sequences would leave the device idle for 40 % of the time. One warp.
template <class Length>
__device__ __forceinline__ int pick_chunk(int num_seqs, int heads, int slots, int rounds, int lane, Length length) {
    int total = 0, longest = 0;
    for (int i = lane; i < num_seqs; i += 32) {
        total += length(i);
        longest = max(longest, length(i));
    }
    total = warp_sum(total);
#pragma unroll
    for (int step = 16; step; step /= 2) longest = max(longest, __shfl_xor_sync(0xffffffffu, longest, step));
    int best = 0, best_time = 0;
    for (int round = 1; round <= rounds; ++round) {
        const int chunk = max(kLeastChunk, ceil_div(total * heads, slots * round));
        int items = 0;
        for (int i = lane; i < num_seqs; i += 32) items += max(ceil_div(length(i), chunk), 1);
        const int time = ceil_div(warp_sum(items) * heads, slots) * (min(chunk, longest) + kStepsToStart);
        if (round == 1 || time < best_time) best = chunk, best_time = time;
    }
    return best;
}
