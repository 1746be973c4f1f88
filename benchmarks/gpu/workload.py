"""Part "workload": the benchmark of nano-vllm (its bench.py), by this engine and by transformers in the same process.

Prompts of 100 to 1024 random tokens, as many to generate, temperature 0.6, a 0.6B-shaped Qwen3. The same requests go to
both, all at once; the figure is the tokens asked for over the seconds until the last one is there.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import fusing
from .context import Context
from .engine_times import free
from .models import QWEN3_600M, SMALL, random_model, saved, word_tokenizer
from .owning import from_folder

REQUESTS, QUICK_REQUESTS = 256, 64
SHORTEST, LONGEST = 100, 1024
TEMPERATURE = 0.6
SPARE_S = 6.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    prompt: list[int]
    tokens: int


def asks(count: int, shortest: int, longest: int, vocab: int) -> list[Ask]:
    """The same every time, as in nano-vllm's bench.py (seed 0)."""
    draw = random.Random(0)
    return [
        Ask([draw.randrange(3, vocab) for _ in range(draw.randint(shortest, longest))], draw.randint(shortest, longest))
        for _ in range(count)
    ]


def run(context: Context) -> None:
    """Ours, then theirs in the time that is left."""
    shape: dict[str, Any] = SMALL if context.tiny else QWEN3_600M
    count = 3 if context.tiny else QUICK_REQUESTS if context.quick else REQUESTS
    shortest, longest = (4, 8) if context.tiny else (SHORTEST, LONGEST)
    # Ids that both vocabularies hold; a random model does not care.
    requests = asks(count, shortest, longest, min(shape["vocab_size"], 10_000))
    total = sum(each.tokens for each in requests)
    model = random_model("qwen3", shape, torch.bfloat16, context.bench.device)
    with context.guarded("workload, this engine"):
        with tempfile.TemporaryDirectory() as made:
            seconds = ours(context, saved(model, Path(made)), requests, shape)
        free(context)
        rate = total / seconds
        context.figure(f"workload of {count} requests, this engine", rate, "tokens/s", f"{total} in {seconds:.1f} s")
        with context.guarded("workload, transformers"):
            compare(context, model, requests, rate)


def compare(context: Context, model: Any, requests: list[Ask], rate: float) -> None:
    """Theirs. Where they do not finish in time they are counted as if they had: the figure is then a lower bound."""
    total = sum(each.tokens for each in requests)
    limit = 30.0 if context.tiny else context.left - SPARE_S

    def tell(seconds: float, ended: int) -> None:
        theirs_rate = total / seconds
        note = f"{total} in {seconds:.1f} s"
        if ended < len(requests):
            note = f"only {ended} of {len(requests)} ended in {seconds:.0f} s; counted as if all had"
        context.figure(f"workload of {len(requests)} requests, transformers", theirs_rate, "tokens/s", note)
        context.figure("workload, this engine over transformers", rate / theirs_rate, "times", target="workload")

    theirs(model, requests, limit, tell, small=context.tiny)


def ours(context: Context, folder: Path, requests: list[Ask], shape: dict[str, Any]) -> float:
    """Seconds of this engine. A short run goes before, which loads and allocates what a long one needs."""
    from yaie_engine import SamplingParams

    longest = max(len(each.prompt) + each.tokens for each in requests)
    llm = from_folder(
        folder,
        tokenizer=word_tokenizer(shape["vocab_size"]),
        dtype="bfloat16",
        max_model_len=longest,
        max_num_seqs=len(requests),
        num_blocks=sum(-(-(len(each.prompt) + each.tokens) // 16) for each in requests) + len(requests),
        attention_backend="emulated" if context.tiny else "cuda",
    )

    def params(tokens: int) -> Any:
        return SamplingParams(temperature=TEMPERATURE, max_tokens=tokens, ignore_eos=True)

    with llm:
        fusing.note(context, "workload", llm, "qwen3", shape["num_hidden_layers"])
        llm.generate([each.prompt[:16] for each in requests[:4]], params(4), use_tqdm=False)
        start = time.perf_counter()
        outputs = llm.generate(
            [each.prompt for each in requests], [params(each.tokens) for each in requests], use_tqdm=False
        )
        seconds = time.perf_counter() - start
    for each, output in zip(requests, outputs, strict=True):
        if output.error is not None:
            raise output.error
        if len(output.outputs[0].token_ids) != each.tokens:
            raise ValueError(f"{len(output.outputs[0].token_ids)} tokens came, not {each.tokens}")
    return seconds


def theirs(
    model: Any, requests: list[Ask], limit: float, tell: Callable[[float, int], None], small: bool = False
) -> None:
    """Transformers' continuous batching as it sets itself up; `small` keeps it from taking a machine's memory.

    `tell` hears its seconds, at most `limit`, and how many requests had ended by then; it hears them before the
    batching is shut down, which may take as long again.
    """
    from transformers import ContinuousBatchingConfig, GenerationConfig

    config = GenerationConfig(do_sample=True, temperature=TEMPERATURE, top_k=0, eos_token_id=-1, pad_token_id=0)
    room = ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64) if small else None
    with model.continuous_batching_context_manager(
        generation_config=config, continuous_batching_config=room, timeout=3.0
    ) as manager:
        _serve(manager, [Ask(each.prompt[:16], 4) for each in requests[:4]], limit)
        tell(*_serve(manager, requests, limit))


def _serve(manager: Any, requests: list[Ask], limit: float) -> tuple[float, int]:
    """Seconds until all requests ended, or `limit`; and how many did. Raises RuntimeError when it fails."""
    start = time.perf_counter()
    for each in requests:
        manager.add_request(each.prompt, max_new_tokens=each.tokens)
    ended = 0
    while ended < len(requests) and (left := start + limit - time.perf_counter()) > 0:
        output = manager.get_result(timeout=min(left, 1.0))
        if output is None and not manager.is_running():
            raise RuntimeError("transformers' continuous batching stopped by itself; the log says why")
        if output is not None and output.error:
            raise RuntimeError(f"transformers' continuous batching: {output.error}")
        ended += output is not None and output.is_finished()
    return time.perf_counter() - start, ended
