// Products of rows with a weight that was packed once: panels of 64 outputs, read as one run of memory.
//
// A panel of bfloat16 is [in_features / 2, 64, 2], of float [in_features, 64]: a vector holds one or two inputs of 16
// outputs, which meet the row's inputs spread over all lanes; no sum across lanes is needed (the layout that BLIS calls
// a micro-panel: Van Zee and van de Geijn, 2015).
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "rows.hpp"

namespace cpu {

constexpr Int PANEL = 4 * LANES;
constexpr int TILE = 6;            // rows of a tile: 6 x 4 vectors of sums, the rest of 32 registers for operands
constexpr Int BLOCK = 96;        // rows that go through a panel while it lies in a core's cache
constexpr Int AHEAD = 4096;      // bytes that are asked for, into the second cache, before they are read

#if defined(__AVX512F__)
constexpr bool FLOAT_PRODUCTS = true;
#else
constexpr bool FLOAT_PRODUCTS = false;
#endif

// Tiles for whole matrices (AMX) are oneDNN's to use.
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
constexpr bool BFLOAT16_PRODUCTS = true;
#else
constexpr bool BFLOAT16_PRODUCTS = false;
#endif

#if defined(__AVX512BF16__)
constexpr bool BFLOAT16_PAIRS = true;  // two products and a sum in one instruction

// Adds to 4 vectors of sums of each row what inputs k and k + 1 give.
template <int ROWS>
inline void multiply(Floats (&sums)[ROWS][4], const bfloat16* rows, Int stride, const bfloat16* panel) {
    __m512bh weights[4];
    for (int c = 0; c < 4; ++c) weights[c] = bits_of<__m512bh>(_mm512_loadu_si512(panel + c * 2 * LANES));
    for (int r = 0; r < ROWS; ++r) {
        std::int32_t pair;
        std::memcpy(&pair, rows + r * stride, sizeof pair);
        const __m512bh inputs = bits_of<__m512bh>(_mm512_set1_epi32(pair));
        for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_dpbf16_ps(sums[r][c], weights[c], inputs);
    }
}
#else
constexpr bool BFLOAT16_PAIRS = false;

template <int ROWS>
inline void multiply(Floats (&sums)[ROWS][4], const bfloat16* rows, Int stride, const bfloat16* panel) {
    for (int c = 0; c < 4; ++c) {
        Words both;
        std::memcpy(&both, panel + c * 2 * LANES, sizeof both);
        const Floats first = bits_of<Floats>(both << 16), second = bits_of<Floats>(both & 0xffff0000u);
        for (int r = 0; r < ROWS; ++r)
            sums[r][c] += first * widened(rows[r * stride]) + second * widened(rows[r * stride + 1]);
    }
}
#endif

template <int ROWS>
inline void multiply(Floats (&sums)[ROWS][4], const float* rows, Int stride, const float* panel) {
    for (int c = 0; c < 4; ++c) {
        const Floats weights = load(panel + c * LANES);
        for (int r = 0; r < ROWS; ++r) sums[r][c] += weights * rows[r * stride];
    }
}

inline Floats load(const std::int8_t* from) {
#if defined(__AVX512F__)  // the compiler's own conversion goes number by number
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#else
    Floats values;
    for (Int i = 0; i < LANES; ++i) values[i] = from[i];
    return values;
#endif
}

// Whole numbers of -127 to 127: rows are float then, and sums are scaled when they are done.
template <int ROWS>
inline void multiply(Floats (&sums)[ROWS][4], const float* rows, Int stride, const std::int8_t* panel) {
    for (int c = 0; c < 4; ++c) {
        const Floats weights = load(panel + c * LANES);
        for (int r = 0; r < ROWS; ++r) sums[r][c] += weights * rows[r * stride];
    }
}

template <class W>
constexpr Int STEP = sizeof(W) == 2 ? 2 : 1;  // inputs that one vector of weights holds

// `rows` of type R times a packed weight of type W, to `out` of type T.
template <class R, class W, class T>
struct Product {
    const R* rows;
    Int stride;
    const W* packed;
    const float* scales;  // [out_features, up to a whole panel], or null for 1
    const T* bias;        // [out_features], or null
    T* out;
    Int out_stride, count, in_features, out_features;
};

// ROWS rows from `row` on through panel number `panel`.
template <int ROWS, class R, class W, class T>
void tile(const Product<R, W, T>& call, Int row, Int panel) {
    constexpr Int READ = STEP<W> * PANEL;
    const W* weights = call.packed + panel * PANEL * call.in_features;
    const R* rows = call.rows + row * call.stride;
    Floats sums[ROWS][4] = {};
    for (Int k = 0; k < call.in_features; k += STEP<W>) {
        if constexpr (ROWS <= 2)  // more rows find the panel in the cache, or wait for arithmetic
            for (Int byte = 0; byte < READ * static_cast<Int>(sizeof(W)); byte += 64)
                __builtin_prefetch(reinterpret_cast<const char*>(weights) + AHEAD + byte, 0, 2);
        multiply<ROWS>(sums, rows + k, call.stride, weights);
        weights += READ;
    }
    const Int left = std::min(PANEL, call.out_features - panel * PANEL);
    float bias[PANEL] = {};
    if (call.bias != nullptr)
        for (Int i = 0; i < left; ++i) bias[i] = widened(call.bias[panel * PANEL + i]);
    for (int r = 0; r < ROWS; ++r) {
        T whole[PANEL];
        T* to = call.out + (row + r) * call.out_stride + panel * PANEL;
        T* place = left == PANEL ? to : whole;
        for (int c = 0; c < 4; ++c) {
            const Floats scale = call.scales != nullptr ? load(call.scales + panel * PANEL + c * LANES) : spread(1.0f);
            store(place + c * LANES, sums[r][c] * scale + load(bias + c * LANES));
        }
        if (place == whole) std::memcpy(to, whole, left * sizeof(T));
    }
}

// Calls `run` with `count`, 1 to TILE, as a constant.
template <class F>
void with_rows(Int count, F&& run) {
    switch (count) {
        case 1: return run(std::integral_constant<int, 1>{});
        case 2: return run(std::integral_constant<int, 2>{});
        case 3: return run(std::integral_constant<int, 3>{});
        case 4: return run(std::integral_constant<int, 4>{});
        case 5: return run(std::integral_constant<int, 5>{});
        default: return run(std::integral_constant<int, TILE>{});
    }
}

template <class R, class W, class T>
void linear(const Product<R, W, T>& call, int threads) {
    const Int panels = (call.out_features + PANEL - 1) / PANEL, blocks = (call.count + BLOCK - 1) / BLOCK;
    const bool together = call.in_features * call.out_features > ALONE;
#pragma omp parallel for num_threads(threads) if (together) schedule(static)
    for (Int item = 0; item < panels * blocks; ++item) {
        const Int panel = item % panels, start = item / panels * BLOCK, stop = std::min(call.count, start + BLOCK);
        for (Int row = start; row < stop; row += TILE)
            with_rows(std::min<Int>(TILE, stop - row), [&](auto count) { tile<count>(call, row, panel); });
    }
}

// As above with weights of a byte; rows are made float first.
template <class T>
void linear_int8(const T* rows, Int stride, const std::int8_t* packed, const float* scales, const T* bias, T* out,
                 Int out_stride, Int count, Int in_features, Int out_features, int threads) {
    static thread_local std::vector<float> room;
    room.resize(count * in_features);
    float* const wide = room.data();
#pragma omp parallel for num_threads(threads) if (count * in_features > ALONE)
    for (Int row = 0; row < count; ++row)
        for (Int k = 0; k < in_features; ++k) wide[row * in_features + k] = widened(rows[row * stride + k]);
    linear(Product<float, std::int8_t, T>{wide, in_features, packed, scales, bias, out, out_stride, count, in_features,
                                          out_features},
           threads);
}

}  // namespace cpu
