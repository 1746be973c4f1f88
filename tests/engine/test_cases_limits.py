"""Public bug reports, cases 24 to 26 and 34: prompt log-probabilities, empty and long prompts, a model object."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import ask, assert_idle, greedy, tokens
from tests.engine.models import POSITIONS, Reference, random_llama, tokenizer
from yaie_engine import LLM, CapacityError, RequestError


@pytest.mark.parametrize("chunk", [0, 8, 3])
def test_case_24_prompt_logprobs_with_chunks_and_a_warm_cache(make_llm: Make, reference: Reference, chunk: int) -> None:
    llm = make_llm(long_prefill_token_threshold=chunk)
    prompt = [(11 * i) % 250 for i in range(20)]
    truth = reference.logprobs(prompt)
    ask(llm, prompt)  # now it is cached
    for _ in range(2):
        output = ask(llm, prompt, greedy(6, prompt_logprobs=2, logprobs=1))
        assert output.num_cached_tokens == 0, "the cache holds no logits: it is not read"
        assert tokens(output) == reference.greedy(prompt, 6)
        scores = output.prompt_logprobs
        assert scores is not None and len(scores) == 20 and scores[0] is None
        for position, entry in enumerate(scores[1:], 1):
            assert entry is not None and 2 <= len(entry) <= 3 and next(iter(entry)) == prompt[position]
            for token_id, item in entry.items():
                assert item.logprob == pytest.approx(float(truth[position - 1, token_id]), abs=1e-4)
                assert item.rank == 1 + int((truth[position - 1] > truth[position - 1, token_id]).sum())
                assert item.decoded_token == llm.tokenizer.token_text(token_id)
    assert ask(llm, prompt).num_cached_tokens == 19


def test_case_24_a_prompt_of_one_token(llm: LLM) -> None:
    assert ask(llm, [7], greedy(2, prompt_logprobs=0)).prompt_logprobs == (None,)
    assert llm.score([7]) == [None]


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], ["fine", ""], [[1], []], None, 7, [1, "a"], [None], {"a": 1}])
def test_case_25_empty_and_senseless_prompts_are_refused(llm: LLM, reference: Reference, prompt: Any) -> None:
    before = llm.snapshot().counters
    with pytest.raises(RequestError, match="prompt"):
        llm.generate(prompt, greedy(4), use_tqdm=False)
    assert not llm.running() and llm.snapshot().counters == before
    assert tokens(ask(llm, [1, 2, 3])) == reference.greedy([1, 2, 3], 12)


def test_case_25_empty_conversations_are_refused(llm: LLM) -> None:
    for messages in ([], [[]], [{}], "hello", [{"role": "user"}, 3]):
        with pytest.raises(RequestError):
            llm.chat(messages, greedy(4), use_tqdm=False)
    assert ask(llm, [1, 2, 3]).error is None


def test_case_26_prompts_around_the_context(make_llm: Make) -> None:
    llm = make_llm(num_blocks=POSITIONS // 4)
    fits = ask(llm, [3] * (POSITIONS - 1), greedy(None))
    assert len(tokens(fits)) == 1 and fits.outputs[0].finish_reason == "length"
    for length in (POSITIONS, POSITIONS + 1, 3 * POSITIONS):
        with pytest.raises(CapacityError, match=rf"{length}.*{POSITIONS}"):
            ask(llm, [3] * length)
    with pytest.raises(RequestError, match=rf"max_tokens=57.*200.*56.*{POSITIONS}"):
        ask(llm, [3] * 200, greedy(57))
    with pytest.raises(RequestError, match="min_tokens=57"):
        ask(llm, [3] * 200, greedy(None, min_tokens=57))
    whole = ask(llm, [3] * 200, greedy(56, ignore_eos=True))
    assert len(tokens(whole)) == 56
    assert_idle(llm)


def test_case_26_without_max_tokens_the_room_left_counts(make_llm: Make) -> None:
    llm = make_llm(num_blocks=POSITIONS // 4)
    output = ask(llm, [3] * 240, greedy(None, ignore_eos=True))
    assert len(tokens(output)) == 16 and output.outputs[0].finish_reason == "length"


def test_case_26_more_blocks_than_there_are(llm: LLM) -> None:
    """32 blocks of 4: 128 slots; the last token needs none."""
    assert len(tokens(ask(llm, [3] * 100, greedy(29, ignore_eos=True)))) == 29
    with pytest.raises(CapacityError, match=r"33 KV blocks.*has 32"):
        ask(llm, [3] * 100, greedy(30))
    with pytest.raises(CapacityError, match=r"prompt 1: "):
        llm.generate([[1], [3] * 100], greedy(30), use_tqdm=False)
    rest = ask(llm, [3] * 100, greedy(None, ignore_eos=True))
    assert len(tokens(rest)) == 29, "without max_tokens: what the pool holds"
    with pytest.raises(CapacityError, match=r"40 KV blocks.*has 32"):
        ask(llm, [3] * 100, greedy(None, min_tokens=60))
    with pytest.raises(CapacityError, match=r"33 KV blocks.*has 32"):
        ask(llm, [3] * 129, greedy(None))
    assert_idle(llm)


def test_case_34_a_model_object_is_left_as_it_was() -> None:
    model = random_llama()
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7]])
    with torch.inference_mode():
        before = model(ids).logits
    attention = model.config._attn_implementation
    weights = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    with LLM(model, tokenizer=tokenizer(), block_size=4, num_blocks=32) as llm:
        first = llm.generate([[1, 2, 3], [4, 5, 6]], greedy(8), use_tqdm=False)
        with torch.inference_mode():
            assert torch.equal(model(ids).logits, before)
        second = llm.generate([[1, 2, 3], [4, 5, 6]], greedy(8), use_tqdm=False)
        assert [tokens(output) for output in first] == [tokens(output) for output in second]
        assert len({output.request_id for output in [*first, *second]}) == 4
        assert all(output.finished for output in second)
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, before)
    assert model.config._attn_implementation == attention
    assert weights == {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
