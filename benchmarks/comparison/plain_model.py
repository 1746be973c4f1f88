"""The model as transformers loads it, for the peers made of transformers and for the judge of outputs."""

from __future__ import annotations

from typing import Any

from .peer import Setup


def load(setup: Setup) -> Any:
    """The model in eval mode, quiet, greedy, without a token that ends a text. Gradients are off in this process."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call, unused-ignore]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
    torch.set_num_threads(setup.threads)
    torch.set_grad_enabled(False)
    dtype = getattr(torch, setup.dtype)
    model = AutoModelForCausalLM.from_pretrained(setup.model, dtype=dtype, attn_implementation="sdpa").eval()
    model.generation_config = GenerationConfig(bos_token_id=None, pad_token_id=0, eos_token_id=None, do_sample=False)
    return model
