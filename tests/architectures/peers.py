"""The truth for greedy answers: transformers' own forward, one request at a time, in float32; and a plain tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tests.architectures.zoo import VOCAB


@dataclass(frozen=True)
class Answer:
    """Greedy tokens, and how far the best logit of each step was ahead of the second."""

    token_ids: list[int]
    margins: list[float]


def greedy(model: Any, prompt: list[int], max_tokens: int) -> Answer:
    """Run the whole sequence through the plain model for every token: no cache is involved."""
    ids, margins = list(prompt), []
    with torch.inference_mode():
        for _ in range(max_tokens):
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
            best, second = logits.topk(2).values.tolist()
            margins.append(best - second)
            ids.append(int(logits.argmax()))
    return Answer(ids[len(prompt) :], margins)


def word_tokenizer() -> Any:
    """One word per id, so that every id of the zoo has a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(VOCAB)}
    backend = Tokenizer(models.WordLevel(words, unk_token="w3"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="w0", bos_token="w1", eos_token="w2")
