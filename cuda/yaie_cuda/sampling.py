"""Ops that turn logits into tokens: penalties, and the draw of one token per row."""

from __future__ import annotations

import torch
from torch import Tensor

from . import reference
from .checks import SCALARS, access_width, check_index, check_shape, refuse, scattered, unknown_scalar, unlike
from .kernel import Launcher
from .library import define
from .prepared import Launch, prepared
from .specialisations.sampling import (
    MOST_TOKENS,
    WIDEST,
    penalties_specialisation,
    sample_specialisation,
)


@prepared
def top_k_top_p_sample_kernel(
    launcher: Launcher,
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seed: Tensor,
    counter: Tensor,
    out: Tensor,
) -> tuple[Launch, ...]:
    """As `reference.top_k_top_p_sample`, in one launch. Raises ValueError for what no kernel takes."""
    check_shape("logits", logits, ("rows", "vocab"))
    rows, vocab = logits.shape
    for name, tensor, dtype in (
        ("temperature", temperature, torch.float32),
        ("top_k", top_k, torch.int32),
        ("top_p", top_p, torch.float32),
        ("min_p", min_p, torch.float32),
        ("seed", seed, torch.int64),
        ("counter", counter, torch.int64),
        ("out", out, torch.int64),
    ):
        check_index(name, tensor, dtype, (rows,))
    refuse(unknown_scalar("logits", logits) or scattered("logits", logits))
    if vocab > MOST_TOKENS:
        refuse(f"a vocabulary of {vocab} tokens; kernels take up to {MOST_TOKENS}")
    if not rows:
        return ()
    if not vocab:
        raise ValueError("logits have no columns: there is no token to draw")
    numbers = {"stride": logits.stride(0), "vocab": vocab}
    width = access_width(WIDEST, (logits.stride(0),), (logits,))
    return (Launch(sample_specialisation(SCALARS[logits.dtype], width, vocab), (rows, 1, 1), numbers),)


@prepared
def apply_penalties_kernel(
    launcher: Launcher,
    logits: Tensor,
    token_ids: Tensor,
    counts: Tensor,
    row_starts: Tensor,
    repetition: Tensor,
    presence: Tensor,
    frequency: Tensor,
) -> tuple[Launch, ...]:
    """As `reference.apply_penalties`, in one launch. Raises ValueError for what no kernel takes."""
    check_shape("logits", logits, ("rows", "vocab"))
    rows, vocab = logits.shape
    check_index("token_ids", token_ids, torch.int64, ("n",))
    check_index("counts", counts, torch.float32, token_ids.shape)
    check_index("row_starts", row_starts, torch.int32, (rows + 1,))
    for name, tensor in (("repetition", repetition), ("presence", presence), ("frequency", frequency)):
        check_index(name, tensor, torch.float32, (rows,))
    refuse(unlike("logits", logits, torch.float32, "the arithmetic") or scattered("logits", logits))
    if not rows or not len(token_ids):
        return ()
    numbers = {"stride": logits.stride(0), "vocab": vocab}
    return (Launch(penalties_specialisation(), (rows, 1, 1), numbers),)


define(
    "top_k_top_p_sample(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor seed, "
    "Tensor counter, Tensor(a!) out) -> ()",
    reference=reference.top_k_top_p_sample,
    kernel=top_k_top_p_sample_kernel,
)
define(
    "apply_penalties(Tensor(a!) logits, Tensor token_ids, Tensor counts, Tensor row_starts, Tensor repetition, "
    "Tensor presence, Tensor frequency) -> ()",
    reference=reference.apply_penalties,
    kernel=apply_penalties_kernel,
)
