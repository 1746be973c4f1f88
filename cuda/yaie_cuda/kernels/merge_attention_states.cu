// One attention result out of two over different keys (FlashInfer's merge of states), for results that lie apart.
//
// Bound by memory: two rows are read and one is written, 8 numbers a thread, neighbours in a row next to each other.
#include "softmax.cuh"

struct Params {
    const SCALAR* out_a;  // [rows, HEAD_DIM]
    const SCALAR* out_b;  // [rows, HEAD_DIM]
    const float* lse_a;   // [rows] base 2, -inf: no key was seen
    const float* lse_b;   // [rows]
    RESULT* out;          // [rows, HEAD_DIM]
    float* lse;           // [rows]
    int64_t rows;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

__device__ __forceinline__ void load_eight(float (&x)[8], const float* from) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float4 four = load_float4(from + 4 * i);
        x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
}

template <class T>
__device__ __forceinline__ void load_eight(float (&x)[8], const T* from) {
    const uint4 packed = load_vector(from);
    const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack2<T>(pairs[i]);
        x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
    }
}

__device__ __forceinline__ void store_eight(float* to, const float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
        store_float4(to + 4 * i, make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]));
}

template <class T>
__device__ __forceinline__ void store_eight(T* to, const float (&x)[8]) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = pack2<T>(x[2 * i], x[2 * i + 1]);
    store_vector(to, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
}

extern "C" __global__ void __launch_bounds__(THREADS) merge_attention_states(const __grid_constant__ Params p) {
    constexpr int kChunks = HEAD_DIM / 8;
    const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x, row = at / kChunks;
    if (row >= p.rows) return;
    const float lse_a = p.lse_a[row], lse_b = p.lse_b[row], lse = log_add(lse_a, lse_b);
    const float weight_a = share(lse_a, lse), weight_b = share(lse_b, lse);
    float a[8], b[8];
    load_eight(a, p.out_a + at * 8);
    load_eight(b, p.out_b + at * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i)  // what a part that saw nothing holds may be anything, NaN too
        a[i] = (weight_a == 0.0f ? 0.0f : weight_a * a[i]) + (weight_b == 0.0f ? 0.0f : weight_b * b[i]);
    store_eight(p.out + at * 8, a);
    if (at % kChunks == 0) p.lse[row] = lse;
}
