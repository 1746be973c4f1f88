"""Part "engine": the whole engine against plain transformers, on a small model, in every way that it can run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import exchange_checks, fusing, pair_checks
from .context import Context
from .models import SMALL, random_model, saved, word_tokenizer
from .overlapping import overlap
from .owning import from_folder

TOKENS, TINY_TOKENS = 24, 4
# How far below the best logit of the plain float32 model the chosen one may be, in standard deviations of the logits.
MOST_DEFICIT = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the engine; `settings` are those of `LLM`, `kind` is "llama" or "qwen3"."""

    name: str
    dtype: torch.dtype
    settings: dict[str, Any]
    kind: str = "llama"

    @property
    def dtype_name(self) -> str:
        """ "bfloat16"."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def kernels(self) -> bool:
        """Whether it runs on kernels."""
        return self.settings.get("attention_backend") in ("cuda", "emulated")


def ways(context: Context) -> Iterator[Way]:
    """Reference and kernels, graphs and none, roomy and cramped."""
    roomy = {"num_blocks": 512, "max_num_seqs": 8}
    cramped = {"num_blocks": 20, "max_num_seqs": 8, "long_prefill_token_threshold": 16}
    kernels = {"attention_backend": "emulated" if context.tiny else "cuda"}
    if context.tiny:
        yield Way("float32, reference", torch.float32, {**roomy, "attention_backend": "reference"})
        yield Way("bfloat16, kernels", torch.bfloat16, {**roomy, **kernels})
        return
    yield Way("float32, reference", torch.float32, roomy)
    yield Way("float32, reference, cramped", torch.float32, cramped)
    yield Way("bfloat16, kernels, graphs", torch.bfloat16, {**roomy, **kernels})
    yield Way("bfloat16, kernels, no graphs", torch.bfloat16, {**roomy, **kernels, "enforce_eager": True})
    yield Way("bfloat16, kernels, graphs, cramped", torch.bfloat16, {**cramped, **kernels})
    yield Way("float16, kernels, graphs", torch.float16, {**roomy, **kernels})
    yield Way("bfloat16, kernels, blocks of 32", torch.bfloat16, {**roomy, **kernels, "block_size": 32})
    yield Way("Qwen3, float32, reference", torch.float32, roomy, "qwen3")
    yield Way("Qwen3, bfloat16, kernels, graphs", torch.bfloat16, {**roomy, **kernels}, "qwen3")


def run(context: Context) -> None:
    """Every token of every way; graphs against none; an exchanged kernel; two engines at once."""
    with tempfile.TemporaryDirectory() as made:
        folders = Path(made)
        check_ways(context, folders)
        small = {kind: model_folder(context, folders, Way("", torch.bfloat16, {}, kind)) for kind in ("llama", "qwen3")}
        exchange_checks.run(context, small["llama"])
        pair_checks.run(context, small)


def model_folder(context: Context, folders: Path, way: Way) -> Path:
    """The folder of the model of `way`: its seeded float32 weights, rounded."""
    model = random_model(way.kind, SMALL, torch.float32, context.bench.device).to(way.dtype)
    return saved(model, folders / f"{way.kind}-{way.dtype_name}")


def check_ways(context: Context, folders: Path) -> None:
    """Every token of every way is held against the plain model; then graphs against none."""
    device, answers = context.bench.device, {}
    for way in ways(context):
        with context.guarded(f"engine, {way.name}"):
            got, facts = generate(context, model_folder(context, folders, way), way)
            answers[way.name] = got
            # The plain model has the same rounded weights, so that only the arithmetic differs.
            plain = random_model(way.kind, SMALL, torch.float32, device)
            plain.load_state_dict({name: value.to(way.dtype).float() for name, value in plain.state_dict().items()})
            worst, best = deficit(plain, got, device)
            total = sum(len(tokens) for _, tokens in got)
            detail = f"{best} of {total} tokens are its best, the worst {worst:.1e} below; {facts}"
            context.check(f"engine equals transformers, {way.name}", worst <= MOST_DEFICIT[way.dtype], detail)
    graphs, eager = (answers.get(f"bfloat16, kernels, {how}") for how in ("graphs", "no graphs"))
    if graphs and eager:
        same = sum(a == b for a, b in zip(graphs, eager, strict=True))
        context.fact("answers that are equal with and without graphs", f"{same} of {len(graphs)}")


def prompts(vocab: int) -> list[list[int]]:
    """Eight prompts of 12 to 60 tokens; five share their beginning, two are equal."""
    draw = torch.Generator().manual_seed(5)

    def ids(count: int) -> list[int]:
        return [int(token) for token in torch.randint(3, vocab, (count,), generator=draw)]

    head, tail = ids(40), ids(9)
    return [head + tail, ids(33), head + ids(5), head + tail, ids(12), head + ids(20), ids(26), head[:17] + ids(6)]


def generate(context: Context, folder: Path, way: Way) -> tuple[list[tuple[list[int], list[int]]], str]:
    """Greedy answers to all prompts at once, as (prompt, answer), and how the engine says that it ran.

    Once with host work behind the running steps, once in turn: the first answers count; how many are equal is noted.
    """
    vocab: int = SMALL["vocab_size"]
    asked, tokens = prompts(vocab), TINY_TOKENS if context.tiny else TOKENS
    settings = {"tokenizer": word_tokenizer(vocab), "dtype": way.dtype_name, "max_model_len": 256, **way.settings}
    with from_folder(folder, device=context.bench.device.type, **settings) as llm:
        fusing.note(context, way.name, llm, way.kind, SMALL["num_hidden_layers"], way.kernels)
        answers, in_turn = (answers_of(llm, asked, tokens, overlapped) for overlapped in (True, False))
        info = llm.snapshot().model
    same = sum(a == b for a, b in zip(answers, in_turn, strict=True))
    return answers, f"{info.tier} tier, {info.attention_backend} attention, {same} of {len(asked)} the same in turn"


def answers_of(llm: Any, asked: list[list[int]], tokens: int, overlapped: bool) -> list[tuple[list[int], list[int]]]:
    """From an empty cache, so that every run computes the same chunks."""
    from yaie_engine import SamplingParams

    llm.reset()
    with overlap(llm, overlapped):
        outputs = llm.generate(asked, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False)
    llm.check()
    answers = []
    for prompt, output in zip(asked, outputs, strict=True):
        if output.error is not None:
            raise output.error
        answers.append((prompt, list(output.outputs[0].token_ids)))
    return answers


def deficit(plain: Any, answers: list[tuple[list[int], list[int]]], device: torch.device) -> tuple[float, int]:
    """How far the worst token is below the plain model's best, in standard deviations; and how many are its best.

    The plain model reads prompt and answer as one sequence, so that each token is judged after those that came before.
    """
    worst, best = 0.0, 0
    for prompt, answer in answers:
        ids = torch.tensor([prompt + answer], device=device)
        with torch.inference_mode():
            logits: Tensor = plain(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        chosen = logits.gather(1, torch.tensor(answer, device=device).unsqueeze(1)).squeeze(1)
        below = (logits.amax(1) - chosen) / logits.std(1)
        worst = max(worst, float(below.max()))
        best += int((below == 0).sum())
    return worst, best
