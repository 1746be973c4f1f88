"""GGUF files: the head is screened, the model is read through transformers."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.loading.folders import gguf_string
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ModelLoadError
from yaie_engine.loader import load_model
from yaie_engine.models.gguf import screen_gguf

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")
VOCAB = [*(chr(code) for code in range(33, 127)), "Ġ", "ab", "<end>"]


def write_model(path: Path, width: int = 32, layers: int = 2) -> Path:
    """A tiny random Llama in float32, with a byte-level tokenizer of printable characters."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny gguf")
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(width // 4)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(VOCAB))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(VOCAB)
    writer.add_token_types([1] * (len(VOCAB) - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(VOCAB) - 1)
    draw = np.random.default_rng(3)

    def tensor(name: str, *shape: int) -> None:
        data = np.ones(shape) if len(shape) == 1 else 0.3 * draw.standard_normal(shape)
        writer.add_tensor(name, data.astype(np.float32))

    tensor("token_embd.weight", len(VOCAB), width)
    for i in range(layers):
        for name, rows, columns in (
            ("attn_q", width, width), ("attn_k", width // 2, width), ("attn_v", width // 2, width),
            ("attn_output", width, width), ("ffn_gate", 48, width), ("ffn_up", 48, width), ("ffn_down", width, 48),
        ):  # fmt: skip
            tensor(f"blk.{i}.{name}.weight", rows, columns)
        tensor(f"blk.{i}.attn_norm.weight", width)
        tensor(f"blk.{i}.ffn_norm.weight", width)
    tensor("output_norm.weight", width)
    tensor("output.weight", len(VOCAB), width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_model_loads_and_equals_the_plain_model(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf")
    assert screen_gguf(path)["general.architecture"] == "llama"
    loaded = load_model(EngineConfig(model=str(path), dtype="float32"))
    assert (loaded.name, loaded.tier, loaded.num_layers, loaded.vocab_size) == ("tiny", "flat", 2, len(VOCAB))
    assert loaded.hf_tokenizer.encode("abba") == [VOCAB.index(text) for text in ("ab", "b", "a")]
    assert loaded.eos_token_ids == (len(VOCAB) - 1,)
    assert loaded.model.lm_head.weight.shape == (len(VOCAB), 32)
    assert 0.25 < float(loaded.model.lm_head.weight.std()) < 0.35


def head(num_tensors: int = 0, entries: bytes = b"", num_entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_entries) + entries


HOSTILE = {
    "no magic": (b"GGML" + b"\0" * 40, "is no GGUF file"),
    "version": (head(version=9), "version 9; versions 2 and 3 are read"),
    "tensor count": (head(num_tensors=2**60), "a count of"),
    "entry count": (head(num_entries=2**60), "a count of"),
    "string length": (head(entries=struct.pack("<Q", 2**63), num_entries=1), "a count of"),
    "array length": (
        head(entries=gguf_string("a") + struct.pack("<IIQ", 9, 4, 2**62), num_entries=1),
        "a count of",
    ),
    "array in array": (
        head(entries=gguf_string("a") + struct.pack("<IIQ", 9, 9, 1), num_entries=1),
        "unknown kind of value 9",
    ),
    "kind": (head(entries=gguf_string("a") + struct.pack("<I", 77), num_entries=1), "unknown kind of value 77"),
    "huge tensor": (
        head(1, gguf_string("t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0)),
        "tensor 't' does not fit the file",
    ),
    "tensor past the end": (
        head(1, gguf_string("t") + struct.pack("<IQIQ", 1, 4, 0, 2**40)),
        "tensor 't' does not fit the file",
    ),
    "dimensions": (head(1, gguf_string("t") + struct.pack("<I", 2**31)), "a count of"),
    "nothing": (b"", "its head is longer than the file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_heads_are_refused(name: str, tmp_path: Path) -> None:
    content, expected = HOSTILE[name]
    path = tmp_path / "evil.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=expected) as error:
        load_model(EngineConfig(model=str(path)))
    assert "\n" not in str(error.value)


def test_every_truncation_of_a_head_is_refused(tmp_path: Path) -> None:
    entries = gguf_string("general.architecture") + struct.pack("<I", 8) + gguf_string("llama")
    entries += gguf_string("n") + struct.pack("<II", 4, 7) + gguf_string("l") + struct.pack("<IIQ2f", 9, 6, 2, 1, 2)
    whole = head(1, entries + gguf_string("t") + struct.pack("<IQIQ", 1, 4, 0, 0), 3)
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole)
    assert screen_gguf(path) == {"general.architecture": "llama"}
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelLoadError):
            screen_gguf(path)
