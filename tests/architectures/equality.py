"""One run of the whole engine against the plain model, with everything that can go wrong switched on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tests.architectures.peers import Answer, greedy, word_tokenizer
from tests.architectures.zoo import VOCAB, Architecture
from yaie_engine import LLM, SamplingParams
from yaie_engine.plan import StepPlan
from yaie_engine.sequence import Sequence

MAX_TOKENS = 10
NEAR_TIE = 1e-4


@dataclass(frozen=True)
class Setting:
    """How the engine runs. `num_blocks` None: enough for all; else so few that running requests are preempted.

    With `num_cpu_blocks` they are swapped out to these.
    """

    name: str
    block_size: int = 4
    chunk: int = 0
    num_blocks: int | None = None
    rounds: int = 1
    backend: str = "auto"
    num_cpu_blocks: int = 0


CPU_KERNELS = Setting("cpu-kernels", block_size=4, chunk=8, num_blocks=24, rounds=2, backend="cpu")
SWAPS = Setting("swaps", block_size=4, chunk=8, num_blocks=24, rounds=2, num_cpu_blocks=200)
COMBINED = Setting("combined", block_size=4, chunk=8, num_blocks=24, rounds=2)
GRID = (
    Setting("batch-4", block_size=4),
    Setting("batch-16", block_size=16),
    Setting("chunks-4", block_size=4, chunk=8),
    Setting("chunks-16", block_size=16, chunk=8),
    Setting("preempt-4", block_size=4, num_blocks=24),
    Setting("preempt-16", block_size=16, num_blocks=5),
    Setting("warm-4", block_size=4, rounds=2),
    Setting("warm-16", block_size=16, rounds=2),
    Setting("all-16", block_size=16, chunk=8, num_blocks=5, rounds=2),
)


@dataclass
class Run:
    """What happened: near ties that differed, and the counts that prove that the paths were taken."""

    tier: str
    shares: bool
    chunks_prefill: bool
    differences: list[str] = field(default_factory=list)
    ties: int = 0
    tokens: int = 0
    preemptions: int = 0
    evictions: int = 0
    swapped: int = 0
    unswapped: int = 0
    copies: int = 0
    chunks: int = 0
    attention_calls: list[dict[int, int]] = field(default_factory=list)
    num_layers: int = 0
    prefill_tokens: int = 0
    admitted_tokens: int = 0
    abandoned_tokens: int = 0


def prompts() -> list[list[int]]:
    """Eight prompts of 12 to 37 tokens: five share 19 tokens, two of these are equal, three stand alone."""
    draw = torch.Generator().manual_seed(5)

    def ids(count: int) -> list[int]:
        return torch.randint(3, VOCAB, (count,), generator=draw).tolist()

    head, tail = ids(19), ids(9)
    return [head + tail, ids(33), head + ids(5), head + tail, ids(12), head + ids(18), ids(26), head[:17] + ids(6)]


def reference(architecture: Architecture, model: Any) -> list[Answer]:
    """The plain model's answers, computed once per architecture."""
    answers: dict[tuple[int, ...], Answer] = {}
    for prompt in prompts():
        if tuple(prompt) not in answers:
            answers[tuple(prompt)] = greedy(model, prompt, MAX_TOKENS)
    return [answers[tuple(prompt)] for prompt in prompts()]


def run(architecture: Architecture, setting: Setting, model: Any, expected: list[Answer]) -> Run:
    """Serve all prompts at once, `rounds` times, and compare."""
    llm = LLM(
        model,
        tokenizer=word_tokenizer(),
        block_size=setting.block_size,
        num_blocks=setting.num_blocks or 512,
        long_prefill_token_threshold=setting.chunk,
        max_num_seqs=8,
        attention_backend=setting.backend,
        num_cpu_blocks=setting.num_cpu_blocks,
        preemption="swap" if setting.num_cpu_blocks else "recompute",
    )
    with llm:
        info = llm.snapshot().model
        result = Run(info.tier, llm._intake.shares, True)
        sequences = _watch(llm, result)
        params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
        for number in range(setting.rounds):
            outputs = llm.generate(prompts(), params, use_tqdm=False)
            for i, (output, answer) in enumerate(zip(outputs, expected, strict=True)):
                if output.error is not None:
                    raise output.error
                _compare(result, f"round {number} prompt {i}", list(output.outputs[0].token_ids), answer)
            llm.check()
        _count(llm, result, sequences)
    return result


def _watch(llm: LLM, result: Run) -> list[Sequence]:
    """Note every sequence that is queued, what preemption cut off, and each step's attention calls per layer."""
    sequences: list[Sequence] = []
    scheduler, runner = llm._scheduler, llm._engine.runner
    add, preempt, forward = scheduler.add, scheduler.preempt, runner.run

    def noting_add(seq: Sequence) -> None:
        sequences.append(seq)
        add(seq)

    def noting_preempt(seq: Sequence) -> None:
        result.abandoned_tokens += max(0, seq.prefill_end - seq.computed)
        preempt(seq)

    def noting_run(plan: StepPlan, prompt_logit_ids: frozenset[int] = frozenset()) -> Any:
        output = forward(plan, prompt_logit_ids)
        result.attention_calls.append(dict(runner.attention_calls))
        return output

    scheduler.add, scheduler.preempt, runner.run = noting_add, noting_preempt, noting_run
    result.num_layers = len(runner.cache.layers)
    result.chunks_prefill = scheduler.limits.chunked_prefill
    return sequences


def _compare(result: Run, where: str, got: list[int], answer: Answer) -> None:
    result.tokens += len(got)
    for position, (ours, theirs) in enumerate(zip(got, answer.token_ids, strict=True)):
        if ours != theirs:
            margin = answer.margins[position]
            if margin < NEAR_TIE:
                result.ties += 1
            else:
                result.differences.append(f"{where} token {position}: {ours}, not {theirs} (margin {margin:.2e})")
            return


def _count(llm: LLM, result: Run, sequences: list[Sequence]) -> None:
    snapshot = llm.snapshot()
    result.preemptions, result.evictions = snapshot.counters.preemptions, snapshot.counters.evictions
    result.copies = snapshot.counters.copies
    if (host := llm.host_blocks) is not None:
        result.swapped, result.unswapped = host.swapped, host.unswapped
    result.prefill_tokens = sum(step.num_prefill_tokens for step in snapshot.steps)
    result.admitted_tokens = sum(one.num_tokens - one.hit for seq in sequences for one in seq.admissions)
    for step in snapshot.steps:
        result.chunks += sum(1 for entry in step.batch if entry.kind == "prefill" and entry.num_tokens == 8)
