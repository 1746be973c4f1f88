"""Engines of random settings under random requests: every answer is what an engine with nothing else to do gives.

`run` takes a number of engines or of seconds, and a seed; each engine has a seed of its own, so that one can be run
again alone. What is free is poisoned with NaN before each step, on the device's side and the host's: whoever reads it
answers wrongly.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.engine.fakes import LONG, assert_idle
from tests.engine.models import Reference
from yaie_engine import LLM, Generation, RequestOutput, SamplingParams
from yaie_engine.philox import uniform
from yaie_engine.plan import StepPlan
from yaie_engine.policies import make_policy

TIE = 1e-3
"""Difference of two log-probabilities below which batches of other shapes may choose differently."""
EDGE = 1e-4
"""Distance of a drawn number from the edge of a token's share, below which it may fall to either side."""
LENGTHS = 3, 70


@dataclass
class Figures:
    """What happened in all engines together: a run in which nothing did proves nothing."""

    counts: Counter[str] = field(default_factory=Counter)

    def note(self, llm: LLM, outputs: list[RequestOutput]) -> None:
        """What an engine did, once it is idle."""
        counters, host = llm.snapshot().counters, llm.host_blocks
        self.counts.update(
            engines=1,
            requests=len(outputs),
            tokens=counters.generated_tokens,
            preemptions=counters.preemptions,
            evictions=counters.evictions,
            copies=counters.copies,
            swapped=host.swapped if host else 0,
            unswapped=host.unswapped if host else 0,
        )
        self.counts.update(f"reuse {output.metrics.reuse}" for output in outputs)
        self.counts.update(f"ended by {output.outputs[0].finish_reason}" for output in outputs)


def settings_of(rng: random.Random) -> dict[str, Any]:
    """One engine: a pool in which a few requests have no room together, as often as not with host blocks."""
    size = rng.choice([1, 2, 3, 4, 8, 16])
    tokens = rng.choice([90, 110, 140, 200, 300])
    host = rng.choice([0, 3, 20, 80, 400]) * 4 // size
    chosen = {
        "block_size": size,
        "num_blocks": -(-tokens // size),
        "num_cpu_blocks": host,
        "preemption": rng.choice(["swap", "recompute"]) if host else "recompute",
        "scheduling_policy": rng.choice(["fcfs", "lpm", "priority", "fair"]),
        "max_num_seqs": rng.choice([1, 2, 3, 6, 12]),
        "max_num_batched_tokens": rng.choice([5, 16, 64, 512]),
        "long_prefill_token_threshold": rng.choice([0, 0, 4, 16]),
        "enable_chunked_prefill": rng.random() < 0.85,
        "enable_prefix_caching": rng.random() < 0.85,
        "recorder_steps": rng.choice([1, 8, 4096]),
        "dtype": "float32",
    }
    if host and not chosen["enable_prefix_caching"]:
        chosen["preemption"] = "swap"
    return chosen


class Requests:
    """Prompts that have heads in common, of all priorities, tenants and salts."""

    def __init__(self, rng: random.Random, room: int) -> None:
        self.rng, self.room = rng, room
        long = [rng.randrange(250) for _ in range(LENGTHS[1] // 2)]
        self.heads = [long] + [[rng.randrange(250) for _ in range(rng.randrange(*LENGTHS))] for _ in range(3)]

    def one(self) -> tuple[list[int], SamplingParams, str]:
        """Prompt, parameters and tenant."""
        rng = self.rng
        prompt = rng.choice(self.heads)[: rng.randrange(1, LENGTHS[1])]
        prompt = prompt + [rng.randrange(250) for _ in range(rng.choice([0, 0, 1, 5, 20]))]
        if rng.random() < 0.2:
            self.heads[rng.randrange(len(self.heads))] = prompt
        prompt = prompt[: max(1, self.room - 30)]
        draws = rng.random() < 0.3
        params = SamplingParams(
            n=rng.choice([1, 1, 1, 1, 2, 3]),
            max_tokens=rng.randrange(1, 28),
            temperature=0.9 if draws else 0,
            seed=rng.randrange(2**40) if draws else None,
            ignore_eos=rng.random() < 0.7,
            priority=rng.choice([0, 0, 0, 1, 2, 5]),
            cache_salt=rng.choice([None, None, None, "salt"]),
            prompt_logprobs=rng.choice([None] * 7 + [0]),
        )
        return prompt, params, rng.choice(["", "", "a", "b"])


class Case:
    """One engine, its requests and what may happen to them."""

    def __init__(self, model: str, seed: int, store: str) -> None:
        self.rng = rng = random.Random(seed)
        self.settings = settings_of(rng)
        keeps = self.settings["enable_prefix_caching"] and rng.random() < 0.4
        self.llm = LLM(model, prefix_store=store if keeps else None, **self.settings)
        self.llm._engine.overlap = rng.random() < 0.5
        ageing = rng.choice([4, 40, 512])
        self.llm._scheduler.policy = make_policy(self.settings["scheduling_policy"], ageing)
        self._poison()
        self.requests = Requests(rng, self.settings["num_blocks"] * self.settings["block_size"])
        self.asked: list[tuple[list[int], SamplingParams, RequestOutput]] = []

    def round(self) -> None:
        """Some requests at once or one after the other, some of them cancelled; then all is quiet again."""
        rng = self.rng
        handles: list[tuple[list[int], SamplingParams, Generation]] = []
        hold = threading.Event()
        if rng.random() < 0.5:
            self.llm._engine._inbox.put(lambda: hold.wait(LONG) and None)
        for _ in range(rng.randrange(1, 14)):
            prompt, params, tenant = self.requests.one()
            handles.append((prompt, params, self.llm.submit(prompt, params, tenant=tenant)))
            if rng.random() < 0.15:
                rng.choice(handles)[2].cancel()
            if rng.random() < 0.1:
                hold.set()
                time.sleep(rng.random() * 0.01)
        hold.set()
        if rng.random() < 0.3:
            time.sleep(rng.random() * 0.02)
            rng.choice(handles)[2].cancel()
        self.asked += [(prompt, params, handle.result(LONG)) for prompt, params, handle in handles]
        self._between()

    def _between(self) -> None:
        """All is free or cached; now and then the caches go, or a prefix is kept."""
        llm, rng = self.llm, self.rng
        assert_idle(llm)
        host = llm.host_blocks
        assert host is None or (host.held == 0 and host.free + host.cached == host.total)
        action = rng.random()
        if action < 0.1:
            llm.reset()
        elif action < 0.15:
            llm.sleep(1)
            llm.wake_up()
        elif action < 0.4 and llm.prefixes is not None:
            longest = max((prompt for prompt, _, _ in self.asked), key=len)
            if len(longest) >= 16:  # shorter ones are refused
                llm.save_prefix(longest, pinned=rng.random() < 0.5)
            if rng.random() < 0.5:
                llm.reset()
        llm.check()

    def _poison(self) -> None:
        runner: Any = self.llm._engine.runner
        scheduler, run = self.llm._scheduler, runner.run

        def poisoned(plan: StepPlan, *rest: Any) -> Any:
            free = torch.tensor(list(scheduler.pool.free_blocks), dtype=torch.int64)
            for tensors in runner.cache.layers.values():
                for tensor in tensors:
                    tensor[free] = torch.nan
            free = torch.tensor(list(scheduler.host.pool.free_blocks), dtype=torch.int64)
            for tensor in runner.host._tensors:
                tensor[free] = torch.nan
            return run(plan, *rest)

        runner.run = poisoned


class Judge:
    """An engine that has room, serves one request at a time and shares nothing."""

    def __init__(self, model: str, reference: Reference) -> None:
        self.reference = reference
        self.llm = LLM(model, num_blocks=64, enable_prefix_caching=False, dtype="float32")
        self.ties = 0

    def look(self, prompt: list[int], params: SamplingParams, output: RequestOutput) -> list[str]:
        """What is wrong with an answer, in words."""
        if output.error is not None:
            return [f"{output.request_id} failed: {output.error}"]
        quiet = self.llm.generate([prompt], params, use_tqdm=False)[0]
        wrong = []
        for got, wanted in zip(output.outputs, quiet.outputs, strict=True):
            ids, right = list(got.token_ids), list(wanted.token_ids)
            cut = got.finish_reason == "cancelled"
            if ids != right[: len(ids)] or (not cut and (ids != right or got.finish_reason != wanted.finish_reason)):
                at = next((i for i, (a, b) in enumerate(zip(ids, right, strict=False)) if a != b), len(ids))
                if at < len(ids) and self._tied(prompt, right[:at], (ids[at], right[at]), params, got.index):
                    self.ties += 1
                    continue
                wrong.append(f"{output.request_id}/{got.index} ({got.finish_reason}): {ids}, alone {right}; {params}")
        return wrong

    def _tied(
        self, prompt: list[int], output: list[int], pair: tuple[int, int], params: SamplingParams, index: int
    ) -> bool:
        """Whether both tokens are as good: equal scores, or a draw on the edge between two in the order of ids."""
        scores, (low, high) = self.reference.logprobs(prompt + output)[-1], sorted(pair)
        if not params.temperature:
            return abs(float(scores[low] - scores[high])) < TIE
        edges = torch.softmax(scores / params.temperature, -1).cumsum(-1)
        drawn = float(uniform([params.seed or 0], [index], [len(output)])[0])
        return max(abs(float(edges[low]) - drawn), abs(float(edges[high - 1]) - drawn)) < EDGE


def run(
    model: str, reference: Reference, seed: int, engines: int = 0, seconds: float = 0.0
) -> tuple[Figures, list[str]]:
    """So many engines, or as many as fit into the time; what they did, and what was wrong with it."""
    figures, wrong = Figures(), list[str]()
    judge = Judge(model, reference)
    end, done = time.monotonic() + seconds, 0
    with judge.llm, tempfile.TemporaryDirectory() as folder:
        while (done < engines or time.monotonic() < end) and len(wrong) < 5:
            case_seed = seed * 1_000_000 + done
            case = Case(model, case_seed, f"{folder}/{done // 4}")
            try:
                for _ in range(case.rng.randrange(1, 5)):
                    case.round()
                figures.note(case.llm, [output for _, _, output in case.asked])
                found = [each for asked in case.asked for each in judge.look(*asked)]
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
            finally:
                case.llm.close()
            wrong += [f"engine {case_seed} {case.settings}: {each}" for each in found]
            done += 1
    figures.counts["ties"] = judge.ties
    return figures, wrong
