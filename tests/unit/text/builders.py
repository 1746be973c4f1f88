"""Small tokenizers of three kinds, built on the spot: nothing is downloaded."""

from __future__ import annotations

import json
from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from yaie_engine.tokenizer import Tokenizer as OurTokenizer

TEXTS = [
    "The fox went to the river and the river was cold.",
    "Once upon a time there was a small engine in a notebook.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. €",
    "日本語のテキスト 🙂 👩‍👩‍👧 🇩🇪",
    "user: hello\nassistant: hi there, hi there",
] * 3


def wrap(backend: Tokenizer, **settings: str) -> OurTokenizer:
    """Our tokenizer over a `tokenizers` one."""
    return OurTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, **settings))


@cache
def byte_level() -> OurTokenizer:
    """GPT-2 style: byte-level BPE; `<s>` and `</s>` special, two plain added tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_tokens(["<tool>", AddedToken("€uro")])
    return wrap(backend, bos_token="<s>", eos_token="</s>")


@cache
def sentencepiece() -> OurTokenizer:
    """Llama-2 style: metaspace BPE with byte fallback, and a decoder that strips the first space."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(
        vocab_size=90,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=list("▁abcdefghijklmnopqrstuvwxyzT.,:"),
        limit_alphabet=34,
        show_progress=False,
    )
    backend.train_from_iterator([text.replace(" ", "▁") for text in TEXTS[:2]], trainer)
    state = json.loads(backend.to_str())
    vocabulary = state["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    state["model"].update(byte_fallback=True, fuse_unk=True)
    backend = Tokenizer.from_str(json.dumps(state))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_tokens(["<tool>", "[x]"])
    return wrap(backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@cache
def wordpiece() -> OurTokenizer:
    """BERT style: a decoder that puts the spaces itself."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    return wrap(backend, unk_token="[UNK]", eos_token="[SEP]")


BUILDERS = (byte_level, sentencepiece, wordpiece)
