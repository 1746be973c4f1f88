"""What recorded decodes keep: its size at load against real records, fewer sizes where there is little room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.engine.conftest import Make
from tests.engine.test_cpu_graphs import found, graphs_of
from yaie_cuda.cpu import build
from yaie_cuda.cpu.recording import Recording
from yaie_engine import LLM, EngineConfig, runner
from yaie_engine.graphs import DecodeInputs
from yaie_engine.kv_cache import KVLayout, LayerLayout
from yaie_engine.loader import load_model
from yaie_engine.memory import choose_num_blocks, kv_room
from yaie_engine.record_memory import SHARE, Records, RecordSize, record_size
from yaie_engine.runner import ModelRunner
from yaie_engine.tiers.flat import FlatTier

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
SIZE = RecordSize(own=1000, row=100)


def kept_by_a_record(llm: LLM, rows: int) -> int:
    """Bytes of the tensors that a record of so many rows holds and was not given: counted one by one."""
    engine = llm._engine.runner
    assert isinstance(engine, ModelRunner) and isinstance(engine._tier, FlatTier)
    recording, inputs = Recording(), DecodeInputs(rows, 64, torch.device("cpu"))
    with torch.inference_mode(), recording.running():
        logits = engine._tier.decode(inputs)
    given = {id(one) for one, _ in recording._given.values()} | {id(one) for one in vars(inputs).values()}
    model = engine._tier._call.model
    given |= {id(one) for one in (*model.parameters(), *model.buffers())}
    found = {}
    for leaf in tree_leaves([recording._alive, logits]):
        if isinstance(leaf, Tensor) and id(leaf) not in given and leaf.untyped_storage()._cdata in recording._made:
            found[leaf.untyped_storage()._cdata] = leaf.untyped_storage().nbytes()
    return sum(found.values())


def size_of(folder: Path, dtype: str) -> RecordSize:
    return record_size(load_model(EngineConfig(model=str(folder), attention_backend="cpu", dtype=dtype)), 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_row_at_load_tells_what_every_size_keeps(folder: Path, make_llm: Make, dtype: str) -> None:
    llm, size = make_llm(attention_backend="cpu", dtype=dtype), size_of(folder, dtype)
    for rows in (1, 5, 16):
        real = kept_by_a_record(llm, rows)
        assert real > 2000 * rows
        assert 0.8 < rows * size.row / real < 1.25
    assert size.own > 10_000  # tensors are Python objects, too
    assert size.up_to(3) == size.of(1) + size.of(2) + size.of(3)


@pytest.mark.parametrize(
    ("room", "rows"),
    [(10**9, 16), (SIZE.up_to(16) * SHARE, 16), (SIZE.up_to(16) * SHARE - 1, 15), (SIZE.up_to(3) * SHARE, 3), (99, 0)],
)
def test_as_many_sizes_are_recorded_as_their_share_holds(room: int, rows: int) -> None:
    records = Records.within(room, SIZE, 64)
    assert records.rows == rows and records.num_bytes == SIZE.up_to(rows)
    assert ("" if rows == 16 else "not recorded") in records.fewer and bool(records.fewer) == (rows < 16)
    assert Records.within(10**9, SIZE, 4) == Records(4, SIZE.up_to(4))


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
    monkeypatch.setattr(runner, "kv_room", lambda *_: size.up_to(2) * SHARE)
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


def test_the_room_is_what_the_configuration_allows() -> None:
    cpu = torch.device("cpu")
    half, whole = (kv_room(EngineConfig(cpu_memory_utilization=share), cpu) for share in (0.4, 0.8))
    assert 0.3 < half / whole < 0.7
