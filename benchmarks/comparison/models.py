"""The model of a comparison: a Llama of 100M random weights, made once, or a folder that is given."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from yaie_magic.bench.workloads import LOWEST_ID, Ids, ids_of_text, random_ids

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "comparison"
SHAPE: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    # Wider than usual: answers of a model with narrow weights soon repeat one token for ever.
    "initializer_range": 0.05,
}
TINY_SHAPE: dict[str, Any] = {
    **SHAPE,
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}
GGUF_TYPES = {"float32": "f32", "bfloat16": "bf16"}


def random_folder(tiny: bool = False, folder: Path = FOLDER) -> Path:
    """Configuration, weights in float32 and a tokenizer with a word for each id. Written once."""
    target = folder / ("tiny" if tiny else "llama100m")
    if (target / "tokenizer.json").is_file():
        return target
    import torch

    from benchmarks.gpu.models import random_model, saved, word_tokenizer

    shape = TINY_SHAPE if tiny else SHAPE
    model = random_model("llama", shape, torch.float32, torch.device("cpu"))
    # No answer holds an id that stands for a byte: of those llama.cpp tells nothing until a character is whole.
    model.get_input_embeddings().weight.data[:LOWEST_ID] = 0
    saved(model, target)
    word_tokenizer(shape["vocab_size"]).save_pretrained(target)
    return target


def random_gguf(folder: Path, dtype: str) -> Path:
    """The same weights for llama.cpp. Written once; needs the package gguf (part of the extra `gguf`)."""
    target = folder.with_name(f"{folder.name}-{GGUF_TYPES[dtype]}.gguf")
    if not target.is_file():
        from .gguf_file import write

        write(folder, target, GGUF_TYPES[dtype])
    return target


def vocab_size(folder: Path) -> int:
    """By its configuration.

    Raises:
        ValueError: the folder holds none.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no model folder: it has no config.json")
    config = json.loads(path.read_text(encoding="utf-8"))
    found = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    if not isinstance(found, int):
        raise ValueError(f"{path} names no vocab_size")
    return found


def prompts_of(folder: Path, real: bool) -> Ids:
    """Pieces of this project's own text for a real model; random ids for a random one."""
    size = vocab_size(folder)
    if not real:
        return random_ids(size)
    from transformers import AutoTokenizer

    pages = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
    random.Random(0).shuffle(pages)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
    return ids_of_text(tokenizer(text, add_special_tokens=False)["input_ids"])
