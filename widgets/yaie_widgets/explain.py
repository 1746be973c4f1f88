"""A request in plain words and figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot

from .explain_cache import explain_block, explain_node
from .explanation import Explanation, Row
from .figures import count, counted, ranges, seconds
from .prompt_split import Decode, Split, find_split
from .safe_text import excerpt, shorten

__all__ = ["explain_block", "explain_node", "explain_request"]
_QUOTE = 60
_SOURCES = {
    "host": "they came back from host blocks for this request",
    "store": "they were read from the prefix store for this request",
}
"""How the tree came to have cached tokens that this very request brought there."""


def explain_request(
    record: RequestRecord,
    previous: RequestRecord | None,
    snapshot: EngineSnapshot,
    *,
    decode: Decode | None = None,
) -> Explanation:
    """What a request cost, where its cached tokens came from, why it stopped, and where it parts from `previous`.

    `decode` turns token ids into text; with it the text around the split is exact to the token.
    """
    split = find_split(record, previous, decode) if previous else None
    rows = [*_facts(record, snapshot), *(_comparison(record, previous, split) if previous and split else ())]
    reasons = ", ".join(record.finish_reasons)
    title = f"Request {shorten(record.request_id, 40)} · {reasons} · {counted(_output_tokens(record), 'output token')}"
    return Explanation("request", title, tuple(rows), _data(record, previous, split))


def _output_tokens(record: RequestRecord) -> int:
    return sum(len(ids) for ids in record.output_token_ids)


def _facts(record: RequestRecord, snapshot: EngineSnapshot) -> Iterator[Row]:
    yield Row("Tokens", _tokens(record))
    yield from _sources(record, snapshot)
    yield from _blocks(record)
    yield Row("Steps", _steps(record))
    phases = (("queue", record.queue_s), ("prefill", record.prefill_s), ("decode", record.decode_s))
    yield Row("Time", " · ".join(f"{name} {seconds(s)}" for name, s in (*phases, ("total", record.total_s))))
    yield Row("Preempted", counted(record.num_preemptions, "time"))
    for index in range(len(record.finish_reasons)):
        yield Row("End" if len(record.finish_reasons) == 1 else f"End of choice {index}", _end(record, index))


def _tokens(record: RequestRecord) -> str:
    total = len(record.prompt_token_ids)
    computed = total - record.num_cached_tokens
    words = f"{counted(total, 'prompt token')}: {count(record.num_cached_tokens)} cached, {count(computed)} computed"
    choices = len(record.output_token_ids)
    output = counted(_output_tokens(record), "output token") + (f" in {choices} choices" if choices > 1 else "")
    return f"{words} · {output}"


def _sources(record: RequestRecord, snapshot: EngineSnapshot) -> Iterator[Row]:
    if record.reuse == "state":  # its nodes went with the request before: the state alone is kept
        yield Row("Cache", f"{counted(record.num_cached_tokens, 'token')} are those of a whole state that was kept")
        return
    if not record.matched:
        yield Row("Cache", "no token of the prompt was in the cache")
    nodes = {node.id: node for node in snapshot.tree}
    for node_id, taken in record.matched:
        node = nodes.get(node_id)
        text = excerpt(node.text, _QUOTE) if node else "no longer in the tree"
        yield Row("Cache", f"{counted(taken, 'token')} from node {node_id}: {text}", quote=node is not None)
    if record.matched and record.reuse in _SOURCES:
        yield Row("", _SOURCES[record.reuse])


def _blocks(record: RequestRecord) -> Iterator[Row]:
    for verb, blocks in (("taken by reference", record.blocks_shared), ("allocated", record.blocks_owned)):
        if blocks:
            yield Row("Blocks", f"{count(len(blocks))} {verb}: {ranges(blocks)}")
    if record.copied:
        source, target = record.copied
        yield Row("Blocks", f"block {source} copied to {target}: the match ended inside it")


def _steps(record: RequestRecord) -> str:
    if record.first_step is None or record.last_step is None:
        return "none: it never ran"
    spent = f"{counted(record.num_prefill_steps, 'prefill step')}, {counted(record.num_decode_steps, 'decode step')}"
    return f"{spent}, from step {count(record.first_step)} to {count(record.last_step)}"


def _end(record: RequestRecord, index: int) -> str:
    reason, stop = record.finish_reasons[index], record.stop_reasons[index]
    if reason == "stop":
        if isinstance(stop, str):
            return f"stop: the stop string {shorten(stop, 40)!r} appeared"
        return f"stop: token {stop} is a stop token" if stop is not None else "stop: the model ended its answer"
    if reason == "length":
        limit = len(record.output_token_ids[index]) if index < len(record.output_token_ids) else 0
        return f"length: the limit of {counted(limit, 'output token')} was reached"
    if reason == "cancelled":
        return "cancelled: it was stopped from outside; what it had written is kept"
    return f"failed: {record.error or stop or reason}"


def _comparison(record: RequestRecord, previous: RequestRecord, split: Split) -> Iterator[Row]:
    name, total = shorten(previous.request_id, 24), len(record.prompt_token_ids)
    if split.answer_tokens:
        asked = len(previous.prompt_token_ids)
        words = (
            f"goes on from {name}: its {counted(asked, 'prompt token')} and {count(split.answer_tokens)} of its answer"
        )
        yield Row("Compared", f"{words} begin this prompt")
    elif split.tokens == total == len(previous.prompt_token_ids):
        yield Row("Compared", f"the same prompt as {name}: all {counted(total, 'token')} are equal")
        return
    else:
        equal = f"{count(split.tokens)} of {counted(total, 'token')} are equal"
        yield Row("Compared", f"with {name}: {equal}; the prompts part at token {count(split.tokens + 1)}")
    if not split.tokens:
        return
    cached = min(record.num_cached_tokens, split.tokens)
    yield Row("", f"of these {count(split.tokens)}, {count(cached)} came from the cache")
    yield Row("  both", split.before or "nothing", quote=True)
    yield Row("  this", split.this or "ends here", quote=True)
    yield Row(f"  {name}", split.other or "ends here", quote=True)


def _data(record: RequestRecord, previous: RequestRecord | None, split: Split | None) -> dict[str, Any]:
    compared = None
    if previous and split:
        compared = {
            "request_id": previous.request_id,
            "equal_tokens": split.tokens,
            "equal_answer_tokens": split.answer_tokens,
            "before": split.before,
            "this": split.this,
            "other": split.other,
        }
    return {
        "request_id": record.request_id,
        "num_prompt_tokens": len(record.prompt_token_ids),
        "num_cached_tokens": record.num_cached_tokens,
        "num_computed_tokens": len(record.prompt_token_ids) - record.num_cached_tokens,
        "num_output_tokens": [len(ids) for ids in record.output_token_ids],
        "matched": [{"node": node, "num_tokens": taken} for node, taken in record.matched],
        "blocks": {
            "shared": list(record.blocks_shared),
            "owned": list(record.blocks_owned),
            "copied": list(record.copied) if record.copied else None,
        },
        "steps": {
            "first": record.first_step,
            "last": record.last_step,
            "prefill": record.num_prefill_steps,
            "decode": record.num_decode_steps,
        },
        "time": {
            "queue_s": record.queue_s,
            "prefill_s": record.prefill_s,
            "decode_s": record.decode_s,
            "total_s": record.total_s,
        },
        "num_preemptions": record.num_preemptions,
        "reuse": record.reuse,
        "finish_reasons": list(record.finish_reasons),
        "stop_reasons": list(record.stop_reasons),
        "error": record.error,
        "compared": compared,
    }
