// CUDA's built-in names for emulated kernels: places, shuffles, votes, reductions, barriers, atomics, integers, maths.
#pragma once
#include "runtime.hpp"

#define threadIdx (::emu::self().index)
#define blockIdx (::emu::self().shape->block_index)
#define blockDim (::emu::self().shape->block)
#define gridDim (::emu::self().shape->grid)
inline constexpr int warpSize = 32;

namespace emu {
template <class T>
struct Same {
    using Type = T;
};
template <class T>
using same = typename Same<T>::Type;  // a parameter that takes no part in deduction: atomicAdd(&count, 1)
template <class To, class From>
inline To bits_as(From from) {
    static_assert(sizeof(To) >= sizeof(From) || sizeof(From) == 8, "the value does not fit");
    To to{};
    __builtin_memcpy(&to, &from, sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
    return to;
}
template <class T>
inline T shuffle(uint32_t mask, T value, unsigned source, const char* operation, Where at) {
    return bits_as<T>(exchange(mask, bits_as<uint64_t>(value), source, operation, at));
}
}  // namespace emu

// ---- collectives ---------------------------------------------------------------------------------------------
inline void __syncthreads(emu::Where at = emu::Where::here()) { emu::sync_block(at); }
inline void __syncwarp(uint32_t mask = ~0u, emu::Where at = emu::Where::here()) { emu::sync_warp(mask, at); }
inline void __threadfence() { emu::fence(); }
inline void __threadfence_block() { emu::fence(); }

template <class T>
inline T __shfl_sync(uint32_t mask, T value, int source, int width = 32, emu::Where at = emu::Where::here()) {
    const unsigned lane = emu::self().lane, inside = unsigned(width) - 1u;
    return emu::shuffle(mask, value, (lane & ~inside) | (unsigned(source) & inside), "__shfl_sync", at);
}
template <class T>
inline T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32, emu::Where at = emu::Where::here()) {
    const unsigned lane = emu::self().lane, source = lane ^ unsigned(bits);
    const bool reachable = source / unsigned(width) <= lane / unsigned(width);
    return emu::shuffle(mask, value, reachable ? source : lane, "__shfl_xor_sync", at);
}
template <class T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32, emu::Where at = emu::Where::here()) {
    const unsigned lane = emu::self().lane, segment = unsigned(width);
    return emu::shuffle(mask, value, lane % segment + by < segment ? lane + by : lane, "__shfl_down_sync", at);
}
template <class T>
inline T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32, emu::Where at = emu::Where::here()) {
    const unsigned lane = emu::self().lane;
    return emu::shuffle(mask, value, lane % unsigned(width) >= by ? lane - by : lane, "__shfl_up_sync", at);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate, emu::Where at = emu::Where::here()) {
    return emu::ballot(mask, predicate != 0, "__ballot_sync", at);
}
inline int __any_sync(uint32_t mask, int predicate, emu::Where at = emu::Where::here()) {
    return emu::ballot(mask, predicate != 0, "__any_sync", at) != 0;
}
inline int __all_sync(uint32_t mask, int predicate, emu::Where at = emu::Where::here()) {
    return emu::ballot(mask, predicate != 0, "__all_sync", at) == mask;
}

#define EMU_REDUCTION(name, type, kind)                                               \
    inline type name(uint32_t mask, type value, emu::Where at = emu::Where::here()) { \
        return type(emu::reduce(mask, uint32_t(value), emu::Reduction::kind, at));    \
    }
EMU_REDUCTION(__reduce_add_sync, uint32_t, add)
EMU_REDUCTION(__reduce_add_sync, int32_t, add)
EMU_REDUCTION(__reduce_min_sync, uint32_t, min)
EMU_REDUCTION(__reduce_min_sync, int32_t, min_signed)
EMU_REDUCTION(__reduce_max_sync, uint32_t, max)
EMU_REDUCTION(__reduce_max_sync, int32_t, max_signed)
EMU_REDUCTION(__reduce_and_sync, uint32_t, bit_and)
EMU_REDUCTION(__reduce_or_sync, uint32_t, bit_or)
EMU_REDUCTION(__reduce_xor_sync, uint32_t, bit_xor)
#undef EMU_REDUCTION

// ---- atomics: relaxed, as on the device; order comes from __threadfence ------------------------------------------
template <class T>
inline T atomicAdd(T* address, emu::same<T> value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <>
inline float atomicAdd<float>(float* address, float value) {
    auto* cell = reinterpret_cast<uint32_t*>(address);
    uint32_t before = __atomic_load_n(cell, __ATOMIC_RELAXED);
    while (true) {
        const auto after = emu::bits_as<uint32_t>(emu::bits_as<float>(before) + value);
        if (__atomic_compare_exchange_n(cell, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return emu::bits_as<float>(before);
    }
}
template <class T>
inline T atomicMax(T* address, emu::same<T> value) {
    T before = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (before < value &&
           !__atomic_compare_exchange_n(address, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before;
}
template <class T>
inline T atomicMin(T* address, emu::same<T> value) {
    T before = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (value < before &&
           !__atomic_compare_exchange_n(address, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before;
}
template <class T>
inline T atomicExch(T* address, emu::same<T> value) {
    return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <class T>
inline T atomicCAS(T* address, emu::same<T> compare, emu::same<T> value) {
    __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return compare;
}

// ---- integers and bits ---------------------------------------------------------------------------------------
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline uint32_t __brev(uint32_t x) {
    uint32_t y = 0;
    for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
    return y;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
inline uint32_t __float_as_uint(float x) { return emu::bits_as<uint32_t>(x); }
inline int __float_as_int(float x) { return emu::bits_as<int>(x); }
inline float __uint_as_float(uint32_t x) { return emu::bits_as<float>(x); }
inline float __int_as_float(int x) { return emu::bits_as<float>(x); }
template <class T>
inline T __ldg(const T* address) {
    return *address;
}
template <class T>
inline T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
    return a < b ? b : a;
}

// ---- maths: the C library's, declared here because <cmath> costs more than a kernel ------------------------------
extern "C" {
float expf(float);
float exp2f(float);
float logf(float);
float log2f(float);
float tanhf(float);
float sqrtf(float);
float fabsf(float);
float floorf(float);
float ceilf(float);
float rintf(float);
float fmaf(float, float, float);
float powf(float, float);
float sinf(float);
float cosf(float);
double exp2(double);
double log2(double);
double fabs(double);
}
inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float __expf(float x) { return __builtin_expf(x); }
inline float __logf(float x) { return __builtin_logf(x); }
// Results that no compiler may fuse with what follows, as on the device.
inline float emu_alone(float x) {
    __asm__("" : "+m"(x));
    return x;
}
inline float __fmul_rn(float a, float b) { return emu_alone(a * b); }
inline float __fadd_rn(float a, float b) { return emu_alone(a + b); }
inline float __fsub_rn(float a, float b) { return emu_alone(a - b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
