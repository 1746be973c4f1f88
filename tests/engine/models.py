"""A tiny random Llama with a byte-level tokenizer, and its greedy answers by plain transformers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB = 259
POSITIONS = 256
EOS = 258
TEMPLATE = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"


def tokenizer() -> Any:
    """256 bytes, `<s>` (256), `<pad>` (257) and `</s>` (258)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", "<pad>", "</s>")])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    wrapped.chat_template = TEMPLATE
    return wrapped


def random_llama(vocab_size: int = VOCAB, eos_token_id: int | list[int] = EOS) -> Any:
    """The same weights every time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        initializer_range=0.3,
        eos_token_id=eos_token_id,
        bos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def save_model(folder: Path) -> Path:
    """Model and tokenizer as a folder."""
    random_llama().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


class Reference:
    """Plain transformers, one prompt at a time, in float32."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.answer = cache(self._answer)

    def greedy(self, prompt: list[int], max_tokens: int) -> list[int]:
        """Tokens up to and including the first end-of-text."""
        return list(self.answer(tuple(prompt), max_tokens))

    def _answer(self, prompt: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        tokens = list(prompt)
        with torch.inference_mode():
            while len(tokens) - len(prompt) < max_tokens and (len(tokens) == len(prompt) or tokens[-1] != EOS):
                tokens.append(int(self.model(torch.tensor([tokens])).logits[0, -1].argmax()))
        return tuple(tokens[len(prompt) :])

    def logprobs(self, prompt: list[int]) -> torch.Tensor:
        """Log-softmax at every position."""
        with torch.inference_mode():
            return torch.log_softmax(self.model(torch.tensor([prompt])).logits[0].float(), dim=-1)
