// The tokens of one row that are still in the running, and the searches over them that a whole block makes.
//
// Weights are integers, so that sums are exact and no order of threads can change a result. Searches are radix
// searches over histograms in shared memory, with a fixed bound on their rounds; nothing is sorted (pivot search on the
// unsorted row as in FlashInfer's sampling kernels, flashinfer.ai, 2025-03-10).
#pragma once
#include "chunk.cuh"

constexpr uint32_t ALL = 0xffffffffu;
constexpr int WARPS = THREADS / 32;
constexpr int BIN_BITS = THREADS >= 512 ? 11 : 9;
constexpr int BINS = 1 << BIN_BITS;
constexpr int BINS_PER_THREAD = BINS / THREADS;
static_assert(BINS % THREADS == 0);

// Shared memory of a block.
struct Shared {
    uint32_t low[BINS], high[BINS];  // a histogram of 64-bit weights, in halves: their carry is made by hand
    uint64_t sums[WARPS];
    int counts[2][WARPS];  // of two turns of `shorten`
    uint64_t before;
    int32_t found;
};

// The list in shared memory: CAPACITY values, then as many ids.
__device__ __forceinline__ float* listed_values() {
    DYNAMIC_SHARED(shared);
    return reinterpret_cast<float*>(shared);
}
__device__ __forceinline__ int32_t* listed_ids() { return reinterpret_cast<int32_t*>(listed_values() + CAPACITY); }

// Tokens in the order of their ids: a whole row, or the list in shared memory once few are left.
struct Candidates {
    const SCALAR* row;
    int count;
    bool listed;

    __device__ __forceinline__ float value(int i) const { return listed ? listed_values()[i] : to_float(row[i]); }
    __device__ __forceinline__ int id(int i) const { return listed ? listed_ids()[i] : i; }
    // Every warp has a run of this many candidates, the last ones a shorter one or none.
    __device__ __forceinline__ int segment() const {
        constexpr int STEP = 32 * WIDTH;
        return (count + WARPS * STEP - 1) / (WARPS * STEP) * STEP;
    }
};

// Chunk number `at` of a row of `end` values; what lies behind the end is not touched.
__device__ __forceinline__ Chunk<SCALAR, WIDTH> load_row(const SCALAR* row, int at, int end) {
    Chunk<SCALAR, WIDTH> chunk;
    if (at + WIDTH <= end) return load_chunk<WIDTH>(row + at);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
        if (at + i < end) chunk.values[i] = row[at + i];
    return chunk;
}

// Calls visit(value, id) for every candidate of this warp's segment.
template <class Visit>
__device__ __forceinline__ void visit_segment(const Candidates& c, Visit visit) {
    const int lane = threadIdx.x % 32, begin = threadIdx.x / 32 * c.segment(), end = min(begin + c.segment(), c.count);
    if (c.listed) {
#pragma unroll 1
        for (int i = begin + lane; i < end; i += 32) visit(listed_values()[i], listed_ids()[i]);
        return;
    }
    constexpr int STEP = 32 * WIDTH;
    int first = begin + lane * WIDTH;
    Chunk<SCALAR, WIDTH> next = load_row(c.row, first, end), second = load_row(c.row, first + STEP, end);
#pragma unroll 1
    for (; first < end; first += STEP) {
        const Chunk<SCALAR, WIDTH> chunk = next;
        next = second;
        second = load_row(c.row, first + 2 * STEP, end);  // two are under way while one is looked at
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (first + i < end) visit(to_float(chunk.values[i]), first + i);
    }
}

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// The sum of x over the lanes up to this one.
template <class T>
__device__ __forceinline__ T sum_upto(T x) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const T other = __shfl_up_sync(ALL, x, distance);
        if (threadIdx.x % 32 >= distance) x += other;
    }
    return x;
}

// The largest x of the block, for all threads. The caller has passed a barrier since `sums` was last read.
__device__ __forceinline__ uint64_t block_largest(Shared& s, uint64_t x) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) x = larger(x, __shfl_xor_sync(ALL, x, distance));
    if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = x;
    __syncthreads();
    x = s.sums[threadIdx.x % WARPS];
#pragma unroll
    for (int distance = WARPS / 2; distance; distance /= 2) x = larger(x, __shfl_xor_sync(ALL, x, distance));
    __syncthreads();
    return x;
}

// What the sums of all warps come to.
struct Sums {
    uint64_t before, total;  // over the warps before this one, and over all
};

// Sum of `upto`, the lane 31 of which holds its warp's sum, over warps. As `block_largest` about barriers.
__device__ __forceinline__ Sums block_sums(Shared& s, uint64_t upto) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 31) s.sums[warp] = upto;
    __syncthreads();
    const uint64_t mine = lane < WARPS ? s.sums[lane] : 0, sums = sum_upto(mine);
    __syncthreads();
    return {__shfl_sync(ALL, sums - mine, warp), __shfl_sync(ALL, sums, 31)};
}

// The id of the candidate at which the running sum of weight(value, id) first exceeds goal(sum of all weights).
template <class Weight, class Goal>
__device__ __forceinline__ int locate(Shared& s, const Candidates& c, Weight weight, Goal goal) {
    uint64_t mine = 0;
    visit_segment(c, [&](float x, int id) { mine += weight(x, id); });
    const uint64_t upto_lane = sum_upto(mine);
    const Sums sums = block_sums(s, upto_lane);
    const uint64_t target = goal(sums.total);
    if (threadIdx.x % 32 == 31 && sums.before <= target && target < sums.before + upto_lane) {
        s.found = threadIdx.x / 32;
        s.before = sums.before;
    }
    __syncthreads();
    const int segment = s.found;
    const uint64_t rest = target - s.before;
    __syncthreads();

    // Now the block works on that one segment, a run of neighbours per thread.
    const int first = segment * c.segment(), run = (c.segment() + THREADS - 1) / THREADS;
    const int begin = first + threadIdx.x * run, end = min(min(begin + run, first + c.segment()), c.count);
    uint64_t sum = 0;
#pragma unroll 1
    for (int i = begin; i < end; ++i) sum += weight(c.value(i), c.id(i));
    const uint64_t inside = sum_upto(sum);
    uint64_t upto = block_sums(s, inside).before + inside - sum;
    if (upto <= rest && rest < upto + sum) {
        int i = begin - 1;
#pragma unroll 1
        do {
            ++i;
            upto += weight(c.value(i), c.id(i));
        } while (rest >= upto);
        s.found = c.id(i);
    }
    __syncthreads();
    return s.found;
}

// A bin of a histogram, and the weight of the bins before it.
struct Found {
    int bin;
    uint64_t before;
};

// The first bin at which the running sum of weights reaches goal(sum of all weights), which is at least 1 and at most
// that sum. bin(value) is below BINS, or negative for candidates that do not count.
template <class Bin, class Weight, class Goal>
__device__ __forceinline__ Found find_bin(Shared& s, const Candidates& c, Bin bin, Weight weight, Goal goal) {
    for (int i = threadIdx.x; i < BINS; i += THREADS) s.low[i] = s.high[i] = 0;
    __syncthreads();
    visit_segment(c, [&](float x, int id) {
        const int at = bin(x);
        const uint64_t w = at < 0 ? 0 : weight(x, id);
        const uint32_t low = static_cast<uint32_t>(w);
        uint32_t high = static_cast<uint32_t>(w >> 32);
        if (low && atomicAdd(&s.low[at], low) > 0xffffffffu - low) ++high;  // the sum of the low halves wrapped
        if (high) atomicAdd(&s.high[at], high);
    });
    __syncthreads();
    const int first = threadIdx.x * BINS_PER_THREAD;
    uint64_t weights[BINS_PER_THREAD], sum = 0;
#pragma unroll
    for (int i = 0; i < BINS_PER_THREAD; ++i) sum += weights[i] = uint64_t(s.high[first + i]) << 32 | s.low[first + i];
    const uint64_t inside = sum_upto(sum);
    const Sums sums = block_sums(s, inside);
    uint64_t before = sums.before + inside - sum;
    const uint64_t wanted = goal(sums.total);
#pragma unroll
    for (int i = 0; i < BINS_PER_THREAD; ++i) {
        if (before < wanted && wanted <= before + weights[i]) {
            s.found = first + i;
            s.before = before;
        }
        before += weights[i];
    }
    __syncthreads();
    const Found found = {s.found, s.before};
    __syncthreads();
    return found;
}

// Makes `c`, a whole row, the list of its tokens that `wanted` holds for, if they are not more than CAPACITY.
template <class Wanted>
__device__ __forceinline__ void shorten(Shared& s, Candidates& c, Wanted wanted) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int listed = 0, parity = 0;
    Chunk<SCALAR, WIDTH> next = load_row(c.row, threadIdx.x * WIDTH, c.count);
#pragma unroll 1
    for (int first = 0; first < c.count; first += THREADS * WIDTH, parity ^= 1) {
        const int at = first + threadIdx.x * WIDTH;
        const Chunk<SCALAR, WIDTH> chunk = next;
        next = load_row(c.row, at + THREADS * WIDTH, c.count);
        uint32_t mask = 0;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (at + i < c.count && wanted(to_float(chunk.values[i]))) mask |= 1u << i;
        const int upto = sum_upto(__popc(mask));
        if (lane == 31) s.counts[parity][warp] = upto;
        __syncthreads();  // one barrier a turn: the next turn writes the other half of `counts`
        const int mine = lane < WARPS ? s.counts[parity][lane] : 0, sums = sum_upto(mine);
        int slot = listed + __shfl_sync(ALL, sums - mine, warp) + upto - __popc(mask);
        listed += __shfl_sync(ALL, sums, 31);
        if (listed > CAPACITY) return;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (mask >> i & 1) {
                listed_values()[slot] = to_float(chunk.values[i]);
                listed_ids()[slot++] = at + i;
            }
    }
    __syncthreads();
    c.listed = true;
    c.count = listed;
}
