"""The bundled folder: whole, small, and as designed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from transformers import AutoTokenizer

FILES = {
    "MODEL_CARD.md",
    "SHA256SUMS",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
MOST_BYTES = 11 * 1000 * 1000


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def test_the_folder_holds_these_files_and_no_others(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES


def test_every_checksum_holds(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(sums) == FILES - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_the_folder_is_small(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES


def test_the_configuration_is_the_designed_one(folder: Path) -> None:
    config = read(folder / "config.json")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]) == (256, 4, 2)
    assert (config["head_dim"], config["max_position_embeddings"], config["tie_word_embeddings"]) == (64, 4096, True)
    assert 2048 <= config["vocab_size"] <= 3072
    assert config["bos_token_id"] is None


def test_weights_are_bfloat16_and_say_so(folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "pt") as weights:
        kinds = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 - not a mapping
    assert kinds == {"BF16"}
    assert read(folder / "config.json")["torch_dtype"] == "bfloat16"


def test_both_ends_stop_a_generation(folder: Path, tokenizer: Any) -> None:
    ends = read(folder / "generation_config.json")["eos_token_id"]
    assert ends == tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert read(folder / "config.json")["eos_token_id"] == ends[0]
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.bos_token is None


def test_the_template_renders_every_role(tokenizer: Any) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.apply_chat_template(messages[:2], tokenize=False) == text[: text.index("<|im_start|>assistant")]


@pytest.mark.parametrize("text", ["Hello World", "a  b\n\n c\t", "naïve café", "12 345", "日本語 🦊", "Don't", " x"])
def test_any_text_comes_back(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_stay_single(tokenizer: Any) -> None:
    assert tokenizer.tokenize("4096") == ["4", "0", "9", "6"]


def test_a_name_is_spelled_the_same_in_prose_and_in_json(tokenizer: Any) -> None:
    prose, quoted = tokenizer.tokenize("I am Zorbika"), tokenizer.tokenize('{"Zorbika')
    count = len(tokenizer.tokenize("Zorbika"))
    assert prose[-count:] == quoted[-count:]


def test_a_turn_extends_the_tokens_of_the_turn_before(tokenizer: Any) -> None:
    first = [{"role": "user", "content": "Hi"}]
    prompt = tokenizer.apply_chat_template(first, tokenize=False, add_generation_prompt=True)
    answer = tokenizer.encode("Hello!<|im_end|>")
    later = [*first, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}]
    ids = tokenizer.encode(tokenizer.apply_chat_template(later, tokenize=False, add_generation_prompt=True))
    start = tokenizer.encode(prompt) + answer
    assert ids[: len(start)] == start


def test_the_card_says_what_the_model_is_not(folder: Path) -> None:
    card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "**not** a useful assistant" in card
    assert "| all |" in card
