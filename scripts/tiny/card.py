"""The model card, written from measured rows."""

from __future__ import annotations

import json
from pathlib import Path

from .evaluate import Row, render
from .export import checksums, history_of

_TEXT = """# tiny

A language model of {weights:.2f} million weights for trying, testing and explaining an inference engine on any
laptop. It is **not** a useful assistant: it knows a few hundred facts, a handful of story plots and simple
patterns, and nothing else. Asked anything outside of that, it answers something wrong with confidence. Do not
rely on what it says.

## What it is
- Llama architecture: {layers} layers, hidden size {hidden}, {heads} query and {kv_heads} key/value heads of
  {head_dim}, feed-forward {feed}, {positions} positions, tied embeddings, stored in bfloat16 ({megabytes:.1f}
  MB).
- Byte-level BPE of {vocab} tokens; digits stay single. Chat template in the ChatML style: `<|im_start|>`,
  `<|im_end|>`, `<|endoftext|>`. An answer ends with `<|im_end|>` in a chat, with `<|endoftext|>` in plain text.
  There is no start token.
- Trained from scratch on two processor cores by `scripts/train_tiny`, only on text that the script itself
  generates (English). No text and no weights of others went into it. This run: {history}; a step reads 4,096
  tokens.

## What it can do
Tell short stories (about a given animal, name, thing or place); answer known facts in several phrasings; add
and subtract numbers below 100, multiply up to 10, compare numbers below 100, count; copy what the prompt says
into JSON records, lists and look-ups; repeat text word for word; remember what was said earlier in a chat;
explain the terms of an inference engine in a sentence. Prompts may be chats, `Question: ...` with `Answer:` on
the next line, or bare text such as `Once upon a time`.

## Measured
Held-out tasks, greedy, float32, plain transformers on a CPU. Held out are: phrasings of known facts, terms and
poems; whole sums, differences, counts and comparisons; and all records, lists, tables and texts to copy, whose
words are mostly invented. Most prompts are chats, one in six is a plain question and one in six is bare.
"Story" counts as right when it ends by itself and keeps every word asked for. "Memory" asks for something told
one to three turns before. "Long chat" asks after a conversation of about 2,000 tokens (those tasks may have
been seen in training), "long table" asks for one of 90 entries in about 2,000 tokens. A margin is the smallest
lead, in logits, of a chosen token over the next best within one answer.

{table}

## Limits
Contexts beyond about 2,000 tokens were a small part of training. Text in other languages, code, and names or
numbers much longer than those of the examples come out wrong. Sampling at high temperature leaves the learned
paths quickly.
"""


def write_card(folder: Path, rows: list[Row]) -> None:
    """Write MODEL_CARD.md from the measured rows and renew the checksums."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    size = (folder / "model.safetensors").stat().st_size
    text = _TEXT.format(
        weights=size / 2e6,
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        feed=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        megabytes=size / 1e6,
        vocab=config["vocab_size"],
        table=render(rows),
        history=history_of(folder),
    )
    (folder / "MODEL_CARD.md").write_text(text, encoding="utf-8")
    checksums(folder)
