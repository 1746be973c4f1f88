"""What the engine remembers of an ended request, for `explain` and `history`. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from .outputs import Reuse


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The life of one request in numbers.

    `matched` lists (node id, tokens taken from it) along the path of the first admission's match; `blocks_shared` are
    the blocks taken by reference, `blocks_owned` the ones it allocated, `copied` the (source, destination) of a
    partial-block copy; `reuse` says where cached tokens came from. Times are seconds; steps are engine step numbers,
    None when the request never ran.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    stop_reasons: tuple[str | int | None, ...]
    error: str | None
    num_cached_tokens: int
    matched: tuple[tuple[int, int], ...]
    blocks_shared: tuple[int, ...]
    blocks_owned: tuple[int, ...]
    copied: tuple[int, int] | None
    first_step: int | None
    last_step: int | None
    num_prefill_steps: int
    num_decode_steps: int
    num_preemptions: int
    queue_s: float
    prefill_s: float
    decode_s: float
    total_s: float
    submitted_at: float
    reuse: Reuse = "none"
