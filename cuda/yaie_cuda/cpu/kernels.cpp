// The functions that Python calls, each for float (suffix _float32) and bfloat16. Sizes and strides are in scalars. Each
// gives 0, or 1 when there was no memory for what it works with: then its results are not to be used.

#include <algorithm>
#include <type_traits>

#include "best.hpp"
#include "chunks.hpp"
#include "decode.hpp"
#include "failure.hpp"
#include "linear.hpp"
#include "recorded.hpp"

using cpu::bfloat16;
using cpu::Cache;
using cpu::Int;
using cpu::States;

namespace {

template <class T, class F>
void with_tables(const void* cos, const void* sin, int wide, F&& run) {
    if (wide != 0)
        run(static_cast<const float*>(cos), static_cast<const float*>(sin));
    else
        run(static_cast<const T*>(cos), static_cast<const T*>(sin));
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int products() { return (cpu::FLOAT_PRODUCTS ? 1 : 0) | (cpu::BFLOAT16_PRODUCTS ? 2 : 0); }

#define NORM(NAME, SCALE, T)                                                                                        \
    EXPORT int NAME(const T* input, Int input_stride, const T* weight, float eps, T* residual, Int residual_stride, \
                    T* out, Int out_stride, Int rows, Int hidden, int threads) {                                    \
        return cpu::status([&] {                                                                                    \
            cpu::rms_norm<cpu::Scale::SCALE>(input, input_stride, weight, eps, residual, residual_stride, out,      \
                                             out_stride, rows, hidden, threads);                                    \
        });                                                                                                         \
    }

#define GATE(NAME, ACTIVATION, T)                                                                                 \
    EXPORT int NAME(const T* input, Int input_stride, T* out, Int out_stride, Int rows, Int width, int threads) { \
        return cpu::status(                                                                                       \
            [&] { cpu::gate<cpu::ACTIVATION>(input, input_stride, out, out_stride, rows, width, threads); });     \
    }

#define FUNCTIONS(T, SUFFIX)                                                                                           \
    NORM(rms_norm_##SUFFIX, AFTER_ROUNDING, T)                                                                         \
    NORM(rms_norm_wide_##SUFFIX, BEFORE_ROUNDING, T)                                                                   \
    NORM(rms_norm_one_plus_##SUFFIX, ONE_PLUS, T)                                                                      \
    GATE(silu_and_mul_##SUFFIX, Silu, T)                                                                               \
    GATE(gelu_tanh_and_mul_##SUFFIX, GeluTanh, T)                                                                      \
    EXPORT int best_of_##SUFFIX(const T* rows, Int stride, T* best, Int* ids, Int count, Int width, int threads) {     \
        return cpu::status([&] { cpu::best_of_rows(rows, stride, best, ids, count, width, threads); });                \
    }                                                                                                                  \
    EXPORT int rotary_##SUFFIX(T* query, Int query_token, Int query_head, Int heads, T* key, Int key_token,            \
                               Int key_head, Int kv_heads, Int dim, const void* cos, const void* sin, int wide,        \
                               Int table_stride, const Int* positions, Int half, Int tokens, int threads) {            \
        return cpu::status([&] {                                                                                       \
            const States<T> queries{query, query_token, query_head, heads, dim},                                       \
                keys{key, key_token, key_head, kv_heads, dim};                                                         \
            with_tables<T>(cos, sin, wide, [&](const auto* c, const auto* s) {                                         \
                cpu::rotary(queries, keys, c, s, table_stride, positions, half, tokens, threads);                      \
            });                                                                                                        \
        });                                                                                                            \
    }                                                                                                                  \
    EXPORT int write_cache_##SUFFIX(T* key, Int key_token, Int key_head, Int dim, T* value, Int value_token,           \
                                    Int value_head, Int value_dim, Int kv_heads, T* key_cache, Int key_block,          \
                                    T* value_cache, Int value_block, Int block_size, const Int* slots, Int tokens,     \
                                    int threads) {                                                                     \
        return cpu::status([&] {                                                                                       \
            const States<T> keys{key, key_token, key_head, kv_heads, dim};                                             \
            const States<T> values{value, value_token, value_head, kv_heads, value_dim};                               \
            cpu::write_cache(keys, values, Cache<T>{key_cache, key_block, block_size},                                 \
                             Cache<T>{value_cache, value_block, block_size}, slots, tokens, threads);                  \
        });                                                                                                            \
    }                                                                                                                  \
    EXPORT int attend_##SUFFIX(const T* query, Int query_stride, const T* keys, Int key_block, const T* values,        \
                               Int value_block, Int block_size, const std::int32_t* tables, Int table_stride,          \
                               const std::int32_t* contexts, float scale, float softcap, Int window,                   \
                               const void* sinks, int wide_sinks, T* out, Int num_seqs, Int heads, Int kv_heads,       \
                               Int dim, Int value_dim, int threads) {                                                  \
        return cpu::status([&] {                                                                                       \
            const Cache<const T> key_cache{keys, key_block, block_size}, value_cache{values, value_block, block_size}; \
            cpu::attend(cpu::Decode<T>{query, query_stride, key_cache, value_cache, tables, table_stride, contexts,    \
                                       scale, softcap, window, sinks, wide_sinks != 0, out, num_seqs, heads, kv_heads, \
                                       dim, value_dim},                                                                \
                        threads);                                                                                      \
        });                                                                                                            \
    }                                                                                                                  \
    EXPORT int attend_chunks_##SUFFIX(const T* query, Int query_stride, const T* keys, Int key_block, const T* values, \
                                      Int value_block, Int block_size, const std::int32_t* tables, Int table_stride,   \
                                      const std::int32_t* contexts, const std::int32_t* starts, float scale,           \
                                      float softcap, Int window, const void* sinks, int wide_sinks, T* out,            \
                                      Int num_seqs, Int heads, Int kv_heads, Int dim, Int value_dim, int threads) {    \
        return cpu::status([&] {                                                                                       \
            const Cache<const T> key_cache{keys, key_block, block_size}, value_cache{values, value_block, block_size}; \
            const cpu::Decode<T> call{query,    query_stride, key_cache, value_cache, tables, table_stride,            \
                                      contexts, scale,        softcap,   window,      sinks,  wide_sinks != 0,         \
                                      out,      num_seqs,     heads,     kv_heads,    dim,    value_dim};              \
            cpu::attend_chunks(cpu::Chunks<T>{call, starts}, threads);                                                 \
        });                                                                                                            \
    }                                                                                                                  \
    EXPORT int linear_##SUFFIX(const T* rows, Int stride, const T* packed, const T* bias, T* out, Int out_stride,      \
                               Int count, Int in_features, Int out_features, int threads) {                            \
        return cpu::status([&] {                                                                                       \
            cpu::linear(cpu::Product<T, T, T>{rows, stride, packed, nullptr, bias, out, out_stride, count,             \
                                              in_features, out_features},                                              \
                        threads);                                                                                      \
        });                                                                                                            \
    }                                                                                                                  \
    EXPORT int linear_int8_##SUFFIX(const T* rows, Int stride, const std::int8_t* packed, const float* scales,         \
                                    const T* bias, T* out, Int out_stride, Int count, Int in_features,                 \
                                    Int out_features, int threads) {                                                   \
        return cpu::status([&] {                                                                                       \
            cpu::linear_int8(rows, stride, packed, scales, bias, out, out_stride, count, in_features, out_features,    \
                             threads);                                                                                 \
        });                                                                                                            \
    }

// The same with their arguments in slots.
#define RECORDED(NAME) \
    EXPORT int recorded_##NAME(const cpu::Slot* slots) { return cpu::apply(NAME, slots); }
#define ALL_RECORDED(SUFFIX)             \
    RECORDED(rms_norm_##SUFFIX)          \
    RECORDED(rms_norm_wide_##SUFFIX)     \
    RECORDED(rms_norm_one_plus_##SUFFIX) \
    RECORDED(silu_and_mul_##SUFFIX)      \
    RECORDED(gelu_tanh_and_mul_##SUFFIX) \
    RECORDED(best_of_##SUFFIX)           \
    RECORDED(rotary_##SUFFIX)            \
    RECORDED(write_cache_##SUFFIX)       \
    RECORDED(attend_##SUFFIX)            \
    RECORDED(attend_chunks_##SUFFIX)     \
    RECORDED(linear_##SUFFIX)            \
    RECORDED(linear_int8_##SUFFIX)

FUNCTIONS(float, float32)
FUNCTIONS(bfloat16, bfloat16)
ALL_RECORDED(float32)
ALL_RECORDED(bfloat16)

EXPORT int replay(const cpu::Recorded* calls, Int count) {
    for (Int i = 0; i < count; ++i)
        if (calls[i].run(calls[i].arguments) != 0) return 1;
    return 0;
}
