// Rotates the query in place, and writes the rotated key and the value into the paged cache: one read of each.
//
// Grid: (num_tokens, ceil(work of a token / THREADS)). A token's work is, in chunks of WIDTH: the pairs of the query's
// heads; per key head its pairs and then what lies beyond the rotated part; the value's heads. The layout and the
// rounding are those of rotary.cuh. The query of a token whose slot is -1 is rotated, its key and value go nowhere.
#include "rotary.cuh"

struct Params {
    SCALAR* query;                // [num_tokens, num_heads, head_dim], strides below
    const SCALAR* key;            // [num_tokens, num_kv_heads, head_dim]
    const SCALAR* value;          // [num_tokens, num_kv_heads, value_dim]
    const TABLE* cos;             // [num_tokens, 2 * half]
    const TABLE* sin;             // [num_tokens, 2 * half]
    SCALAR* key_cache;            // [num_blocks, num_kv_heads, block_size, head_dim]
    SCALAR* value_cache;          // [num_blocks, num_kv_heads, block_size, value_dim]
    const int64_t* slot_mapping;  // [num_tokens], -1: not written
    int64_t query_token_stride;
    int64_t query_head_stride;
    int64_t key_token_stride;
    int64_t key_head_stride;
    int64_t value_token_stride;
    int64_t value_head_stride;
    int64_t table_stride;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t value_dim;
    int32_t half;
    int32_t block_size;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

__device__ __forceinline__ void rotate_query(const Params& p, int64_t token, int head, int at) {
    SCALAR* first = p.query + token * p.query_token_stride + head * p.query_head_stride + at;
    const int64_t row = token * p.table_stride;
    const Pair rotated = rotate(first, first + p.half, p.cos + row, p.sin + row, at, p.half);
    store_chunk<WIDTH>(first, rotated.first);
    store_chunk<WIDTH>(first + p.half, rotated.second);
}

// Place of (slot, head) in a cache whose heads have `width` scalars.
__device__ __forceinline__ int64_t cache_row(const Params& p, int64_t slot, int head, int width) {
    const int64_t block = slot / p.block_size, offset = slot % p.block_size;
    return ((block * p.num_kv_heads + head) * p.block_size + offset) * width;
}

__device__ __forceinline__ void write_key(const Params& p, int64_t token, int64_t slot, int head, int chunk) {
    const SCALAR* source = p.key + token * p.key_token_stride + head * p.key_head_stride;
    SCALAR* target = p.key_cache + cache_row(p, slot, head, p.head_dim);
    const int at = chunk * WIDTH;
    if (at >= p.half) {
        const int beyond = at + p.half;
        store_chunk<WIDTH>(target + beyond, load_chunk<WIDTH>(source + beyond));
        return;
    }
    const int64_t row = token * p.table_stride;
    const Pair rotated = rotate(source + at, source + at + p.half, p.cos + row, p.sin + row, at, p.half);
    store_chunk<WIDTH>(target + at, rotated.first);
    store_chunk<WIDTH>(target + at + p.half, rotated.second);
}

extern "C" __global__ void __launch_bounds__(THREADS) rotary_reshape_and_cache(const __grid_constant__ Params p) {
    const int64_t token = blockIdx.x;
    int work = blockIdx.y * THREADS + threadIdx.x;
    const int per_query = p.half / WIDTH;
    if (work < p.num_heads * per_query) {
        rotate_query(p, token, work / per_query, work % per_query * WIDTH);
        return;
    }
    const int64_t slot = p.slot_mapping[token];
    if (slot < 0) return;
    work -= p.num_heads * per_query;
    const int per_key = (p.head_dim - p.half) / WIDTH;
    if (work < p.num_kv_heads * per_key) {
        write_key(p, token, slot, work / per_key, work % per_key);
        return;
    }
    work -= p.num_kv_heads * per_key;
    const int per_value = p.value_dim / WIDTH;
    if (work >= p.num_kv_heads * per_value) return;
    const int head = work / per_value, at = work % per_value * WIDTH;
    const SCALAR* source = p.value + token * p.value_token_stride + head * p.value_head_stride + at;
    store_chunk<WIDTH>(p.value_cache + cache_row(p, slot, head, p.value_dim) + at, load_chunk<WIDTH>(source));
}
