"""Memory of the largest step: which step that is, how its bytes are counted, and what is left for blocks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.engine.standin import NoLauncher, standin, standin_kernels
from yaie_engine import EngineConfig, ModelLoadError
from yaie_engine import memory as memory_module
from yaie_engine.kv_cache import KVCache, KVLayout, LayerLayout
from yaie_engine.loader import load_model
from yaie_engine.memory import choose_num_blocks
from yaie_engine.step_memory import largest_step, peak_of, step_bytes
from yaie_engine.tiers.flat import FlatTier

GPU = torch.device("cuda", 0)
LAYOUT = KVLayout((LayerLayout(0, 8, 128, 128),))
PER_BLOCK = 16 * 8 * 256 * 2
GIB = 2**30


class FakeMemory:
    """An allocator that holds `weights` and, at the height of each run, the next of `steps` more."""

    def __init__(self, weights: int, steps: list[int]) -> None:
        self.weights, self.steps, self.calls = weights, steps, list[str]()

    def release(self) -> None:
        self.calls.append("release")

    def held(self) -> int:
        self.calls.append("held")
        return self.weights

    def peak(self) -> int:
        self.calls.append("peak")
        return self.weights + self.steps.pop(0)


@pytest.mark.parametrize(
    ("num_tokens", "max_num_seqs", "max_model_len", "lengths"),
    [
        (512, 4, 4096, [509, 1, 1, 1]),
        (512, 4, 200, [200, 200, 111, 1]),
        (8, 64, 4096, [1] * 8),
        (100, 3, 20, [20, 20, 20]),
        (1, 1, 1, [1]),
    ],
)
def test_the_largest_step_fills_the_budget(
    num_tokens: int, max_num_seqs: int, max_model_len: int, lengths: list[int]
) -> None:
    plan = largest_step(num_tokens, max_num_seqs, max_model_len, 16)
    assert [entry.num_tokens for entry in plan.batch] == lengths
    assert all(entry.samples for entry in plan.batch)
    blocks = [block for entry in plan.batch for block in entry.seq.block_table]
    assert blocks == list(range(len(blocks)))
    assert all(len(entry.seq.block_table) * 16 >= entry.stop for entry in plan.batch)


def test_a_peak_is_counted_over_what_was_held_before() -> None:
    fake, ran = FakeMemory(1000, [70]), list[int]()
    assert peak_of(fake, lambda: ran.append(1)) == 70
    assert ran == [1] and fake.calls == ["release", "held", "peak", "release"]


def test_the_largest_step_of_a_model_is_run(folder: Path) -> None:
    loaded = load_model(EngineConfig(model=str(folder), dtype="float32"))
    fake = FakeMemory(10, [300])
    assert step_bytes(loaded, fake, 16, 64, 8, False) == 300 and not fake.steps


@pytest.mark.parametrize(("graphs", "expected"), [(False, 300 - 25), (True, 300 + 50)])
def test_decodes_and_cascades_count_with_their_buffers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, graphs: bool, expected: int
) -> None:
    """Buffers of eager steps are there when blocks are counted; graphs have as many again, and keep their memory."""
    monkeypatch.setattr(NoLauncher, "buffer_bytes", 25, raising=False)
    calls: Counter[str] = Counter()
    with standin(standin_kernels(calls)):
        loaded = load_model(EngineConfig(model=str(folder), dtype="float32", attention_backend="emulated"))
    calls.clear()
    fake = FakeMemory(10, [300, 40, 45, 50])
    assert step_bytes(loaded, fake, 16, 64, 8, graphs) == expected and not fake.steps
    layers = loaded.num_layers
    assert calls["cascade_attention_decode"] == 2 * layers and calls["paged_attention_decode"] == 2 * layers


def test_a_largest_step_that_does_not_fit_is_an_error_with_the_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is found out: in the KV cache, in the forward or in the softmax."""
    loaded = load_model(EngineConfig(model=str(folder), dtype="float32"))

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    for owner, name in ((KVCache, "allocate"), (FlatTier, "run"), (torch, "log_softmax")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            fake = FakeMemory(10, [300, 40])
            with pytest.raises(
                ModelLoadError,
                match=r"^no memory for a step of 64 tokens and 8 sequences beside the weights: .* of .* are free on "
                r"cpu \(CUDA out of memory\); free memory, lower max_num_batched_tokens",
            ) as caught:
                step_bytes(loaded, fake, 16, 64, 8, False)
        assert caught.value.__context__ is None and fake.calls[-1] == "release"
    assert step_bytes(loaded, FakeMemory(10, [300]), 16, 64, 8, False) == 300


def blocks(monkeypatch: pytest.MonkeyPatch, free: int, step: int, **settings: object) -> int:
    """On a GPU of 80 GiB."""
    monkeypatch.setattr(memory_module, "free_memory", lambda device: free)
    monkeypatch.setattr(memory_module, "all_memory", lambda device: 80 * GIB)
    config = EngineConfig(**settings)
    return choose_num_blocks(config, LAYOUT, torch.bfloat16, GPU, 4096, step_bytes=step)


def test_blocks_fill_the_share_of_the_gpu_that_weights_and_the_largest_step_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert blocks(monkeypatch, 64 * GIB, 2 * GIB, gpu_memory_utilization=0.9) == (64 - 8 - 2) * GIB // PER_BLOCK
    assert blocks(monkeypatch, 64 * GIB, 2 * GIB, gpu_memory_utilization=1) == 62 * GIB // PER_BLOCK
    assert blocks(monkeypatch, 64 * GIB, 2 * GIB, num_blocks=77) == 77


def test_a_full_gpu_is_an_error_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ModelLoadError,
        match=r"0 bytes are allowed \(80.0 GiB in all, 70.0 GiB in use, 3.0 GiB for the largest step\); "
        "free memory, raise gpu_memory_utilization, or lower max_num_batched_tokens",
    ):
        blocks(monkeypatch, 10 * GIB, 3 * GIB)
