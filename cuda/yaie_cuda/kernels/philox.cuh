// Philox4x32-10: random numbers as a pure function of key and counter.
//
// Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), the Random123 library.
#pragma once
#include "warp.cuh"

// The first word of the bijection's result for the counter (counter, 0) under `key`.
__device__ __forceinline__ uint32_t philox_word(uint64_t key, uint64_t counter) {
    constexpr uint32_t FIRST = 0xD2511F53u, SECOND = 0xCD9E8D57u;
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint32_t high0 = __umulhi(FIRST, c0), low0 = FIRST * c0;
        const uint32_t high1 = __umulhi(SECOND, c2), low1 = SECOND * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}
