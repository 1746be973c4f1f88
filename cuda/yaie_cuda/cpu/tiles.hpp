// Tiles of query rows over blocks of 64 keys with a running softmax (Dao et al., "FlashAttention", 2022). A block of keys,
// then of values, is laid out as a panel of linear.hpp, so that both products are those of a matrix with a packed weight.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "attention.hpp"
#include "linear.hpp"

namespace cpu {

constexpr Int QUERIES = 192;  // rows of a tile: enough that laying out a block costs little beside its products
static_assert(TOKENS == PANEL);

// Lanes l and l ^ D of rows i and i + D change places, for the D of four stages: rows become columns.
template <int D>
inline void exchanged(Words (&rows)[LANES]) {
    Words low, high;
    for (std::uint32_t l = 0; l < LANES; ++l) {
        low[l] = l & D ? LANES + (l ^ D) : l;
        high[l] = l & D ? LANES + l : l ^ D;
    }
    for (int i = 0; i < LANES; ++i)
        if (!(i & D)) {
            const Words a = rows[i], b = rows[i + D];
            rows[i] = __builtin_shuffle(a, b, low);
            rows[i + D] = __builtin_shuffle(a, b, high);
        }
}

// Keys as a panel: word i (one float, or two bfloat16) of key t goes to panel[i * PANEL + t]. Those beyond `count` are 0.
template <class T>
void lay_out_keys(const T* const* keys, Int count, Int dim, T* panel) {
    constexpr Int WORD = 4 / static_cast<Int>(sizeof(T));
    for (Int t = 0; t < PANEL; t += LANES)
        for (Int i = 0; i < dim; i += LANES * WORD) {
            const Int here = std::min(LANES, dim / WORD - i / WORD);  // words of the row that are left
            Words rows[LANES] = {};
            for (Int l = 0; l < std::min(LANES, count - t); ++l)
                std::memcpy(&rows[l], keys[t + l] + i, here * sizeof(std::uint32_t));
            exchanged<8>(rows);
            exchanged<4>(rows);
            exchanged<2>(rows);
            exchanged<1>(rows);
            for (Int l = 0; l < here; ++l)
                std::memcpy(panel + ((i / WORD + l) * PANEL + t) * WORD, &rows[l], sizeof(Words));
        }
}

// 16 numbers of one value, or of two values side by side.
inline void lay_out(const float* const* values, Int, Int column, float* to) { store(to, load(values[0] + column)); }

inline void lay_out(const bfloat16* const* values, Int count, Int column, bfloat16* to) {
    Halves first, second{};
    std::memcpy(&first, values[0] + column, sizeof first);
    if (count > 1) std::memcpy(&second, values[1] + column, sizeof second);
    const Words both = __builtin_convertvector(first, Words) | __builtin_convertvector(second, Words) << 16;
    std::memcpy(to, &both, sizeof both);
}

// Values as panels of 64 of their numbers, behind one another, each [PANEL tokens, PANEL numbers]; the rest is 0.
template <class T>
void lay_out_values(const T* const* values, Int count, Int value_dim, T* panels) {
    constexpr Int WORD = STEP<T>;
    for (Int column = 0; column < value_dim; column += LANES) {
        T* panel = panels + column / PANEL * PANEL * PANEL + column % PANEL * WORD;
        for (Int t = 0; t < count; t += WORD) lay_out(values + t, count - t, column, panel + t * PANEL);
    }
}

// One thread's memory for a tile: query rows and their states, and what one block of keys and values becomes.
template <class T>
struct Workspace {
    std::vector<T> queries, keys, values, weights;
    std::vector<float> scores, largest, totals, sums;
    Int width = 0;  // of a row of sums: value_dim up to a whole panel

    // `rows` rows with the query heads of one key head: row r has head r % group of token token_of(r / group).
    template <class TokenOf>
    void begin(const Decode<T>& call, Int kv_head, Int rows, const TokenOf& token_of) {
        const Int group = call.group();
        width = (call.value_dim + PANEL - 1) / PANEL * PANEL;
        queries.resize(rows * call.dim);
        for (Int row = 0; row < rows; ++row)
            std::memcpy(queries.data() + row * call.dim,
                        call.query + token_of(row / group) * call.query_stride + (kv_head * group + row % group) * call.dim,
                        call.dim * sizeof(T));
        keys.resize(PANEL * call.dim);
        values.assign(PANEL * width, T{});
        weights.resize(TILE * PANEL);
        scores.resize(TILE * PANEL);
        largest.assign(rows, -INFINITY);
        totals.assign(rows, 0.0f);
        sums.assign(rows * width, 0.0f);
    }
};

// ROWS rows of the tile from `row` on meet a block of `count` keys of which row r may see [first[r], last[r]).
template <int ROWS, class T>
void meet(const Decode<T>& call, Workspace<T>& work, Int row, Int count, const Int* first, const Int* last) {
    Floats products[ROWS][4] = {};
    for (Int k = 0; k < call.dim; k += STEP<T>)
        multiply<ROWS>(products, work.queries.data() + row * call.dim + k, call.dim, work.keys.data() + k * PANEL);
    float* const scores = work.scores.data();
    for (int r = 0; r < ROWS; ++r) {
        float* const to = scores + r * PANEL;
        for (int c = 0; c < 4; ++c) store(to + c * LANES, products[r][c] * (call.scale * LOG2_E));
        if (call.softcap > 0.0f) cap(to, 1, call.softcap);
        for (Int t = 0; t < first[r]; ++t) to[t] = -INFINITY;
        for (Int t = last[r]; t < PANEL; ++t) to[t] = -INFINITY;
    }
    float* const sums = work.sums.data() + row * work.width;
    weigh(scores, Running{work.largest.data() + row, work.totals.data() + row, sums}, ROWS, work.width);
    T* const weights = work.weights.data();
    for (Int i = 0; i < ROWS * PANEL; i += LANES) store(weights + i, load(scores + i));
    for (Int column = 0; column < work.width; column += PANEL) {
        Floats totals[ROWS][4];
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < 4; ++c) totals[r][c] = load(sums + r * work.width + column + c * LANES);
        const T* panel = work.values.data() + column * PANEL;
        for (Int t = 0; t < count; t += STEP<T>) multiply<ROWS>(totals, weights + t, PANEL, panel + t * PANEL);
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < 4; ++c) store(sums + r * work.width + column + c * LANES, totals[r][c]);
    }
}

// The tile's first `rows` rows, whose queries lie in `work`, meet the keys of tokens [begin, stop) of a sequence. Row r
// may see those of tokens `seen(r)`, from the first to before the second.
template <class T, class Seen>
void attend_keys(const Decode<T>& call, Workspace<T>& work, Int rows, Int seq, Int kv_head, Int begin, Int stop,
                 const Seen& seen) {
    Rows<T> now, next;
    next.find(call, seq, kv_head, begin, stop);
    for (Int key = begin; key < stop; key += TOKENS) {
        now = next;
        next.find(call, seq, kv_head, key + TOKENS, stop);
        lay_out_keys(now.keys, now.count, call.dim, work.keys.data());
        lay_out_values(now.values, now.count, call.value_dim, work.values.data());
        for (Int row = 0; row < rows; row += TILE) {
            Int first[TILE], last[TILE], most = 0;
            const Int here = std::min<Int>(TILE, rows - row);
            for (Int r = 0; r < here; ++r) {
                const auto [from, to] = seen(row + r);
                last[r] = std::clamp<Int>(to - key, 0, now.count);
                first[r] = std::clamp<Int>(from - key, 0, last[r]);
                most = std::max(most, last[r] - first[r]);
            }
            if (most > 0)
                with_rows(here, [&](auto count) { meet<count>(call, work, row, now.count, first, last); });
        }
    }
}

}  // namespace cpu
