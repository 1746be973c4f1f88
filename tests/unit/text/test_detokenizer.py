"""Text, stop strings and hidden tokens of one choice, by the bug cases other engines had."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.text.builders import BUILDERS, byte_level, sentencepiece
from yaie_engine.detokenizer import Detokenizer
from yaie_engine.params import SamplingParams
from yaie_engine.tokenizer import Tokenizer

EOS = 1
END = 2


def run(
    tokenizer: Tokenizer, output: list[int], prompt: list[int] | None = None, end: bool = False, **settings_: object
) -> tuple[Detokenizer, list[str]]:
    """Push `output` as the engine does; `end`: its last token ended the choice."""
    detokenizer = Detokenizer(tokenizer, prompt or [], SamplingParams(**settings_))
    deltas = []
    for place, token_id in enumerate(output, 1):
        deltas.append(detokenizer.push(token_id, is_end=end and place == len(output)))
        if detokenizer.stop_reason is not None:
            break
    deltas.append(detokenizer.flush())
    assert "".join(deltas) == detokenizer.text
    return detokenizer, deltas


def letters(tokenizer: Tokenizer, text: str) -> list[int]:
    """One token per character."""
    return [token_id for char in text for token_id in tokenizer.encode(char, add_special_tokens=False)]


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_deltas_join_to_the_text_of_all_tokens(build: Callable[[], Tokenizer]) -> None:
    tokenizer = build()

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(0, tokenizer.num_tokens - 1), max_size=30), st.booleans())
    def check(output: list[int], skip: bool) -> None:
        detokenizer, _ = run(tokenizer, output, skip_special_tokens=skip)
        assert detokenizer.text == tokenizer.decode(output, skip_special_tokens=skip)

    check()


@settings(max_examples=150, deadline=None)
@given(
    st.text("ab é🦊", max_size=25),
    st.lists(st.text("ab é🦊", min_size=1, max_size=4), min_size=1, max_size=3),
    st.booleans(),
)
def test_case_12_stop_strings_do_not_depend_on_the_tokens(text: str, stop: list[str], include: bool) -> None:
    tokenizer = byte_level()
    whole, _ = run(tokenizer, tokenizer.encode(text), stop=stop, include_stop_str_in_output=include)
    by_letter, _ = run(tokenizer, letters(tokenizer, text), stop=stop, include_stop_str_in_output=include)
    assert (whole.text, whole.stop_reason) == (by_letter.text, by_letter.stop_reason)
    if not include:
        assert not any(item in whole.text for item in stop)


def test_case_12_stop_string_across_tokens() -> None:
    tokenizer = byte_level()
    for stop in ("END!!", "ver was", "r"):
        output = letters(tokenizer, "the river was END!! more")
        detokenizer, deltas = run(tokenizer, output, stop=[stop])
        assert detokenizer.stop_reason == stop
        assert detokenizer.text == "the river was END!! more".split(stop)[0]
        assert not any(stop[0] in delta for delta in deltas[-2:]), "nothing of its head leaks"


def test_case_12_stop_string_that_begins_inside_a_token() -> None:
    tokenizer = byte_level()
    output = tokenizer.encode("the river was cold")
    assert " river" in [tokenizer.token_text(i) for i in output]
    detokenizer, _ = run(tokenizer, output, stop=["ver w"])
    assert detokenizer.text == "the ri"


def test_case_12_the_stop_string_when_it_is_asked_for() -> None:
    tokenizer = byte_level()
    detokenizer, _ = run(tokenizer, tokenizer.encode("the river was"), stop=["ver"], include_stop_str_in_output=True)
    assert detokenizer.text == "the river"


def test_case_13_overlapping_stops_repeat_nothing() -> None:
    tokenizer = byte_level()
    text = "Al\tAlice Alic. Alice: no"
    detokenizer, deltas = run(tokenizer, letters(tokenizer, text), stop=["\n", "Alice:"])
    assert detokenizer.text == "Al\tAlice Alic. "
    assert detokenizer.stop_reason == "Alice:"
    shown = ""
    for delta in deltas:
        shown += delta
        assert text.startswith(shown)


def test_case_13_a_partial_stop_is_given_at_the_end() -> None:
    tokenizer = byte_level()
    detokenizer, deltas = run(tokenizer, letters(tokenizer, "hi Alice"), stop=["Alice:"])
    assert detokenizer.text == "hi Alice"
    assert deltas[-1] == "Alice"
    assert detokenizer.stop_reason is None


def test_case_14_a_special_token_as_stop_string() -> None:
    tokenizer = byte_level()
    output = [*tokenizer.encode("the river 🦊"), EOS, *tokenizer.encode(" more")]
    for skip in (True, False):
        detokenizer, _ = run(tokenizer, output, stop=["</s>"], skip_special_tokens=skip)
        assert detokenizer.text == "the river 🦊"
        assert detokenizer.stop_reason == "</s>"
    tokenizer = sentencepiece()
    output = [*tokenizer.encode("the river 🦊"), END, *tokenizer.encode("more")]
    detokenizer, _ = run(tokenizer, output, stop=["</s>"])
    assert detokenizer.text == "the river 🦊"


def test_case_14_a_special_end_token_cuts_no_text() -> None:
    for tokenizer, end in ((byte_level(), EOS), (sentencepiece(), END)):
        output = [*tokenizer.encode("the river"), end]
        assert run(tokenizer, output, end=True)[0].text == "the river"
        assert run(tokenizer, output, end=True, skip_special_tokens=False)[0].text == "the river</s>"
        held = run(tokenizer, output, end=True, stop=["river bank"])[0]
        assert held.text == "the river"


def test_case_14_an_ordinary_end_token_is_not_shown() -> None:
    tokenizer = byte_level()
    output = tokenizer.encode("the river.")
    assert tokenizer.token_text(output[-1]) == "."
    assert run(tokenizer, output, end=True)[0].text == "the river"
    assert run(tokenizer, output, end=True, include_stop_str_in_output=True)[0].text == "the river."


def test_case_22_no_stop_string_before_min_tokens() -> None:
    """A match that is complete within the first `min_tokens` tokens does not count; a later one does."""
    tokenizer = byte_level()
    output = letters(tokenizer, "a.b.c.")
    assert run(tokenizer, output, stop=["."])[0].text == "a"
    assert run(tokenizer, output, stop=["."], min_tokens=2)[0].text == "a.b"
    assert run(tokenizer, output, stop=["."], min_tokens=4)[0].text == "a.b.c"
    assert run(tokenizer, output, stop=["."], min_tokens=6)[0].text == "a.b.c."
    assert run(tokenizer, output, stop=["b.c"], min_tokens=4)[0].text == "a."


def test_nothing_comes_after_the_end() -> None:
    tokenizer = byte_level()
    detokenizer = Detokenizer(tokenizer, [], SamplingParams(stop=["x"]))
    assert detokenizer.push(tokenizer.encode("x")[0]) == ""
    assert detokenizer.push(tokenizer.encode("y")[0]) == ""
    assert detokenizer.flush() == ""
    assert detokenizer.text == ""


def test_the_prompt_is_never_shown_and_never_stops() -> None:
    for tokenizer in (byte_level(), sentencepiece()):
        prompt = tokenizer.encode("the river was")
        detokenizer, _ = run(tokenizer, letters(tokenizer, "cold"), prompt=prompt, stop=["was", "river"])
        assert detokenizer.stop_reason is None
        assert "river" not in detokenizer.text
