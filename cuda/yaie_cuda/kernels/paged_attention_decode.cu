// Attention of the newest tokens over a paged cache: at most 16 query rows (heads of one key head x tokens) a sequence.
//
// Bound by memory: each key and value is read once, by one warp, for all rows at once, which are the 16 rows of an mma
// tile (packed grouped heads, FlashAttention-3; split keys, Flash-Decoding). At 16 rows the tensor cores need 15 % of
// their rate to keep up with 4.3 TB/s. The warps of a block take granules of 16 tokens in turn and never wait for each
// other: a warp copies its own granules STAGES - 1 ahead (cp.async, 16 bytes a lane, whole runs of 32 x HEAD_DIM
// bytes) and keeps its own softmax state; states meet once, at the end of the piece. Blocks stay and take pieces in
// turn (see split.cuh); the block that finishes a sequence last merges its parts. At HEAD_DIM 128 a block has 64 KB in
// flight and two share a multiprocessor of sm_90: 128 KB, where 4.3 TB/s x 0.7 us need 23.
#include "merge.cuh"
#include "paged.cuh"
#include "split.cuh"

struct Params {
    const SCALAR* query;          // [num_seqs, q_len, num_heads, HEAD_DIM], strides below
    const SCALAR* key_cache;      // [num_blocks, num_kv_heads, BLOCK_SIZE, HEAD_DIM]
    const SCALAR* value_cache;    // the same shape and strides
    const int32_t* block_tables;  // [num_seqs, max_blocks]
    const int32_t* context_lens;  // [num_seqs]
    const int32_t* first_keys;    // [num_seqs] keys before these are not looked at; null: none
    const void* sinks;            // [num_heads] or null
    void* out;                    // [num_seqs, q_len, num_heads, HEAD_DIM]
    float* lse;                   // [num_seqs, q_len, num_heads] or null
    float* part_outs;             // [pieces * num_kv_heads, 16, HEAD_DIM]
    float* part_lses;             // [pieces * num_kv_heads, 16]
    int32_t* counters;            // [num_seqs * num_kv_heads], zero
    int64_t query_seq_stride, query_token_stride, block_stride, table_stride;  // in elements
    int32_t num_seqs, q_len, num_kv_heads, group, max_blocks, window, rounds, wide_out, wide_sinks, padding;
    float scale;      // of raw scores (or of their tanh), log2 e included
    float cap_scale;  // scale / softcap, 0: no cap
};
static_assert(sizeof(Params) == PARAMS_BYTES);

constexpr int kWarps = THREADS / 32;
constexpr int kRows = 16;
constexpr int kSteps = HEAD_DIM / 16;
constexpr int kTile = Tile<HEAD_DIM>::elements(kGranule);  // keys or values of one granule
constexpr int kWarpElements = STAGES * 2 * kTile;
constexpr bool kQueryShared = HEAD_DIM > 128;  // else its fragments stay in registers
constexpr int kStateStride = HEAD_DIM + 8;     // floats a row; rows 8 words apart meet no bank twice
static_assert(kWarpElements * 2 >= (kRows * kStateStride + 2 * kRows) * 4, "the state of a warp lies over its stages");

// The granules of a sequence that some row sees.
struct Span {
    int length, first, begin, end;  // context, first key, granules [begin, end)
};

__device__ __forceinline__ Span span_of(const Params& p, int sequence) {
    const int length = min(p.context_lens[sequence], p.max_blocks * BLOCK_SIZE);
    int first = p.window ? max(length - p.q_len + 1 - p.window, 0) : 0;
    if (p.first_keys != nullptr) first = max(first, p.first_keys[sequence]);
    const int begin = first / kGranule;
    return {length, first, begin, max(ceil_div(length, kGranule), begin)};
}

// The query rows as A fragments, rows behind the last as 0: in registers, or at HEAD_DIM 256, where they would spill,
// in shared memory behind the stages.
struct Query {
    uint32_t registers[kQueryShared ? 1 : kSteps][4];
    const SCALAR* tile;

    static __device__ __forceinline__ const SCALAR* row_start(const Params& p, const Piece& piece, int head, int row) {
        const int token = row / p.group;
        return p.query + piece.sequence * p.query_seq_stride + token * p.query_token_stride +
               (head * p.group + row - token * p.group) * HEAD_DIM;
    }

    // Into registers, or with cp.async into shared memory, for all warps together.
    __device__ __forceinline__ void load(const Params& p, const Piece& piece, int head, SCALAR* shared, int warp,
                                         int lane) {
        const int rows = p.q_len * p.group;
        tile = shared + kWarps * kWarpElements;
        if constexpr (kQueryShared) {
            for (int row = warp; row < kRows; row += kWarps)
                copy_rows<HEAD_DIM, 1>(shared + kWarps * kWarpElements, row,
                                       row_start(p, piece, head, min(row, rows - 1)), 0, row < rows, lane);
        } else {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = lane / 4 + 8 * h;
                const SCALAR* from = row_start(p, piece, head, min(row, rows - 1)) + lane % 4 * 2;
#pragma unroll
                for (int s = 0; s < kSteps; ++s) {
                    registers[s][h] = row < rows ? *reinterpret_cast<const uint32_t*>(from + s * 16) : 0u;
                    registers[s][h + 2] = row < rows ? *reinterpret_cast<const uint32_t*>(from + s * 16 + 8) : 0u;
                }
            }
        }
    }

    __device__ __forceinline__ void fragment(uint32_t (&a)[4], int step, int lane) const {
        if constexpr (kQueryShared) {
            load_a<HEAD_DIM>(a, tile, 0, step, lane);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = registers[step][i];
        }
    }
};

// What a warp knows of the rows so far.
struct WarpState {
    float output[HEAD_DIM / 8][4];
    RowState rows;
};

// Which keys the rows see: low and high are of this thread's two rows, [all_from, all_to) is seen by all rows.
struct Sight {
    int low[2], high[2], all_from, all_to;

    __device__ __forceinline__ Sight(const Params& p, const Span& span, int lane) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            high[h] = span.length - p.q_len + (lane / 4 + 8 * h) / p.group + 1;
            low[h] = max(span.first, p.window ? high[h] - p.window : 0);
        }
        all_from = max(span.first, p.window ? span.length - p.window : 0);
        all_to = span.length - p.q_len + 1;
    }
};

// One granule, from key number `key` on: scores, softmax, weighted sum.
__device__ __forceinline__ void absorb_granule(const Params& p, const Query& query, const Sight& sight,
                                               const SCALAR* keys, int key, WarpState& state, int lane) {
    // Even and odd steps add up apart: the latency of an mma is what a warp waits for.
    float scores[2][4] = {}, odd[2][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        uint32_t a[4], b[4];
        query.fragment(a, s, lane);
        load_keys<HEAD_DIM>(b, keys, 0, s, lane);
        mma_m16n8k16<SCALAR>(s % 2 ? odd[0] : scores[0], a, b[0], b[1]);
        mma_m16n8k16<SCALAR>(s % 2 ? odd[1] : scores[1], a, b[2], b[3]);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[c][e] += odd[c][e];
    if (p.cap_scale != 0.0f) cap_scores(scores, p.cap_scale);
    if (key < sight.all_from || key + kGranule > sight.all_to) mask_scores(scores, key, sight.low, sight.high, lane);
    absorb(scores, state.rows, state.output, p.scale);
    uint32_t weights[4];
    pack_weights<SCALAR>(weights, scores, 0);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        uint32_t b[4];
        load_values<HEAD_DIM>(b, keys + kTile, 0, s, lane);
        mma_m16n8k16<SCALAR>(state.output[2 * s], weights, b[0], b[1]);
        mma_m16n8k16<SCALAR>(state.output[2 * s + 1], weights, b[2], b[3]);
    }
}

// Leave the state over the warp's stages: outputs, then maxima (scaled) and sums of the rows.
__device__ __forceinline__ void leave_state(const Params& p, const WarpState& state, float* to, int lane) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = lane / 4 + 8 * h;
        const float sum = row_total(state.rows.sum[h]);
#pragma unroll
        for (int c = 0; c < HEAD_DIM / 8; ++c)
            store_float2(to + row * kStateStride + c * 8 + lane % 4 * 2,
                         make_float2(state.output[c][2 * h], state.output[c][2 * h + 1]));
        if (lane % 4 == 0) {
            to[kRows * kStateStride + row] = state.rows.top[h] * p.scale;
            to[kRows * kStateStride + kRows + row] = sum;
        }
    }
}

// Attention of this warp's share of granules [begin, end); its state is left in its part of shared memory.
__device__ __forceinline__ void attend(const Params& p, const Piece& piece, const Span& span, int begin, int end,
                                       int head, SCALAR* shared, int warp, int lane) {
    SCALAR* stages = shared + warp * kWarpElements;
    const int first = begin + warp, count = max(ceil_div(end - first, kWarps), 0);
    auto granules = [&] { return Granules{p.block_tables + piece.sequence * p.table_stride, first, count}; };
    BlockWalk<kWarps> walk(granules(), lane);
    const int64_t head_offset = static_cast<int64_t>(head) * BLOCK_SIZE * HEAD_DIM;
    auto copy = [&](int k, int stage) {
        if (k < count) {
            const int granule = first + k * kWarps, key = granule * kGranule;
            const int64_t from =
                walk.block(k, lane, granules) * p.block_stride + head_offset + in_block<HEAD_DIM>(granule);
            SCALAR* to = stages + stage * 2 * kTile;
            const int low = span.first - key, high = span.length - key;
            copy_rows<HEAD_DIM, kGranule>(to, 0, p.key_cache + from, low, high, lane);
            copy_rows<HEAD_DIM, kGranule>(to + kTile, 0, p.value_cache + from, low, high, lane);
        }
        cp_async_commit();
    };
    Query query;
    if constexpr (kQueryShared) query.load(p, piece, head, shared, warp, lane);
#pragma unroll
    for (int k = 0; k < STAGES - 1; ++k) copy(k, k);
    if constexpr (kQueryShared) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
    } else {
        query.load(p, piece, head, shared, warp, lane);
    }
    const Sight sight(p, span, lane);
    WarpState state = {};
    state.rows = RowState();
    int stage = 0, next = STAGES - 1;
    for (int k = 0; k < count; ++k) {
        cp_async_wait<STAGES - 2>();
        __syncwarp();  // the copies of all lanes are there, and all lanes are done with the stage that is filled next
        copy(k + STAGES - 1, next);
        absorb_granule(p, query, sight, stages + stage * 2 * kTile, (first + k * kWarps) * kGranule, state, lane);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    cp_async_wait<0>();
    __syncwarp();
    leave_state(p, state, reinterpret_cast<float*>(stages), lane);
}

// One row of the block's piece out of the states of its warps: store(column, float[4]); returns its log-sum-exp.
template <class Store>
__device__ __forceinline__ float join_warps(const SCALAR* shared, int row, float sink, int lane, Store store) {
    const float* states[kWarps];
    float top = -INFINITY, sum = 0.0f, weights[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
        states[w] = reinterpret_cast<const float*>(shared + w * kWarpElements);
        top = fmaxf(top, states[w][kRows * kStateStride + row]);
    }
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
        weights[w] = share(states[w][kRows * kStateStride + row], top);
        sum += weights[w] * states[w][kRows * kStateStride + kRows + row];
    }
    const float keys = top == -INFINITY ? top : top + log2f(sum), total = log_add(keys, sink);
    const float scale = share(top, total);
    for (int column = lane * 4; column < HEAD_DIM; column += 128) {
        float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const float4 part = load_float4(states[w] + row * kStateStride + column);
            value[0] += weights[w] * part.x;
            value[1] += weights[w] * part.y;
            value[2] += weights[w] * part.z;
            value[3] += weights[w] * part.w;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) value[e] *= scale;
        store(column, value);
    }
    return total;
}

// The results of a piece: straight out where it is the only one, else as a part, merged by the last to finish.
__device__ __forceinline__ void finish(const Params& p, const Piece& piece, int head, const SCALAR* shared, int warp,
                                       int lane) {
    const int rows = p.q_len * p.group;
    const int64_t unit = static_cast<int64_t>(piece.first_item + piece.part) * p.num_kv_heads + head;
    auto head_of = [&](int row) { return head * p.group + row % p.group; };
    auto place_of = [&](int row) {
        const int token = row / p.group;
        return (static_cast<int64_t>(piece.sequence) * p.q_len + token) * (p.num_kv_heads * p.group) + head_of(row);
    };
    auto sink_at = [&](int row) { return sink_of(p.sinks, p.wide_sinks, head_of(row)); };
    if (piece.parts == 1) {
        for (int row = warp; row < rows; row += kWarps) {
            const int64_t at = place_of(row);
            const float lse = join_warps(shared, row, sink_at(row), lane, [&](int column, const float (&value)[4]) {
                store_four(p.out, at * HEAD_DIM + column, p.wide_out, value);
            });
            if (p.lse != nullptr && lane == 0) p.lse[at] = lse;
        }
        return;
    }
    for (int row = warp; row < rows; row += kWarps) {
        float* to = p.part_outs + (unit * kRows + row) * HEAD_DIM;
        const float lse = join_warps(shared, row, -INFINITY, lane, [&](int column, const float (&value)[4]) {
            store_float4(to + column, make_float4(value[0], value[1], value[2], value[3]));
        });
        if (lane == 0) p.part_lses[unit * kRows + row] = lse;
    }
    if (!last_of(p.counters + piece.sequence * p.num_kv_heads + head, piece.parts)) return;
    const int64_t first = static_cast<int64_t>(piece.first_item) * p.num_kv_heads + head;
    const int64_t stride = static_cast<int64_t>(p.num_kv_heads) * kRows;
    for (int row = warp; row < rows; row += kWarps) {
        const int64_t at = place_of(row), part = first * kRows + row;
        const float lse = merge_row<HEAD_DIM>(
            p.part_outs + part * HEAD_DIM, p.part_lses + part, stride, piece.parts, sink_at(row), lane,
            [&](int column, const float (&value)[4]) { store_four(p.out, at * HEAD_DIM + column, p.wide_out, value); });
        if (p.lse != nullptr && lane == 0) p.lse[at] = lse;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) paged_attention_decode(const __grid_constant__ Params p) {
    DYNAMIC_SHARED(memory);
    SCALAR* shared = reinterpret_cast<SCALAR*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    auto length = [&](int i) {
        const Span span = span_of(p, i);
        return ceil_div(span.end - span.begin, kWarps);
    };
    const int chunk = pick_chunk(p.num_seqs, p.num_kv_heads, gridDim.x, p.rounds, lane, length);
    for (int unit = blockIdx.x;; unit += gridDim.x) {
        const int item = unit / p.num_kv_heads, head = unit - item * p.num_kv_heads;
        const Piece piece =
            find_piece(item, p.num_seqs, lane, [&](int i) { return max(ceil_div(length(i), chunk), 1); });
        if (piece.sequence < 0) return;
        const Span span = span_of(p, piece.sequence);
        const int steps = length(piece.sequence);
        const int begin = span.begin + steps * piece.part / piece.parts * kWarps;
        const int end = min(span.begin + steps * (piece.part + 1) / piece.parts * kWarps, span.end);
        attend(p, piece, span, begin, end, head, shared, warp, lane);
        __syncthreads();  // the states of all warps
        finish(p, piece, head, shared, warp, lane);
        __syncthreads();  // they are read before the next piece overwrites them
    }
}
