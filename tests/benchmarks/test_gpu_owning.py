"""The engines of the check run as users' do: weights of their own, every fused module in use, and that is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import fusing
from benchmarks.gpu.context import Context
from benchmarks.gpu.exchange_checks import PRODUCT, silent
from benchmarks.gpu.models import SMALL, random_model, saved, word_tokenizer
from benchmarks.gpu.owning import from_folder, from_nowhere
from benchmarks.gpu.page import engines
from benchmarks.gpu.records import Check, Fact, RecordFile
from tests.benchmarks.fake_gpu import FakeBench

ALL = {"rms_norm": 7, "residual": 5, "silu": 3, "rotary": 3, "rotary_write": 3}
SETTINGS: dict[str, Any] = {"max_model_len": 64, "num_blocks": 16, "attention_backend": "emulated"}


def test_the_engines_words_become_counts() -> None:
    words = "equals the plain model; asked for; fused: rms_norm 13, silu 6, not rotary 3 (off by 2, more than 1)"
    assert fusing.counts(words) == {"rms_norm": 13, "silu": 6, "not rotary": 3}
    assert fusing.counts("reference attention: asked for") == {} == fusing.counts("fused: nothing")
    assert fusing.expected("llama", 32)["residual"] == 63 and fusing.expected("qwen3", 2)["rms_norm"] == 9


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", ["folder", "nowhere", "caller's"])
def test_only_an_engine_that_owns_its_weights_joins_gate_and_up(way: str, tmp_path: Path) -> None:
    from yaie_engine import LLM

    pytest.importorskip("yaie_cuda")
    model = random_model("llama", SMALL, torch.bfloat16, torch.device("cpu"))
    tokenizer = word_tokenizer(SMALL["vocab_size"])
    if way == "folder":
        llm = from_folder(saved(model, tmp_path / "m"), tokenizer=tokenizer, dtype="bfloat16", **SETTINGS)
    elif way == "nowhere":
        llm = from_nowhere(lambda: model, tokenizer=tokenizer, **SETTINGS)
    else:
        llm = LLM(model, tokenizer=tokenizer, **SETTINGS)
    records = RecordFile(tmp_path / "records")
    with llm:
        fusing.note(Context(FakeBench(lambda: 1.0), records, 0.0, tiny=True), "it", llm, "llama", 3)
    fact, check = records.new()
    assert isinstance(fact, Fact) and isinstance(check, Check)
    assert check.ok == (way != "caller's")
    assert fact.value["attention"] == "emulated" and (fact.value["fused"] == ALL) == check.ok
    assert way == "caller's" or engines({"facts": {fact.name: fact.value}}) == [
        "- it: emulated attention, fused rms_norm 7, residual 5, silu 3, rotary 3, rotary_write 3"
    ]


def test_a_folder_is_written_once(tmp_path: Path) -> None:
    first = saved(random_model("qwen3", SMALL, torch.float16, torch.device("cpu")), tmp_path / "m")
    before = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    saved(random_model("qwen3", SMALL, torch.float16, torch.device("cpu")), tmp_path / "m")
    assert {"config.json", "model.safetensors"} <= before.keys()
    assert before == {path.name: path.stat().st_mtime_ns for path in first.iterdir()}


def test_the_exchanged_kernel_is_not_the_built_in_one() -> None:
    assert silent().count(f"0.0f * {PRODUCT}") == 1
