"""Pieces join to the whole, whatever the tokens; no broken character comes early; time is linear."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.text.builders import BUILDERS, byte_level, sentencepiece, wordpiece
from yaie_engine.text_stream import open_stream
from yaie_engine.tokenizer import Tokenizer

Builder = Callable[[], Tokenizer]
BROKEN = "\ufffd"


def ids_for(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, tokenizer.num_tokens - 1), max_size=30)


def stream(tokenizer: Tokenizer, prompt: list[int], output: list[int], skip: bool) -> list[str]:
    pieces = open_stream(tokenizer, prompt, skip)
    return [*(pieces.push(token_id) for token_id in output), pieces.flush()]


def whole(tokenizer: Tokenizer, prompt: list[int], output: list[int], skip: bool) -> str:
    """The output's part of the text of prompt and output together."""
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    text = tokenizer.decode(prompt + output, skip_special_tokens=skip)
    assert text.startswith(before)
    return text[len(before) :]


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_random_tokens_after_a_prompt(build: Builder) -> None:
    tokenizer = build()
    prompt = tokenizer.encode("the river was")

    @settings(max_examples=150, deadline=None)
    @given(ids_for(tokenizer), st.booleans())
    def check(output: list[int], skip: bool) -> None:
        assert "".join(stream(tokenizer, prompt, output, skip)) == whole(tokenizer, prompt, output, skip)

    check()


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_random_tokens_without_a_prompt(build: Builder) -> None:
    tokenizer = build()

    @settings(max_examples=150, deadline=None)
    @given(ids_for(tokenizer), st.booleans())
    def check(output: list[int], skip: bool) -> None:
        assert "".join(stream(tokenizer, [], output, skip)) == tokenizer.decode(output, skip_special_tokens=skip)

    check()


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40), st.sampled_from([byte_level, sentencepiece]))
def test_random_bytes(data: bytes, build: Builder) -> None:
    """One token per byte: valid, cut and invalid UTF-8."""
    tokenizer = build()
    single = {tokenizer.token_bytes(i): i for i in range(tokenizer.num_tokens)}
    if build is sentencepiece:
        single = {tokenizer.token_bytes(i): i for i in range(tokenizer.num_tokens) if tokenizer.is_byte_token(i)}
    output = [single[bytes([byte])] for byte in data]
    assert "".join(stream(tokenizer, [], output, True)) == tokenizer.decode(output)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30), st.sampled_from([byte_level, sentencepiece]))
def test_valid_text_never_shows_a_broken_character(text: str, build: Builder) -> None:
    tokenizer = build()
    output = tokenizer.encode(text.replace(BROKEN, ""))
    assert BROKEN not in "".join(stream(tokenizer, tokenizer.encode("the"), output, False))


@pytest.mark.parametrize("text", ["🦊", "漢字", "🇩🇪 ok", "é", "👩‍👩‍👧."])
@pytest.mark.parametrize("build", [byte_level, sentencepiece], ids=["byte_level", "sentencepiece"])
def test_case_11_characters_byte_by_byte(build: Builder, text: str) -> None:
    tokenizer = build()
    prompt = tokenizer.encode("the river")
    output = tokenizer.encode(text, add_special_tokens=False)
    pieces = stream(tokenizer, prompt, output, True)
    assert "".join(pieces) == whole(tokenizer, prompt, output, True)
    assert BROKEN not in "".join(pieces)


def test_case_11_a_cut_character_shows_only_at_the_end() -> None:
    tokenizer = byte_level()
    output = tokenizer.encode("x🦊")[:-1]
    *pieces, rest = stream(tokenizer, [], output, True)
    assert "".join(pieces) == "x"
    assert rest == BROKEN
    assert "".join([*pieces, rest]) == tokenizer.decode(output)


def test_the_models_own_replacement_character_is_shown() -> None:
    tokenizer = byte_level()
    output = tokenizer.encode(f"a{BROKEN}b")
    assert "".join(stream(tokenizer, [], output, True)) == f"a{BROKEN}b"


@pytest.mark.parametrize("build", [byte_level, sentencepiece], ids=["byte_level", "sentencepiece"])
def test_a_prompt_that_ends_inside_a_character(build: Builder) -> None:
    """The output completes it: the character is shown. It does not: nothing of the prompt is."""
    tokenizer = build()
    ids = tokenizer.encode("the 🦊 river")
    parts = [tokenizer.token_bytes(i) or b"" for i in ids]
    cut = next(i for i, part in enumerate(parts) if b"\x8a" in part)
    shown = "".join(stream(tokenizer, ids[:cut], ids[cut:], True))
    assert shown == "🦊 river"
    other = tokenizer.encode("river", add_special_tokens=False)
    assert "".join(stream(tokenizer, ids[:cut], other, True)).strip() == "river"


def test_case_15_spaces_in_the_context_of_the_prompt() -> None:
    tokenizer = sentencepiece()
    river = tokenizer.encode("river")
    assert "".join(stream(tokenizer, [], river, True)) == "river"
    assert "".join(stream(tokenizer, tokenizer.encode("the"), river, True)) == " river"
    assert "".join(stream(tokenizer, [1], river, True)) == "river", "only a hidden token stands before it"
    assert "".join(stream(tokenizer, [1], river, False)) == " river"


def test_case_15_added_tokens_keep_their_neighbours_spaces() -> None:
    tokenizer = sentencepiece()
    tool, box = (tokenizer.hf.convert_tokens_to_ids(token) for token in ("<tool>", "[x]"))
    river, end = tokenizer.encode("river"), 2
    for output in ([tool, *river], [*river, tool, *river], [tool, box, *river, box], [*river, end, *river, tool]):
        for prompt in ([], tokenizer.encode("the"), [tool], [1, *tokenizer.encode("the"), end]):
            for skip in (True, False):
                assert "".join(stream(tokenizer, prompt, output, skip)) == whole(tokenizer, prompt, output, skip)


def test_word_pieces_get_their_spaces() -> None:
    tokenizer = wordpiece()
    output = tokenizer.encode("the river was cold")
    assert "".join(stream(tokenizer, tokenizer.encode("the"), output, True)) == " the river was cold"


def seconds_for(tokenizer: Tokenizer, output: list[int]) -> float:
    """Processor time of this thread: other work on the machine does not count."""

    def once() -> float:
        started = time.thread_time()
        stream(tokenizer, [], output, True)
        return time.thread_time() - started

    return min(once() for _ in range(5))


@pytest.mark.parametrize("kind", ["text", "bytes", "hidden"])
@pytest.mark.parametrize("build", [byte_level, sentencepiece], ids=["byte_level", "sentencepiece"])
def test_time_is_linear(build: Builder, kind: str) -> None:
    """Four times the tokens take about four times as long; eight times would be far from the sixteen of a square."""
    tokenizer = build()
    units = {"text": tokenizer.encode("the small river "), "bytes": tokenizer.encode("🦊"), "hidden": [1] * 10}
    output = units[kind] * 400
    assert seconds_for(tokenizer, output * 4) < 8 * seconds_for(tokenizer, output) + 0.02


class PythonBytes:
    """A tokenizer written in Python whose ids are bytes: nothing is known about its decoder."""

    added_tokens_decoder: dict[int, object] = {}  # noqa: RUF012
    all_special_ids = (0,)
    eos_token_id = unk_token_id = 0

    def get_vocab(self) -> dict[str, int]:
        return {chr(byte): byte for byte in range(256)}

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return chr(token_id)

    def convert_tokens_to_ids(self, token: str) -> int:
        return self.unk_token_id

    def decode(self, ids: list[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        return bytes(i for i in ids if i or not skip_special_tokens).decode("utf-8", "replace")


@pytest.mark.parametrize("data", ["the 🦊, 漢字".encode(), b"\xff" * 100 + b"ab" + b"\xf0\x9f", b"a\0b\0\0" * 50])
def test_a_tokenizer_in_python(data: bytes) -> None:
    tokenizer = Tokenizer(PythonBytes())
    pieces = stream(tokenizer, list(b"prompt"), list(data), True)
    assert "".join(pieces) == data.replace(b"\0", b"").decode("utf-8", "replace")
