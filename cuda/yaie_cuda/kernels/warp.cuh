// Instructions of a warp that CUDA C++ has no name for, the same on a device (PTX) and emulated. Kernels include this.
#pragma once
#include "numeric.cuh"

#ifdef __CUDACC_RTC__
// The block's dynamic shared memory, aligned to 1024 bytes: `DYNAMIC_SHARED(shared);` declares `unsigned char* shared`.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// Starts a copy of 16 bytes from global to shared memory; writes zeros where not `valid` and then reads nothing.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
// Closes a group of copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N of this thread's groups are in flight. Other threads' copies need a barrier after it.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
// Four 8 x 8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix i / 8, 16 bytes each.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// d += a x b: a 16 x 16 by rows, b 16 x 8 by columns, d 16 x 8 in float.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void mma_m16n8k16<bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                       uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<float16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Barrier `id` (1 to 15) for `threads` threads, whole warps of them.
__device__ __forceinline__ void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Reads past L1, which does not follow what other blocks write while this one runs.
__device__ __forceinline__ float load_float_l2(const float* from) {
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}
__device__ __forceinline__ float4 load_float4_l2(const float* from) {
    float4 x;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(from)
                 : "memory");
    return x;
}
// 16 or 8 bytes at an address that is a multiple of as many.
__device__ __forceinline__ uint4 load_vector(const void* from) { return *static_cast<const uint4*>(from); }
__device__ __forceinline__ void store_vector(void* to, uint4 value) { *static_cast<uint4*>(to) = value; }
__device__ __forceinline__ void store_vector(void* to, uint2 value) { *static_cast<uint2*>(to) = value; }
__device__ __forceinline__ float4 load_float4(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ __forceinline__ void store_float4(float* to, float4 value) { *reinterpret_cast<float4*>(to) = value; }
__device__ __forceinline__ void store_float2(float* to, float2 value) { *reinterpret_cast<float2*>(to) = value; }
#else
#define DYNAMIC_SHARED(name) unsigned char* const name = ::emu::self().shape->shared

namespace emu {
inline void check_aligned(const void* address, const char* operation, Where at, unsigned bytes = 16) {
    if (reinterpret_cast<uintptr_t>(address) % bytes)
        fail(at, "%s: address %p is not a multiple of %u", operation, address, bytes);
}
template <class T>
inline constexpr Format format_of = Format::bfloat16;
template <>
inline constexpr Format format_of<float16> = Format::float16;
}  // namespace emu

inline void cp_async_16(void* to, const void* from, bool valid, emu::Where at = emu::Where::here()) {
    emu::check_aligned(to, "cp_async_16", at);
    if (valid) emu::check_aligned(from, "cp_async_16", at);
    emu::copy_begin(to, from, valid, at);
}
inline void cp_async_commit() { emu::copy_commit(); }
template <int N>
inline void cp_async_wait() {
    emu::copy_wait(N);
}
inline float load_float_l2(const float* from) { return *from; }
inline float4 load_float4_l2(const float* from, emu::Where at = emu::Where::here()) {
    emu::check_aligned(from, "load_float4_l2", at);
    return *reinterpret_cast<const float4*>(from);
}
inline uint4 load_vector(const void* from, emu::Where at = emu::Where::here()) {
    emu::check_aligned(from, "load_vector", at);
    return *static_cast<const uint4*>(from);
}
inline void store_vector(void* to, uint4 value, emu::Where at = emu::Where::here()) {
    emu::check_aligned(to, "store_vector", at);
    *static_cast<uint4*>(to) = value;
}
inline void store_vector(void* to, uint2 value, emu::Where at = emu::Where::here()) {
    emu::check_aligned(to, "store_vector", at, 8);
    *static_cast<uint2*>(to) = value;
}
inline float4 load_float4(const float* from, emu::Where at = emu::Where::here()) {
    emu::check_aligned(from, "load_float4", at);
    return *reinterpret_cast<const float4*>(from);
}
inline void store_float4(float* to, float4 value, emu::Where at = emu::Where::here()) {
    emu::check_aligned(to, "store_float4", at);
    *reinterpret_cast<float4*>(to) = value;
}
inline void store_float2(float* to, float2 value, emu::Where at = emu::Where::here()) {
    emu::check_aligned(to, "store_float2", at, 8);
    *reinterpret_cast<float2*>(to) = value;
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, emu::Where at = emu::Where::here()) {
    emu::load_matrix(r, load_vector(row, at), false, at);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, emu::Where at = emu::Where::here()) {
    emu::load_matrix(r, load_vector(row, at), true, at);
}
template <class T>
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                         emu::Where at = emu::Where::here()) {
    emu::multiply(d, a, b0, b1, emu::format_of<T>, at);
}
inline void named_barrier(int id, int threads, emu::Where at = emu::Where::here()) {
    emu::sync_named(unsigned(id), unsigned(threads), at);
}
#endif
