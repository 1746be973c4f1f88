"""Models whose state is kept whole reuse prefixes, too: what goes on from a state answers as what was computed."""

from __future__ import annotations

import threading

import pytest
import torch

from tests.architectures.zoo import ZOO
from tests.states.conftest import GREEDY, PROMPT, Open, ask, cold, kept, tokens
from yaie_engine import SamplingParams

QUICK = ["lfm2", "mamba"]
SLOW = [each.name for each in ZOO if each.tier == "state" and each.name not in QUICK]
NAMES = [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in SLOW)]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_prompt_again_and_the_next_turn(open_llm: Open, name: str) -> None:
    llm = open_llm(name)
    first = ask(llm, PROMPT)
    assert tokens(first) == cold(open_llm, name, PROMPT) and first.metrics.reuse == "none"
    for _ in range(2):  # a copy is used, and nothing consumed
        again = ask(llm, PROMPT)
        assert (tokens(again), again.num_cached_tokens) == (tokens(first), len(PROMPT) - 1)
        assert again.metrics.reuse == "state" and again.metrics.num_computed_tokens == GREEDY.max_tokens
    turn = [*PROMPT, *tokens(first), 7, 8]
    second = ask(llm, turn)
    assert (tokens(second), second.num_cached_tokens) == (cold(open_llm, name, turn), len(turn) - 3)
    assert second.metrics.reuse == "state"
    third = ask(llm, [*turn, *tokens(second), 9])
    assert third.num_cached_tokens == len(turn) + len(tokens(second)) - 1
    assert tokens(third) == cold(open_llm, name, [*turn, *tokens(second), 9])


@pytest.mark.parametrize("name", NAMES)
def test_a_wanted_prefix_serves_other_ends(open_llm: Open, name: str) -> None:
    """Not where prompts go in whole: there is no state within one."""
    llm = open_llm(name, long_prefill_token_threshold=0)
    kept(llm).want(PROMPT[:21])
    kept(llm).want(PROMPT[:30])
    assert tokens(ask(llm, PROMPT)) == cold(open_llm, name, PROMPT)
    for count in (21, 30):
        output = ask(llm, [*PROMPT[:count], *range(50, 70)])
        assert tokens(output) == cold(open_llm, name, list(output.prompt_token_ids))
        assert output.num_cached_tokens == (0 if kept(llm).whole else count)


def test_what_is_much_longer_than_a_state_goes_in_whole_again(open_llm: Open) -> None:
    """Mamba goes on token by token: of a long rest that would cost more than it saves."""
    llm = open_llm("mamba")
    ask(llm, PROMPT, SamplingParams(temperature=0, max_tokens=1))
    assert ask(llm, [*PROMPT, *range(20, 24)]).num_cached_tokens == len(PROMPT)
    assert ask(llm, [*PROMPT, *range(30, 40)]).num_cached_tokens == 0


def test_siblings_at_once(open_llm: Open) -> None:
    llm = open_llm(max_num_seqs=4)
    ask(llm, PROMPT)
    prompts = [[*PROMPT, 30 + i, 5] for i in range(6)]
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [output.num_cached_tokens for output in outputs] == [len(PROMPT)] * 6
    assert [tokens(output) for output in outputs] == [cold(open_llm, "lfm2", prompt) for prompt in prompts]


@pytest.mark.parametrize("name", QUICK)
def test_choices_of_a_request_share_its_prompt(open_llm: Open, name: str) -> None:
    params = SamplingParams(n=3, temperature=1.2, seed=4, max_tokens=6, ignore_eos=True)
    with open_llm(name, enable_prefix_caching=False) as plain:
        expected = [choice.token_ids for choice in plain.generate([PROMPT], params, use_tqdm=False)[0].outputs]
    llm = open_llm(name)
    output = llm.generate([PROMPT], params, use_tqdm=False)[0]
    assert [choice.token_ids for choice in output.outputs] == expected
    assert output.metrics.num_computed_tokens == len(PROMPT) + 2 + 3 * 5


@pytest.mark.parametrize("name", QUICK)
def test_preempted_it_goes_on_from_its_own_state(open_llm: Open, name: str) -> None:
    llm = open_llm(name, num_blocks=16, max_num_seqs=4)
    prompts = [PROMPT[i:] + PROMPT[:i] for i in (0, 7, 19)]
    outputs = llm.generate(
        [prompt[:20] for prompt in prompts], GREEDY.model_copy(update={"max_tokens": 20}), use_tqdm=False
    )
    assert llm.snapshot().counters.preemptions > 0
    for prompt, output in zip(prompts, outputs, strict=True):
        assert tokens(output) == cold(open_llm, name, prompt[:20], GREEDY.model_copy(update={"max_tokens": 20}))
        assert output.metrics.num_computed_tokens < 40 + 20


def test_salts_do_not_meet(open_llm: Open) -> None:
    llm = open_llm()
    salted = [GREEDY.model_copy(update={"cache_salt": salt}) for salt in ("a", "b")]
    ask(llm, PROMPT, salted[0])
    assert ask(llm, PROMPT, salted[1]).num_cached_tokens == 0
    assert ask(llm, PROMPT).num_cached_tokens == 0
    assert ask(llm, PROMPT, salted[0]).num_cached_tokens == len(PROMPT) - 1


def test_prompt_log_probabilities_are_computed(open_llm: Open) -> None:
    params = GREEDY.model_copy(update={"prompt_logprobs": 1})
    with open_llm(enable_prefix_caching=False) as plain:
        expected = ask(plain, PROMPT, params).prompt_logprobs
    llm = open_llm()
    kept(llm).want(PROMPT[:21])
    ask(llm, PROMPT[:30])
    output = ask(llm, PROMPT, params)
    assert output.num_cached_tokens == 0 and output.prompt_logprobs is not None and expected is not None
    for ours, plain_row in zip(output.prompt_logprobs[1:], expected[1:], strict=True):
        assert {i: row.logprob for i, row in (ours or {}).items()} == pytest.approx(
            {i: row.logprob for i, row in (plain_row or {}).items()}, abs=1e-4
        )
    assert ask(llm, PROMPT).num_cached_tokens == len(PROMPT) - 1  # and what it computed serves others


def test_reset_sleep_and_close_drop_all_states(open_llm: Open) -> None:
    llm = open_llm()
    for drop in (llm.reset, lambda: (llm.sleep(), llm.wake_up())):
        ask(llm, PROMPT)
        assert len(kept(llm).entries()) == 2
        drop()
        assert kept(llm).entries() == [] and ask(llm, PROMPT).num_cached_tokens == 0
    states = kept(llm)
    assert states.num_bytes > 0
    llm.close()
    assert states.num_bytes == 0


def test_anomalous_requests_leave_no_state(open_llm: Open) -> None:
    llm = open_llm()
    llm.detect_anomaly()
    model = llm._engine.runner._weights.loaded.model  # type: ignore[attr-defined]
    weight = model.get_output_embeddings().weight
    before = weight[PROMPT[5]].clone()
    with torch.no_grad():
        weight[PROMPT[5]] = torch.nan
    try:
        for watched in (True, False):
            llm.detect_anomaly(watched)
            assert llm.generate([PROMPT], GREEDY, use_tqdm=False)[0].error is not None
            assert kept(llm).entries() == []
    finally:
        with torch.no_grad():
            weight[PROMPT[5]] = before
    assert ask(llm, PROMPT).num_cached_tokens == 0


def test_a_cancelled_request_leaves_its_state(open_llm: Open) -> None:
    llm = open_llm()
    handle = llm.submit(PROMPT, GREEDY.model_copy(update={"max_tokens": 80}))
    next(iter(handle))
    handle.cancel()
    output = handle.result(60)
    turn = [*PROMPT, *output.outputs[0].token_ids, 4]
    assert ask(llm, turn).num_cached_tokens >= len(PROMPT)
    assert tokens(ask(llm, turn)) == cold(open_llm, "lfm2", turn)


def test_many_at_once_stay_right(open_llm: Open) -> None:
    """Threads that ask over each other in a pool that preempts; every answer is the one that an empty engine gives."""
    prompts = [[*PROMPT[: 18 + i % 3], *[20 + i % 4] * (i % 5)] for i in range(12)]
    expected = {tuple(prompt): cold(open_llm, "lfm2", prompt) for prompt in prompts}
    llm, wrong = open_llm(num_blocks=24, max_num_seqs=3), []

    def work(offset: int) -> None:
        for i in range(12):
            prompt = prompts[(offset + 5 * i) % 12]
            if tokens(ask(llm, prompt)) != expected[tuple(prompt)]:
                wrong.append(prompt)

    threads = [threading.Thread(target=work, args=(3 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
