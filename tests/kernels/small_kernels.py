"""Small kernels written for tests: their text, and how to make a specialisation of them."""

from __future__ import annotations

from yaie_cuda.kernel import Kernel, Specialisation

SCALE = """
#include "warp.cuh"
struct Params {
    const float* input;
    float* out;
    int32_t count;
    float factor;
};
static_assert(sizeof(Params) == PARAMS_BYTES);
extern "C" __global__ void __launch_bounds__(THREADS) scale(const __grid_constant__ Params p) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < p.count) p.out[i] = p.factor * p.input[i];
}
"""
SCALE_KERNEL = Kernel("scale", (("input", "p"), ("out", "p"), ("count", "i"), ("factor", "f")))


def scale(threads: int = 64, shared_bytes: int = 0, **defines: object) -> Specialisation:
    """`out[i] = factor * input[i]`; the defines change nothing."""
    return SCALE_KERNEL.specialise(threads, shared_bytes, **defines)


def text(name: str, fields: str, body: str, before: str = "") -> str:
    """A kernel's source from its fields and the body of its entry point."""
    return f"""#include "warp.cuh"
struct Params {{
{fields}
}};
static_assert(sizeof(Params) == PARAMS_BYTES);
{before}
extern "C" __global__ void __launch_bounds__(THREADS) {name}(const __grid_constant__ Params p) {{
{body}
}}
"""
