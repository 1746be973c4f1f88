// Tiles of [rows, Dim] 16-bit numbers in shared memory, addressed in chunks of 16 bytes.
//
// ldmatrix reads one chunk from each of eight rows at once, which is free of bank conflicts only if the eight chunks
// lie in different 16-byte columns of the 128-byte bank line. Where a row is a whole number of bank lines (Dim 64, 128,
// 256) the chunk number is XORed with the row number; else (Dim 80, 96) rows are padded to an odd number of chunks.
#pragma once
#include "warp.cuh"

template <int Dim>
struct Tile {
    static_assert(Dim % 16 == 0, "mma.m16n8k16 eats 16 columns at a time");
    static constexpr int kChunks = Dim / 8;
    static constexpr bool kSwizzled = kChunks % 8 == 0;
    static constexpr int kStride = kSwizzled ? kChunks : kChunks | 1;  // chunks from row to row

    static __device__ constexpr int elements(int rows) { return rows * kStride * 8; }

    // Offset in elements of `chunk` of `row`.
    static __device__ __forceinline__ int at(int row, int chunk) {
        return (row * kStride + (kSwizzled ? chunk ^ (row & 7) : chunk)) * 8;
    }
};

// One m16n8k16 A fragment: 16 rows from `row`, columns 16 * step and on.
template <int Dim, class T>
__device__ __forceinline__ void load_a(uint32_t (&fragment)[4], const T* tile, int row, int step, int lane) {
    ldmatrix_x4(fragment, tile + Tile<Dim>::at(row + lane % 16, step * 2 + lane / 16));
}

// Two B fragments of Q x K^T: keys `row` to `row` + 16, columns 16 * step and on. [0], [1] are the first eight keys.
template <int Dim, class T>
__device__ __forceinline__ void load_keys(uint32_t (&fragment)[4], const T* tile, int row, int step, int lane) {
    ldmatrix_x4(fragment, tile + Tile<Dim>::at(row + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
}

// Two B fragments of P x V: 16 keys from `row`, columns 16 * step and on. [0], [1] are the first eight columns.
template <int Dim, class T>
__device__ __forceinline__ void load_values(uint32_t (&fragment)[4], const T* tile, int row, int step, int lane) {
    ldmatrix_x4_trans(fragment, tile + Tile<Dim>::at(row + lane % 16, step * 2 + lane / 16));
}
