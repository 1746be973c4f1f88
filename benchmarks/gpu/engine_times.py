"""Part "speed": decode and prefill of models in the shapes of real ones, with CUDA graphs and without."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from . import fusing
from .clock import Timing
from .context import Context
from .models import LLAMA_8B, QWEN3_600M, SMALL, random_model, saved, weight_bytes, word_tokenizer
from .overlapping import overlap
from .owning import from_folder, from_nowhere
from .yardsticks import copy_bandwidth

RUNS = 3
EAGER_TOKENS = 32
LEAST_S = 15.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A model's shape, and how much is asked of it. `on_disk`: small enough to be written and read as a folder."""

    name: str
    kind: str
    shape: dict[str, Any]
    target: str = ""
    decode_tokens: int = 128
    prompt_tokens: int = 8192
    batch: int = 64
    on_disk: bool = True

    def model(self, device: torch.device) -> Any:
        """Made anew; the same every time."""
        return random_model(self.kind, self.shape, torch.bfloat16, device)

    @property
    def read_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        return weight_bytes(self.model(torch.device("meta")))


SUBJECTS = (
    Subject("8B-shaped Llama", "llama", LLAMA_8B, "decode-8b", on_disk=False),
    Subject("0.6B-shaped Qwen3", "qwen3", QWEN3_600M),
)
TINY = (Subject("small Llama", "llama", SMALL, "decode-8b", decode_tokens=4, prompt_tokens=32, batch=2),)


def run(context: Context) -> None:
    """With graphs first, since the target is about them; without where time is left."""
    bandwidth = copy_bandwidth(context.bench, context.tiny, 3)
    subjects = TINY if context.tiny else SUBJECTS
    eager_too = [] if context.tiny else [replace(each, decode_tokens=EAGER_TOKENS) for each in subjects]
    with tempfile.TemporaryDirectory() as made:
        for eager, subject in [*((False, each) for each in subjects), *((True, each) for each in eager_too)]:
            name = f"{subject.name}, {mode(eager)}"
            if context.left < LEAST_S and not context.tiny:
                context.skip(name, "the time was up")
                continue
            with context.guarded(name):
                measure(context, subject, opener(context, subject, Path(made)), eager, bandwidth)
            free(context)


def opener(context: Context, subject: Subject, folders: Path) -> Callable[..., Any]:
    """What opens an engine that owns the subject's weights; takes the settings of `LLM`."""
    device = context.bench.device
    if not subject.on_disk:
        return lambda **settings: from_nowhere(lambda: subject.model(device), **settings)
    folder = saved(subject.model(device), folders / subject.name)
    return lambda **settings: from_folder(folder, dtype="bfloat16", **settings)


def mode(eager: bool) -> str:
    """For the names of measurements."""
    return "no graphs" if eager else "graphs"


def free(context: Context) -> None:
    """Give the device's memory back."""
    gc.collect()
    if context.bench.device.type == "cuda":
        torch.cuda.empty_cache()


def measure(context: Context, subject: Subject, open_llm: Callable[..., Any], eager: bool, bandwidth: float) -> None:
    """Load, decode alone, decode in a batch, a long prompt."""
    start = time.perf_counter()
    tokens = subject.prompt_tokens + subject.decode_tokens
    blocks = max(subject.batch * (64 + subject.decode_tokens), 2 * tokens) // 16 + 64
    llm = open_llm(
        tokenizer=word_tokenizer(subject.shape["vocab_size"]),
        max_model_len=min(tokens, subject.shape["max_position_embeddings"]),
        num_blocks=blocks,
        max_num_seqs=subject.batch,
        attention_backend="emulated" if context.tiny else "cuda",
        enforce_eager=eager,
        enable_prefix_caching=False,
    )
    with llm:
        name = f"{subject.name}, {mode(eager)}"
        context.figure(f"{name}: load", time.perf_counter() - start, "s")
        fusing.note(context, name, llm, subject.kind, subject.shape["num_hidden_layers"])
        timed(llm, [8] * 2, 2)
        step = decode_timing(llm, 1, subject)
        bound = subject.read_bytes / bandwidth
        share = bound / step.median * 100
        note = f"{share:.0f} % of the bound of {bound * 1e3:.2f} ms"
        target = "" if eager else subject.target
        context.measured(f"{name}: decode, batch 1, per token", step, "ms", note, target, share if target else None)
        if not eager:
            compare(context, llm, f"{name}: decode, batch 1, per token", 1, subject, step)
        step = decode_timing(llm, subject.batch, subject)
        note = f"{subject.batch / step.median:.0f} tokens/s"
        context.measured(f"{name}: decode, batch {subject.batch}, per step", step, "ms", note)
        if not eager:
            compare(context, llm, f"{name}: decode, batch {subject.batch}, per step", subject.batch, subject, step)
        prompt = Timing.of([timed(llm, [subject.prompt_tokens], 1) for _ in range(RUNS)])
        note = f"{subject.prompt_tokens / prompt.median:.0f} tokens/s"
        context.measured(f"{name}: prompt of {subject.prompt_tokens}", prompt, "ms", note)
    free(context)


def compare(context: Context, llm: Any, name: str, batch: int, subject: Subject, overlapped: Timing) -> None:
    """The same decodes with host work in turn with the steps, instead of behind them."""
    with overlap(llm, False):
        turn = decode_timing(llm, batch, subject)
    note = f"{batch / turn.median:.0f} tokens/s; overlapped {turn.median / overlapped.median:.2f} times as fast"
    context.measured(f"{name}, host work in turn", turn, "ms", note)


def decode_timing(llm: Any, batch: int, subject: Subject) -> Timing:
    """Seconds of one decode step of `batch` sequences: a long run less a run of one token."""
    steps = []
    for _ in range(RUNS):
        short = timed(llm, [64 if subject.prompt_tokens > 64 else 8] * batch, 1)
        long = timed(llm, [64 if subject.prompt_tokens > 64 else 8] * batch, 1 + subject.decode_tokens)
        steps.append((long - short) / subject.decode_tokens)
    return Timing.of(steps)


def timed(llm: Any, lengths: list[int], tokens: int) -> float:
    """Seconds until prompts of these lengths have `tokens` tokens each."""
    from yaie_engine import SamplingParams

    prompts = [[3 + (7 * row + 11 * i) % 300 for i in range(length)] for row, length in enumerate(lengths)]
    start = time.perf_counter()
    outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False)
    seconds = time.perf_counter() - start
    for output in outputs:
        if output.error is not None:
            raise output.error
        if len(output.outputs[0].token_ids) != tokens:
            raise ValueError(f"{len(output.outputs[0].token_ids)} tokens came, not {tokens}")
    return seconds
