// Root mean square norm, with the addition to the residual stream in front of it where one is given.
//
// Zhang and Sennrich, "Root mean square layer normalization" (2019); rounding as transformers' LlamaRMSNorm: the sum of
// squares and the scaling are float32, the scaled value is rounded to SCALAR and then multiplied by the weight.
// ROW_THREADS threads share a row: a warp, so that a block holds several rows, or the whole block. A row lives in
// registers between its two uses: STEPS chunks of WIDTH scalars per thread, STEPS * WIDTH * ROW_THREADS >= hidden.
// Grid: (ceil(rows / rows per block)).
#include "chunk.cuh"

static_assert(ROW_THREADS == 32 || ROW_THREADS == THREADS);
constexpr int ROWS = THREADS / ROW_THREADS;

struct Params {
    const SCALAR* input;   // [rows, hidden]
    const SCALAR* weight;  // [hidden]
    SCALAR* residual;      // [rows, hidden] or null
    SCALAR* out;           // [rows, hidden]; may be the input
    int64_t input_stride;  // scalars from row to row
    int64_t residual_stride;
    int64_t out_stride;
    int32_t rows;
    int32_t hidden;
    float eps;
    int32_t unused;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    if constexpr (ROW_THREADS > 32) {
        __shared__ float partial[ROW_THREADS / 32];
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
        __syncthreads();
        x = 0;
        for (int i = 0; i < ROW_THREADS / 32; ++i) x += partial[i];
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS) rms_norm(const __grid_constant__ Params p) {
    const int64_t row = blockIdx.x * ROWS + threadIdx.x / ROW_THREADS;
    const int place = threadIdx.x % ROW_THREADS;
    if (row >= p.rows) return;  // whole warps

    Chunk<SCALAR, WIDTH> kept[STEPS], before[STEPS];  // all loads are under way before the first use
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const int at = (step * ROW_THREADS + place) * WIDTH;
        if (at >= p.hidden) continue;
        kept[step] = load_chunk<WIDTH>(p.input + row * p.input_stride + at);
        if (p.residual) before[step] = load_chunk<WIDTH>(p.residual + row * p.residual_stride + at);
    }
    float squares = 0;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const int at = (step * ROW_THREADS + place) * WIDTH;
        if (at >= p.hidden) continue;
        SCALAR(&values)[WIDTH] = kept[step].values;
        if (p.residual) {
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                values[i] = from_float<SCALAR>(to_float(values[i]) + to_float(before[step].values[i]));
            store_chunk<WIDTH>(p.residual + row * p.residual_stride + at, kept[step]);
        }
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) squares += to_float(values[i]) * to_float(values[i]);
    }
    const float scale = rsqrtf(row_sum(squares) / p.hidden + p.eps);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const int at = (step * ROW_THREADS + place) * WIDTH;
        if (at >= p.hidden) continue;
        const Chunk<SCALAR, WIDTH> weight = load_chunk<WIDTH>(p.weight + at);
        Chunk<SCALAR, WIDTH> result;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            const float scaled = rounded<SCALAR>(to_float(kept[step].values[i]) * scale);
            result.values[i] = from_float<SCALAR>(scaled * to_float(weight.values[i]));
        }
        store_chunk<WIDTH>(p.out + row * p.out_stride + at, result);
    }
}
