"""POST /v1/chat/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NotRequired

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from yaie_engine.params import SamplingParams

from .errors import ApiError
from .logprobs import ChatLogprobs, chat_logprobs, prompt_logprobs
from .params import chat_prompt, sampling, submit_all, template_values
from .schema import ChatBody
from .tokens_sent import TokensSent
from .usage import Usage, usage_of

if TYPE_CHECKING:
    from yaie_engine import CompletionOutput, RequestOutput

    from .job import Job
    from .service import Service


class ChatMessage(TypedDict):
    role: str
    content: str
    refusal: None


class ChatChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | None


class ChatCompletion(TypedDict):
    """An answered conversation."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: NotRequired[list[dict[str, Any] | None]]


async def chat_completions(service: Service, request: Request) -> Response:
    """Answer a conversation."""
    body = await service.read(request, ChatBody)
    check_stream_options(body)
    top = _top_logprobs(body)
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    values = template_values(body)
    job = service.job(request)
    try:
        params = sampling(job.llm, body, logprobs=top, max_tokens=limit)
    except ApiError:
        job.close()
        raise
    answer = _Answer(job, service.model_name(job.llm), params, body)

    def work() -> Any:
        return submit_all(job.llm, [chat_prompt(job.llm, body, values, service.config)], params)

    if body.get("stream"):
        return await service.stream(request, job, work, answer.events)
    return await service.whole(request, job, work, answer.whole)


def check_stream_options(body: dict[str, Any]) -> None:
    """Raise ApiError when there are options for a stream that was not asked for."""
    if "stream_options" in body and not body.get("stream"):
        raise ApiError(400, "stream_options: only with stream=true", "invalid_value", "stream_options")


def _top_logprobs(body: dict[str, Any]) -> int | None:
    if "top_logprobs" in body and not body.get("logprobs"):
        raise ApiError(400, "top_logprobs: only with logprobs=true", "invalid_value", "top_logprobs")
    return body.get("top_logprobs", 0) if body.get("logprobs") else None


class _Answer:
    """The answer to one conversation, in its two forms."""

    def __init__(self, job: Job, model: str, params: SamplingParams, body: dict[str, Any]) -> None:
        self._job, self._params, self._body = job, params, body
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._with_usage = bool(body.get("stream_options", {}).get("include_usage"))

    def whole(self) -> ChatCompletion:
        """The whole answer."""
        (output,) = self._job.outputs()
        answer: ChatCompletion = {
            "id": self._head["id"],
            "object": "chat.completion",
            "created": self._head["created"],
            "model": self._head["model"],
            "choices": [self._choice(choice) for choice in output.outputs],
            "usage": usage_of([output]),
        }
        if output.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
        return answer

    def _choice(self, choice: CompletionOutput) -> ChatChoice:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice, 0),
            "finish_reason": choice.finish_reason or "stop",
            "stop_reason": choice.stop_reason,
        }

    def _logprobs(self, choice: CompletionOutput, start: int) -> ChatLogprobs | None:
        """Those from a token on."""
        if choice.logprobs is None:
            return None
        top = self._params.logprobs or 0
        return chat_logprobs(self._job.llm.tokenizer, choice.token_ids[start:], choice.logprobs[start:], top)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream."""
        sent = TokensSent(self._job) if self._params.logprobs is not None else None
        begun = False
        async for _, index, text in self._job.pieces():
            if not begun:
                for chunk in self._roles():
                    yield chunk
                begun = True
            new = await sent.new(0, index) if sent is not None else None
            yield self._chunk(index, {"content": text}, None if new is None else self._logprobs(*new))
        (output,) = self._job.outputs()
        self._job.check(output)
        for chunk in () if begun else self._roles():
            yield chunk
        for chunk in self._ends(output, sent):
            yield chunk

    def _roles(self) -> list[dict[str, Any]]:
        return [self._chunk(i, {"role": "assistant", "content": ""}) for i in range(self._params.n)]

    def _ends(self, output: RequestOutput, sent: TokensSent | None) -> list[dict[str, Any]]:
        """The last chunk of each choice, and the usage."""
        chunks = []
        for choice in output.outputs:
            rest = None if sent is None else self._logprobs(choice, sent.count(0, choice.index))
            chunk = self._chunk(choice.index, {}, rest)
            chunk["choices"][0] |= {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
            chunks.append(chunk)
        if self._with_usage:
            end = self._chunk(0, {})
            chunks.append({**end, "choices": [], "usage": usage_of([output])})
        return chunks

    def _chunk(self, index: int, delta: dict[str, Any], logprobs: ChatLogprobs | None = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        usage = {"usage": None} if self._with_usage else {}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **usage}
