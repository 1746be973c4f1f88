// What stands between a model's matrix products, row by row. Roundings are those of the torch reference.
#pragma once

#include "vectors.hpp"

namespace cpu {

// Scalars below which work is not worth the workers' barrier.
constexpr Int ALONE = 32768;

// How a norm scales: Llama rounds first, then multiplies by the weight; OLMo 2 rounds the product; the weight of Gemma is
// the distance from one.
enum class Scale : int { AFTER_ROUNDING, BEFORE_ROUNDING, ONE_PLUS };

template <Scale SCALE, class T>
inline void store_scaled(T* to, Floats normed, const T* weight) {
    if constexpr (SCALE == Scale::AFTER_ROUNDING) store(to, as<T>(normed) * load(weight));
    if constexpr (SCALE == Scale::BEFORE_ROUNDING) store(to, normed * load(weight));
    if constexpr (SCALE == Scale::ONE_PLUS) store(to, normed * (1.0f + load(weight)));
}

// Root mean square norm of `rows` rows of `hidden` scalars, a multiple of LANES; see reference.rms_norm.
template <Scale SCALE, class T>
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
            store_scaled<SCALE>(out + row * out_stride + i, load(from + i) * root, weight + i);
    }
}

struct Silu {
    Floats operator()(Floats gate) const { return gate / (1.0f + exp2(gate * -LOG2_E)); }
};

// gate / 2 * (1 + tanh(t)), which is gate / (1 + e^(-2t)); Hendrycks and Gimpel, "Gaussian error linear units", 2016.
struct GeluTanh {
    Floats operator()(Floats gate) const {
        constexpr float ROOT = 0.79788456f, CUBIC = 0.044715f;  // the square root of 2 / pi
        return gate / (1.0f + exp2((gate + CUBIC * gate * gate * gate) * (-2.0f * ROOT * LOG2_E)));
    }
};

// activation(gate) * up of rows [gate, up] of 2 * `width` scalars, a multiple of LANES each.
template <class Activation, class T>
void gate(const T* input, Int input_stride, T* out, Int out_stride, Int rows, Int width, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * width > ALONE)
    for (Int row = 0; row < rows; ++row) {
        const T* gates = input + row * input_stride;
        for (Int i = 0; i < width; i += LANES)
            store(out + row * out_stride + i, as<T>(Activation{}(load(gates + i))) * load(gates + width + i));
    }
}

}  // namespace cpu
