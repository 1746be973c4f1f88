"""Whether a document is a recording. A file may come from anywhere, so nothing of it is used before all of it is right.

Checked are types, ranges, and references from each step to what the steps before it left.
"""

from __future__ import annotations

from typing import Any

from .recording import FORMAT, MAX_REQUESTS, MAX_STEPS, VERSION
from .recording_walk import Walk
from .schema import Check, RecordingError, fields, listed, maybe, number, one_of, text, whole, wrong

_STATES = ("waiting", "running", "prefill", "decode", "preempted", "swapped", "finished", "cancelled", "failed")
_COUNTS = ("num_prompt_tokens", "num_cached_tokens", "num_output_tokens")
_TIMES = ("submitted_at", "queue_s", "ttft_s", "total_s")
_LONGEST = 10**6
"""Tokens of a request that has more of them than its engine has room for: such a one never ran."""


def check_recording(document: Any) -> dict[str, Any]:
    """The document, when it is a recording in every part.

    Raises:
        RecordingError: it is not.
    """
    parts: dict[str, Check] = {
        "format": one_of(FORMAT),
        "version": whole(VERSION, VERSION),
        "run": text,
        "engine": _engine,
        "base": anything,
        "steps": anything,
        "requests": anything,
        "vocab": _vocab,
    }
    fields("", document, parts)
    blocks, size = document["engine"]["num_blocks"], document["engine"]["block_size"]
    _requests("requests", document["requests"], max(_LONGEST, blocks * size))
    walk = Walk(blocks, size)
    walk.base("base", document["base"])
    steps = document["steps"]
    if not isinstance(steps, list) or len(steps) > MAX_STEPS:
        raise RecordingError(f"steps is not a list of at most {MAX_STEPS} steps")
    for place, step in enumerate(steps):
        walk.step(f"steps[{place}]", step)
    return dict(document)


def anything(where: str, value: Any) -> None:
    """What is checked elsewhere."""


def _engine(where: str, value: Any) -> None:
    words = ("name", "fingerprint", "dtype", "device", "tier", "attention_backend", "state")
    sizes = {"block_size": whole(1, 4096), "num_blocks": whole(0, 10**6)}
    limits = {"max_num_batched_tokens": whole(1), "max_num_seqs": whole(1)}
    fields(where, value, {**dict.fromkeys(words, text), **sizes, **limits})


def _requests(where: str, value: Any, longest: int) -> None:
    if not isinstance(value, dict):
        raise wrong(where, value, "use an object")
    if len(value) > MAX_REQUESTS:
        raise RecordingError(f"{where} has {len(value):,} requests, and a recording has at most {MAX_REQUESTS:,}")
    checks: dict[str, Check] = {"text": text, "state": one_of(*_STATES), "stop_reason": _stop_reason}
    checks |= dict.fromkeys(("finish_reason", "error"), maybe(text))
    checks |= dict.fromkeys(_COUNTS, maybe(whole(0, longest)))
    checks |= dict.fromkeys(_TIMES, maybe(number))
    for label, facts in value.items():
        text(f"a label in {where}", label)
        fields(f"{where}[{label[:40]!r}]", facts, checks)


def _stop_reason(where: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        whole()(where, value)
    elif value is not None:
        text(where, value)


def _vocab(where: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise wrong(where, value, "use an object")
    for key, token in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 9):
            raise wrong(f"a key in {where}", key, "use token ids")
        if isinstance(token, list):
            listed(whole(0, 255))(f"{where}[{key}]", token)
        else:
            text(f"{where}[{key}]", token)
