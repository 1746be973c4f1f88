// Writes the keys and values of new tokens into the paged cache.
//
// Grid: (num_tokens, pieces of a token). A thread moves one UNIT: an unsigned integer of 2, 4, 8 or 16 bytes, so the
// kernel serves every dtype. A token's work is its key's units, head by head, and then its value's. Neighbouring
// threads read neighbouring units and write runs of a whole head, so both sides coalesce.
#include "warp.cuh"

struct Params {
    const UNIT* key;              // [num_tokens, num_kv_heads, key_units], strides below
    const UNIT* value;            // [num_tokens, num_kv_heads, value_units]
    UNIT* key_cache;              // [num_blocks, num_kv_heads, block_size, key_units]
    UNIT* value_cache;            // [num_blocks, num_kv_heads, block_size, value_units]
    const int64_t* slot_mapping;  // [num_tokens], -1: not written
    int64_t key_token_stride;     // units
    int64_t key_head_stride;
    int64_t value_token_stride;
    int64_t value_head_stride;
    int32_t num_kv_heads;
    int32_t block_size;
    int32_t key_units;  // of one head
    int32_t value_units;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

extern "C" __global__ void __launch_bounds__(THREADS) reshape_and_cache(const __grid_constant__ Params p) {
    const int64_t token = blockIdx.x;
    const int64_t slot = p.slot_mapping[token];
    const int key_work = p.num_kv_heads * p.key_units;
    const int at = blockIdx.y * THREADS + threadIdx.x;
    if (slot < 0 || at >= key_work + p.num_kv_heads * p.value_units) return;

    const bool is_key = at < key_work;
    const int units = is_key ? p.key_units : p.value_units;
    const int inside = is_key ? at : at - key_work;
    const int head = inside / units, unit = inside % units;
    const UNIT* source = is_key ? p.key + token * p.key_token_stride + head * p.key_head_stride
                                : p.value + token * p.value_token_stride + head * p.value_head_stride;
    const int64_t block = slot / p.block_size, offset = slot % p.block_size;
    UNIT* target = is_key ? p.key_cache : p.value_cache;
    target[((block * p.num_kv_heads + head) * p.block_size + offset) * units + unit] = source[unit];
}
