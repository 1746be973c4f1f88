"""A model object from the caller becomes ours without being touched: a second structure over the same weights."""

from __future__ import annotations

import copy
from typing import Any

import torch

from yaie_engine.errors import ModelLoadError

from .weights import first_line

SMALL_BUFFER = 2**20


def structural_clone(model: Any) -> Any:
    """A copy of `model`'s modules and configuration that shares its parameters, in eval mode.

    Buffers up to 1 MiB are copied (rotary frequencies are replaced when they are frozen); larger ones, such as packed
    quantised weights, are shared. The original keeps its attention implementation, mode, hooks and RoPE.

    Raises:
        ModelLoadError: something in the object cannot be copied.
    """
    memo: dict[int, Any] = {id(weight): weight for weight in model.parameters()}
    for buffer in model.buffers():
        if buffer.nbytes > SMALL_BUFFER:
            memo[id(buffer)] = buffer
    try:
        with torch.no_grad():
            return copy.deepcopy(model, memo).eval()
    except (TypeError, RuntimeError, AttributeError) as error:
        raise ModelLoadError(
            f"the model object cannot be copied ({first_line(error)}): save it with save_pretrained and load the folder"
        ) from error
