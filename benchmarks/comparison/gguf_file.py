"""A random Llama as GGUF, so that llama.cpp computes on the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
FILE_TYPES = {"f32": ("F32", 0), "bf16": ("BF16", 32)}
NUM_BYTES = 256


def write(folder: Path, target: Path, kind: str) -> None:
    """Write `target` from the weights in `folder`; norms stay float32. `kind` is f32 or bf16."""
    import gguf
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    quantization, file_type = FILE_TYPES[kind]
    scratch = target.with_suffix(".part")
    writer = gguf.GGUFWriter(str(scratch), "llama")
    _head(writer, config)
    writer.add_file_type(file_type)
    for name, weight in load_file(folder / "model.safetensors").items():
        found = gguf_name(name)
        if found is None:
            continue
        values = _rotated(name, weight.float().numpy(), config)
        if values.ndim == 1 or kind == "f32":
            writer.add_tensor(found, values)
        else:
            packed = getattr(gguf.GGMLQuantizationType, quantization)
            writer.add_tensor(found, gguf.quants.quantize(values, packed), raw_dtype=packed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    scratch.replace(target)


def gguf_name(name: str) -> str | None:
    """What llama.cpp calls a weight; None for a head that is the embedding again."""
    plain = name.removesuffix(".weight")
    fixed = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    if plain == "lm_head":
        return None
    if plain in fixed:
        return f"{fixed[plain]}.weight"
    _, _, layer, rest = plain.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def _rotated(name: str, values: Any, config: dict[str, Any]) -> Any:
    """llama.cpp pairs neighbours in rotary embedding, transformers the two halves: rows of q and k change places."""
    import numpy

    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    kind = name.split(".")[-2]
    if kind in heads:
        count = config[heads[kind]]
        half = values.shape[0] // count // 2
        values = values.reshape(count, 2, half, -1).swapaxes(1, 2).reshape(values.shape)
    return numpy.ascontiguousarray(values, dtype=numpy.float32)


def _head(writer: Any, config: dict[str, Any]) -> None:
    vocabulary = config["vocab_size"]
    rope = config.get("rope_parameters") or {}
    writer.add_name("random Llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))))
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_vocab_size(vocabulary)
    # Ids go in and come out; the texts need only be different. llama.cpp wants the 256 bytes in such a vocabulary.
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(NUM_BYTES))]
    kinds = [2, 3, 3, *[6] * NUM_BYTES]
    words = vocabulary - len(tokens)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*tokens, *(f"\u2581t{i}".encode() for i in range(words))])
    writer.add_token_scores([-float(i) for i in range(vocabulary)])
    writer.add_token_types([*kinds, *[1] * words])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
