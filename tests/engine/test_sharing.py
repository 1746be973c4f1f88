"""45 requests with shared prefixes: cached tokens, blocks and the flight recorder are exact."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, ask, assert_idle, eventually, greedy, tokens
from yaie_engine import LLM, EngineSnapshot, RequestOutput, SamplingParams

ROOMY = {"num_blocks": 400}


def prompts_with_shared_heads(seed: int) -> list[list[int]]:
    """45 prompts: heads of several lengths, cut anywhere, with tails of their own; some come twice."""
    rng = random.Random(seed)
    heads = [[rng.randrange(250) for _ in range(length)] for length in (3, 8, 17, 30)]
    prompts: list[list[int]] = []
    while len(prompts) < 45:
        head = rng.choice(prompts) if prompts and rng.random() < 0.4 else rng.choice(heads)
        tail = [rng.randrange(250) for _ in range(rng.randrange(0, 6))]
        prompt = head[: rng.randrange(1, len(head) + 1)] + tail
        prompts.append(prompt[:36] or [1])
    return prompts


def computed(output: RequestOutput) -> list[list[int]]:
    """What has KV when the request has ended: all but the last sampled token of each choice."""
    prompt = list(output.prompt_token_ids)
    return [prompt + list(choice.token_ids)[:-1] for choice in output.outputs]


def longest_common_prefix(prompt: list[int], known: Iterable[list[int]]) -> int:
    best = 0
    for other in known:
        same = 0
        while same < min(len(prompt), len(other)) and prompt[same] == other[same]:
            same += 1
        best = max(best, same)
    return best


def assert_totals(llm: LLM, snapshot: EngineSnapshot) -> None:
    """The snapshot's sums are those of the live engine (nothing runs)."""
    pool, tree = llm._scheduler.pool, llm._scheduler.tree
    assert (snapshot.blocks.free, snapshot.blocks.held, snapshot.blocks.cached) == (pool.num_free, 0, pool.num_cached)
    assert sum(len(node.blocks) for node in snapshot.tree) == pool.num_cached
    assert sum(node.num_tokens for node in snapshot.tree) == sum(len(node.token_ids) for node in tree.nodes())
    assert snapshot.step == llm._scheduler.step == snapshot.steps[-1].step
    assert all(node.ref_count == 0 and node.request_ids == () for node in snapshot.tree)


@pytest.mark.parametrize("chunk", [0, 8])
def test_45_requests_count_their_cached_tokens_exactly(make_llm: Make, chunk: int) -> None:
    llm = make_llm(**ROOMY, long_prefill_token_threshold=chunk)
    known: list[list[int]] = []
    outputs = []
    for i, prompt in enumerate(prompts_with_shared_heads(chunk)):
        output = ask(llm, prompt, greedy(1 + i % 4))
        assert output.num_cached_tokens == min(longest_common_prefix(prompt, known), len(prompt) - 1)
        assert output.metrics.reuse == ("radix" if output.num_cached_tokens else "none")
        assert output.metrics.num_computed_tokens == len(prompt) - output.num_cached_tokens + len(tokens(output)) - 1
        known += computed(output)
        outputs.append(output)
    assert_idle(llm)
    snapshot = llm.snapshot()
    assert_totals(llm, snapshot)
    counters = snapshot.counters
    assert counters.prompt_tokens == sum(len(output.prompt_token_ids) for output in outputs)
    assert counters.cached_tokens == sum(output.num_cached_tokens for output in outputs) > 0
    assert counters.computed_tokens == sum(output.metrics.num_computed_tokens for output in outputs)
    assert counters.generated_tokens == sum(len(tokens(output)) for output in outputs)
    assert counters.evictions == 0 and counters.copies == sum(len(step.blocks.copied) for step in snapshot.steps)
    prefilled = sum(step.num_prefill_tokens for step in snapshot.steps)
    assert prefilled == counters.prompt_tokens - counters.cached_tokens, "every admission: tokens then minus hit then"
    assert prefilled + sum(step.num_decode_tokens for step in snapshot.steps) == counters.computed_tokens


def admissions(llm: LLM) -> list[tuple[int, int]]:
    """Watch every admission of an engine: (tokens then, hit then)."""
    seen: list[tuple[int, int]] = []
    admit = llm._scheduler._try_admit

    def watched(seq):  # type: ignore[no-untyped-def]
        admitted = admit(seq)
        if admitted:
            seen.append((seq.num_tokens, seq.computed))
        return admitted

    llm._scheduler._try_admit = watched  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("num_blocks", [400, 48])
def test_45_requests_at_once_share_and_the_recorder_adds_up(make_llm: Make, num_blocks: int) -> None:
    llm = make_llm(num_blocks=num_blocks, max_num_seqs=12)
    seen = admissions(llm)
    handles = [llm.submit(prompt, greedy(9)) for prompt in prompts_with_shared_heads(3)]
    running = 0
    end = time.monotonic() + LONG
    while not all(handle.done for handle in handles):
        snapshot = llm.snapshot()
        running += snapshot.blocks.held > 0
        assert_consistent_while_running(snapshot)
        assert time.monotonic() < end
    assert running > 3, "some snapshots were taken while requests ran"
    assert_idle(llm)
    snapshot = llm.snapshot()
    assert_totals(llm, snapshot)
    counters = snapshot.counters
    prefilled = sum(step.num_prefill_tokens for step in snapshot.steps)
    interrupted = counters.preemptions and any(record.num_preemptions for record in llm.history())
    if not interrupted:
        assert prefilled == sum(length - hit for length, hit in seen)
    assert counters.cached_tokens > 0 and counters.copies > 0
    if num_blocks < 400:
        assert counters.evictions > 0
    assert sum(step.num_decode_tokens for step in snapshot.steps) + prefilled == counters.computed_tokens


def assert_consistent_while_running(snapshot: EngineSnapshot) -> None:
    blocks = snapshot.blocks
    assert blocks.free + blocks.held + blocks.cached == blocks.total
    named = {block for request in snapshot.requests for block in request.block_table}
    assert len(named) == blocks.held
    owned = [block for node in snapshot.tree for block in node.blocks]
    assert len(owned) == len(set(owned))
    assert len(set(owned) - named) == blocks.cached
    queue = snapshot.queue
    assert queue.waiting + queue.prefill + queue.decode + queue.preempted == len(snapshot.requests)
    ends = {0: 0}
    for node in snapshot.tree[1:]:
        assert node.parent is not None and node.parent in ends, "parents come first"
        ends[node.id] = ends[node.parent] + node.num_tokens
        assert node.num_tokens == len(node.token_ids) > 0
    for request in snapshot.requests:
        assert len(request.block_table) >= -(-request.num_computed_tokens // blocks.block_size)


def test_a_pool_that_preempts_still_adds_up(make_llm: Make) -> None:
    """Decodes that are preempted compute again what was not kept; the recorder says exactly how much."""
    llm = make_llm(long_prefill_token_threshold=0)
    seen = admissions(llm)
    prompts = [[10 * i + j for j in range(9)] for i in range(6)]
    llm.generate(prompts, greedy(50, ignore_eos=True), use_tqdm=False)
    snapshot = llm.snapshot()
    assert snapshot.counters.preemptions > 0 and len(seen) == 6 + snapshot.counters.preemptions
    assert sum(step.num_prefill_tokens for step in snapshot.steps) == sum(length - hit for length, hit in seen)
    assert sum(len(step.preempted) for step in snapshot.steps) == snapshot.counters.preemptions
    assert_idle(llm)


def test_the_next_turn_of_a_conversation_computes_only_what_is_new(make_llm: Make) -> None:
    llm = make_llm(num_blocks=64)
    prompt, known = [1, 2, 3], None
    for turn in range(6):
        output = ask(llm, prompt, greedy(7))
        assert known is None or output.num_cached_tokens == known
        known = len(prompt) + len(tokens(output)) - 1
        prompt = [*prompt, *tokens(output), 200 + turn, 201]
    assert llm.snapshot().counters.copies == 0, "a turn takes over the tail of the last one"


def test_choices_share_their_prompt(make_llm: Make) -> None:
    llm = make_llm()
    prompt = list(range(10))
    ask(llm, prompt[:6])
    before = llm.snapshot().counters.computed_tokens
    output = ask(llm, prompt, SamplingParams(n=3, max_tokens=4, ignore_eos=True))
    assert output.num_cached_tokens == 6, "the first choice's hit"
    assert output.metrics.num_computed_tokens == 4 + 1 + 1 + 3 * 3
    assert llm.snapshot().counters.computed_tokens - before == output.metrics.num_computed_tokens
    again = ask(llm, prompt, SamplingParams(n=3, max_tokens=4))
    assert again.num_cached_tokens == 9


def test_a_request_that_runs_is_shared_already(make_llm: Make) -> None:
    llm = make_llm()
    first = llm.submit(list(range(20)), greedy(80, ignore_eos=True))
    eventually(lambda: llm.snapshot().queue.decode == 1)
    second = ask(llm, [*range(20), 99], greedy(2))
    assert not first.done and second.num_cached_tokens == 20
    first.cancel()
    assert_idle(llm)
