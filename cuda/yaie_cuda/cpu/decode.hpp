// Attention of a step's decodes. A prefix that several of them share is attended once for all, as tiles of their query
// rows, and what each has alone row by row; both are merged by their sums (Juravsky et al., "Hydragen", 2024; Ye et al.,
// "FlashInfer", 2025). So are the parts of long contexts, which threads share out (Dao et al., "Flash-Decoding", 2023).
#pragma once

#include <algorithm>
#include <vector>

#include "failure.hpp"
#include "prefixes.hpp"
#include "tiles.hpp"

namespace cpu {

constexpr Int SHORTEST = 256;  // tokens of a part below which cutting costs more than it gives
constexpr Int LONGEST = 512;   // tokens of a part whose keys and values stay in a core's cache for its neighbour

// Sequences from which on a prefix is faster as tiles than row by row: tiles pay for laying out its keys and values. With
// bfloat16 products a row of a tile costs less than half of a row alone, else two thirds.
template <class T>
constexpr Int fewest(Int group) {
    return sizeof(T) == 2 && BFLOAT16_PAIRS ? std::max<Int>(2, 5 - group) : 5;
}

// Tokens [start, stop) of `count` sequences from `place` on, for key heads [head, stop_head): part `number` of each.
struct Part {
    Int place, count, head, stop_head, start, stop, number;
};

// What threads share out.
class Parts {
public:
    std::vector<Part> all;
    std::vector<Int> begins;  // [num_seqs + 1], parts of the sequences before
    Int work = 0;             // (token, head) pairs, those of a shared prefix once
    Prefixes prefixes;

    template <class T>
    void find(const Decode<T>& call, int threads) {
        prefixes.find(call, [&](Int count, Int tokens) {
            return rows_of_tile(call, count) >= fewest<T>(call.group()) && tokens >= TOKENS;
        });
        all.clear();
        shared.assign(call.num_seqs, 0);
        own.resize(call.num_seqs);
        begins.assign(call.num_seqs + 1, 0);
        for (Int seq = 0; seq < call.num_seqs; ++seq) own[seq] = call.first(seq);
        for (const Prefix& prefix : prefixes.found) share(call, prefix, threads);
        leave(call, threads);
        work = 0;
        for (const Part& part : all) work += (part.stop - part.start) * (part.stop_head - part.head) * call.group();
    }

private:
    std::vector<Int> shared;  // by sequence: parts of its prefix
    std::vector<Int> own;     // where that ends

    // The sequences of one tile, when `count` are shared out evenly.
    template <class T>
    static Int rows_of_tile(const Decode<T>& call, Int count) {
        const Int most = std::max<Int>(1, QUERIES / call.group()), tiles = (count + most - 1) / most;
        return (count + tiles - 1) / tiles;
    }

    template <class T>
    void share(const Decode<T>& call, const Prefix& prefix, int threads) {
        const Int rows = rows_of_tile(call, prefix.count), tiles = (prefix.count + rows - 1) / rows;
        const Int wanted = std::max<Int>(1, 4 * threads / (tiles * call.kv_heads));
        const Int part = std::max(SHORTEST, (prefix.tokens / wanted + TOKENS - 1) / TOKENS * TOKENS);
        for (Int start = 0, number = 0; start < prefix.tokens; start += part, ++number)
            for (Int place = 0; place < prefix.count; place += rows)
                for (Int head = 0; head < call.kv_heads; ++head)
                    all.push_back({prefix.place + place, std::min(rows, prefix.count - place), head, head + 1, start,
                                   std::min(prefix.tokens, start + part), number});
        for (Int place = prefix.place; place < prefix.place + prefix.count; ++place) {
            own[prefixes.order[place]] = prefix.tokens;
            shared[prefixes.order[place]] = (prefix.tokens + part - 1) / part;
        }
    }

    // What each sequence attends for itself: all key heads of a part, or one of them where there are few parts. They lie
    // in the order part, sequence: what sequences share in memory is read by neighbours.
    template <class T>
    void leave(const Decode<T>& call, int threads) {
        Int tokens = 0, most = 0;
        for (Int seq = 0; seq < call.num_seqs; ++seq) {
            const Int seen = call.contexts[seq] - own[seq];
            tokens += seen;
            most = std::max(most, seen);
        }
        const Int even = tokens / (4 * threads) / TOKENS * TOKENS, part = std::clamp(even, SHORTEST, LONGEST);
        const Int parts = std::max<Int>(1, (most + part - 1) / part);
        const Int heads = call.num_seqs * parts < 4 * threads && threads > 1 ? 1 : call.kv_heads;
        for (Int seq = 0; seq < call.num_seqs; ++seq)
            begins[seq + 1] = begins[seq] + shared[seq] + std::max<Int>(1, (call.contexts[seq] - own[seq] + part - 1) / part);
        for (Int number = 0; number < parts; ++number)
            for (Int place = 0; place < call.num_seqs; ++place) {
                const Int seq = prefixes.order[place], start = own[seq] + number * part;
                if (shared[seq] + number >= begins[seq + 1] - begins[seq]) continue;
                const Int stop = std::max(start, std::min<Int>(call.contexts[seq], start + part));
                for (Int head = 0; head < call.kv_heads; head += heads)
                    all.push_back({place, 1, head, head + heads, start, stop, shared[seq] + number});
            }
    }
};

// A prefix for all who share it; `state_of` says where the running state of a sequence goes.
template <class T, class StateOf>
void attend_prefix(const Decode<T>& call, const Part& part, const Int* seqs, Workspace<T>& work, const StateOf& state_of) {
    const Int group = call.group(), rows = part.count * group;
    work.begin(call, part.head, rows, [&](Int member) { return seqs[member]; });
    attend_keys(call, work, rows, seqs[0], part.head, part.start, part.stop,
                [&](Int) { return std::pair{part.start, part.stop}; });
    for (Int row = 0; row < rows; ++row) {
        const Running state = running_at(state_of(seqs[row / group]), group);
        state.largest[row % group] = work.largest[row];
        state.total[row % group] = work.totals[row];
        std::memcpy(state.values + row % group * call.value_dim, work.sums.data() + row * work.width,
                    call.value_dim * sizeof(float));
    }
}

template <class T>
void attend(const Decode<T>& call, int threads) {
    static thread_local Parts parts;
    static thread_local std::vector<float> room;
    parts.find(call, threads);
    const Int size = running_size(call.group(), call.value_dim), count = static_cast<Int>(parts.all.size());
    room.resize(parts.begins[call.num_seqs] * call.kv_heads * size);
    const Parts& found = parts;  // of the calling thread, as `states`: workers have their own `parts` and `room`
    float* const states = room.data();
    const auto state_of = [&](Int seq, Int number, Int head) {
        return states + ((found.begins[seq] + number) * call.kv_heads + head) * size;
    };
    const bool together = threads > 1 && parts.work > SHORTEST;
    Failure failure;
#pragma omp parallel num_threads(threads) if (together)
    {
        static thread_local Workspace<T> work;  // kept from call to call
#pragma omp for schedule(dynamic, 1)
        for (Int item = 0; item < count; ++item) {
            const Part& part = found.all[item];
            const Int* const seqs = found.prefixes.order.data() + part.place;
            const auto state = [&](Int seq) { return state_of(seq, part.number, part.head); };
            failure.guard([&] {
                if (part.count > 1)
                    attend_prefix(call, part, seqs, work, state);
                else
                    attend_part(call, seqs[0], part.head, part.stop_head, part.start, part.stop, state(seqs[0]));
            });
        }
#pragma omp for
        for (Int item = 0; item < call.kv_heads * call.num_seqs; ++item) {
            const Int seq = item / call.kv_heads, head = item % call.kv_heads;
            finish(call, seq, head, state_of(seq, 0, head), found.begins[seq + 1] - found.begins[seq], call.kv_heads * size);
        }
    }
    failure.check();
}

}  // namespace cpu
