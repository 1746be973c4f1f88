"""Public bug reports, cases 11 to 15: characters over tokens, stop strings, spaces. The model says a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import ask, greedy, scripted, streamed, tokens
from tests.engine.models import EOS, random_llama
from tests.unit.text import builders
from yaie_engine import LLM, SamplingParams


@pytest.fixture(scope="module")
def merged() -> Iterator[LLM]:
    """An engine whose tokenizer has tokens of several characters."""
    hf = builders.byte_level().hf
    with LLM(random_llama(len(hf), hf.eos_token_id), tokenizer=hf, block_size=4, num_blocks=32) as llm:
        yield llm


@pytest.fixture(scope="module")
def spaced() -> Iterator[LLM]:
    """An engine with a tokenizer of the SentencePiece kind."""
    hf = builders.sentencepiece().hf
    with LLM(random_llama(len(hf), hf.eos_token_id), tokenizer=hf, block_size=4, num_blocks=32) as llm:
        yield llm


def says(llm: LLM, text: str) -> list[int]:
    """Make the model say `text`."""
    ids = llm.tokenizer.encode(text, add_special_tokens=False)
    scripted(llm, ids)
    return ids


def both_ways(llm: LLM, params: SamplingParams, prompt: Any = "say it: ") -> Any:
    """Streamed and not, which must agree."""
    _, output = streamed(llm, prompt, params)
    assert ask(llm, prompt, params).outputs == output.outputs
    return output.outputs[0]


@pytest.mark.parametrize("text", ["🙂", "a🙂b", "日本語", "🇩🇪!", "é€𝄞x", "👩\u200d👩\u200d👧"])
def test_case_11_characters_over_several_tokens_come_whole(llm: LLM, text: str) -> None:
    ids = says(llm, text)
    assert len(ids) == len(text.encode())
    deltas, output = streamed(llm, "x", greedy(40))
    assert output.outputs[0].text == text == llm.tokenizer.decode(tokens(output))
    assert not any("\ufffd" in delta for delta in deltas)
    assert ask(llm, "x", greedy(40)).outputs == output.outputs


def test_case_11_a_broken_character_is_shown_once_at_the_end(llm: LLM) -> None:
    scripted(llm, llm.tokenizer.encode("ab🙂")[:-1])
    deltas, output = streamed(llm, "x", greedy(40))
    assert "".join(deltas) == output.outputs[0].text == "ab\ufffd" == llm.tokenizer.decode(tokens(output))


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("river", "The fox went to the "),
        ("ox we", "The f"),
        ("x wen", "The fo"),
        ("e co", "The fox went to the river and th"),
    ],
)
def test_case_12_a_stop_string_over_tokens_never_leaks(merged: LLM, stop: str, expected: str, include: bool) -> None:
    text = "The fox went to the river and the colour was blue"
    ids = says(merged, text)
    assert len(ids) < len(text), "some tokens have several characters"
    choice = both_ways(merged, greedy(60, stop=[stop], include_stop_str_in_output=include))
    assert choice.text == expected + (stop if include else "")
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)


def test_case_12_a_stop_string_that_never_completes_is_shown(merged: LLM) -> None:
    says(merged, "went to the riv")
    choice = both_ways(merged, greedy(60, stop=["river"]))
    assert choice.text == "went to the riv" and choice.stop_reason is None
    length = both_ways(merged, greedy(3, stop=["went to the rivers"]))
    assert length.finish_reason == "length" and length.text == merged.detokenize(list(length.token_ids))


@pytest.mark.parametrize(
    ("text", "expected", "reason"),
    [
        ("Al Ali Alice Alice: hi", "Al Ali Alice ", "Alice:"),
        ("AliceAlice\nmore", "AliceAlice", "\n"),
        ("AAlice:x", "A", "Alice:"),
        ("Alic", "Alic", None),
        ("\n", "", "\n"),
    ],
)
def test_case_13_overlapping_stops_repeat_nothing(merged: LLM, text: str, expected: str, reason: str | None) -> None:
    says(merged, text)
    choice = both_ways(merged, greedy(60, stop=["\n", "Alice:"]))
    assert choice.text == expected and choice.stop_reason == reason


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_case_14_the_end_token_as_stop(llm: LLM, ignore_eos: bool) -> None:
    says(llm, "all of it")
    by_id = both_ways(llm, greedy(40, stop_token_ids=[EOS], ignore_eos=ignore_eos))
    assert (by_id.text, by_id.finish_reason, by_id.stop_reason) == ("all of it", "stop", EOS)
    by_text = both_ways(llm, greedy(40, stop=["</s>"], ignore_eos=ignore_eos))
    assert (by_text.text, by_text.finish_reason) == ("all of it", "stop")
    assert by_id.token_ids == by_text.token_ids and by_id.token_ids[-1] == EOS


def test_case_14_another_special_token_as_stop_string(llm: LLM) -> None:
    scripted(llm, [*llm.tokenize("all of it"), 256, *llm.tokenize("not this")])
    choice = both_ways(llm, greedy(40, stop=["<s>"]))
    assert (choice.text, choice.stop_reason) == ("all of it", "<s>")
    shown = both_ways(llm, greedy(40, stop=["<s>"], skip_special_tokens=False, include_stop_str_in_output=True))
    assert shown.text == "all of it<s>"
    hidden = both_ways(llm, greedy(40))
    assert hidden.text == "all of itnot this"


@pytest.mark.parametrize("prompt", ["the end", "x", "river and "])
@pytest.mark.parametrize("text", [" the river", "the river", "was<tool> the [x]river", "<tool>went", "a 🙂 b", "  two"])
def test_case_15_spaces_of_sentencepiece_stay(spaced: LLM, prompt: str, text: str) -> None:
    said = says(spaced, text)
    _, output = streamed(spaced, prompt, greedy(60))
    assert tokens(output)[: len(said)] == said
    before = list(output.prompt_token_ids)
    whole = spaced.tokenizer.decode(before + said)
    assert output.outputs[0].text == whole.removeprefix(spaced.tokenizer.decode(before))


def test_the_engines_of_this_file_hold(merged: LLM, spaced: LLM, make_llm: Make) -> None:
    merged.check()
    spaced.check()
