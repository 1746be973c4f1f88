"""Encoding, decoding, and the text of single tokens."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.unit.text.builders import BUILDERS, byte_level, sentencepiece, wordpiece
from yaie_engine.errors import RequestError
from yaie_engine.tokenizer import Tokenizer

Builder = Callable[[], Tokenizer]
builders = pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)


@builders
def test_same_as_transformers(build: Builder) -> None:
    tokenizer = build()
    for text in ("the river", " the  small engine\n", "x<tool>y", ""):
        ids = tokenizer.encode(text)
        assert ids == tokenizer.hf.encode(text)
        assert tokenizer.decode(ids, skip_special_tokens=False) == tokenizer.hf.decode(ids)
    assert tokenizer.num_tokens == len(tokenizer.hf)
    assert tokenizer.eos_token_id == tokenizer.hf.eos_token_id
    assert tokenizer.special_ids == frozenset(tokenizer.hf.all_special_ids)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_byte_level_round_trip(text: str) -> None:
    tokenizer = byte_level()
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_case_23_token_bytes_join_to_the_text(text: str) -> None:
    tokenizer = byte_level()
    parts = [tokenizer.token_bytes(token_id) for token_id in tokenizer.encode(text)]
    assert b"".join(part for part in parts if part is not None) == text.encode()


def test_case_23_token_text_is_readable() -> None:
    tokenizer = byte_level()
    assert [tokenizer.token_text(i) for i in tokenizer.encode(" river.</s>")] == [" river", ".", "</s>"]
    halves = [tokenizer.token_text(i) for i in tokenizer.encode("🦊")]
    assert "".join(halves) == r"\xf0\x9f\xa6\x8a"
    tokenizer = sentencepiece()
    river = tokenizer.encode("the river")
    assert "".join(tokenizer.token_text(i) for i in river) == " the river"
    euro = [i for i in tokenizer.encode("€") if tokenizer.is_byte_token(i)]
    assert [tokenizer.token_bytes(i) for i in euro] == [b"\xe2", b"\x82", b"\xac"]
    tokenizer = wordpiece()
    assert [tokenizer.token_text(i) for i in tokenizer.encode("river")] == ["river"]


def test_ids_without_text() -> None:
    tokenizer = byte_level()
    for token_id in (-1, tokenizer.num_tokens, 10**9):
        assert tokenizer.token_bytes(token_id) is None
        assert tokenizer.token_text(token_id) == ""


def test_truncation_set_by_someone_else_does_not_cut_prompts() -> None:
    hf = copy.deepcopy(byte_level().hf)
    tokenizer = Tokenizer(hf)
    wanted = tokenizer.encode("the river was cold")
    assert len(hf("the river was cold", truncation=True, max_length=2)["input_ids"]) == 2
    assert tokenizer.encode("the river was cold") == wanted
    hf.pad_token = "</s>"
    hf(["the river", "x"], padding="max_length", max_length=50)
    assert tokenizer.encode("the river was cold") == wanted


def test_ids_with_gaps() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 900}, unk_token="a"))
    tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert tokenizer.num_tokens == 901
    assert tokenizer.token_text(900) == "b"
    assert tokenizer.token_text(450) == ""


@builders
def test_lone_surrogates_are_refused_with_their_place(build: Builder) -> None:
    with pytest.raises(RequestError, match=r"character 2 \(U\+D83D\)"):
        build().encode("ab\ud83dcd")


@builders
@pytest.mark.parametrize("bad", [None, 5, b"bytes", ["list"]])
def test_text_must_be_a_string(build: Builder, bad: object) -> None:
    with pytest.raises(RequestError, match="string"):
        build().encode(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [[-1], [2**70], ["a"], [None], [1.5]])
def test_decode_refuses_what_is_no_id(bad: list[object]) -> None:
    with pytest.raises(RequestError, match="token ids"):
        byte_level().decode(bad)  # type: ignore[arg-type]


@builders
def test_a_word_of_a_million_characters(build: Builder) -> None:
    tokenizer = build()
    ids = tokenizer.encode("a" * 10**6)
    assert ids
    assert tokenizer.decode(ids) in ("a" * 10**6, "")  # WordPiece makes it one unknown word


@builders
def test_many_threads_at_once(build: Builder) -> None:
    tokenizer = build()
    text = "the river was cold and the engine small " * 20
    wanted = tokenizer.encode(text)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(40):
                assert tokenizer.encode(text) == wanted
                tokenizer.decode(wanted)
                tokenizer.token_text(wanted[0])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class SlowTokenizer:
    """A tokenizer without the Rust library behind it: words, with a special end."""

    added_tokens_decoder: dict[int, object] = {}  # noqa: RUF012
    all_special_ids = (0,)
    eos_token_id = 0
    unk_token_id = None
    words = ("</s>", "a", "b")

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [self.words.index(word) for word in text.split()] + ([0] if add_special_tokens else [])

    def decode(self, ids: list[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        assert not clean_up_tokenization_spaces
        return " ".join(self.words[i] for i in ids if i or not skip_special_tokens)

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return self.words[token_id]

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self.words.index(token) if token in self.words else None


def test_tokenizers_in_python_work_too() -> None:
    tokenizer = Tokenizer(SlowTokenizer())
    assert tokenizer.encode("a b") == [1, 2, 0]
    assert tokenizer.encode("a b", add_special_tokens=False) == [1, 2]
    assert tokenizer.decode([1, 2, 0]) == "a b"
    assert tokenizer.special_texts == {"</s>": 0}
    assert tokenizer.token_text(2) == "b"
    with pytest.raises(RequestError, match="cannot encode"):
        tokenizer.encode("c")
    with pytest.raises(RequestError):
        tokenizer.decode([77])
