"""What recorded decodes keep: its size at load against real records, fewer sizes where there is little room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.test_cpu_graphs import found, graphs_of
from yaie_cuda.cpu import build
from yaie_cuda.cpu.recording import Recording, Room
from yaie_engine import LLM, EngineConfig, runner
from yaie_engine.graphs import DecodeInputs, cpu_buckets
from yaie_engine.kv_cache import KVLayout, LayerLayout
from yaie_engine.loader import load_model
from yaie_engine.memory import choose_num_blocks, kv_room
from yaie_engine.record_memory import SHARE, SHORT, Records, RecordSize, record_size
from yaie_engine.runner import ModelRunner
from yaie_engine.tiers.flat import FlatTier

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
SIZE = RecordSize(own=1000, row=100, room=30)


def up_to(rows: int, size: RecordSize = SIZE) -> int:
    """Bytes of the records of up to so many rows."""
    return size.of(cpu_buckets(rows))


def kept_by_a_record(llm: LLM, rows: int) -> tuple[int, int]:
    """Bytes of the tensors that a record of so many rows makes for itself, counted one by one, and of its room."""
    engine = llm._engine.runner
    assert isinstance(engine, ModelRunner) and isinstance(engine._tier, FlatTier)
    room = Room()
    recording, inputs = Recording(room), DecodeInputs(rows, 64, torch.device("cpu"))
    with torch.inference_mode(), recording.running():
        engine._tier.decode(inputs)
    in_room = {chunk.untyped_storage()._cdata for chunk in room._chunks}
    own = {key: storage.nbytes() for key, storage in recording._made.items() if key not in in_room}
    return sum(own.values()) + inputs.tables.nbytes, room._used


def size_of(folder: Path, dtype: str) -> RecordSize:
    size = record_size(load_model(EngineConfig(model=str(folder), attention_backend="cpu", dtype=dtype)), 4)
    assert size is not None
    return size


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_row_at_load_tells_what_every_size_keeps(folder: Path, make_llm: Make, dtype: str) -> None:
    llm, size = make_llm(attention_backend="cpu", dtype=dtype), size_of(folder, dtype)
    for rows in (1, 5, 16):
        own, room = kept_by_a_record(llm, rows)
        assert room > 2000 * rows
        assert 0.8 < rows * size.room / room < 1.25 and 0.5 < rows * size.row / own < 2
    assert size.own > 10_000  # tensors are Python objects, too
    assert size.of((1, 2, 3)) == 3 * size.own + 6 * size.row + 3 * size.room and size.of(()) == 0


def test_the_sizes_of_a_cpu() -> None:
    """Up to the most that run, whichever that is; a part of them is that of fewer rows."""
    assert cpu_buckets(3) == (1, 2, 3) and cpu_buckets(17)[-2:] == (16, 17) and cpu_buckets(500)[-2:] == (60, 64)
    for most in range(1, 80):
        sizes = cpu_buckets(most)
        assert sizes == tuple(sorted(set(sizes))) and sizes[-1] == min(most, 64)
        assert all(cpu_buckets(size) == sizes[: place + 1] for place, size in enumerate(sizes))


@pytest.mark.parametrize(
    ("room", "rows"),
    [(10**9, 24), (up_to(24) * SHARE, 24), (up_to(24) * SHARE - 1, 22), (up_to(3) * SHARE, 3), (99, 0)],
)
def test_as_many_sizes_are_recorded_as_their_share_holds(room: int, rows: int) -> None:
    records = Records.within(room, SIZE, 24)
    assert records.rows == rows and records.num_bytes == (up_to(rows) if rows else 0)
    assert ("" if rows == 24 else "not recorded") in records.fewer and bool(records.fewer) == (rows < 24)
    assert Records.within(10**9, SIZE, 4) == Records(4, up_to(4))


def test_records_are_no_room_for_blocks() -> None:
    layout = KVLayout((LayerLayout(0, 8, 128, 128),))
    config, cpu = EngineConfig(), torch.device("cpu")
    per_block = layout.bytes_per_token(torch.float32) * config.block_size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("yaie_engine.memory.kv_room", lambda *_: 50 * per_block)
        counts = [choose_num_blocks(config, layout, torch.float32, cpu, 10**6, record_bytes=n) for n in (0, per_block)]
    assert counts == [50, 49]


def test_with_little_room_fewer_sizes_are_recorded_and_status_says_so(
    folder: Path, make_llm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"attention_backend": "cpu", "enable_prefix_caching": False}
    plain = make_llm(**settings, enforce_eager=True)
    size = size_of(folder, "float32")
    monkeypatch.setattr(runner, "kv_room", lambda *_: up_to(2, size) * SHARE)
    llm = make_llm(**settings)
    assert found(llm) == found(plain)
    graphs, reason = graphs_of(llm), llm.snapshot().model.reason
    assert graphs is not None and graphs.captured == [1, 2] and not graphs.failure
    assert "decodes of more than 2 rows are not recorded" in reason and "for KV" in reason
    llm.sleep(1)
    llm.wake_up()
    assert found(llm) == found(plain) and graphs_of(llm).captured == [1, 2]  # type: ignore[union-attr]
    monkeypatch.setattr(runner, "kv_room", lambda *_: 1)
    none = make_llm(**settings)
    assert graphs_of(none) is None and "decodes are not recorded" in none.snapshot().model.reason
    assert found(none, 2) == found(plain, 2)


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (MemoryError(), True),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            True,
        ),
        (torch.OutOfMemoryError("out of memory"), True),
        (RuntimeError("a data-dependent shape"), False),
        (TypeError("cannot be captured"), False),
    ],
)
def test_where_memory_does_not_last_for_one_record_none_is_planned_or_made(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch, error: Exception, lacks: bool
) -> None:
    """What cannot be recorded for another reason is told by its first record, and takes nothing."""
    settings: dict[str, Any] = {"attention_backend": "cpu", "enable_prefix_caching": False}
    plain = make_llm(**settings, enforce_eager=True)

    def decode(self: FlatTier, inputs: DecodeInputs) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(FlatTier, "decode", decode)
        llm = make_llm(**settings)
    records = llm._engine.runner._records  # type: ignore[attr-defined]
    assert (records.rows == 0) is lacks and records.num_bytes == 0
    assert (SHORT in llm.snapshot().model.reason) is lacks and (graphs_of(llm) is None) is lacks
    assert found(llm, 2) == found(plain, 2)


def test_the_room_is_what_the_configuration_allows() -> None:
    cpu = torch.device("cpu")
    half, whole = (kv_room(EngineConfig(cpu_memory_utilization=share), cpu) for share in (0.4, 0.8))
    assert 0.3 < half / whole < 0.7
