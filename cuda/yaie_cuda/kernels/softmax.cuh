// Online softmax over mma accumulators, in powers of two (FlashAttention, Dao et al. 2022; base 2: FlashAttention-2).
//
// A thread of a warp holds, of a 16-row tile, rows lane / 4 and lane / 4 + 8 ("half" 0 and 1), and of every 8 columns
// the two at 2 * (lane % 4). Maxima are of raw scores; scores meet the scale (with log2 e folded in) in one fused
// multiply-add in front of exp2.
#pragma once
#include "warp.cuh"

constexpr float kLog2E = 1.4426950408889634f;

struct RowState {
    float top[2] = {-INFINITY, -INFINITY};  // largest raw score so far
    float sum[2] = {0.0f, 0.0f};            // of this thread's columns only, relative to `top`
};

// tanh by one exp2: its absolute error stays near 1e-7, where tanh.approx has 5e-4.
__device__ __forceinline__ float capped(float x) { return 1.0f - 2.0f / (exp2_fast(x * (2.0f * kLog2E)) + 1.0f); }

// Scores to tanh(score * inner); the caller's scale is then softcap * log2 e.
template <int Columns>
__device__ __forceinline__ void cap_scores(float (&scores)[Columns][4], float inner) {
#pragma unroll
    for (int c = 0; c < Columns; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[c][e] = capped(scores[c][e] * inner);
}

// -inf wherever key `first_key` + column is not in [low, high) of its row. A NaN score of an unseen key goes too.
template <int Columns>
__device__ __forceinline__ void mask_scores(float (&scores)[Columns][4], int first_key, const int (&low)[2],
                                            const int (&high)[2], int lane) {
#pragma unroll
    for (int c = 0; c < Columns; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int key = first_key + c * 8 + lane % 4 * 2 + e % 2;
            if (key < low[e / 2] || key >= high[e / 2]) scores[c][e] = -INFINITY;
        }
}

// Scores become weights relative to the new maximum, masked ones exactly 0; `output` is brought to that maximum.
template <int Columns, int Width>
__device__ __forceinline__ void absorb(float (&scores)[Columns][4], RowState& state, float (&output)[Width][4],
                                       float scale) {
    float shift[2], correction[2];
    bool grew = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float top = state.top[h];
#pragma unroll
        for (int c = 0; c < Columns; ++c) top = fmaxf(top, fmaxf(scores[c][2 * h], scores[c][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        grew |= top > state.top[h];
        shift[h] = top == -INFINITY ? 0.0f : top * scale;
        correction[h] = exp2_fast(state.top[h] * scale - shift[h]);
        state.top[h] = top;
        state.sum[h] *= correction[h];
#pragma unroll
        for (int c = 0; c < Columns; ++c)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) {
                scores[c][e] = exp2_fast(scores[c][e] * scale - shift[h]);
                state.sum[h] += scores[c][e];
            }
    }
    // Maxima settle early: most tiles skip the rescaling of the whole output.
    if (__any_sync(0xffffffffu, grew)) {
#pragma unroll
        for (int c = 0; c < Width; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) output[c][e] *= correction[e / 2];
    }
}

// The sum over all columns of a row, from the four threads that share it.
__device__ __forceinline__ float row_total(float part) {
    part += __shfl_xor_sync(0xffffffffu, part, 1);
    return part + __shfl_xor_sync(0xffffffffu, part, 2);
}

// log2(2^a + 2^b), also where one or both are -inf.
__device__ __forceinline__ float log_add(float a, float b) {
    const float top = fmaxf(a, b);
    return top == -INFINITY ? top : top + log2f(exp2_fast(a - top) + exp2_fast(b - top));
}

// 2^(a - b), 0 where b is -inf.
__device__ __forceinline__ float share(float a, float b) { return b == -INFINITY ? 0.0f : exp2_fast(a - b); }

// The A fragment of 16 weight columns, from column group `c` (8 columns each) on.
template <class T, int Columns>
__device__ __forceinline__ void pack_weights(uint32_t (&fragment)[4], const float (&scores)[Columns][4], int c) {
    fragment[0] = pack2<T>(scores[c][0], scores[c][1]);
    fragment[1] = pack2<T>(scores[c][2], scores[c][3]);
    fragment[2] = pack2<T>(scores[c + 1][0], scores[c + 1][1]);
    fragment[3] = pack2<T>(scores[c + 1][2], scores[c + 1][3]);
}
