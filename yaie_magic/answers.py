"""From a finished request to an answer that can be inspected: token texts, log-probabilities, blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from yaie_widgets.inspection import Answer, Blocks, Origin, Reading, read_rows, read_tokens

if TYPE_CHECKING:
    from yaie_engine import CompletionOutput, RequestOutput
    from yaie_engine.outputs import Logprobs
    from yaie_engine.record import RequestRecord
    from yaie_engine.serving import Engine

UNLOADED = "Its engine was unloaded: token texts are those recorded with log probabilities."
FORGOTTEN = "The history keeps no log probabilities; inspect the result itself."


def answer_of(output: RequestOutput, index: int, llm: Engine | None) -> Answer:
    """One choice of an ended request. Without its engine, `llm`, token texts are known from log-probabilities alone."""
    choice = output.outputs[index]
    size = None if llm is None else llm.vocab_size
    return Answer(
        name=label(output.request_id, index),
        prompt=output.prompt_token_ids,
        output=choice.token_ids,
        cached=output.num_cached_tokens,
        rows=read_rows(choice.logprobs, size),
        prompt_rows=read_rows(output.prompt_logprobs, size),
        reason=choice.finish_reason,
        error="" if output.error is None else str(output.error),
        blocks=None if llm is None else blocks_of(llm, output, index),
        readings=_readings(output, choice, llm),
        notes=() if llm is not None else (UNLOADED,),
    )


def answer_of_record(record: RequestRecord, index: int, llm: Engine) -> Answer:
    """One choice of a request that only the engine's history remembers."""
    output = record.output_token_ids[index]
    return Answer(
        name=label(record.request_id, index),
        prompt=record.prompt_token_ids,
        output=output,
        cached=record.num_cached_tokens,
        reason=record.finish_reasons[index],
        error=record.error or "",
        blocks=Blocks(llm.config.block_size, _table(llm, label(record.request_id, index), record.first_step)),
        readings=read_tokens((*record.prompt_token_ids, *output), llm.tokenizer),
        notes=(FORGOTTEN,),
    )


def opening(parent: Answer, number: int, position: int, token_id: int, name: str, llm: Engine) -> Answer:
    """A branch of answer `number` before its first token of its own: what it keeps, and the token it takes instead."""
    row = None if parent.rows is None else parent.rows[position]
    return replace(
        parent,
        name=name,
        output=(*parent.output[:position], token_id),
        rows=None if parent.rows is None else (*parent.rows[:position], row),
        cached=0,
        reason=None,
        error="",
        blocks=None if parent.blocks is None else Blocks(parent.blocks.size),
        readings={**read_tokens([token_id], llm.tokenizer), **parent.readings},
        origin=Origin(number, position, 0, len(parent.prompt) + position + 1),
        notes=(),
    )


def grown(answer: Answer, kept: int, output: RequestOutput, llm: Engine) -> Answer:
    """A branch, of whose output `kept` tokens were given, as far as its request has come."""
    choice = output.outputs[0]
    new = choice.token_ids[len(answer.output) - kept :]
    rows = answer.rows
    if rows is not None and choice.logprobs is not None:
        added = choice.logprobs[len(rows) - kept :]
        rows = (*rows, *(read_rows(added, llm.vocab_size) or ()))
    unread = _ids(new, choice.logprobs[-len(new) :] if choice.logprobs and new else ()) - answer.readings.keys()
    return replace(
        answer,
        name=output.request_id,  # a server far away gives it after the branch was opened
        output=(*answer.output, *new),
        rows=rows,
        cached=output.num_cached_tokens,
        reason=choice.finish_reason,
        error="" if output.error is None else str(output.error),
        readings={**answer.readings, **read_tokens(unread, llm.tokenizer)} if unread else answer.readings,
        origin=None if answer.origin is None else replace(answer.origin, cached=output.num_cached_tokens),
    )


def label(request_id: str, index: int) -> str:
    """The name under which views show a choice."""
    return request_id if index == 0 else f"{request_id}/{index}"


def blocks_of(llm: Engine, output: RequestOutput, index: int) -> Blocks:
    """Where the KV of a choice lay."""
    table = _table(llm, label(output.request_id, index), output.metrics.first_step)
    return Blocks(llm.config.block_size, table)


def _table(llm: Engine, name: str, first_step: int | None) -> tuple[int, ...]:
    """The last block table that the recorder noted for a sequence.

    A table is noted while its sequence goes on, so the block that its last step added, if any, is not in it.
    """
    if first_step is None:
        return ()
    blocks: list[int] = []
    for step in llm.steps_since(first_step - 1).changes:
        for change in step.tables:
            if change.label == name:
                blocks[change.kept :] = change.blocks
        if name in step.ended:
            break
    return tuple(blocks)


def _readings(output: RequestOutput, choice: CompletionOutput, llm: Engine | None) -> dict[int, Reading]:
    recorded = [row for row in (*(choice.logprobs or ()), *(output.prompt_logprobs or ())) if row]
    known = {token_id: each.decoded_token for row in recorded for token_id, each in row.items()}
    ids = _ids((*output.prompt_token_ids, *choice.token_ids), recorded)
    return read_tokens(ids, None if llm is None else llm.tokenizer, known)


def _ids(token_ids: Iterable[int], rows: Iterable[Logprobs | None]) -> set[int]:
    """All ids that have to be shown."""
    return {*token_ids, *(token_id for row in rows if row for token_id in row)}
