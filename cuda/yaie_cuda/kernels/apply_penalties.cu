// Changes the logits of tokens that a sequence has seen: repetition, then frequency and presence penalties.
//
// Repetition: Keskar et al., "CTRL" (2019); frequency and presence as the OpenAI API defines them. A row's tokens lie
// together and are distinct, so that no two threads touch one logit. Grid: (rows).
#include "warp.cuh"

struct Params {
    float* logits;              // [rows, vocab]
    const int64_t* token_ids;   // [row_starts[rows]]
    const float* counts;        // [row_starts[rows]]: how often each was generated; 0: only in the prompt
    const int32_t* row_starts;  // [rows + 1]
    const float* repetition;    // [rows]
    const float* presence;      // [rows]
    const float* frequency;     // [rows]
    int64_t stride;             // floats from row to row
    int32_t vocab;
    int32_t unused;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

extern "C" __global__ void __launch_bounds__(THREADS) apply_penalties(const __grid_constant__ Params p) {
    const int64_t row = blockIdx.x;
    const float repetition = p.repetition[row], presence = p.presence[row], frequency = p.frequency[row];
    for (int i = p.row_starts[row] + threadIdx.x; i < p.row_starts[row + 1]; i += THREADS) {
        const int64_t token = p.token_ids[i];
        if (token < 0 || token >= p.vocab) continue;
        float* logit = p.logits + row * p.stride + token;
        const float count = p.counts[i];
        const float value = *logit > 0 ? __fdiv_rn(*logit, repetition) : *logit * repetition;
        *logit = __fsub_rn(__fsub_rn(value, __fmul_rn(frequency, count)), count > 0 ? presence : 0.0f);
    }
}
