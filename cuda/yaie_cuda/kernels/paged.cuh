// Keys and values of a paged cache, 16 tokens ("a granule") at a time.
//
// A cache is [num_blocks, num_kv_heads, BLOCK_SIZE, Dim]: the 16 tokens of a granule lie in one block, next to each
// other, so that a warp copies them as one run of 32 * Dim bytes, 16 bytes a lane.
#pragma once
#include "tile.cuh"

constexpr int kGranule = 16;
constexpr int kGranulesPerBlock = BLOCK_SIZE / kGranule;
static_assert(BLOCK_SIZE % kGranule == 0, "a granule must not cross a block");

// Every Step-th granule of a sequence from number `first` on, `count` of them.
struct Granules {
    const int32_t* table;  // the sequence's row of the block table
    int first, count;
};

// The block numbers of granules as one warp walks over them. Each lane holds one of the next 32 and one of the 32 after
// those, so that the table is read long before its entries are needed and no copy waits for it. What the granules are
// is asked for again every 32 of them, so that it need not stay in registers.
template <int Step>
struct BlockWalk {
    int current, upcoming;

    __device__ __forceinline__ BlockWalk(const Granules& granules, int lane)
        : current(fetch(granules, lane)), upcoming(fetch(granules, lane + 32)) {}

    static __device__ __forceinline__ int fetch(const Granules& granules, int k) {
        // Blocks that were given back, behind a sliding window, are marked by negative numbers.
        if (k >= granules.count) return 0;
        return max(__ldg(granules.table + (granules.first + k * Step) / kGranulesPerBlock), 0);
    }

    // The block of the k-th granule of granules(); all lanes ask for k = 0, 1, 2, ... in turn.
    template <class Describe>
    __device__ __forceinline__ int block(int k, int lane, Describe granules) {
        if (k && k % 32 == 0) {
            current = upcoming;
            upcoming = fetch(granules(), k + 32 + lane);
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
