"""A real engine thread under 64 clients that cancel at random: no block leaks, every request ends exactly once."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
import weakref
from collections import Counter
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, ask, assert_idle, eventually, greedy, swap_runner, tokens
from tests.engine.models import VOCAB, random_llama, tokenizer
from yaie_engine import LLM, Generation, QueueFullError, SamplingParams
from yaie_engine.channel import Channel

CLIENTS = 64
REQUESTS = int(os.environ.get("YAIE_STRESS_REQUESTS", "12"))
"""Of each client."""
HEADS = [[7 * head + i for i in range(12)] for head in range(5)]


class Terminals:
    """Counts the terminal events of every request."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        end = Channel.end

        def counted(channel: Channel, output: Any) -> None:
            self.counts[output.request_id] += 1
            end(channel, output)

        patch.setattr(Channel, "end", counted)


class Client(threading.Thread):
    """Asks again and again; reads, leaves, cancels at once or after a while, drops, lets time out."""

    def __init__(self, llm: LLM, formula: Formula, seed: int) -> None:
        super().__init__(daemon=True)
        self.llm, self.formula, self.rng = llm, formula, random.Random(seed)
        self.accepted: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self) -> None:
        while len(self.accepted) < REQUESTS:
            try:
                self.once()
            except QueueFullError:
                self.outcomes["full"] += 1
                time.sleep(0.001)
            except Exception as error:
                self.problems.append(repr(error))
                return

    def once(self) -> None:
        rng = self.rng
        prompt = rng.choice(HEADS)[: rng.randrange(1, 13)] + [rng.randrange(250) for _ in range(rng.randrange(4))]
        most = rng.randrange(1, 30)
        params = SamplingParams(
            n=rng.choice([1, 1, 1, 2, 3]),
            max_tokens=most,
            temperature=0,
            priority=rng.choice([0, 0, 1]),
            stop=rng.choice([[], ["never said"]]),
            timeout=rng.choice([None, None, None, 0.02]),
            prompt_logprobs=rng.choice([None, None, 0]),
            cache_salt=rng.choice([None, None, "salt"]),
        )
        handle = self.llm.submit(prompt, params)
        self.accepted.append(handle.request_id)
        way = rng.choice(["read", "read", "result", "at once", "later", "some", "drop"])
        if way == "drop":
            return
        if way == "at once":
            handle.cancel()
        elif way == "later":
            time.sleep(rng.random() * 0.02)
            handle.close()
        elif way == "some":
            for _ in zip(range(rng.randrange(4)), handle, strict=False):
                pass
            handle.cancel()
        elif way == "read":
            for _ in handle:
                pass
        self.finish(handle, prompt, most)

    def finish(self, handle: Generation, prompt: list[int], most: int) -> None:
        output = handle.result(LONG)
        reason = str(output.outputs[0].finish_reason)
        self.outcomes[reason] += 1
        expected = self.formula.greedy(prompt, most)
        for choice in output.outputs:
            got = list(choice.token_ids)
            if got != expected[: len(got)] or (choice.finish_reason == "length" and got != expected):
                self.problems.append(f"{handle.request_id}: {got} is not {expected}")


@pytest.mark.usefixtures("overlap")
@pytest.mark.parametrize("settings", [{}, {"num_blocks": 14}, {"enable_prefix_caching": False}], ids=str)
def test_64_clients_lose_nothing(make_llm: Make, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    llm, formula = make_llm(max_waiting=200, max_num_seqs=24, **settings), Formula(VOCAB)
    swap_runner(llm, formula.runner)
    terminals = Terminals(monkeypatch)
    end = time.monotonic() + 3 * LONG
    clients = [Client(llm, formula, seed + i) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        llm.check()
        blocks = llm.snapshot().blocks
        assert blocks.free + blocks.held + blocks.cached == blocks.total
        assert time.monotonic() < end, "a caller hangs"
        time.sleep(0.02)
    for client in clients:
        assert client.problems == []
    assert_idle(llm)
    accepted = {request_id for client in clients for request_id in client.accepted}
    assert set(terminals.counts) >= accepted and set(terminals.counts.values()) == {1}
    outcomes: Counter[str] = Counter()
    for client in clients:
        outcomes += client.outcomes
    assert outcomes["length"] > 0 and outcomes["cancelled"] > 0
    assert len(accepted) == CLIENTS * REQUESTS
    assert sum(llm.snapshot().counters.requests.values()) == len(terminals.counts) == len(accepted)
    assert llm._engine.num_waiting == 0
    llm.reset()
    assert llm.snapshot().blocks.free == llm.snapshot().blocks.total


@pytest.mark.parametrize("caching", [True, False])
def test_case_10_thousands_of_short_requests_leak_nothing(make_llm: Make, caching: bool) -> None:
    llm = make_llm(max_num_seqs=64, enable_prefix_caching=caching, recorder_steps=64)
    swap_runner(llm, Formula(VOCAB).runner)
    before = llm.snapshot().blocks
    rng = random.Random(0)
    prompts = [[rng.randrange(250) for _ in range(rng.randrange(1, 9))] for _ in range(1500)]
    llm.generate(prompts, greedy(2), use_tqdm=False)
    assert_idle(llm)
    llm.reset()
    assert llm.snapshot().blocks == before
    engine, tree = llm._engine, llm._scheduler.tree
    assert not engine.requests and not engine._by_sequence and not llm._scheduler.private
    assert len(tree.roots) == 1 and len(tree._lru) <= 65, "queue entries of dead nodes are swept"
    assert llm.snapshot().counters.requests == {"length": 1500}


def test_closing_frees_the_model_though_results_are_kept() -> None:
    model = random_llama()
    llm = LLM(model, tokenizer=tokenizer(), block_size=4, num_blocks=32)
    handle = llm.submit([1, 2, 3], greedy(30, ignore_eos=True))
    outputs = [ask(llm, [i, 2, 3], SamplingParams(max_tokens=3, logprobs=2, prompt_logprobs=1)) for i in range(5)]
    running = llm.submit([4, 5, 6], greedy(90, ignore_eos=True))
    assert next(iter(running))
    watched = [weakref.ref(each) for each in (model, llm._engine.runner._tier, *llm._engine.runner.cache.layers[0])]
    kept = [llm.snapshot(), llm.history(), handle.result(LONG)]
    llm.close()
    del model
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4, "the handles and the closed engine keep nothing"
    assert len(tokens(outputs[0])) == 3 and kept and running.result(LONG).outputs[0].finish_reason == "cancelled"


def test_dropping_the_engine_ends_its_thread() -> None:
    llm = LLM(random_llama(), tokenizer=tokenizer(), block_size=4, num_blocks=32)
    handle = llm.submit([1, 2, 3], greedy(90, ignore_eos=True))
    thread = llm._engine._thread
    del llm
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()
    assert handle.result(LONG).outputs[0].finish_reason == "cancelled"


def test_one_thread_per_engine() -> None:
    def engines() -> int:
        return sum(thread.name == "yaie-engine" for thread in threading.enumerate())

    before = engines()
    with LLM(random_llama(), tokenizer=tokenizer(), block_size=4, num_blocks=32) as llm:
        ask(llm, [1, 2, 3], greedy(2))
        assert engines() == before + 1
    eventually(lambda: engines() == before)
