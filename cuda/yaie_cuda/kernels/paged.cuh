// Keys and values of a paged cache, 16 tokens ("a granule") at a time.
//
// A cache is [num_blocks, num_kv_heads, BLOCK_SIZE, Dim]: the 16 tokens of a granule lie in one block, next to each
// other, so that a warp copies them as one run of 32 * Dim bytes, 16 bytes a lane.
#pragma once
#include "tile.cuh"

constexpr int kGranule = 16;
constexpr int kGranulesPerBlock = BLOCK_SIZE / kGranule;
static_assert(BLOCK_SIZE % kGranule == 0, "a granule must not cross a block");

// The block numbers of granules first, first + Step, ... as one warp walks them. Each lane holds one of the next 32 and
// one of the 32 after those, so that the table is read long before its entries are needed and no copy waits for it.
template <int Step>
struct BlockWalk {
    const int32_t* table;
    int first, count, current, upcoming, lane;

    __device__ __forceinline__ BlockWalk(const int32_t* table, int first, int count, int lane)
            : table(table), first(first), count(count), lane(lane) {
        current = fetch(lane);
        upcoming = fetch(lane + 32);
    }

    __device__ __forceinline__ int fetch(int k) const {
        // Blocks that were given back, behind a sliding window, are marked by negative numbers.
        return k < count ? max(__ldg(table + (first + k * Step) / kGranulesPerBlock), 0) : 0;
    }

    // The block of the k-th granule; all lanes ask for k = 0, 1, 2, ... in turn.
    __device__ __forceinline__ int block(int k) {
        if (k && k % 32 == 0) {
            current = upcoming;
            upcoming = fetch(k + 32 + lane);
        }
        return __shfl_sync(0xffffffffu, current, k % 32);
    }
};

// Elements between the start of a block's head and that of granule number `granule` of the sequence.
template <int Dim>
__device__ __forceinline__ int in_block(int granule) {
    return granule % kGranulesPerBlock * (kGranule * Dim);
}

// Start copying `Rows` rows to rows `to` and on of `tile`. Rows outside [low, high) are not read and become 0: they may
// hold NaN, and 0 * NaN would reach the output. All lanes of a warp take part.
template <int Dim, int Rows, class T>
__device__ __forceinline__ void copy_rows(T* tile, int to, const T* source, int low, int high, int lane) {
    constexpr int kChunks = Tile<Dim>::kChunks;
    static_assert(Rows * kChunks % 32 == 0, "every lane copies the same number of chunks");
#pragma unroll
    for (int i = 0; i < Rows * kChunks / 32; ++i) {
        const int at = lane + 32 * i, row = at / kChunks, chunk = at % kChunks;
        cp_async_16(tile + Tile<Dim>::at(to + row, chunk), source + at * 8, row >= low && row < high);
    }
}
