"""Row 4: greedy answers of the engine, however it is set up, against transformers' `generate`, one prompt at a time."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tests.engine.models import EOS, save_model
from yaie_engine import LLM, SamplingParams

from .figure import Figure

MOST_TOKENS = 24
NEAR_TIE = 1e-4
"""Of two logits: closer ones may be told apart differently by sums in another order. They are counted."""
BATCH = 30
ENGINES: dict[str, dict[str, Any]] = {
    "one block size": {"block_size": 16, "num_blocks": 256},
    "small blocks and chunks": {"block_size": 4, "num_blocks": 1024, "long_prefill_token_threshold": 8},
    "a pool that must preempt": {"block_size": 4, "num_blocks": 40, "max_num_seqs": 16},
    "swapping to the host": {"block_size": 4, "num_blocks": 40, "num_cpu_blocks": 64, "preemption": "swap"},
    "no cache": {"block_size": 8, "num_blocks": 512, "enable_prefix_caching": False},
    "longest prefix first, steps overlapped": {"block_size": 2, "num_blocks": 600, "scheduling_policy": "lpm"},
}


@dataclass(frozen=True)
class Answer:
    """What the plain model says, and how far the best logit was from the second at each token."""

    token_ids: list[int]
    margins: list[float]


def prompts(count: int, chance: random.Random) -> list[list[int]]:
    """Half of them begin as others do, at lengths that end inside of blocks."""
    heads = [[chance.randrange(3, 250) for _ in range(40)] for _ in range(4)]
    found = []
    for _ in range(count):
        head = chance.choice(heads)[: chance.randrange(1, 41)] if chance.random() < 0.5 else []
        found.append(head + [chance.randrange(3, 250) for _ in range(chance.randrange(1, 40))])
    return found


def plain(model: Any, prompt: list[int], most: int) -> Answer:
    """By `generate`."""
    given = torch.tensor([prompt])
    with torch.inference_mode():
        said = model.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=most, do_sample=False, pad_token_id=EOS,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    best = [logits[0].topk(2).values for logits in said.logits]
    return Answer(said.sequences[0, len(prompt) :].tolist(), [float(two[0] - two[1]) for two in best])


def compare(got: list[int], wanted: Answer) -> str:
    """ "equal", "tie" or where they part."""
    if got == wanted.token_ids:
        return "equal"
    at = next((i for i, pair in enumerate(zip(got, wanted.token_ids, strict=False)) if pair[0] != pair[1]), None)
    if at is not None and wanted.margins[at] < NEAR_TIE:
        return "tie"
    return f"{got} is not {wanted.token_ids}"


def differences(folder: Path, setting: str, asked: list[list[int]], lengths: list[int], wanted: list[Answer]) -> Any:
    """The verdict of each prompt under one setting; some are asked twice, so that what is cached answers too."""
    with LLM(str(folder), dtype="float32", **ENGINES[setting]) as llm:
        llm._engine.overlap = "overlapped" in setting
        verdicts = []
        for first in range(0, len(asked), BATCH):
            mine = list(range(first, min(first + BATCH, len(asked))))
            mine += mine[::3]
            params = [SamplingParams(temperature=0, max_tokens=lengths[i]) for i in mine]
            outputs = llm.generate([asked[i] for i in mine], params, use_tqdm=False)
            for i, output in zip(mine, outputs, strict=True):
                verdicts.append(compare(list(output.outputs[0].token_ids), wanted[i]))
            llm.check()
        return verdicts, llm.snapshot().counters


def greedy_equality(size: int, seed: int) -> Figure:
    """`size` prompts under each of six settings."""
    torch.set_num_threads(1)
    chance = random.Random(seed)
    asked = prompts(size, chance)
    lengths = [chance.randrange(1, MOST_TOKENS + 1) for _ in asked]
    faults, ties, tokens, preempted, copied = [], 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = save_model(Path(name))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        wanted = [plain(model, prompt, most) for prompt, most in zip(asked, lengths, strict=True)]
        for setting in ENGINES:
            verdicts, counters = differences(folder, setting, asked, lengths, wanted)
            ties += verdicts.count("tie")
            faults += [f"{setting}: {verdict}"[:300] for verdict in verdicts if verdict not in ("equal", "tie")]
            tokens += counters.generated_tokens
            preempted, copied = preempted + counters.preemptions, copied + counters.copies
    beside = f"{tokens:,} tokens, {preempted} preemptions, {copied} blocks copied, {ties} near ties"
    return Figure(f"{size} prompts x {len(ENGINES)}", f"{len(faults)} differences; {beside}", tuple(faults))
