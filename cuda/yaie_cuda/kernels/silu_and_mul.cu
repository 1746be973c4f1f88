// The gate of a Llama MLP: silu(gate) * up, where gate and up lie side by side in one row.
//
// Shazeer, "GLU variants improve transformer" (2020). As torch does it op by op: silu in float32, rounded to SCALAR,
// and then the product. Grid: (rows, ceil(width / (THREADS * WIDTH))); a thread makes WIDTH results.
#include "chunk.cuh"

struct Params {
    const SCALAR* input;   // [rows, 2 * width]: gate, up
    SCALAR* out;           // [rows, width]
    int64_t input_stride;  // scalars from row to row
    int64_t out_stride;
    int32_t width;
    int32_t unused;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

extern "C" __global__ void __launch_bounds__(THREADS) silu_and_mul(const __grid_constant__ Params p) {
    const int64_t row = blockIdx.x;
    const int at = (blockIdx.y * THREADS + threadIdx.x) * WIDTH;
    if (at >= p.width) return;
    const SCALAR* source = p.input + row * p.input_stride + at;
    const Chunk<SCALAR, WIDTH> gate = load_chunk<WIDTH>(source), up = load_chunk<WIDTH>(source + p.width);
    Chunk<SCALAR, WIDTH> result;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        const float x = to_float(gate.values[i]);
        const float silu = rounded<SCALAR>(x / (1.0f + expf(-x)));
        result.values[i] = from_float<SCALAR>(silu * to_float(up.values[i]));
    }
    store_chunk<WIDTH>(p.out + row * p.out_stride + at, result);
}
