"""Every fuzz target by its name. A target takes bytes and raises where a promise is broken; refusals are no faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import files, remote, store, text

Target = Callable[[bytes], None]
CORPUS = Path(__file__).with_name("corpus")
TARGETS: dict[str, Target] = {
    "batch_lines": text.batch_lines,
    "config_screen": files.config_screen,
    "detokenizer": text.detokenizer,
    "dot_escape": text.dot_escape,
    "event_stream": text.event_stream,
    "gguf_head": files.gguf_head,
    "host": text.host,
    "magic_line": text.magic_line,
    "messages": text.messages,
    "metrics": remote.metrics,
    "model_cards": remote.model_cards,
    "openai_schema": text.openai_schema,
    "recording": files.recording,
    "remote_answer": remote.remote_answer,
    "snapshot": remote.snapshot,
    "stop_matcher": text.stop_matcher,
    "store_record": store.store_record,
    "store_state": store.store_state,
    "tensor_header": files.tensor_header,
    "trace": files.trace,
}


def corpus(name: str) -> list[Path]:
    """The inputs that are kept for a target: seeds, and what once broke it."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
