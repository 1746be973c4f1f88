// Draws one token per row: temperature, then top-k, top-p and min-p, then the inverse CDF in the order of token ids.
//
// One block per row. What is kept is a prefix of the order (logit descending, id ascending): the k best; of these the
// shortest prefix that reaches the share top_p of their mass; of these the tokens with at least min_p times the best
// probability. The best is always kept. Weights exp((logit - best) / temperature) are held in units of 2^-44, so that
// sums are exact and a row's token depends on that row alone, whatever runs beside it and in which order.
// A row with NaN or +inf, or with no finite value, gets -1.
#include "candidates.cuh"
#include "philox.cuh"

struct Params {
    const SCALAR* logits;      // [rows, vocab]
    const float* temperature;  // [rows]; 0: the best token, of equals the one with the lowest id
    const int32_t* top_k;      // [rows]; off outside of 1 to vocab - 1
    const float* top_p;        // [rows]; 1: off
    const float* min_p;        // [rows]; 0: off
    const int64_t* seed;       // [rows]: Philox key
    const int64_t* counter;    // [rows]: the low 64 bits of Philox's counter
    int64_t* out;              // [rows]
    int64_t stride;            // scalars from row to row
    int32_t vocab;
    int32_t unused;
};
static_assert(sizeof(Params) == PARAMS_BYTES);

constexpr float ONE = 17592186044416.0f;  // 2^44: weights of 2^18 tokens fit into 64 bits
constexpr float COLDEST = 1e-30f;
constexpr float NEGLIGIBLE = 31.0f;  // exp(-31) is less than one unit
constexpr float WIDEST = 64.0f;      // gaps beyond this share the last bin of the first search
constexpr int LAST_ID = 0x7fffffff;
constexpr uint32_t KEY_OF_INFINITY = 0xff800000u, KEY_OF_MINUS_INFINITY = 0x007fffffu;

// Orders as the values do, with -0 equal to 0; NaN comes last.
__device__ __forceinline__ uint32_t ordered(float x) {
    const uint32_t bits = __float_as_uint(x + 0.0f);
    return x != x ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float unordered(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// What the weights of a row are made of.
struct Row {
    float best, lowest;  // the largest and the least finite logit
    float per_degree;    // 1 / temperature
};

// A prefix of the order (logit descending, id ascending), and how its tokens weigh.
struct Kept {
    uint32_t last_key;
    int last_id;     // of the tokens with the last key, those up to here
    bool by_mass;    // or each token weighs 1
    bool only_last;  // tokens above the last key weigh nothing
    float min_p;     // tokens below this share of the best one's probability weigh nothing

    __device__ __forceinline__ uint64_t weight(const Row& row, float x, int id) const {
        const uint32_t key = ordered(x);
        if (key < last_key || (key == last_key && id > last_id)) return 0;
        if (only_last && key != last_key) return 0;
        if (!by_mass) return 1;
        const float gap = (row.best - x) * row.per_degree;
        if (gap > NEGLIGIBLE) return 0;
        const float probability = expf(-gap);
        return probability < min_p ? 0 : static_cast<uint64_t>(probability * ONE);
    }
};

// Bins of the values: of equal width in the logit, which spreads a whole row well; or of equal width in the key.
struct Bins {
    bool linear;
    float best, scale;
    uint32_t low, high;  // keys outside have no bin
    int shift;

    __device__ __forceinline__ int at(float x) const {
        if (linear) return static_cast<int>(fminf((best - x) * scale, BINS - 1.0f));
        const uint32_t key = ordered(x);
        return key < low || key > high ? -1 : static_cast<int>((high - key) >> shift);
    }
};

// The row's best token: its key and its id.
struct Best {
    uint32_t key;
    int id;
};

__device__ __forceinline__ Best look_at(Shared& s, const Candidates& all, float& lowest) {
    uint64_t best = 0, least = 0;
    visit_segment(all, [&](float x, int id) {
        const uint32_t key = ordered(x);
        best = larger(best, uint64_t(key) << 32 | (0xffffffffu - id));
        if (key > KEY_OF_MINUS_INFINITY) least = larger(least, 0xffffffffu - key);
    });
    best = block_largest(s, best);
    lowest = unordered(0xffffffffu - static_cast<uint32_t>(block_largest(s, least)));
    return {static_cast<uint32_t>(best >> 32), static_cast<int>(0xffffffffu - static_cast<uint32_t>(best))};
}

// The least whole number that is not below top_p * total, and at least 1: the best token is always kept.
__device__ __forceinline__ uint64_t share(float top_p, uint64_t total) {
    const double wanted = double(top_p) * double(total);
    const uint64_t whole = static_cast<uint64_t>(wanted);
    return max(whole + (double(whole) < wanted ? 1 : 0), uint64_t(1));
}

// The keys that the candidates of one bin span.
__device__ __forceinline__ void narrow(Shared& s, const Candidates& c, const Bins& bins, int bin, uint32_t& low,
                                       uint32_t& high) {
    uint64_t least = 0, most = 0;
    visit_segment(c, [&](float x, int) {
        if (bins.at(x) != bin) return;
        most = larger(most, ordered(x));
        least = larger(least, 0xffffffffu - ordered(x));
    });
    high = static_cast<uint32_t>(block_largest(s, most));
    low = 0xffffffffu - static_cast<uint32_t>(block_largest(s, least));
}

// Finds the last key of the shortest prefix of `kept` that weighs top_k, or the share top_p of the whole. Returns what
// the prefix lacks without its tokens of that key. The first search is over the whole row: it begins
// with equal bins of the logit, after which `c` becomes a list where that is short enough. Three rounds over keys of
// 32 bits are the most that follow.
__device__ __forceinline__ uint64_t search(Shared& s, Candidates& c, const Params& p, const Row& row, const Kept& kept,
                                           bool whole_row, uint32_t& last_key) {
    uint32_t low = kept.last_key, high = ordered(row.best);
    uint64_t rest = 0;  // of the goal, below the keys that were passed over
    bool linear = whole_row, first = true;
    const float widest = kept.by_mass ? NEGLIGIBLE / row.per_degree : WIDEST;
    const float scale = fminf(BINS / fminf(row.best - row.lowest, widest), 1e30f);
#pragma unroll 1
    while (first || low < high) {
        const Bins bins = {linear, row.best, scale, low, high, max(0, 32 - __clz(high - low) - BIN_BITS)};
        const auto goal = [&](uint64_t total) {
            if (first) rest = kept.by_mass ? share(p.top_p[blockIdx.x], total) : uint64_t(p.top_k[blockIdx.x]);
            return rest;
        };
        const auto weight = [&](float x, int id) { return kept.weight(row, x, id); };
        const Found found = find_bin(s, c, [&](float x) { return bins.at(x); }, weight, goal);
        rest -= found.before;
        if (linear) {
            shorten(s, c, [&](float x) { return bins.at(x) <= found.bin; });
            narrow(s, c, bins, found.bin, low, high);
        } else {
            high -= static_cast<uint32_t>(found.bin) << bins.shift;
            low = max(low, high - min(high, (1u << bins.shift) - 1u));
        }
        linear = first = false;
    }
    last_key = high;
    return rest;
}

// 128 registers a thread: left to itself, the compiler takes fewer and spills.
extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
    top_k_top_p_sample(const __grid_constant__ Params p) {
    __shared__ Shared s;
    const int row_id = blockIdx.x;
    Candidates c = {p.logits + row_id * p.stride, p.vocab, false};
    Row row;
    const Best best = look_at(s, c, row.lowest);
    const bool usable = best.key > KEY_OF_MINUS_INFINITY && best.key < KEY_OF_INFINITY;
    const float temperature = p.temperature[row_id];
    if (!usable || temperature == 0.0f) {
        if (threadIdx.x == 0) p.out[row_id] = usable ? best.id : -1;
        return;
    }
    row.best = unordered(best.key);
    row.per_degree = 1.0f / fmaxf(temperature, COLDEST);
    Kept kept = {0, LAST_ID, false, false, 0.0f};
    bool whole_row = true;
#pragma unroll 1
    for (int step = 0; step < 3; ++step) {  // top-k, top-p, the draw
        if (step == 0 && (p.top_k[row_id] <= 0 || p.top_k[row_id] >= p.vocab)) continue;
        if (step == 1 && !(p.top_p[row_id] < 1.0f)) continue;
        uint64_t lacking = 0;
        kept.by_mass = step > 0;
        kept.only_last = false;
        if (step < 2) {
            uint32_t last_key;
            lacking = search(s, c, p, row, kept, whole_row, last_key);
            if (last_key != kept.last_key) kept.last_id = LAST_ID;
            kept.last_key = last_key;
            kept.only_last = true;
            whole_row = false;
        } else {
            kept.min_p = fminf(p.min_p[row_id], 1.0f);
        }
        const auto goal = [&](uint64_t total) {
            if (step < 2) return lacking - 1;
            const uint64_t noise = philox_word(p.seed[row_id], p.counter[row_id]) >> 8;  // the uniform, times 2^24
            return (total >> 24) * noise + ((total & 0xffffffu) * noise >> 24);
        };
        const int id = locate(s, c, [&](float x, int other) { return kept.weight(row, x, other); }, goal);
        if (step == 2 && threadIdx.x == 0) p.out[row_id] = id;
        kept.last_id = id;
    }
}
