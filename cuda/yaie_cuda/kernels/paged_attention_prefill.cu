// Attention of chunks of tokens over a paged cache, for ragged batches (FlashAttention-2's tile loop on paged keys).
//
// Bound by the tensor cores. A block has kTileRows query rows of one key head: grouped heads are packed as rows (row =
// token * group + head), so a chunk of 16 tokens with 4 heads a group already fills a tile of 64. Each warp owns
// 16 * WARP_TILES rows; at 32 rows a warp every fragment of keys and values that ldmatrix fetches feeds two products,
// which keeps shared memory (128 bytes a clock) off the critical path. Keys and values come in tiles of KEYS tokens,
// two buffers, one barrier a tile: while tile j is worked on, tile j + 1 is copied. Tiles that no row sees are skipped,
// and only tiles on the diagonal, at a window's edge or at the end are masked. Where there are fewer tiles of rows than
// the device has room for (many rows over one long shared prefix, several tokens a sequence), the keys are split.
#include "merge.cuh"
#include "paged.cuh"
#include "split.cuh"

struct Params {
    const SCALAR* query;          // [num_tokens, num_heads, HEAD_DIM], stride of tokens below
    const SCALAR* key_cache;      // [num_blocks, num_kv_heads, BLOCK_SIZE, HEAD_DIM]
    const SCALAR* value_cache;    // the same shape and strides
    const int32_t* block_tables;  // [.., max_blocks]
    const int32_t* starts;        // [num_seqs + 1] first sequence or token of each, times q_len; null: i * q_len
    const int32_t* context_lens;  // [num_seqs], or with `shared` of sequence starts[i]
    const void* sinks;            // [num_heads] or null
    void* out;                    // [num_tokens, num_heads, HEAD_DIM]
    float* lse;                   // [num_tokens, num_heads] or null
    float* part_outs;             // [row tiles * num_kv_heads * splits, kTileRows, HEAD_DIM]
    float* part_lses;             // [row tiles * num_kv_heads * splits, kTileRows]
    int32_t* counters;            // [row tiles * num_kv_heads], zero
    int64_t query_stride, block_stride, table_stride;  // in elements
    int32_t num_seqs, q_len, num_kv_heads, group, max_blocks, window;
    int32_t shared;  // 1: every row sees all of the context, which is a prefix of sequence starts[i]
    int32_t wide_out, wide_sinks, padding;
    float scale;      // of raw scores (or of their tanh), log2 e included
    float cap_scale;  // scale / softcap, 0: no cap
};
static_assert(sizeof(Params) == PARAMS_BYTES);

constexpr int kWarps = THREADS / 32;
constexpr int kWarpRows = 16 * WARP_TILES;
constexpr int kTileRows = kWarps * kWarpRows;
constexpr int kSteps = HEAD_DIM / 16;
constexpr int kKeyTile = Tile<HEAD_DIM>::elements(KEYS);
constexpr int kGranules = KEYS / kGranule;
// Keys that are scored at a time: with all 64 of a tile, 2 x 16 rows of HEAD_DIM 128 do not fit into 255 registers.
constexpr int kScored = WARP_TILES * HEAD_DIM > 192 ? 32 : KEYS;
constexpr int kCopyRows = KEYS / kWarps;  // rows of a tile that one warp copies, within one granule
static_assert(kCopyRows <= kGranule && kGranule % kCopyRows == 0, "a warp copies from one granule");
constexpr int kLeastTiles = 4;  // keys that are worth a block of their own, in tiles

// The query rows of a block and the keys that they see. It lies in shared memory: registers are what the tile loop is
// shortest of.
struct Work {
    int item, part, parts;       // tile of rows, and which part of its keys
    int begin, end;              // tiles of keys
    int first_row, rows;         // in the sequence; rows <= kTileRows
    int token, head;             // token that row 0 of the sequence belongs to, key head
    int table, context, before;  // row of the block table, keys, keys before the first query token
    int low, high;               // keys that some row sees
    int low_to, high_from;       // keys in [low_to, high_from) are seen by all rows

    __device__ __forceinline__ int high_of(const Params& p, int row) const {
        return p.shared ? context : before + (first_row + row) / p.group + 1;
    }
    __device__ __forceinline__ int low_of(const Params& p, int high) const {
        return p.window ? max(high - p.window, 0) : 0;
    }
    // The row of out [.., HEAD_DIM] that `row` of this tile is.
    __device__ __forceinline__ int64_t place(const Params& p, int row) const {
        const int at = first_row + row, offset = at / p.group, query_head = head * p.group + at - offset * p.group;
        return static_cast<int64_t>(token + offset) * (p.num_kv_heads * p.group) + query_head;
    }
};

// The first token of sequence i.
__device__ __forceinline__ int start_of(const Params& p, int i) {
    return (p.starts == nullptr ? i : p.starts[i]) * p.q_len;
}

__device__ __forceinline__ int row_tiles(const Params& p, int i) {
    return ceil_div((start_of(p, i + 1) - start_of(p, i)) * p.group, kTileRows);
}

__device__ __forceinline__ Work work_of(const Params& p, const Piece& piece, int item, int head, int part, int splits) {
    Work w;
    const int i = piece.sequence, tokens = start_of(p, i + 1) - start_of(p, i);
    w.token = start_of(p, i);
    w.head = head;
    w.first_row = piece.part * kTileRows;
    w.rows = min(tokens * p.group - w.first_row, kTileRows);
    w.table = p.shared ? p.starts[i] : i;
    w.context = min(p.context_lens[w.table], p.max_blocks * BLOCK_SIZE);
    w.before = w.context - tokens;
    w.high_from = w.high_of(p, 0);
    w.high = max(w.high_of(p, w.rows - 1), 0);
    w.low = w.low_of(p, w.high_from);
    w.low_to = w.low_of(p, w.high);
    const int begin = w.low / KEYS, tiles = max(ceil_div(w.high, KEYS) - begin, 0);
    w.item = item;
    w.part = part;
    w.parts = max(ceil_div(tiles, max(ceil_div(tiles, splits), kLeastTiles)), 1);
    w.begin = begin + tiles * part / w.parts;
    w.end = begin + tiles * (part + 1) / w.parts;
    return w;
}

__device__ __forceinline__ void copy_query(const Params& p, const Work& w, SCALAR* tile, int warp, int lane) {
    constexpr int kChunks = Tile<HEAD_DIM>::kChunks;
    for (int i = lane; i < kWarpRows * kChunks; i += 32) {
        const int row = warp * kWarpRows + i / kChunks, chunk = i % kChunks, at = w.first_row + min(row, w.rows - 1);
        const int offset = at / p.group;
        const SCALAR* from = p.query + (w.token + offset) * p.query_stride +
                             (w.head * p.group + at - offset * p.group) * HEAD_DIM + chunk * 8;
        cp_async_16(tile + Tile<HEAD_DIM>::at(row, chunk), from, row < w.rows);
    }
}

struct State {
    float output[WARP_TILES][HEAD_DIM / 8][4];
    RowState rows[WARP_TILES];
};

// kScored keys and values, rows `from` and on of their tiles: scores, softmax, weighted sum.
__device__ __forceinline__ void absorb_keys(const Params& p, const Work& w, State& state, const SCALAR* query,
                                            const SCALAR* keys, const SCALAR* values, int from, int key, int warp,
                                            int lane) {
    float scores[WARP_TILES][kScored / 8][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        uint32_t a[WARP_TILES][4];
#pragma unroll
        for (int m = 0; m < WARP_TILES; ++m) load_a<HEAD_DIM>(a[m], query, warp * kWarpRows + m * 16, s, lane);
#pragma unroll
        for (int g = 0; g < kScored / kGranule; ++g) {
            uint32_t b[4];
            load_keys<HEAD_DIM>(b, keys, from + g * kGranule, s, lane);
#pragma unroll
            for (int m = 0; m < WARP_TILES; ++m) {
                mma_m16n8k16<SCALAR>(scores[m][2 * g], a[m], b[0], b[1]);
                mma_m16n8k16<SCALAR>(scores[m][2 * g + 1], a[m], b[2], b[3]);
            }
        }
    }
    const bool partly = key < w.low_to || key + kScored > w.high_from;
#pragma unroll
    for (int m = 0; m < WARP_TILES; ++m) {
        if (p.cap_scale != 0.0f) cap_scores(scores[m], p.cap_scale);
        if (partly) {  // worked out anew: few tiles are, and eight registers are dear
            int low[2], high[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                high[h] = w.high_of(p, warp * kWarpRows + m * 16 + h * 8 + lane / 4);
                low[h] = w.low_of(p, high[h]);
            }
            mask_scores(scores[m], key, low, high, lane);
        }
        absorb(scores[m], state.rows[m], state.output[m], p.scale);
    }
#pragma unroll
    for (int g = 0; g < kScored / kGranule; ++g) {
        uint32_t a[WARP_TILES][4];
#pragma unroll
        for (int m = 0; m < WARP_TILES; ++m) pack_weights<SCALAR>(a[m], scores[m], 2 * g);
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            uint32_t b[4];
            load_values<HEAD_DIM>(b, values, from + g * kGranule, s, lane);
#pragma unroll
            for (int m = 0; m < WARP_TILES; ++m) {
                mma_m16n8k16<SCALAR>(state.output[m][2 * s], a[m], b[0], b[1]);
                mma_m16n8k16<SCALAR>(state.output[m][2 * s + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// Attention over the key tiles of the block.
__device__ __forceinline__ void attend(const Params& p, const Work& w, State& state, SCALAR* query, int warp,
                                       int lane) {
    constexpr int kShare = kWarps / kGranules;  // warps that copy one granule together
    SCALAR* stages = query + Tile<HEAD_DIM>::elements(kTileRows);
    const int to = warp * kCopyRows, skip = warp % kShare * kCopyRows;
    auto granules = [&] {
        const int first = w.begin * kGranules + warp / kShare;
        const int count = max(ceil_div(ceil_div(w.context, kGranule) - first, kGranules), 0);
        return Granules{p.block_tables + w.table * p.table_stride, first, count};
    };
    BlockWalk<kGranules> walk(granules(), lane);
    auto copy = [&](int k) {
        const int granule = (w.begin + k) * kGranules + warp / kShare, key = granule * kGranule + skip;
        const int64_t head_offset = static_cast<int64_t>(w.head) * BLOCK_SIZE * HEAD_DIM + skip * HEAD_DIM;
        const int64_t from = walk.block(k, lane, granules) * p.block_stride + head_offset + in_block<HEAD_DIM>(granule);
        SCALAR* stage = stages + (k & 1) * 2 * kKeyTile;
        copy_rows<HEAD_DIM, kCopyRows>(stage, to, p.key_cache + from, w.low - key, w.high - key, lane);
        copy_rows<HEAD_DIM, kCopyRows>(stage + kKeyTile, to, p.value_cache + from, w.low - key, w.high - key, lane);
    };
    copy_query(p, w, query, warp, lane);
    if (w.begin < w.end) copy(0);
    cp_async_commit();

    for (int k = 0; w.begin + k < w.end; ++k) {
        cp_async_wait<0>();
        __syncthreads();  // tile k is there, and all warps are done with tile k - 1, whose buffer is filled next
        if (w.begin + k + 1 < w.end) copy(k + 1);
        cp_async_commit();
        const SCALAR* keys = stages + (k & 1) * 2 * kKeyTile;
#pragma unroll 1
        for (int from = 0; from < KEYS; from += kScored)
            absorb_keys(p, w, state, query, keys, keys + kKeyTile, from, (w.begin + k) * KEYS + from, warp, lane);
    }
    cp_async_wait<0>();
    __syncwarp();
}

__device__ __forceinline__ float2 scaled_pair(const State& state, int m, int c, int h, float factor) {
    return make_float2(state.output[m][c][2 * h] * factor, state.output[m][c][2 * h + 1] * factor);
}

// Rows of this warp as float, straight from the registers: to parts, and to a float `out`.
template <class Row>
__device__ __forceinline__ void store_wide(const State& state, int rows, int warp, int lane,
                                           const float (&factor)[WARP_TILES][2], Row row_start) {
#pragma unroll
    for (int m = 0; m < WARP_TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = warp * kWarpRows + m * 16 + h * 8 + lane / 4;
            if (row >= rows) continue;
            float* to = row_start(row) + lane % 4 * 2;
#pragma unroll
            for (int c = 0; c < HEAD_DIM / 8; ++c) store_float2(to + c * 8, scaled_pair(state, m, c, h, factor[m][h]));
        }
}

// Rows of this warp as SCALAR, through its own rows of the query tile, so that whole rows are written 16 bytes a lane.
__device__ __forceinline__ void store_rows(const Params& p, const Work& w, const State& state, SCALAR* tile, int warp,
                                           int lane, const float (&factor)[WARP_TILES][2]) {
    constexpr int kChunks = Tile<HEAD_DIM>::kChunks;
#pragma unroll
    for (int m = 0; m < WARP_TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int c = 0; c < HEAD_DIM / 8; ++c) {
                const int row = warp * kWarpRows + m * 16 + h * 8 + lane / 4;
                const float2 pair = scaled_pair(state, m, c, h, factor[m][h]);
                *reinterpret_cast<uint32_t*>(tile + Tile<HEAD_DIM>::at(row, c) + lane % 4 * 2) =
                    pack2<SCALAR>(pair.x, pair.y);
            }
    __syncwarp();
    for (int i = lane; i < kWarpRows * kChunks; i += 32) {
        const int row = warp * kWarpRows + i / kChunks, chunk = i % kChunks;
        if (row < w.rows)
            store_vector(static_cast<SCALAR*>(p.out) + w.place(p, row) * HEAD_DIM + chunk * 8,
                         load_vector(tile + Tile<HEAD_DIM>::at(row, chunk)));
    }
}

// Log-sum-exp of each row of this thread with its sink, and the factor that normalises its output.
template <class Lse>
__device__ __forceinline__ void normalise(const Params& p, const Work& w, const State& state, bool with_sink, int warp,
                                          int lane, float (&factor)[WARP_TILES][2], Lse store_lse) {
#pragma unroll
    for (int m = 0; m < WARP_TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = warp * kWarpRows + m * 16 + h * 8 + lane / 4;
            const float sum = row_total(state.rows[m].sum[h]), top = state.rows[m].top[h] * p.scale;
            const int query_head = w.head * p.group + (w.first_row + row) % p.group;
            const float sink = with_sink ? sink_of(p.sinks, p.wide_sinks, query_head) : -INFINITY;
            const float lse = log_add(top == -INFINITY ? top : top + log2f(sum), sink);
            factor[m][h] = share(top, lse);
            if (row < w.rows && lane % 4 == 0) store_lse(row, lse);
        }
}

// Out where the block saw all keys, else as a part, merged by the last block to finish.
__device__ __forceinline__ void finish(const Params& p, const Work& w, const State& state, SCALAR* query, int warp,
                                       int lane) {
    float factor[WARP_TILES][2];
    if (w.parts == 1) {
        normalise(p, w, state, true, warp, lane, factor, [&](int row, float lse) {
            if (p.lse != nullptr) p.lse[w.place(p, row)] = lse;
        });
        if (p.wide_out)
            store_wide(state, w.rows, warp, lane, factor,
                       [&](int row) { return static_cast<float*>(p.out) + w.place(p, row) * HEAD_DIM; });
        else
            store_rows(p, w, state, query, warp, lane, factor);
        return;
    }
    const int64_t tile = static_cast<int64_t>(w.item) * p.num_kv_heads + w.head, first = tile * gridDim.z * kTileRows;
    const int64_t mine = first + static_cast<int64_t>(w.part) * kTileRows;
    normalise(p, w, state, false, warp, lane, factor, [&](int row, float lse) { p.part_lses[mine + row] = lse; });
    store_wide(state, w.rows, warp, lane, factor, [&](int row) { return p.part_outs + (mine + row) * HEAD_DIM; });
    if (!last_of(p.counters + tile, w.parts)) return;
    for (int row = warp; row < w.rows; row += kWarps) {
        const int64_t at = w.place(p, row);
        const float sink = sink_of(p.sinks, p.wide_sinks, w.head * p.group + (w.first_row + row) % p.group);
        const auto store = [&](int column, const float (&value)[4]) {
            store_four(p.out, at * HEAD_DIM + column, p.wide_out, value);
        };
        const float lse = merge_row<HEAD_DIM>(p.part_outs + (first + row) * HEAD_DIM, p.part_lses + first + row,
                                              kTileRows, w.parts, sink, lane, store);
        if (p.lse != nullptr && lane == 0) p.lse[at] = lse;
    }
}

// Grid: tiles of rows (an upper bound: blocks behind the last leave at once), key heads, splits.
extern "C" __global__ void __launch_bounds__(THREADS, 2) paged_attention_prefill(const __grid_constant__ Params p) {
    DYNAMIC_SHARED(memory);
    SCALAR* query = reinterpret_cast<SCALAR*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Later rows see more keys: they start first, so that short ones fill the end.
    const int item = gridDim.x - 1 - blockIdx.x;
    const Piece piece = find_piece(item, p.num_seqs, lane, [&](int i) { return row_tiles(p, i); });
    if (piece.sequence < 0) return;
    __shared__ Work w;
    if (threadIdx.x == 0) w = work_of(p, piece, item, blockIdx.y, blockIdx.z, gridDim.z);
    __syncthreads();
    if (w.part >= w.parts) return;
    State state = {};
#pragma unroll
    for (int m = 0; m < WARP_TILES; ++m) state.rows[m] = RowState();
    attend(p, w, state, query, warp, lane);
    finish(p, w, state, query, warp, lane);
}
