"""An engine that runs one sequence at a time, so that equal requests take equal steps and get equal tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .context import Context
from .models import SMALL, word_tokenizer
from .owning import from_folder

PROMPTS = ([5, 9, 23, 41, 7, 99, 180], [300, 17, 17, 4, 260, 33, 8, 61, 75, 140, 12])
TOKENS, TINY_TOKENS = 64, 3


def engine(context: Context, folder: Path) -> Any:
    """On a bfloat16 model of shape SMALL, on kernels; nothing of a request is kept for the next one."""
    return from_folder(
        folder,
        tokenizer=word_tokenizer(SMALL["vocab_size"]),
        dtype="bfloat16",
        max_model_len=256,
        num_blocks=32,
        max_num_seqs=1,
        enable_prefix_caching=False,
        attention_backend="emulated" if context.tiny else "cuda",
    )


def answers(context: Context, llm: Any) -> list[list[int]]:
    """Greedy tokens, one list per prompt."""
    from yaie_engine import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=TINY_TOKENS if context.tiny else TOKENS, ignore_eos=True)
    found = []
    for output in llm.generate([list(prompt) for prompt in PROMPTS], params, use_tqdm=False):
        if output.error is not None:
            raise output.error
        found.append(list(output.outputs[0].token_ids))
    return found
