// Numbers of the kernels: integers, 16-bit floats and their conversions, the same on a device and emulated.
// No header of the CUDA toolkit is needed, so that NVRTC compiles the kernels wherever it is installed.
#pragma once

#ifdef __CUDACC_RTC__
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long long;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include "intrinsics.hpp"
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#endif

// Values of `SCALAR`. The 16-bit ones hold bits only; arithmetic is done in float.
struct bfloat16 {
    uint16_t bits;
};
struct float16 {
    uint16_t bits;
};
using float32 = float;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bfloat16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }
__device__ __forceinline__ float to_float(float16 x);
// Rounds to nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_float(float x);
// Two values in one register, `x` in the lower half; T is bfloat16 or float16.
template <class T>
__device__ __forceinline__ uint32_t pack2(float x, float y);
// a * b + c on both halves, rounded once to T.
template <class T>
__device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c);
// 2^x: the device's approximation, 2 ulp, subnormal results as 0.
__device__ __forceinline__ float exp2_fast(float x);

template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
__device__ __forceinline__ bfloat16 low_half(uint32_t pair, bfloat16) { return {uint16_t(pair)}; }
__device__ __forceinline__ float16 low_half(uint32_t pair, float16) { return {uint16_t(pair)}; }
template <class T>
__device__ __forceinline__ float2 unpack2(uint32_t pair) {
    return make_float2(to_float(low_half(pair, T{})), to_float(low_half(pair >> 16, T{})));
}

#ifdef __CUDACC_RTC__
__device__ __forceinline__ float to_float(float16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
template <>
__device__ __forceinline__ bfloat16 from_float<bfloat16>(float x) {
    bfloat16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
template <>
__device__ __forceinline__ float16 from_float<float16>(float x) {
    float16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
template <>
__device__ __forceinline__ uint32_t pack2<bfloat16>(float x, float y) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}
template <>
__device__ __forceinline__ uint32_t pack2<float16>(float x, float y) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}
template <>
__device__ __forceinline__ uint32_t fma2<bfloat16>(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
template <>
__device__ __forceinline__ uint32_t fma2<float16>(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
inline float to_float(float16 x) { return float(emu::bits_as<_Float16>(x.bits)); }
template <>
inline bfloat16 from_float<bfloat16>(float x) {
    const uint32_t bits = __float_as_uint(x);
    if (x != x) return {0x7fff};
    return {uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
template <>
inline float16 from_float<float16>(float x) {
    return {x != x ? uint16_t(0x7fff) : emu::bits_as<uint16_t>(_Float16(x))};
}
template <class T>
inline uint32_t pack2(float x, float y) {
    return from_float<T>(x).bits | uint32_t(from_float<T>(y).bits) << 16;
}
template <class T>
inline uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
    const float2 x = unpack2<T>(a), y = unpack2<T>(b), z = unpack2<T>(c);
    return pack2<T>(float(double(x.x) * y.x + z.x), float(double(x.y) * y.y + z.y));
}
inline float exp2_fast(float x) {
    const float y = __builtin_exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y;
}
#endif
