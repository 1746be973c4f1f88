// Rotary position embedding of one pair of chunks, in the half-split layout of Llama and NeoX.
//
// Su et al., "RoFormer" (2021). Scalar i of the first half and scalar i of the second half of the rotated part form a
// pair. Rounding is that of torch on `x * cos + rotate_half(x) * sin`: products and sum are rounded to the wider of
// SCALAR and TABLE, the result to SCALAR.
#pragma once
#include "chunk.cuh"

struct Pair {
    Chunk<SCALAR, WIDTH> first, second;
};

// Float32 holds every SCALAR: the wider type is float32 unless both are the same.
template <class T, class U>
struct Wider {
    using type = float32;
};
template <class T>
struct Wider<T, T> {
    using type = T;
};
using Work = Wider<SCALAR, TABLE>::type;

__device__ __forceinline__ SCALAR weighed(float x, float cos, float y, float sin) {
    const float sum = __fadd_rn(rounded<Work>(__fmul_rn(x, cos)), rounded<Work>(__fmul_rn(y, sin)));
    return from_float<SCALAR>(rounded<Work>(sum));
}

// `first` and `second` point at chunks of the two halves; `cos` and `sin` at the row of the token's position, `at` is
// the place in the half, `half` its length.
__device__ __forceinline__ Pair rotate(const SCALAR* first, const SCALAR* second, const TABLE* cos, const TABLE* sin,
                                       int at, int half) {
    const Pair x = {load_chunk<WIDTH>(first), load_chunk<WIDTH>(second)};
    const Chunk<TABLE, WIDTH> cos_first = load_chunk<WIDTH>(cos + at), cos_second = load_chunk<WIDTH>(cos + half + at);
    const Chunk<TABLE, WIDTH> sin_first = load_chunk<WIDTH>(sin + at), sin_second = load_chunk<WIDTH>(sin + half + at);
    Pair y;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        const float a = to_float(x.first.values[i]), b = to_float(x.second.values[i]);
        y.first.values[i] = weighed(a, to_float(cos_first.values[i]), -b, to_float(sin_first.values[i]));
        y.second.values[i] = weighed(b, to_float(cos_second.values[i]), a, to_float(sin_second.values[i]));
    }
    return y;
}
