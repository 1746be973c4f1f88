"""Small model folders for the loader tests: a sound one, and what is broken about the others."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.architectures.peers import word_tokenizer
from tests.architectures.zoo import BY_NAME

CANARY = "import pathlib\npathlib.Path({flag!r}).write_text('executed')\nclass Anything: pass\n"


def sound_folder(path: Path, name: str = "llama") -> Path:
    """A complete tiny model with tokenizer, in safetensors."""
    path.mkdir(parents=True, exist_ok=True)
    BY_NAME[name].build().save_pretrained(path)
    word_tokenizer().save_pretrained(path)
    return path


def edit(folder: Path, name: str = "config.json", **changes: Any) -> Path:
    """Change keys of a JSON file of the folder; None removes the key."""
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return folder


def plant_canaries(folder: Path, flag: Path) -> None:
    """Python files under every name that a configuration could point to; running any of them writes `flag`."""
    for name in ("modeling_evil", "configuration_evil", "tokenization_evil", "custom_generate/generate", "setup"):
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(CANARY.format(flag=str(flag)))


def write_weights(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_raw_header(path: Path, header: dict[str, Any], data: bytes) -> None:
    """A safetensors file whose header says what it likes."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def gguf_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
