// Chunks: a few equal values that one thread loads or stores at once.
#pragma once
#include "warp.cuh"

// N values of T; N is a power of two. The address must be a multiple of the chunk's bytes, at most of 16.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Chunk {
    T values[N];
};

template <int N, class T>
__device__ __forceinline__ Chunk<T, N> load_chunk(const T* source) {
    return *reinterpret_cast<const Chunk<T, N>*>(source);
}

template <int N, class T>
__device__ __forceinline__ void store_chunk(T* target, const Chunk<T, N>& chunk) {
    *reinterpret_cast<Chunk<T, N>*>(target) = chunk;
}

// x as T would hold it.
template <class T>
__device__ __forceinline__ float rounded(float x) {
    return to_float(from_float<T>(x));
}
