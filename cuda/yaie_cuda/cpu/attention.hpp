// Attention of single query rows over the paged cache, with a running softmax (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018). Sums and probabilities are float.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "rotary.hpp"

namespace cpu {

constexpr Int TOKENS = 64;       // keys that are scored before their values are read

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
    const void* sinks;  // [heads], or null
    bool wide_sinks;    // float, else of type T
    T* out;              // [num_seqs, heads, value_dim], contiguous
    Int num_seqs, heads, kv_heads, dim, value_dim;

    Int group() const { return heads / kv_heads; }
    float sink(Int head) const {
        if (sinks == nullptr) return -INFINITY;
        return wide_sinks ? static_cast<const float*>(sinks)[head] : widened(static_cast<const T*>(sinks)[head]);
    }
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

// The products of a query row with LANES keys, one a lane.
template <class T>
Floats dots(const T* query, const T* const* rows, Int dim) {
    Floats products[LANES] = {};
    Int i = 0;
#if defined(__AVX512BF16__)
    if constexpr (std::is_same_v<T, bfloat16>)
        for (; i + 2 * LANES <= dim; i += 2 * LANES) {
            const auto part = bits_of<__m512bh>(_mm512_loadu_si512(query + i));
            for (Int t = 0; t < LANES; ++t)
                products[t] = _mm512_dpbf16_ps(products[t], part, bits_of<__m512bh>(_mm512_loadu_si512(rows[t] + i)));
        }
#endif
    for (; i < dim; i += LANES) {
        const Floats part = load(query + i);
        for (Int t = 0; t < LANES; ++t) products[t] += part * load(rows[t] + i);
    }
    return sums(products);
}

// scores[r][t] of `count` keys at `rows`, times `scale`; what lies beyond `count` is -inf.
template <class T>
void score(const T* query, const T* const* rows, Int count, Int group, Int dim, float scale, float* scores) {
    for (Int start = 0; start < TOKENS; start += LANES) {
        const Int here = std::min(LANES, count - start);
        const T* keys[LANES];
        for (Int t = 0; t < LANES && here > 0; ++t) keys[t] = rows[start + std::min(t, here - 1)];
        for (Int r = 0; r < group; ++r) {
            float* to = scores + r * TOKENS + start;
            store(to, here > 0 ? dots(query + r * dim, keys, dim) * scale : spread(-INFINITY));
            for (Int t = std::max<Int>(0, here); t < LANES; ++t) to[t] = -INFINITY;
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
        const float kept = state.largest[r] == top ? 1.0f : std::exp2(state.largest[r] - below);
        state.total[r] = state.total[r] * kept + sum(total);
        state.largest[r] = top;
        if (kept != 1.0f)
            for (Int i = 0; i < value_dim; i += LANES)
                store(state.values + r * value_dim + i, load(state.values + r * value_dim + i) * kept);
    }
}

#if defined(__AVX512BF16__)
// As below, two tokens at a time; weights are rounded to bfloat16, as values are.
template <int ROWS, int COLUMNS>
void add_values(const float* weights, const bfloat16* const* rows, Int count, float* values, Int value_dim)
    requires(COLUMNS % 2 == 0)
{
    // What a vector of pairs holds of 32 numbers: the unpacking works within quarters.
    constexpr Words LOW = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
    constexpr Words HIGH = LOW + 4;
    constexpr Words FIRST = {0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23};
    constexpr Words SECOND = FIRST + 8;
    bfloat16 rounded[ROWS][TOKENS];
    for (int r = 0; r < ROWS; ++r)
        for (Int t = 0; t < TOKENS; t += LANES) store(&rounded[r][t], load(weights + r * TOKENS + t));
    Floats totals[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLUMNS; c += 2) {
            const Floats first = load(values + r * value_dim + c * LANES);
            const Floats second = load(values + r * value_dim + (c + 1) * LANES);
            totals[r][c] = __builtin_shuffle(first, second, LOW);
            totals[r][c + 1] = __builtin_shuffle(first, second, HIGH);
        }
    for (Int t = 0; t < count; t += 2) {
        const bfloat16 *one = rows[t], *other = rows[std::min(t + 1, count - 1)];  // its weight beyond `count` is 0
        for (int c = 0; c < COLUMNS; c += 2) {
            const __m512i a = _mm512_loadu_si512(one + c * LANES), b = _mm512_loadu_si512(other + c * LANES);
            const auto low = bits_of<__m512bh>(_mm512_unpacklo_epi16(a, b));
            const auto high = bits_of<__m512bh>(_mm512_unpackhi_epi16(a, b));
            for (int r = 0; r < ROWS; ++r) {
                const auto pair = bits_of<__m512bh>(_mm512_set1_epi32(bits_of<std::int32_t>(
                    std::array<bfloat16, 2>{rounded[r][t], rounded[r][t + 1]})));
                totals[r][c] = _mm512_dpbf16_ps(totals[r][c], low, pair);
                totals[r][c + 1] = _mm512_dpbf16_ps(totals[r][c + 1], high, pair);
            }
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLUMNS; c += 2) {
            float* to = values + r * value_dim + c * LANES;
            store(to, __builtin_shuffle(totals[r][c], totals[r][c + 1], FIRST));
            store(to + LANES, __builtin_shuffle(totals[r][c], totals[r][c + 1], SECOND));
        }
}
#endif

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

// Where the keys and values of up to TOKENS tokens lie. They are asked for when they are found, a round before they are
// read, into the second cache (they would fill the first): blocks lie anywhere, and no prefetcher guesses the next.
template <class T>
struct Rows {
    const T *keys[TOKENS], *values[TOKENS];
    Int count;

    void find(const Decode<T>& call, Int seq, Int kv_head, Int start, Int stop) {
        const std::int32_t* table = call.tables + seq * call.table_stride;
        const Int size = call.keys.block_size;
        count = std::max<Int>(0, std::min(TOKENS, stop - start));
        Int block = start / size, offset = start % size;
        for (Int t = 0; t < count; ++block, offset = 0) {
            const T* key = call.keys.rows(table[block], kv_head, call.dim) + offset * call.dim;
            const T* value = call.values.rows(table[block], kv_head, call.value_dim) + offset * call.value_dim;
            for (; t < count && offset < size; ++t, ++offset, key += call.dim, value += call.value_dim) {
                ask(keys[t] = key, call.dim);
                ask(values[t] = value, call.value_dim);
            }
        }
    }

    static void ask(const T* row, Int dim) {
        for (Int i = 0; i < dim; i += 64 / static_cast<Int>(sizeof(T))) __builtin_prefetch(row + i, 0, 2);
    }
};

// Weigh and add the keys at `rows` to the state of the query heads of one key head.
template <class T>
void attend_rows(const Decode<T>& call, const Rows<T>& rows, const T* query, float* scores, const Running& state) {
    const Int group = call.group(), value_dim = call.value_dim;
    score(query, rows.keys, rows.count, group, call.dim, call.scale * LOG2_E, scores);
    if (call.softcap > 0.0f) cap(scores, group, call.softcap);
    weigh(scores, state, group, value_dim);
    Int column = 0;
    for (; column + 4 * LANES <= value_dim; column += 4 * LANES)
        add_columns<4>(scores, rows.values, rows.count, group, value_dim, column, state.values);
    for (; column < value_dim; column += LANES)
        add_columns<1>(scores, rows.values, rows.count, group, value_dim, column, state.values);
}

// Key heads [head, stop_head) of one sequence over its tokens [start, stop); their states lie at `at`, one by one. All
// heads of some tokens come first, then the next tokens: that is the order in memory.
template <class T>
void attend_part(const Decode<T>& call, Int seq, Int head, Int stop_head, Int start, Int stop, float* at) {
    static thread_local std::vector<float> scores;  // kept from call to call
    const Int group = call.group(), dim = call.dim;
    scores.resize(group * TOKENS);
    const T* query = call.query + seq * call.query_stride + head * group * dim;
    const Int size = running_size(group, call.value_dim);
    for (Int h = head; h < stop_head; ++h) {
        float* state = at + (h - head) * size;
        std::fill(state, state + group, -INFINITY);
        std::fill(state + group, state + size, 0.0f);
    }
    Rows<T> now, next;
    next.find(call, seq, head, start, stop);
    for (Int token = start; token < stop; token += TOKENS)
        for (Int h = head; h < stop_head; ++h) {
            now = next;
            const bool last = h + 1 == stop_head;
            next.find(call, seq, last ? head : h + 1, last ? token + TOKENS : token, stop);
            attend_rows(call, now, query + (h - head) * group * dim, scores.data(),
                        running_at(at + (h - head) * size, group));
        }
}

// Merge `parts` running states of one key head and write its query heads.
template <class T>
void finish(const Decode<T>& call, Int seq, Int kv_head, float* at, Int parts, Int apart) {
    const Int group = call.group(), value_dim = call.value_dim;
    for (Int r = 0; r < group; ++r) {
        const Int head = kv_head * group + r;
        const float sink = call.sink(head) * LOG2_E;
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

}  // namespace cpu
