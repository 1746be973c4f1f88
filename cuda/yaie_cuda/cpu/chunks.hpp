// Attention of chunks of prompts over the paged cache: a tile's rows are neighbouring tokens of a chunk.
#pragma once

#include <algorithm>
#include <vector>

#include "failure.hpp"
#include "tiles.hpp"

namespace cpu {

// Chunks end to end: chunk i has tokens [starts[i], starts[i + 1]) of `query` and `out`, the last of its context.
template <class T>
struct Chunks {
    Decode<T> call;
    const std::int32_t* starts;

    Int tokens(Int seq) const { return starts[seq + 1] - starts[seq]; }
};

// `count` tokens of one chunk from `token` on, with all query heads of one key head: row token * group + head.
struct QueryTile {
    Int seq, kv_head, token, count;
};

// All keys that some row of the tile may see, block by block.
template <class T>
void attend_tile(const Chunks<T>& chunks, const QueryTile& tile, Workspace<T>& work) {
    const Decode<T>& call = chunks.call;
    const Int group = call.group(), rows = tile.count * group, start = chunks.starts[tile.seq] + tile.token;
    const Int position = call.contexts[tile.seq] - chunks.tokens(tile.seq) + tile.token;  // of the first token
    work.begin(call, tile.kv_head, rows, [&](Int token) { return start + token; });
    const Int stop = position + tile.count, begin = call.window > 0 ? std::max<Int>(0, position + 1 - call.window) : 0;
    attend_keys(call, work, rows, tile.seq, tile.kv_head, begin, stop, [&](Int row) {
        const Int last = position + row / group + 1;
        return std::pair{call.window > 0 ? std::max<Int>(0, last - call.window) : 0, last};
    });
    for (Int row = 0; row < rows; ++row) {
        const Int head = tile.kv_head * group + row % group;
        const float sink = call.sink(head) * LOG2_E, top = std::max(sink, work.largest[row]);
        const float below = top == -INFINITY ? 0.0f : top, share = std::exp2(work.largest[row] - below);
        const float total = work.totals[row] * share + std::exp2(sink - below);
        for (Int i = 0; i < call.value_dim; i += LANES)
            store(call.out + ((start + row / group) * call.heads + head) * call.value_dim + i,
                  load(work.sums.data() + row * work.width + i) * (total > 0.0f ? share / total : 0.0f));
    }
}

template <class T>
void attend_chunks(const Chunks<T>& chunks, int threads) {
    const Decode<T>& call = chunks.call;
    static thread_local std::vector<QueryTile> room;
    room.clear();
    const Int most = std::max<Int>(1, QUERIES / call.group());
    for (Int seq = 0; seq < call.num_seqs; ++seq)
        for (Int token = 0; token < chunks.tokens(seq); token += most)
            for (Int head = 0; head < call.kv_heads; ++head)
                room.push_back({seq, head, token, std::min(most, chunks.tokens(seq) - token)});
    const QueryTile* const tiles = room.data();
    const Int count = static_cast<Int>(room.size());
    Failure failure;
#pragma omp parallel num_threads(threads) if (count > 1 && threads > 1)
    {
        static thread_local Workspace<T> work;  // kept from call to call
#pragma omp for schedule(dynamic, 1)
        for (Int item = 0; item < count; ++item)  // the last tiles of a chunk see most: they come first
            failure.guard([&] { attend_tile(chunks, tiles[count - 1 - item], work); });
    }
    failure.check();
}

}  // namespace cpu
