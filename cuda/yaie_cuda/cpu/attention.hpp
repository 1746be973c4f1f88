// Attention of single query rows over the paged cache, with a running softmax (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018). Long contexts are cut into parts that threads share out and that are
// merged by their sums (Dao et al., "Flash-Decoding", 2023). Sums and probabilities are float.
#pragma once

#include <algorithm>
#include <vector>

#include "rotary.hpp"

namespace cpu {

constexpr Int TOKENS = 64;       // keys that are scored before their values are read
constexpr Int SHORTEST = 256;    // tokens of a part below which cutting costs more than it gives
constexpr Int LONGEST = 2048;    // tokens of a part whose keys and values stay in a core's cache for its neighbour

template <class T>
struct Decode {
    const T* query;  // [num_seqs, heads, dim]
    Int query_stride;
    Cache<const T> keys, values;
    const std::int32_t* tables;
    Int table_stride;
    const std::int32_t* contexts;
    float scale, softcap;
    Int window;
    const float* sinks;  // [heads], or null
    T* out;              // [num_seqs, heads, value_dim], contiguous
    Int num_seqs, heads, kv_heads, dim, value_dim;

    Int group() const { return heads / kv_heads; }
    Int first(Int seq) const { return window > 0 && contexts[seq] > window ? contexts[seq] - window : 0; }
};

// The running state of the query heads of one key head: the largest score (base 2), the sum, and the weighted values.
struct Running {
    float* largest;
    float* total;
    float* values;  // [group, value_dim]
};

inline Int running_size(Int group, Int value_dim) { return group * (value_dim + 2); }

inline Running running_at(float* at, Int group) { return {at, at + group, at + 2 * group}; }

// scores[r][t] of `count` keys at `rows`; what lies beyond `count` is -inf. Query rows are scaled to base 2.
template <class T>
void score(const float* query, const T* const* rows, Int count, Int group, Int dim, float* scores) {
    static thread_local std::vector<float> wide;
    wide.resize(LANES * dim);
    for (Int start = 0; start < TOKENS; start += LANES) {
        const Int here = std::min(LANES, count - start);
        if (here <= 0) {
            for (Int r = 0; r < group; ++r) store(scores + r * TOKENS + start, spread(-INFINITY));
            continue;
        }
        for (Int t = 0; t < LANES; ++t)
            for (Int i = 0; i < dim; i += LANES) store(&wide[t * dim + i], load(rows[start + std::min(t, here - 1)] + i));
        for (Int r = 0; r < group; ++r) {
            Floats products[LANES] = {};
            for (Int i = 0; i < dim; i += LANES) {
                const Floats part = load(query + r * dim + i);
                for (Int t = 0; t < LANES; ++t) products[t] += part * load(&wide[t * dim + i]);
            }
            store(scores + r * TOKENS + start, sums(products));
            for (Int t = here; t < LANES; ++t) scores[r * TOKENS + start + t] = -INFINITY;
        }
    }
}

inline void cap(float* scores, Int group, float softcap) {
    const float most = LOG2_E * softcap;
    for (Int i = 0; i < group * TOKENS; ++i)
        if (scores[i] != -INFINITY) scores[i] = most * std::tanh(scores[i] / most);
}

// Turn scores into weights below the running largest, and scale what was summed before.
inline void weigh(float* scores, const Running& state, Int group, Int value_dim) {
    for (Int r = 0; r < group; ++r) {
        float* row = scores + r * TOKENS;
        Floats highest = spread(state.largest[r]);
        for (Int t = 0; t < TOKENS; t += LANES) highest = larger(load(row + t), highest);
        const float top = largest(highest);
        const float below = top == -INFINITY ? 0.0f : top;  // nothing is seen: all weights are 0
        Floats total{};
        for (Int t = 0; t < TOKENS; t += LANES) {
            const Floats weights = exp2(load(row + t) - below);
            store(row + t, weights);
            total += weights;
        }
        const float kept = state.largest[r] == -INFINITY ? 0.0f : std::exp2(state.largest[r] - below);
        state.total[r] = state.total[r] * kept + sum(total);
        state.largest[r] = top;
        if (kept != 1.0f)
            for (Int i = 0; i < value_dim; i += LANES)
                store(state.values + r * value_dim + i, load(state.values + r * value_dim + i) * kept);
    }
}

// Add the weighted values of ROWS query rows, COLUMNS vectors wide: as many sums as registers hold.
template <int ROWS, int COLUMNS, class T>
void add_values(const float* weights, const T* const* rows, Int count, float* values, Int value_dim) {
    Floats totals[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLUMNS; ++c) totals[r][c] = load(values + r * value_dim + c * LANES);
    for (Int t = 0; t < count; ++t) {
        for (int c = 0; c < COLUMNS; ++c) {
            const Floats value = load(rows[t] + c * LANES);
            for (int r = 0; r < ROWS; ++r) totals[r][c] += weights[r * TOKENS + t] * value;
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLUMNS; ++c) store(values + r * value_dim + c * LANES, totals[r][c]);
}

template <int COLUMNS, class T>
void add_columns(const float* weights, const T* const* rows, Int count, Int group, Int value_dim, Int column,
                 float* values) {
    const T* shifted[TOKENS];
    for (Int t = 0; t < count; ++t) shifted[t] = rows[t] + column;
    Int r = 0;
    const auto at = [&](Int row) { return values + row * value_dim + column; };
    for (; r + 4 <= group; r += 4) add_values<4, COLUMNS>(weights + r * TOKENS, shifted, count, at(r), value_dim);
    if (r + 2 <= group) {
        add_values<2, COLUMNS>(weights + r * TOKENS, shifted, count, at(r), value_dim);
        r += 2;
    }
    if (r < group) add_values<1, COLUMNS>(weights + r * TOKENS, shifted, count, at(r), value_dim);
}

// The query heads of one key head of one sequence over its tokens [start, stop).
template <class T>
void attend_part(const Decode<T>& call, Int seq, Int kv_head, Int start, Int stop, const Running& state) {
    const Int group = call.group(), dim = call.dim, value_dim = call.value_dim;
    static thread_local std::vector<float> query, scores;
    query.resize(group * dim);
    scores.resize(group * TOKENS);
    const T* from = call.query + seq * call.query_stride + kv_head * group * dim;
    for (Int i = 0; i < group * dim; i += LANES) store(&query[i], load(from + i) * (call.scale * LOG2_E));
    for (Int r = 0; r < group; ++r) state.largest[r] = -INFINITY, state.total[r] = 0.0f;
    std::memset(state.values, 0, group * value_dim * sizeof(float));

    const std::int32_t* table = call.tables + seq * call.table_stride;
    const Int size = call.keys.block_size;
    for (Int token = start; token < stop; token += TOKENS) {
        const T *key_rows[TOKENS], *value_rows[TOKENS];
        const Int count = std::min(TOKENS, stop - token);
        for (Int t = 0; t < count; ++t) {
            const Int slot = table[(token + t) / size] * size + (token + t) % size;
            key_rows[t] = call.keys.row(slot, kv_head, dim);
            value_rows[t] = call.values.row(slot, kv_head, value_dim);
        }
        score(query.data(), key_rows, count, group, dim, scores.data());
        if (call.softcap > 0.0f) cap(scores.data(), group, call.softcap);
        weigh(scores.data(), state, group, value_dim);
        Int column = 0;
        for (; column + 4 * LANES <= value_dim; column += 4 * LANES)
            add_columns<4>(scores.data(), value_rows, count, group, value_dim, column, state.values);
        for (; column < value_dim; column += LANES)
            add_columns<1>(scores.data(), value_rows, count, group, value_dim, column, state.values);
    }
}

// Merge `parts` running states of one key head and write its query heads.
template <class T>
void finish(const Decode<T>& call, Int seq, Int kv_head, float* at, Int parts, Int apart) {
    const Int group = call.group(), value_dim = call.value_dim;
    for (Int r = 0; r < group; ++r) {
        const Int head = kv_head * group + r;
        const float sink = call.sinks != nullptr ? call.sinks[head] * LOG2_E : -INFINITY;
        float top = sink;
        for (Int p = 0; p < parts; ++p) top = std::max(top, running_at(at + p * apart, group).largest[r]);
        const float below = top == -INFINITY ? 0.0f : top;
        float total = std::exp2(sink - below);
        for (Int p = 0; p < parts; ++p) {
            const Running state = running_at(at + p * apart, group);
            total += state.total[r] * std::exp2(state.largest[r] - below);
        }
        for (Int i = 0; i < value_dim; i += LANES) {
            Floats values{};
            for (Int p = 0; p < parts; ++p) {
                const Running state = running_at(at + p * apart, group);
                values += load(state.values + r * value_dim + i) * std::exp2(state.largest[r] - below);
            }
            store(call.out + (seq * call.heads + head) * value_dim + i, total > 0.0f ? values / total : values);
        }
    }
}

// Parts lie in the order key head, part, sequence: what sequences share in memory is read by neighbours.
template <class T>
void attend(const Decode<T>& call, int threads) {
    Int tokens = 0, most = 0;
    for (Int seq = 0; seq < call.num_seqs; ++seq) {
        const Int seen = call.contexts[seq] - call.first(seq);
        tokens += seen;
        most = std::max(most, seen);
    }
    const Int share = threads > 1 ? tokens * call.kv_heads / (4 * threads) : tokens * call.kv_heads;
    const Int part = std::min(LONGEST, std::max(SHORTEST, (share + TOKENS - 1) / TOKENS * TOKENS));
    const Int parts = std::max<Int>(1, (most + part - 1) / part), size = running_size(call.group(), call.value_dim);
    static thread_local std::vector<float> room;
    room.resize(call.kv_heads * call.num_seqs * parts * size);
    float* const states = room.data();  // of the calling thread: workers have a `room` of their own
    const Int items = call.kv_heads * parts * call.num_seqs;
    const bool together = tokens * call.heads > SHORTEST && threads > 1;
#pragma omp parallel num_threads(threads) if (together)
    {
#pragma omp for schedule(dynamic, 1)
        for (Int item = 0; item < items; ++item) {
            const Int seq = item % call.num_seqs, number = item / call.num_seqs % parts;
            const Int kv_head = item / (call.num_seqs * parts);
            const Int start = call.first(seq) + number * part;
            const Int stop = std::min<Int>(call.contexts[seq], start + part);
            float* at = states + ((kv_head * call.num_seqs + seq) * parts + number) * size;
            attend_part(call, seq, kv_head, start, std::max(start, stop), running_at(at, call.group()));
        }
#pragma omp for
        for (Int item = 0; item < call.kv_heads * call.num_seqs; ++item)
            finish(call, item % call.num_seqs, item / call.num_seqs,
                   states + (item / call.num_seqs * call.num_seqs + item % call.num_seqs) * parts * size, parts, size);
    }
}

}  // namespace cpu
