"""Every kind of decoder of the tokenizers library, with random tokens after random prompts."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models

from tests.unit.text.builders import wrap
from yaie_engine.text_stream import open_stream
from yaie_engine.tokenizer import Tokenizer as OurTokenizer

PIECES = ["▁the", "▁river", "▁", "ing", "was", "▁a", "s", "é", "日", "▁▁", ".", " ", "\ufffd"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["[UNK]", "the", "##s", ".", "do", "n", "'", "##t", "not", "!"]


def unigram(decoder: Any) -> OurTokenizer:
    vocabulary = [("<unk>", 0.0), *((piece, -1.0) for piece in PIECES), *((byte, -9.0) for byte in BYTES)]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    backend.decoder = decoder
    backend.add_tokens(["<tool>"])
    backend.add_special_tokens(["<s>", "</s>"])
    return wrap(backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def vocabulary(model: Any, decoder: Any, unknown: str) -> OurTokenizer:
    backend = Tokenizer(model)
    if decoder is not None:
        backend.decoder = decoder
    return wrap(backend, unk_token=unknown)


def metaspace(scheme: str) -> OurTokenizer:
    return unigram(decoders.Metaspace(prepend_scheme=scheme))


def fallback(*more: Any) -> OurTokenizer:
    return unigram(decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *more]))


def word_pieces() -> OurTokenizer:
    model = models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    return vocabulary(model, decoders.WordPiece(cleanup=True), "[UNK]")


def pairs(decoder: Any, suffix: str) -> OurTokenizer:
    words = ["a", f"b{suffix}", "c", f"d{suffix}", "<unk>"]
    model = models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>")
    return vocabulary(model, decoder, "<unk>")


@pytest.mark.parametrize(
    "tokenizer",
    [
        pytest.param(metaspace("always"), id="metaspace always"),
        pytest.param(metaspace("first"), id="metaspace first"),
        pytest.param(metaspace("never"), id="metaspace never"),
        pytest.param(fallback(), id="byte fallback"),
        pytest.param(fallback(decoders.Strip(" ", 1, 0)), id="byte fallback and strip"),
        pytest.param(word_pieces(), id="word pieces with cleanup"),
        pytest.param(pairs(decoders.BPEDecoder(), "</w>"), id="word ends"),
        pytest.param(pairs(None, ""), id="no decoder"),
    ],
)
def test_pieces_join_in_the_context_of_the_prompt(tokenizer: OurTokenizer) -> None:
    rng = random.Random(3)
    usual = min(14, tokenizer.num_tokens)

    def token() -> int:
        last = tokenizer.num_tokens - 1
        return rng.choice([rng.randrange(tokenizer.num_tokens), rng.randrange(usual), last - rng.randrange(3)])

    for _ in range(500):
        skip = rng.random() < 0.5
        # A prompt that ends in raw bytes may change its own text when more bytes follow: no text to compare with.
        prompt = [i for i in (token() for _ in range(rng.randrange(6))) if not tokenizer.is_byte_token(i)]
        output = [token() for _ in range(rng.randrange(12))]
        stream = open_stream(tokenizer, prompt, skip)
        text = "".join([stream.push(token_id) for token_id in output]) + stream.flush()
        assert tokenizer.decode(prompt + output, skip) == tokenizer.decode(prompt, skip) + text
