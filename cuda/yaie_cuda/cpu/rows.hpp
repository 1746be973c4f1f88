// What stands between a model's matrix products, row by row. Roundings are those of the torch reference.
#pragma once

#include "vectors.hpp"

namespace cpu {

// Scalars below which work is not worth the workers' barrier.
constexpr Int ALONE = 32768;

// Root mean square norm of `rows` rows of `hidden` scalars, a multiple of LANES; see reference.rms_norm.
template <class T>
void rms_norm(const T* input, Int input_stride, const T* weight, float eps, T* residual, Int residual_stride,
              T* out, Int out_stride, Int rows, Int hidden, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * hidden > ALONE)
    for (Int row = 0; row < rows; ++row) {
        const T* from = input + row * input_stride;
        Floats squares{};
        if (residual != nullptr) {
            T* total = residual + row * residual_stride;
            for (Int i = 0; i < hidden; i += LANES) {
                const Floats added = as<T>(load(total + i) + load(from + i));
                store(total + i, added);
                squares += added * added;
            }
            from = total;
        } else {
            for (Int i = 0; i < hidden; i += LANES) {
                const Floats values = load(from + i);
                squares += values * values;
            }
        }
        const double mean = static_cast<double>(sum(squares)) / static_cast<double>(hidden);
        const float root = static_cast<float>(1.0 / std::sqrt(mean + eps));
        for (Int i = 0; i < hidden; i += LANES)
            store(out + row * out_stride + i, as<T>(load(from + i) * root) * load(weight + i));
    }
}

// silu(gate) * up of rows [gate, up] of 2 * `width` scalars, a multiple of LANES each.
template <class T>
void silu_and_mul(const T* input, Int input_stride, T* out, Int out_stride, Int rows, Int width, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * width > ALONE)
    for (Int row = 0; row < rows; ++row) {
        const T* gates = input + row * input_stride;
        for (Int i = 0; i < width; i += LANES) {
            const Floats gate = load(gates + i);
            const Floats silu = gate / (1.0f + exp2(gate * -LOG2_E));
            store(out + row * out_stride + i, as<T>(silu) * load(gates + width + i));
        }
    }
}

}  // namespace cpu
