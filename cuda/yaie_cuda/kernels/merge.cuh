// Attention over parts of the keys, and how parts become one (FlashAttention-2, Flash-Decoding, FlashInfer).
//
// A part is a normalised output row and its log-sum-exp in base 2; -inf means that it saw no key.
#pragma once
#include "softmax.cuh"

// Four numbers of an output row. `out` is of SCALAR, or float where `wide`.
__device__ __forceinline__ void store_four(void* out, int64_t at, bool wide, const float (&value)[4]) {
    if (wide)
        store_float4(static_cast<float*>(out) + at, make_float4(value[0], value[1], value[2], value[3]));
    else
        store_vector(static_cast<SCALAR*>(out) + at,
                     make_uint2(pack2<SCALAR>(value[0], value[1]), pack2<SCALAR>(value[2], value[3])));
}

// The sink of a head in base 2, or -inf without sinks. `sinks` are float where `wide`, else SCALAR.
__device__ __forceinline__ float sink_of(const void* sinks, bool wide, int head) {
    if (sinks == nullptr) return -INFINITY;
    return kLog2E * (wide ? static_cast<const float*>(sinks)[head] : to_float(static_cast<const SCALAR*>(sinks)[head]));
}

// One row out of `parts` rows that lie `stride` rows apart in `outs` [.., Dim] and `lses`, by the lanes of a warp.
// Calls store(column, float[4]) and returns the log-sum-exp with the sink. Other blocks wrote the parts: they are read
// past L1, which is not coherent.
template <int Dim, class Store>
__device__ __forceinline__ float merge_row(const float* outs, const float* lses, int64_t stride, int parts, float sink,
                                           int lane, Store store) {
    float top = -INFINITY, sum = 0.0f;
    for (int i = lane; i < parts; i += 32) top = fmaxf(top, load_float_l2(lses + i * stride));
#pragma unroll
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    for (int i = lane; i < parts; i += 32) sum += share(load_float_l2(lses + i * stride), top);
#pragma unroll
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    const float keys = top == -INFINITY ? top : top + log2f(sum), total = log_add(keys, sink);
    for (int column = lane * 4; column < Dim; column += 128) {
        float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
        for (int i = 0; i < parts; ++i) {
            const float weight = share(load_float_l2(lses + i * stride), total);
            const float4 part = load_float4_l2(outs + i * stride * Dim + column);
            value[0] += weight * part.x;
            value[1] += weight * part.y;
            value[2] += weight * part.z;
            value[3] += weight * part.w;
        }
        store(column, value);
    }
    return total;
}

// Whether this block is the last of `parts` that finished, after all its threads wrote their part to global memory. The
// counter is 0 before the first and after the last. Every thread calls it and gets the same answer.
__device__ __forceinline__ bool last_of(int32_t* counter, int parts) {
    __shared__ int last;
    __threadfence();  // what this thread wrote, before the count
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1) == parts - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    const bool result = last != 0;
    __threadfence();  // the count, before what others wrote
    return result;
}
