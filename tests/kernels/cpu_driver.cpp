// Every CPU kernel on random shapes, each buffer as long as the call may use and not a byte more: for sanitizers.
// Arguments: the number of rounds, the largest number of threads.

#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels.cpp"

namespace {

std::mt19937 draw{1};

Int pick(std::initializer_list<Int> values) { return values.begin()[draw() % values.size()]; }

template <class T>
std::vector<T> numbers(Int count) {
    std::vector<T> made(count);
    for (T& one : made) one = cpu::narrowed<T>(static_cast<float>(draw() % 2001) / 500.0f - 2.0f);
    made.shrink_to_fit();
    return made;
}

template <class T>
void norm_and_gate(int threads) {
    const Int rows = pick({0, 1, 3, 65}), hidden = pick({16, 48, 768}), stride = hidden + pick({0, 16});
    auto input = numbers<T>(rows > 0 ? (rows - 1) * stride + hidden : 0), weight = numbers<T>(hidden);
    auto residual = numbers<T>(rows * hidden), out = numbers<T>(rows * hidden);
    T* const added = pick({0, 1}) != 0 ? residual.data() : nullptr;
    auto both = numbers<T>(rows * 2 * hidden);
    const auto run = [&](auto norm, auto gate) {
        norm(input.data(), stride, weight.data(), 1e-6f, added, hidden, out.data(), hidden, rows, hidden, threads);
        gate(both.data(), 2 * hidden, out.data(), hidden, rows, hidden, threads);
    };
    if constexpr (std::is_same_v<T, float>) {
        run(rms_norm_float32, silu_and_mul_float32);
        run(rms_norm_one_plus_float32, gelu_tanh_and_mul_float32);
    } else {
        run(rms_norm_bfloat16, silu_and_mul_bfloat16);
        run(rms_norm_wide_bfloat16, gelu_tanh_and_mul_bfloat16);
    }
}

template <class T>
void products(int threads) {
    const Int count = pick({0, 1, 2, 5, 6, 7, 97}), in = pick({2, 16, 34, 768}), out = pick({1, 63, 64, 193, 520});
    const Int whole = (out + cpu::PANEL - 1) / cpu::PANEL * cpu::PANEL;
    auto rows = numbers<T>(count * in), packed = numbers<T>(whole * in), bias = numbers<T>(out);
    std::vector<std::int8_t> bytes(whole * in, 3);
    auto scales = numbers<float>(whole);
    auto result = numbers<T>(count * out);
    const T* const added = pick({0, 1}) != 0 ? bias.data() : nullptr;
    if constexpr (std::is_same_v<T, float>) {
        linear_float32(rows.data(), in, packed.data(), added, result.data(), out, count, in, out, threads);
        linear_int8_float32(rows.data(), in, bytes.data(), scales.data(), added, result.data(), out, count, in, out, threads);
    } else {
        linear_bfloat16(rows.data(), in, packed.data(), added, result.data(), out, count, in, out, threads);
        linear_int8_bfloat16(rows.data(), in, bytes.data(), scales.data(), added, result.data(), out, count, in, out, threads);
    }
}

template <class T>
struct Paged {
    Int heads, size, dim, value_dim, blocks;
    std::vector<T> keys = numbers<T>(blocks * heads * size * dim);
    std::vector<T> values = numbers<T>(blocks * heads * size * value_dim);
};

template <class T>
void attention(int threads) {
    const Int kv_heads = pick({1, 2, 4}), group = pick({1, 2, 3, 5, 8}), seqs = pick({0, 1, 2, 7, 40});
    const Int longest = pick({1, 64, 65, 300, 1200});
    Paged<T> paged{kv_heads, pick({1, 2, 16, 64}), pick({16, 48, 64, 80, 128}), pick({16, 48, 128}), 9};
    const Int width = (longest + paged.size - 1) / paged.size, heads = kv_heads * group;
    std::vector<std::int32_t> tables(seqs * width), contexts(seqs);
    for (auto& block : tables) block = static_cast<std::int32_t>(draw() % paged.blocks);
    for (auto& context : contexts) context = static_cast<std::int32_t>(draw() % (longest + 1));
    for (Int seq = pick({1, 3, 100}); seq < seqs; ++seq)  // begins as another one does
        std::copy_n(tables.data() + draw() % seq * width, draw() % (width + 1), tables.data() + seq * width);
    auto query = numbers<T>(seqs * heads * paged.dim), out = numbers<T>(seqs * heads * paged.value_dim);
    auto sinks = numbers<float>(heads);
    const Int kind = pick({0, 1, 2});
    auto narrow = numbers<T>(heads);
    const void* const sink = kind == 0 ? nullptr : kind == 1 ? static_cast<void*>(sinks.data()) : narrow.data();
    const float softcap = pick({0, 1}) != 0 ? 4.0f : 0.0f;
    const auto run = [&](auto attend) {
        attend(query.data(), heads * paged.dim, paged.keys.data(), kv_heads * paged.size * paged.dim, paged.values.data(),
               kv_heads * paged.size * paged.value_dim, paged.size, tables.data(), width, contexts.data(), 0.125f, softcap,
               pick({0, 0, 1, 100}), sink, kind == 1, out.data(), seqs, heads, kv_heads, paged.dim, paged.value_dim, threads);
    };
    if constexpr (std::is_same_v<T, float>)
        run(attend_float32);
    else
        run(attend_bfloat16);
}

template <class T>
void chunks(int threads) {
    const Int kv_heads = pick({1, 2}), group = pick({1, 3, 8}), seqs = pick({0, 1, 3}), before = pick({0, 1, 70, 200});
    Paged<T> paged{kv_heads, pick({1, 2, 16, 64}), pick({16, 48, 80, 128}), pick({16, 48, 128}), 9};
    const Int heads = kv_heads * group, longest = 210, width = (before + longest + paged.size - 1) / paged.size;
    std::vector<std::int32_t> tables(seqs * width), contexts(seqs), starts(seqs + 1);
    for (auto& block : tables) block = static_cast<std::int32_t>(draw() % paged.blocks);
    for (Int seq = 0; seq < seqs; ++seq) {
        const auto tokens = static_cast<std::int32_t>(pick({2, 63, 65, longest}));
        starts[seq + 1] = starts[seq] + tokens;
        contexts[seq] = tokens + static_cast<std::int32_t>(before);
    }
    auto query = numbers<T>(starts[seqs] * heads * paged.dim), out = numbers<T>(starts[seqs] * heads * paged.value_dim);
    auto sinks = numbers<float>(heads);
    const auto run = [&](auto attend) {
        attend(query.data(), heads * paged.dim, paged.keys.data(), kv_heads * paged.size * paged.dim, paged.values.data(),
               kv_heads * paged.size * paged.value_dim, paged.size, tables.data(), width, contexts.data(), starts.data(),
               0.125f, pick({0, 1}) != 0 ? 4.0f : 0.0f, pick({0, 0, 1, 100}), pick({0, 1}) != 0 ? sinks.data() : nullptr, 1,
               out.data(), seqs, heads, kv_heads, paged.dim, paged.value_dim, threads);
    };
    if constexpr (std::is_same_v<T, float>)
        run(attend_chunks_float32);
    else
        run(attend_chunks_bfloat16);
}

template <class T>
void rotation_and_write(int threads) {
    const Int tokens = pick({0, 1, 9, 70}), heads = pick({1, 4}), dim = pick({16, 64, 80}), half = pick({1, 5, 8});
    auto query = numbers<T>(tokens * 2 * heads * dim), key = numbers<T>(tokens * heads * dim);
    auto value = numbers<T>(tokens * heads * 48);
    auto cos = numbers<T>(tokens * 2 * half), sin = numbers<T>(tokens * 2 * half);
    Paged<T> paged{heads, pick({1, 4, 16}), dim, 48, tokens + 1};
    std::vector<Int> slots(tokens), positions(tokens);
    for (Int i = 0; i < tokens; ++i) slots[i] = i % 5 == 4 ? -1 : i, positions[i] = tokens - 1 - i;
    const auto run = [&](auto rotary, auto write) {
        rotary(query.data(), 2 * heads * dim, dim, 2 * heads, key.data(), heads * dim, dim, heads, dim, cos.data(), sin.data(),
               0, 2 * half, pick({0, 1}) != 0 ? positions.data() : nullptr, half, tokens, threads);
        write(key.data(), heads * dim, dim, dim, value.data(), heads * 48, 48, 48, heads, paged.keys.data(),
              heads * paged.size * dim, paged.values.data(), heads * paged.size * 48, paged.size, slots.data(), tokens, threads);
    };
    if constexpr (std::is_same_v<T, float>)
        run(rotary_float32, write_cache_float32);
    else
        run(rotary_bfloat16, write_cache_bfloat16);
}

template <class T>
void best(int threads) {
    const Int rows = pick({0, 1, 9}), width = pick({1, 15, 16, 17, 5000}), stride = width + pick({0, 3});
    auto scores = numbers<T>(rows > 0 ? (rows - 1) * stride + width : 0), found = numbers<T>(rows);
    std::vector<Int> ids(rows);
    if constexpr (std::is_same_v<T, float>)
        best_of_float32(scores.data(), stride, found.data(), ids.data(), rows, width, threads);
    else
        best_of_bfloat16(scores.data(), stride, found.data(), ids.data(), rows, width, threads);
}

template <class T>
void all(int threads) {
    best<T>(threads);
    norm_and_gate<T>(threads);
    products<T>(threads);
    attention<T>(threads);
    chunks<T>(threads);
    rotation_and_write<T>(threads);
}

}  // namespace

int main(int, char** arguments) {
    const int rounds = std::atoi(arguments[1]), most = std::atoi(arguments[2]);
    for (int round = 0; round < rounds; ++round) {
        const int threads = 1 + static_cast<int>(draw() % most);
        all<float>(threads);
        all<bfloat16>(threads);
    }
    std::puts("done");
}
