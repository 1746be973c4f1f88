"""Whether a document is a recording. A file may come from anywhere, so nothing of it is used before all of it is right.

Checked are types, ranges, and references from each step to what the steps before it left.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from .recording import FORMAT, MAX_REQUESTS, MAX_STEPS, MODEL, VERSION
from .recording_walk import Walk
from .schema import Check, RecordingError, fields, listed, maybe, number, one_of, text, whole, wrong

_STATES = ("waiting", "running", "prefill", "decode", "preempted", "swapped", "finished", "cancelled", "failed")
_COUNTS = ("num_prompt_tokens", "num_cached_tokens", "num_output_tokens")
_TIMES = ("submitted_at", "queue_s", "ttft_s", "total_s")
NUM_FACTS = 5 + len(_COUNTS) + len(_TIMES)
"""What a recording tells of each request."""
_LONGEST = 10**6
"""Tokens of a request that has more of them than its engine has room for: such a one never ran."""


def check_recording(document: Any) -> dict[str, Any]:
    """The document, when it is a recording in every part.

    Raises:
        RecordingError: it is not.
    """
    RecordingCheck(document)
    return dict(document)


class RecordingCheck:
    """Checks a recording when it is made, and then what comes after it, step by step."""

    def __init__(self, document: Any) -> None:
        """
        Raises:
            RecordingError: the document is no recording.
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
        self._longest = max(_LONGEST, blocks * size)
        _requests("requests", document["requests"], self._longest)
        self._walk = Walk(blocks, size)
        self._walk.base("base", document["base"])
        self._steps(document["steps"])

    def delta(self, document: Any) -> None:
        """Raise RecordingError when this does not follow what was checked before."""
        engine = partial(_engine, partly=True)
        parts: dict[str, Check] = {"steps": anything, "requests": anything, "vocab": _vocab, "engine": engine}
        fields("", document, parts)
        _requests("requests", document["requests"], self._longest, partly=True)
        self._steps(document["steps"])

    def _steps(self, steps: Any) -> None:
        if not isinstance(steps, list) or len(steps) > MAX_STEPS:
            raise RecordingError(f"steps is not a list of at most {MAX_STEPS} steps")
        for place, step in enumerate(steps):
            self._walk.step(f"steps[{place}]", step)


def anything(where: str, value: Any) -> None:
    """What is checked elsewhere."""


def _engine(where: str, value: Any, partly: bool = False) -> None:
    sizes = {"block_size": whole(1, 4096), "num_blocks": whole(0, 10**6)}
    limits = {"max_num_batched_tokens": whole(1), "max_num_seqs": whole(1)}
    checks: dict[str, Check] = {**dict.fromkeys((*MODEL, "state"), text), **sizes, **limits}
    fields(where, value, checks, checks if partly else ())


def _requests(where: str, value: Any, longest: int, partly: bool = False) -> None:
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
        fields(f"{where}[{label[:40]!r}]", facts, checks, checks if partly else ())


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
