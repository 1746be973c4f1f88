// Copies blocks inside the caches of all layers, in one launch.
//
// Grid: (num_pairs * parts, num_caches). A block of threads copies one part of PART bytes of one block of one cache;
// its loads are all under way before the first store.
#include "warp.cuh"

constexpr int LOADS = 4;
constexpr int PART = THREADS * LOADS * 16;  // bytes

struct Params {
    unsigned char* const* caches;  // [num_caches]: addresses, multiples of 16
    const int64_t* block_bytes;    // [num_caches]: multiples of 16
    const int64_t* block_mapping;  // [num_pairs, 2]: source, destination; a pair with a negative one is left out
    int32_t parts;                 // of the largest block
    int32_t unused;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

extern "C" __global__ void __launch_bounds__(THREADS) copy_blocks(const __grid_constant__ Params p) {
    const int64_t pair = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
    const int64_t source = p.block_mapping[2 * pair], destination = p.block_mapping[2 * pair + 1];
    if (source < 0 || destination < 0) return;

    unsigned char* cache = p.caches[blockIdx.y];
    const int64_t bytes = p.block_bytes[blockIdx.y];
    uint4 held[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int64_t at = part * PART + (i * THREADS + threadIdx.x) * 16;
        if (at < bytes) held[i] = *reinterpret_cast<const uint4*>(cache + source * bytes + at);
    }
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int64_t at = part * PART + (i * THREADS + threadIdx.x) * 16;
        if (at < bytes) *reinterpret_cast<uint4*>(cache + destination * bytes + at) = held[i];
    }
}
