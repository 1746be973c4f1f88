// The rotary embedding, and the write of new keys and values into the paged cache.
#pragma once

#include <type_traits>

#include "rows.hpp"

namespace cpu {

// Rotate one head in place, pairs (i, i + half); one rounding an operation in the wider type of states and tables.
template <class T, class C>
void rotate_head(T* head, const C* cos, const C* sin, Int half) {
    using W = std::conditional_t<std::is_same_v<T, bfloat16> && std::is_same_v<C, bfloat16>, bfloat16, float>;
    Int i = 0;
    for (; i + LANES <= half; i += LANES) {
        const Floats first = load(head + i), second = load(head + half + i);
        const Floats one = as<W>(first * load(cos + i)), other = as<W>(second * load(sin + i));
        const Floats two = as<W>(second * load(cos + half + i)), rest = as<W>(first * load(sin + half + i));
        store(head + i, as<W>(one - other));
        store(head + half + i, as<W>(two + rest));
    }
    const auto round = [](float value) { return widened(narrowed<W>(value)); };
    for (; i < half; ++i) {
        const float first = widened(head[i]), second = widened(head[half + i]);
        const float one = round(first * widened(cos[i])), other = round(second * widened(sin[i]));
        const float two = round(second * widened(cos[half + i])), rest = round(first * widened(sin[half + i]));
        head[i] = narrowed<T>(round(one - other));
        head[half + i] = narrowed<T>(round(two + rest));
    }
}

// Where the new tokens' keys or values lie: [tokens, heads, dim] with strides, a head in one run.
template <class T>
struct States {
    T* at;
    Int token_stride, head_stride, heads, dim;

    T* head(Int token, Int head) const { return at + token * token_stride + head * head_stride; }
};

// One layer's keys or values: [blocks, heads, block_size, dim], a block in one run.
template <class T>
struct Cache {
    T* at;
    Int block_stride, block_size;

    // The rows of one head of one block.
    T* rows(Int block, Int head, Int dim) const { return at + block * block_stride + head * block_size * dim; }
};

template <class T>
void write_heads(const States<T>& states, const Cache<T>& cache, Int token, Int slot) {
    for (Int head = 0; head < states.heads; ++head)
        std::memcpy(cache.rows(slot / cache.block_size, head, states.dim) + slot % cache.block_size * states.dim,
                    states.head(token, head), states.dim * sizeof(T));
}

// Store keys and values at `slots`; -1 writes nothing.
template <class T>
void write_cache(const States<T>& keys, const States<T>& values, const Cache<T>& key_cache,
                 const Cache<T>& value_cache, const Int* slots, Int tokens, int threads) {
#pragma omp parallel for num_threads(threads) if (tokens * keys.heads * keys.dim > ALONE)
    for (Int token = 0; token < tokens; ++token) {
        if (slots[token] < 0) continue;
        write_heads(keys, key_cache, token, slots[token]);
        write_heads(values, value_cache, token, slots[token]);
    }
}

// Rotate queries and keys in place by rows of cos and sin [.., 2 * half]; row `positions[token]`, or the token's own.
template <class T, class C>
void rotary(const States<T>& queries, const States<T>& keys, const C* cos, const C* sin, Int table_stride,
            const Int* positions, Int half, Int tokens, int threads) {
#pragma omp parallel for num_threads(threads) if (tokens * queries.heads * queries.dim > ALONE)
    for (Int token = 0; token < tokens; ++token) {
        const Int row = (positions != nullptr ? positions[token] : token) * table_stride;
        for (const States<T>* states : {&queries, &keys})
            for (Int head = 0; head < states->heads; ++head)
                rotate_head(states->head(token, head), cos + row, sin + row, half);
    }
}

}  // namespace cpu
