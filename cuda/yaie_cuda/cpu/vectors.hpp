// Sixteen floats at a time, in the vector types of GCC: the compiler maps them to what the machine has.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace cpu {

using Int = std::int64_t;
constexpr Int LANES = 16;
using Floats = float __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
using Halves = std::uint16_t __attribute__((vector_size(32)));

// The upper half of a float's bits, as in torch.bfloat16.
struct bfloat16 {
    std::uint16_t bits;
};

template <class To, class From>
inline To bits_of(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline Floats load(const float* from) {
    Floats values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

inline Floats load(const bfloat16* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    return bits_of<Floats>(__builtin_convertvector(halves, Words) << 16);
}

inline void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }

// Rounds to nearest, ties to even. NaN stays NaN: its mantissa might lie in the half that goes.
inline Halves rounded(Floats values) {
    const Words bits = bits_of<Words>(values);
    const Words nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return __builtin_convertvector(values == values ? nearest : (bits >> 16) | 0x40, Halves);
}

inline void store(bfloat16* to, Floats values) {
    const Halves halves = rounded(values);
    std::memcpy(to, &halves, sizeof halves);
}

inline float widened(float value) { return value; }
inline float widened(bfloat16 value) { return bits_of<float>(std::uint32_t{value.bits} << 16); }

template <class T>
inline T narrowed(float value);
template <>
inline float narrowed<float>(float value) { return value; }
template <>
inline bfloat16 narrowed<bfloat16>(float value) {
    const std::uint32_t bits = bits_of<std::uint32_t>(value);
    if (value != value) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
    return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

// The values as `T` holds them, as floats again.
template <class T>
inline Floats as(Floats values);
template <>
inline Floats as<float>(Floats values) { return values; }
template <>
inline Floats as<bfloat16>(Floats values) {
    return bits_of<Floats>(__builtin_convertvector(rounded(values), Words) << 16);
}

// Lane l of the result adds lanes l and l ^ DISTANCE of `a` where l has no bit DISTANCE, of `b` where it has.
template <int DISTANCE>
inline Floats folded(Floats a, Floats b) {
    Words upper, across;
    for (std::uint32_t l = 0; l < LANES; ++l) {
        upper[l] = l & DISTANCE ? ~0u : 0u;
        across[l] = l ^ DISTANCE;
    }
    const Floats own = upper != 0 ? b : a, other = upper != 0 ? a : b;
    return own + __builtin_shuffle(other, across);
}

// Lane l of the result is the sum of all lanes of rows[l].
inline Floats sums(Floats (&rows)[LANES]) {
    for (int i = 0; i < 8; ++i) rows[i] = folded<1>(rows[2 * i], rows[2 * i + 1]);
    for (int i = 0; i < 4; ++i) rows[i] = folded<2>(rows[2 * i], rows[2 * i + 1]);
    for (int i = 0; i < 2; ++i) rows[i] = folded<4>(rows[2 * i], rows[2 * i + 1]);
    return folded<8>(rows[0], rows[1]);
}

inline float sum(Floats values) {
    values = folded<8>(values, values);
    values = folded<4>(values, values);
    values = folded<2>(values, values);
    return folded<1>(values, values)[0];
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// The lanes, each in the place of lane l ^ DISTANCE.
template <int DISTANCE>
inline Floats across(Floats values) {
    Words places;
    for (std::uint32_t l = 0; l < LANES; ++l) places[l] = l ^ DISTANCE;
    return __builtin_shuffle(values, places);
}

inline float largest(Floats values) {
    values = larger(across<8>(values), values);
    values = larger(across<4>(values), values);
    values = larger(across<2>(values), values);
    return larger(across<1>(values), values)[0];
}

inline Floats spread(float value) { return value - Floats{}; }

// 2^x within 2 units of the last place: the whole part goes to the exponent, the rest, -0.5 to 0.5, is a polynomial
// (Taylor's; its next term is 2^-26). Below -126 the result is 0, and -inf gives 0; NaN stays.
inline Floats exp2(Floats x) {
    const Floats bounded = x < -127.0f ? spread(-127.0f) : (x > 128.0f ? spread(128.0f) : x);
    const Floats magic = spread(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    const Floats shifted = bounded + magic, rest = bounded - (shifted - magic);
    Floats power = spread(1.5252734e-5f);
    for (float c : {1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 0.24022651f, 0.69314718f, 1.0f})
        power = power * rest + c;
    const Words exponent = (bits_of<Words>(shifted) + (127u - 0x4b400000u)) << 23;
    const Floats result = power * bits_of<Floats>(exponent);
    return x == x ? (x < -126.0f ? Floats{} : result) : x;
}

constexpr float LOG2_E = 1.4426950408889634f;

}  // namespace cpu
