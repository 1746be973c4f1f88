// Rotates query and key in place; the layout and the rounding are those of rotary.cuh.
//
// Grid: (num_tokens, ceil(work of a token / THREADS)). A thread rotates WIDTH pairs of one head; the query's heads come
// first. Scalars of a head beyond the rotated part stay as they are.
#include "rotary.cuh"

struct Params {
    SCALAR* query;             // [num_tokens, num_heads, head_dim], strides below
    SCALAR* key;               // [num_tokens, num_kv_heads, head_dim]
    const TABLE* cos;          // [num_positions, 2 * half]
    const TABLE* sin;          // [num_positions, 2 * half]
    const int64_t* positions;  // [num_tokens]: rows of cos and sin
    int64_t query_token_stride;
    int64_t query_head_stride;
    int64_t key_token_stride;
    int64_t key_head_stride;
    int64_t table_stride;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t half;
    int32_t unused;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

extern "C" __global__ void __launch_bounds__(THREADS) rotary_embedding(const __grid_constant__ Params p) {
    const int64_t token = blockIdx.x;
    const int per_head = p.half / WIDTH, work = blockIdx.y * THREADS + threadIdx.x;
    const int head = work / per_head, at = work % per_head * WIDTH;
    if (head >= p.num_heads + p.num_kv_heads) return;
    const int64_t row = p.positions[token] * p.table_stride;
    SCALAR* first = head < p.num_heads
                        ? p.query + token * p.query_token_stride + head * p.query_head_stride + at
                        : p.key + token * p.key_token_stride + (head - p.num_heads) * p.key_head_stride + at;
    const Pair rotated = rotate(first, first + p.half, p.cos + row, p.sin + row, at, p.half);
    store_chunk<WIDTH>(first, rotated.first);
    store_chunk<WIDTH>(first + p.half, rotated.second);
}
