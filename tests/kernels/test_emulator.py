"""The emulator: what collectives, matrices, copies and barriers compute, in every schedule and build."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from tests.kernels.small_kernels import text
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.kernel import Kernel

pytestmark = pytest.mark.timeout(300)

OUT = Kernel("out_of", (("input", "p"), ("out", "p")))
FIELDS = "    const int32_t* input;\n    int32_t* out;"
COLLECTIVES = """
    const uint32_t all = 0xffffffffu;
    const int lane = threadIdx.x % 32, value = p.input[threadIdx.x];
    int32_t* out = p.out + threadIdx.x;
    const int stride = THREADS;
    out[0 * stride] = __shfl_sync(all, value, 5);
    out[1 * stride] = __shfl_sync(all, value, 3, 8);
    out[2 * stride] = __shfl_xor_sync(all, value, 9);
    out[3 * stride] = __shfl_down_sync(all, value, 4);
    out[4 * stride] = __shfl_up_sync(all, value, 3, 16);
    out[5 * stride] = int(__ballot_sync(all, value > 0));
    out[6 * stride] = __any_sync(all, lane == 7 && value > 0) + 2 * __all_sync(all, value > -1000);
    out[7 * stride] = __reduce_add_sync(all, value);
    out[8 * stride] = __reduce_max_sync(all, value);
    out[9 * stride] = int(__reduce_min_sync(all, uint32_t(value)));
    out[10 * stride] = int(__reduce_xor_sync(all, uint32_t(value)));
    // Halves of a warp on their own, in different collectives.
    if (lane < 16)
        out[11 * stride] = __shfl_xor_sync(0x0000ffffu, value, 1);
    else
        out[11 * stride] = int(__ballot_sync(0xffff0000u, value > 0));
    atomicAdd(p.out + 12 * stride, value);
    atomicMax(p.out + 12 * stride + 1, value);
    atomicMin(p.out + 12 * stride + 2, value);
    atomicAdd(reinterpret_cast<float*>(p.out + 12 * stride + 3), 0.5f);
    out[13 * stride] = __popc(uint32_t(value)) + 64 * __ffs(value) + 4096 * __clz(value);
"""


def expected_collectives(value: Tensor) -> Tensor:
    """What COLLECTIVES leaves in its rows, for value int32 [64]."""
    rows = torch.zeros(14, 64, dtype=torch.int64)
    wide = value.long()
    for first in (0, 32):
        warp = wide[first : first + 32]
        lanes = torch.arange(32)
        bits = int(((warp > 0).long() << lanes).sum())
        here = slice(first, first + 32)
        rows[0, here] = warp[5]
        rows[1, here] = warp[lanes // 8 * 8 + 3]
        rows[2, here] = warp[lanes ^ 9]
        rows[3, here] = warp[torch.where(lanes + 4 < 32, lanes + 4, lanes)]
        rows[4, here] = warp[torch.where(lanes % 16 >= 3, lanes - 3, lanes)]
        rows[5, here] = bits
        rows[6, here] = int(warp[7] > 0) + 2 * int((warp > -1000).all())
        rows[7, here] = warp.sum()
        rows[8, here] = warp.max()
        rows[9, here] = (warp & 0xFFFFFFFF).min()
        rows[10, here] = int(torch.tensor(list(itertools.accumulate(warp.tolist(), lambda a, b: a ^ b)))[-1])
        rows[11, first : first + 16] = warp[lanes[:16] ^ 1]
        rows[11, first + 16 : first + 32] = bits & 0xFFFF0000
    rows[12, 0], rows[12, 1], rows[12, 2] = wide.sum(), max(int(wide.max()), 0), min(int(wide.min()), 0)
    rows[12, 3] = torch.tensor(32.0).view(torch.int32)
    for i, one in enumerate(value.tolist()):
        pattern = one & 0xFFFFFFFF
        lowest = (pattern & -pattern).bit_length()
        rows[13, i] = pattern.bit_count() + 64 * lowest + 4096 * (32 - pattern.bit_length())
    return rows.to(torch.int32) if rows.abs().max() < 2**31 else (rows & 0xFFFFFFFF).to(torch.uint32).view(torch.int32)


def run(source: str, source_input: Tensor, out: Tensor, options: Options, shared: int = 0, threads: int = 64) -> None:
    """Run `out_of` in one block."""
    launcher = EmulatorLauncher(options, {"out_of": source})
    launcher.watch(source_input, out)
    params = OUT.params(input=source_input.data_ptr(), out=out.data_ptr())
    launcher.launch(OUT.specialise(threads, shared), (1, 1, 1), params)


SCHEDULES = [
    Options(),
    Options(schedule="seeded", seed=1),
    Options(schedule="seeded", seed=2),
    Options(schedule="warp_ahead"),
    Options(schedule="warp_ahead", seed=3),
]


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda options: f"{options.schedule}-{options.seed}")
def test_collectives_atomics_and_bits(options: Options) -> None:
    value = torch.randint(-500, 500, (64,), generator=torch.Generator().manual_seed(4)).to(torch.int32)
    out = torch.zeros(14, 64, dtype=torch.int32)
    run(text("out_of", FIELDS, COLLECTIVES), value, out, options)
    torch.testing.assert_close(out, expected_collectives(value), rtol=0, atol=0)


MATRIX = """
    DYNAMIC_SHARED(shared);
    auto* a = reinterpret_cast<uint16_t*>(shared);
    uint16_t* b = a + 256;
    for (int i = threadIdx.x; i < 256; i += THREADS) a[i] = p.a[i];
    for (int i = threadIdx.x; i < 128; i += THREADS) b[i] = p.b[i];
    __syncthreads();
    const int lane = threadIdx.x;
    uint32_t x[4], y[4];
    ldmatrix_x4(x, a + lane % 16 * 16 + lane / 16 * 8);
    ldmatrix_x4_trans(y, b + lane % 16 * 8);
    float d[4] = {1.f, 1.f, 1.f, 1.f};
    mma_m16n8k16<SCALAR>(d, x, y[0], y[1]);
    for (int i = 0; i < 4; ++i) p.out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
"""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_matrix_product(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(1)
    a, b = torch.randn(16, 16, generator=draw).to(dtype), torch.randn(16, 8, generator=draw).to(dtype)
    out = torch.full((16, 8), torch.nan)
    kernel = Kernel("product", (("a", "p"), ("b", "p"), ("out", "p")))
    source = text("product", "    const uint16_t* a;\n    const uint16_t* b;\n    float* out;", MATRIX)
    scalar = str(dtype).removeprefix("torch.")
    params = kernel.params(a=a.data_ptr(), b=b.data_ptr(), out=out.data_ptr())
    EmulatorLauncher(replacements={"product": source}).launch(
        kernel.specialise(32, 1024, SCALAR=scalar), (1, 1, 1), params
    )
    torch.testing.assert_close(out, (a.double() @ b.double() + 1).float(), rtol=1e-5, atol=1e-5)


NUMBERS = """
    for (int i = threadIdx.x; i < 65536; i += THREADS) {
        const SCALAR x{uint16_t(i)};
        p.wide[i] = to_float(x);
        p.narrow[i] = from_float<SCALAR>(p.values[i]).bits;
        const float2 both = unpack2<SCALAR>(pack2<SCALAR>(p.values[i], -p.values[i]));
        if (both.x != to_float(from_float<SCALAR>(p.values[i])) || both.y != -both.x)
            if (both.x == both.x) p.narrow[i] = 1;
        p.fused[i] = fma2<SCALAR>(uint32_t(i) | uint32_t(i) << 16, pack2<SCALAR>(1.5f, -1.f), pack2<SCALAR>(2.f, 0.5f));
    }
"""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_conversions_of_every_16_bit_value(dtype: torch.dtype) -> None:
    names = ("values", "wide", "narrow", "fused")
    kernel = Kernel("numbers", tuple((name, "p") for name in names))
    fields = "    const float* values;\n    float* wide;\n    uint16_t* narrow;\n    uint32_t* fused;"
    values = torch.randn(65536, generator=torch.Generator().manual_seed(2)) * torch.logspace(-12, 5, 65536)
    wide, fused = torch.empty(65536), torch.empty(65536, 2, dtype=dtype)
    narrow = torch.empty(65536, dtype=torch.int16)
    tensors = (values, wide, narrow, fused)
    launcher = EmulatorLauncher(replacements={"numbers": text("numbers", fields, NUMBERS)})
    scalar = str(dtype).removeprefix("torch.")
    params = kernel.params(**{name: one.data_ptr() for name, one in zip(names, tensors, strict=True)})
    launcher.launch(kernel.specialise(64, SCALAR=scalar), (1, 1, 1), params)
    every = torch.arange(65536).to(torch.uint16).view(dtype)
    torch.testing.assert_close(wide, every.float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(narrow.view(dtype), values.to(dtype), rtol=0, atol=0)
    exact = torch.stack([every.double() * 1.5 + 2, every.double() * -1 + 0.5], 1).to(dtype)
    torch.testing.assert_close(fused, exact, rtol=0, atol=0, equal_nan=True)


PIPELINE = """
    DYNAMIC_SHARED(shared);
    auto* tile = reinterpret_cast<int32_t*>(shared);  // two tiles of THREADS * 4
    const int tiles = 5, mine = threadIdx.x * 4;
    cp_async_16(tile + mine, p.input + mine, true);
    cp_async_commit();
    int sum = 0;
    for (int j = 0; j < tiles; ++j) {
        int32_t* now = tile + j % 2 * THREADS * 4;
        if (j + 1 < tiles) {
            const bool valid = j + 1 < 4;  // the last tile lies past the input: zeros
            cp_async_16(tile + (j + 1) % 2 * THREADS * 4 + mine, p.input + (j + 1) * THREADS * 4 + mine, valid);
            cp_async_commit();
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        for (int i = 0; i < 4; ++i) sum += now[(mine + 4 * 17 + i) % (THREADS * 4)] * (j + 1);
        __syncthreads();
    }
    p.out[threadIdx.x] = sum;
"""


def pipeline_expected(source: Tensor) -> Tensor:
    """What PIPELINE computes for 64 threads."""
    tiles = torch.cat([source.view(4, 64, 4), torch.zeros(1, 64, 4, dtype=torch.int32)])
    weights = torch.arange(1, 6, dtype=torch.int32).view(5, 1)
    return (tiles.sum(2).roll(-17, 1) * weights).sum(0).to(torch.int32)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("options", SCHEDULES[::2], ids=lambda options: options.schedule)
def test_a_pipeline_of_copies(options: Options, eager: bool) -> None:
    source = torch.randint(-99, 99, (4 * 64 * 4,), generator=torch.Generator().manual_seed(5)).to(torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    how = Options(schedule=options.schedule, seed=options.seed, eager_copies=eager)
    run(text("out_of", FIELDS, PIPELINE), source, out, how, shared=2 * 64 * 16)
    assert out.tolist() == pipeline_expected(source).tolist()


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_pipeline_of_copies_is_clean_under_the_sanitizers(sanitizer: str) -> None:
    source = torch.randint(-99, 99, (4 * 64 * 4,), generator=torch.Generator().manual_seed(5)).to(torch.int32)
    for eager in (False, True):
        out = torch.zeros(64, dtype=torch.int32)
        how = Options(sanitizer=sanitizer, eager_copies=eager)  # type: ignore[arg-type]
        run(text("out_of", FIELDS, PIPELINE), source, out, how, shared=2 * 64 * 16)
        assert out.tolist() == pipeline_expected(source).tolist()


GRID = """
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (threadIdx.x == 0) p.out[block] = p.input[block] * 2 + int(blockDim.x);
    atomicAdd(p.out + 24, 1);
"""


@pytest.mark.parametrize("os_threads", [1, 3])
def test_every_block_of_a_grid_runs_once(os_threads: int) -> None:
    source, out = torch.arange(24, dtype=torch.int32), torch.zeros(25, dtype=torch.int32)
    launcher = EmulatorLauncher(Options(os_threads=os_threads), {"out_of": text("out_of", FIELDS, GRID)})
    params = OUT.params(input=source.data_ptr(), out=out.data_ptr())
    launcher.launch(OUT.specialise(40), (4, 3, 2), params)
    assert out.tolist() == [*(2 * i + 40 for i in range(24)), 24 * 40]
    launcher.launch(OUT.specialise(40), (4, 0, 2), params)
    assert int(out[24]) == 24 * 40, "an empty grid runs nothing"


NAMED = """
    DYNAMIC_SHARED(shared);
    auto* cell = reinterpret_cast<int32_t*>(shared);
    const int half = threadIdx.x / 64, inside = threadIdx.x % 64;
    for (int round = 0; round < 3; ++round) {
        cell[threadIdx.x] = p.input[threadIdx.x] + round;
        named_barrier(1 + half, 64);
        p.out[threadIdx.x] += cell[half * 64 + 63 - inside];
        named_barrier(1 + half, 64);
        if (half == 0 && round == 0) named_barrier(3, 64);
    }
"""


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda options: f"{options.schedule}-{options.seed}")
def test_named_barriers_join_a_part_of_the_block(options: Options) -> None:
    source, out = torch.arange(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    run(text("out_of", FIELDS, NAMED), source, out, options, shared=512, threads=128)
    assert out.tolist() == [3 * (i // 64 * 64 + 63 - i % 64) + 3 for i in range(128)]


def test_shared_memory_is_nan_until_it_is_written() -> None:
    body = "    DYNAMIC_SHARED(shared);\n    p.out[threadIdx.x] = reinterpret_cast<int32_t*>(shared)[threadIdx.x];"
    out = torch.zeros(64, dtype=torch.int32)
    run(text("out_of", FIELDS, body), out, out, Options(), shared=256)
    assert out.view(torch.float32).isnan().all()


def test_addresses_in_a_table_are_followed_under_a_sanitizer() -> None:
    body = "    if (threadIdx.x < 3) p.out[threadIdx.x] = *reinterpret_cast<int32_t* const*>(p.input)[threadIdx.x];"
    targets = [torch.tensor([10 + i], dtype=torch.int32) for i in range(3)]
    table = torch.tensor([one.data_ptr() for one in targets])
    before = table.clone()
    out = torch.zeros(3, dtype=torch.int32)
    launcher = EmulatorLauncher(Options(sanitizer="address"), {"out_of": text("out_of", FIELDS, body)})
    launcher.watch(table, out, *targets)
    params = OUT.params(input=table.data_ptr(), out=out.data_ptr())
    launcher.launch(OUT.specialise(32), (1, 1, 1), params)
    assert out.tolist() == [10, 11, 12]
    assert torch.equal(table, before)
