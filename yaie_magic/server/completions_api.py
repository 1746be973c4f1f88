"""POST /v1/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NotRequired

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from yaie_engine.params import SamplingParams

from .chat_api import check_stream_options
from .details import Metrics, metrics_of, token_logprobs
from .errors import ApiError
from .logprobs import CompletionLogprobs, Offsets, completion_logprobs, prompt_logprobs
from .params import as_prompts, encode_all, sampling, submit_all
from .schema import CompletionBody
from .tokens_sent import TokensSent
from .usage import Usage, usage_of

if TYPE_CHECKING:
    from yaie_engine import CompletionOutput, Generation, RequestOutput

    from .job import Job
    from .service import Service


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    prompt_logprobs: NotRequired[list[dict[str, Any] | None]]
    prompt_token_ids: NotRequired[list[int]]
    token_ids: NotRequired[list[int]]
    token_logprobs: NotRequired[list[dict[str, Any] | None]]


class Completion(TypedDict):
    """Prompts with their continuations: choice i belongs to prompt i // n. With `return_token_ids` each has its ids;
    with `return_details` there are the engine's name and figures of each prompt's request."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    request_ids: NotRequired[list[str]]
    metrics: NotRequired[list[Metrics]]


async def completions(service: Service, request: Request) -> Response:
    """Continue one or several prompts."""
    body = await service.read(request, CompletionBody)
    check_stream_options(body)
    prompts = as_prompts(body["prompt"], service.config)
    scores_only = body.get("max_tokens") == 0
    if scores_only and not body.get("echo"):
        raise ApiError(400, "max_tokens=0: at least 1, or 0 together with echo", "invalid_value", "max_tokens")
    own: dict[str, Any] = {"max_tokens": 1} if scores_only else {}
    if body.get("echo") and "logprobs" in body:
        own["prompt_logprobs"] = max(body["logprobs"], body.get("prompt_logprobs", 0))
    job = service.job(request)
    try:
        params = sampling(job.llm, body, **own)
    except ApiError:
        job.close()
        raise
    answer = _Answer(job, service.model_name(job.llm), params, body, prompts)

    def work() -> list[Generation]:
        ids = encode_all(job.llm, prompts, body.get("add_special_tokens", True))
        return submit_all(job, ids, params)

    if body.get("stream"):
        return await service.stream(request, job, work, answer.events)
    return await service.whole(request, job, work, answer.whole)


class _Answer:
    """The answer to one request, in its two forms. With max_tokens 0 the one token that was generated is left out."""

    def __init__(
        self, job: Job, model: str, params: SamplingParams, body: dict[str, Any], prompts: list[str | list[int]]
    ) -> None:
        self._job, self._params, self._prompts = job, params, prompts
        self._echo, self._empty = bool(body.get("echo")), body.get("max_tokens") == 0
        self._wants_prompt_logprobs = "prompt_logprobs" in body
        self._with_usage = bool(body.get("stream_options", {}).get("include_usage"))
        self._ids, self._details = bool(body.get("return_token_ids")), bool(body.get("return_details"))
        self._head: dict[str, Any] = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self) -> Completion:
        """The whole answer."""
        outputs = self._job.outputs()
        answer: Completion = {
            "id": self._head["id"],
            "object": "text_completion",
            "created": self._head["created"],
            "model": self._head["model"],
            "choices": [
                self._choice(prompt, output, choice)
                for prompt, output in enumerate(outputs)
                for choice in output.outputs
            ],
            "usage": usage_of(outputs, generated=not self._empty),
        }
        if self._details:
            answer["request_ids"] = [output.request_id for output in outputs]
            answer["metrics"] = metrics_of(outputs)
        return answer

    def _choice(self, prompt: int, output: RequestOutput, choice: CompletionOutput) -> TextChoice:
        text = "" if self._empty else choice.text
        found: TextChoice = {
            "index": prompt * self._params.n + choice.index,
            "text": self._prompt_text(prompt, output) + text if self._echo else text,
            "logprobs": self._logprobs(prompt, output, choice),
            "finish_reason": "length" if self._empty else choice.finish_reason or "stop",
            "stop_reason": None if self._empty else choice.stop_reason,
        }
        if self._wants_prompt_logprobs and output.prompt_logprobs is not None:
            found["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
        if self._ids:
            found["prompt_token_ids"] = list(output.prompt_token_ids)
            found["token_ids"] = [] if self._empty else list(choice.token_ids)
        if self._details and (rows := token_logprobs(choice)) is not None:
            found["token_logprobs"] = [] if self._empty else rows
        return found

    def _prompt_text(self, prompt: int, output: RequestOutput) -> str:
        given = self._prompts[prompt]
        return given if isinstance(given, str) else self._job.llm.detokenize(list(output.prompt_token_ids))

    def _logprobs(self, prompt: int, output: RequestOutput, choice: CompletionOutput) -> CompletionLogprobs | None:
        if choice.logprobs is None:
            return None
        tokenizer, skip = self._job.llm.tokenizer, self._params.skip_special_tokens
        ids = [] if self._empty else list(choice.token_ids)
        rows = [] if self._empty else list(choice.logprobs)
        if not self._echo:
            return completion_logprobs(tokenizer, ids, rows, Offsets(tokenizer, skip).push(ids))
        before = list(output.prompt_token_ids)
        offsets = Offsets(tokenizer, isinstance(self._prompts[prompt], str)).push(before)
        offsets += Offsets(tokenizer, skip, len(self._prompt_text(prompt, output))).push(ids)
        return completion_logprobs(tokenizer, before + ids, [*(output.prompt_logprobs or ()), *rows], offsets)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream. With `echo` each choice begins with its prompt."""
        if self._echo:
            async for _ in self._job.pieces():  # the prompt's values are complete at the end only
                continue
            for chunk in self._at_once():
                yield chunk
            return
        if self._ids or self._details:
            for chunk in self._opening():
                yield chunk
        sent = TokensSent(self._job) if self._ids or self._params.logprobs is not None else None
        offsets: dict[int, Offsets] = {}
        async for prompt, index, text in self._job.pieces():
            new = await sent.new(prompt, index) if sent is not None else None
            number = prompt * self._params.n + index
            yield self._chunk(number, text, {} if new is None else self._part(offsets, number, *new))
        outputs = self._job.outputs()
        for output in outputs:
            self._job.check(output)
        for prompt, output in enumerate(outputs):
            for choice in output.outputs:
                number = prompt * self._params.n + choice.index
                start = 0 if sent is None else sent.count(prompt, choice.index)
                rest = {} if sent is None else self._part(offsets, number, choice, start)
                if self._details and output.prompt_logprobs is not None:
                    rest["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
                yield self._chunk(number, "", rest, choice)
        if self._with_usage or self._details:
            yield self._end(outputs)

    def _opening(self) -> list[dict[str, Any]]:
        """What is known once the prompts are queued: it reaches the client before they run."""
        chunks = []
        for prompt, generation in enumerate(self._job.generations):
            now = generation.progress()
            ids = now.prompt_token_ids if now is not None else generation.result(0).prompt_token_ids
            for index in range(self._params.n):
                more: dict[str, Any] = {"prompt_token_ids": list(ids)} if self._ids else {}
                chunks.append(self._chunk(prompt * self._params.n + index, "", more))
        if self._details:
            chunks[0]["request_ids"] = [generation.request_id for generation in self._job.generations]
        return chunks

    def _at_once(self) -> list[dict[str, Any]]:
        for output in self._job.outputs():
            self._job.check(output)
        answer = self.whole()
        usage = {"usage": None} if self._with_usage else {}
        head = {**self._head, "object": "text_completion"}
        chunks: list[dict[str, Any]] = [{**head, "choices": [choice], **usage} for choice in answer["choices"]]
        return [*chunks, *([{**head, "choices": [], "usage": answer["usage"]}] if self._with_usage else [])]

    def _part(self, offsets: dict[int, Offsets], number: int, choice: CompletionOutput, start: int) -> dict[str, Any]:
        """What a chunk tells of the tokens of a choice from one on."""
        found: dict[str, Any] = {"token_ids": list(choice.token_ids[start:])} if self._ids else {}
        if choice.logprobs is None:
            return found
        tokenizer = self._job.llm.tokenizer
        counter = offsets.setdefault(number, Offsets(tokenizer, self._params.skip_special_tokens))
        ids = choice.token_ids[start:]
        found["logprobs"] = completion_logprobs(tokenizer, ids, choice.logprobs[start:], counter.push(ids))
        if self._details:
            found["token_logprobs"] = token_logprobs(choice, start)
        return found

    def _end(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """The last chunk, of the whole request."""
        details = {"metrics": metrics_of(outputs)} if self._details else {}
        usage = {"usage": usage_of(outputs)} if self._with_usage else {}
        return {**self._head, "object": "text_completion", "choices": [], **usage, **details}

    def _chunk(
        self, number: int, text: str, more: dict[str, Any], end: CompletionOutput | None = None
    ) -> dict[str, Any]:
        choice = {
            "index": number,
            "text": text,
            "logprobs": None,
            "finish_reason": None if end is None else end.finish_reason,
            "stop_reason": None if end is None else end.stop_reason,
            **({"token_ids": []} if self._ids else {}),
            **more,
        }
        usage = {"usage": None} if self._with_usage else {}
        return {**self._head, "object": "text_completion", "choices": [choice], **usage}
