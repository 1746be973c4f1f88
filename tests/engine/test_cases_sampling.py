"""Public bug reports, cases 16 to 22: sampling, penalties, seeds, min_tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, FakeRunner, ask, eventually, greedy, scripted, swap_runner, tokens
from tests.engine.models import EOS, VOCAB, Reference, random_llama, tokenizer
from yaie_engine import LLM, RequestError, RequestOutput, SamplingParams

PROMPT = [5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"temperature": 1e-4},
        {"temperature": 1e-8},
        {"top_p": 0},
        {"top_p": 1e-6},
        {"top_k": 1},
        {"temperature": 0, "top_k": VOCAB + 1000},
        {"temperature": 0, "top_p": 0, "top_k": -1, "min_p": 1},
    ],
    ids=str,
)
def test_case_16_extreme_settings_are_greedy(llm: LLM, reference: Reference, settings: dict[str, Any]) -> None:
    output = ask(llm, PROMPT, SamplingParams(max_tokens=12, **settings))
    assert tokens(output) == reference.greedy(PROMPT, 12)


@pytest.mark.parametrize(
    "settings", [{"top_k": 0}, {"top_k": -1}, {"top_k": VOCAB}, {"top_p": 1}, {"temperature": 100}]
)
def test_case_16_other_extremes_give_text(llm: LLM, settings: dict[str, Any]) -> None:
    output = ask(llm, PROMPT, SamplingParams(max_tokens=12, ignore_eos=True, seed=3, **settings))
    assert output.error is None and len(tokens(output)) == 12


@pytest.mark.parametrize(
    ("field", "value"), [("temperature", -1), ("temperature", math.nan), ("top_p", 1.01), ("top_k", -2), ("min_p", 2)]
)
def test_case_16_what_makes_no_sense_is_refused(field: str, value: float) -> None:
    with pytest.raises(RequestError, match=field):
        SamplingParams(**{field: value})


MIXED: list[SamplingParams] = [
    greedy(14, logit_bias=dict.fromkeys(range(0, 250, 2), -100)),
    greedy(14),
    SamplingParams(max_tokens=14, temperature=1.0, seed=1),
    SamplingParams(max_tokens=14, temperature=2.0, seed=2, top_k=20, min_p=0.01),
    SamplingParams(max_tokens=14, temperature=0.7, seed=3, top_p=0.8, repetition_penalty=1.3),
    greedy(14, min_tokens=14, presence_penalty=1.5),
    SamplingParams(max_tokens=14, temperature=1.2, seed=4, logit_bias=dict.fromkeys(range(200), -100), logprobs=2),
]


def test_case_17_greedy_and_sampled_rows_in_one_batch(make_llm: Make) -> None:
    together, alone = make_llm(num_blocks=128), make_llm(num_blocks=128)
    prompts = [[*PROMPT, i] for i in range(len(MIXED))]
    outputs = together.generate(prompts, MIXED, use_tqdm=False)
    assert max(len(step.batch) for step in together.snapshot().steps) == len(MIXED)
    for prompt, params, output in zip(prompts, MIXED, outputs, strict=True):
        solo = ask(alone, prompt, params)
        assert tokens(output) == tokens(solo) and output.error is None
        assert output.outputs[0].text == solo.outputs[0].text
    assert all(token % 2 or token >= 250 for token in tokens(outputs[0]))
    assert all(token >= 200 for token in tokens(outputs[6]))


@pytest.mark.parametrize("token_id", [-1, VOCAB, VOCAB + 5, 2**40, "abc", 1.5, True])
def test_case_18_a_bias_outside_the_vocabulary_is_refused(llm: LLM, reference: Reference, token_id: Any) -> None:
    running = llm.submit(PROMPT, greedy(40))
    with pytest.raises(RequestError, match="logit_bias"):
        llm.submit(PROMPT, greedy(4, logit_bias={token_id: 1.0}))
    assert tokens(running.result(LONG)) == reference.greedy(PROMPT, 40)


def test_case_18_a_stop_id_outside_the_vocabulary_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match=f"stop_token_ids.*{VOCAB}.*0 to {VOCAB - 1}"):
        llm.submit(PROMPT, greedy(4, stop_token_ids=[VOCAB]))


def texts(output: RequestOutput) -> list[str]:
    return [choice.text for choice in output.outputs]


def test_case_19_choices_of_one_seed_differ_and_repeat(make_llm: Make) -> None:
    params = SamplingParams(n=4, seed=1, temperature=1.5, max_tokens=16)
    first, second = make_llm(), make_llm(max_num_seqs=2)
    output = ask(first, PROMPT, params)
    assert [choice.index for choice in output.outputs] == [0, 1, 2, 3]
    assert len(set(texts(output))) == 4
    assert texts(ask(first, PROMPT, params)) == texts(output)
    assert texts(ask(second, PROMPT, params)) == texts(output)
    assert ask(first, PROMPT, params.replace(n=1)).outputs[0].text == texts(output)[0]


def test_case_19_equal_prompts_with_one_seed_are_equal_and_differ_without(make_llm: Make) -> None:
    llm, twin = make_llm(), make_llm()
    seeded = SamplingParams(seed=1, temperature=1.5, max_tokens=12)
    outputs = llm.generate([PROMPT] * 8, seeded, use_tqdm=False)
    assert len({tuple(tokens(output)) for output in outputs}) == 1
    free = SamplingParams(temperature=1.5, max_tokens=12)
    outputs = llm.generate([PROMPT] * 8, free, use_tqdm=False)
    assert len({tuple(tokens(output)) for output in outputs}) == 8
    twin.generate([PROMPT] * 8, seeded, use_tqdm=False)
    again = twin.generate([PROMPT] * 8, free, use_tqdm=False)
    assert [tokens(output) for output in again] == [tokens(output) for output in outputs], "the engine's seed counts"
    other = make_llm(seed=5)
    other.generate([PROMPT] * 8, seeded, use_tqdm=False)
    assert tokens(ask(other, PROMPT, free)) != tokens(outputs[0])


@pytest.mark.parametrize("turned", [False, True])
def test_case_20_penalties_do_not_depend_on_the_order(make_llm: Make, turned: bool) -> None:
    work = [
        ([*PROMPT, 1], greedy(14, repetition_penalty=1.8)),
        ([*PROMPT, 2], greedy(14)),
        ([*PROMPT, 3], greedy(14, frequency_penalty=1.5)),
        ([*PROMPT, 4], greedy(14, presence_penalty=2, repetition_penalty=0.7)),
    ][:: -1 if turned else 1]
    together, alone = make_llm(), make_llm()
    outputs = together.generate([prompt for prompt, _ in work], [params for _, params in work], use_tqdm=False)
    for (prompt, params), output in zip(work, outputs, strict=True):
        assert tokens(output) == tokens(ask(alone, prompt, params))


T, U = 40, 41


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"presence_penalty": 1.5}, [T, U, T, T, T]),
        ({"frequency_penalty": 1.5}, [T, U, T, U, T]),
        ({"repetition_penalty": 2.0}, [U, T, T, T, T]),
        ({}, [T, T, T, T, T]),
    ],
    ids=str,
)
def test_case_21_which_tokens_are_penalised(llm: LLM, settings: dict[str, float], expected: list[int]) -> None:
    """T scores 3 and U 2. Only what was generated counts, but for repetition_penalty, which sees the prompt too."""
    swap_runner(llm, FakeRunner(VOCAB, lambda seq: {T: 3.0, U: 2.0}))
    output = ask(llm, [T] * 10, greedy(5, logprobs=1, **settings))
    assert tokens(output) == expected
    for token_id, step in zip(expected, output.outputs[0].logprobs or (), strict=True):
        assert step[token_id].rank == (1 if token_id == T else 2), "log-probabilities are those of the model"


def test_case_22_min_tokens_holds_back_the_end(llm: LLM) -> None:
    output = ask(llm, PROMPT, greedy(20, min_tokens=4, logit_bias={EOS: 100}))
    assert len(tokens(output)) == 5 and tokens(output)[-1] == EOS and EOS not in tokens(output)[:4]
    assert output.outputs[0].finish_reason == "stop"
    without = ask(llm, PROMPT, greedy(20, logit_bias={EOS: 100}))
    assert tokens(without) == [EOS] and without.outputs[0].text == ""


@pytest.mark.parametrize("end", [257, 258])
def test_case_22_every_end_token_counts(end: int) -> None:
    with LLM(random_llama(VOCAB, [257, 258]), tokenizer=tokenizer(), block_size=4, num_blocks=32) as llm:
        output = ask(llm, PROMPT, greedy(20, min_tokens=4, logit_bias={end: 100}))
        assert len(tokens(output)) == 5 and tokens(output)[-1] == end and not {257, 258} & set(tokens(output)[:4])
        own = ask(llm, PROMPT, greedy(20, min_tokens=3, stop_token_ids=[65], logit_bias={65: 100}))
        assert len(tokens(own)) == 4 and own.outputs[0].stop_reason == 65
        ignored = ask(llm, PROMPT, greedy(6, ignore_eos=True, logit_bias={end: 100}))
        assert tokens(ignored) == [end] * 6 and ignored.outputs[0].finish_reason == "length"


def test_case_22_a_stop_string_inside_min_tokens_is_text(llm: LLM) -> None:
    """A stop string counts when it is complete after more than `min_tokens` tokens."""
    scripted(llm, llm.tokenize("abcabcabc"))
    for minimum, text in ((0, "a"), (2, "a"), (3, "abca"), (7, "abcabca"), (9, "abcabcabc")):
        output = ask(llm, PROMPT, greedy(20, stop=["bc"], min_tokens=minimum))
        assert output.outputs[0].text == text, minimum
    eventually(lambda: not llm.running())
