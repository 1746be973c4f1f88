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
    token_ids: NotRequired[list[int]]


class ChatCompletion(TypedDict):
    """An answered conversation; with `return_token_ids` there are the ids of its prompt and of each answer."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: NotRequired[list[dict[str, Any] | None]]
    prompt_token_ids: NotRequired[list[int]]


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
        return submit_all(job, [chat_prompt(job.llm, body, values, service.config)], params)

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
        self._ids = bool(body.get("return_token_ids"))
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
        if self._ids:
            answer["prompt_token_ids"] = list(output.prompt_token_ids)
        return answer

    def _choice(self, choice: CompletionOutput) -> ChatChoice:
        found: ChatChoice = {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice, 0),
            "finish_reason": choice.finish_reason or "stop",
            "stop_reason": choice.stop_reason,
        }
        if self._ids:
            found["token_ids"] = list(choice.token_ids)
        return found

    def _logprobs(self, choice: CompletionOutput, start: int) -> ChatLogprobs | None:
        """Those from a token on."""
        if choice.logprobs is None:
            return None
        top = self._params.logprobs or 0
        return chat_logprobs(self._job.llm.tokenizer, choice.token_ids[start:], choice.logprobs[start:], top)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream."""
        sent = TokensSent(self._job) if self._ids or self._params.logprobs is not None else None
        begun = False
        async for _, index, text in self._job.pieces():
            if not begun:
                for chunk in self._roles():
                    yield chunk
                begun = True
            new = await sent.new(0, index) if sent is not None else None
            yield self._chunk(index, {"content": text}, new)
        (output,) = self._job.outputs()
        self._job.check(output)
        for chunk in () if begun else self._roles():
            yield chunk
        for chunk in self._ends(output, sent):
            yield chunk

    def _roles(self) -> list[dict[str, Any]]:
        chunks = [self._chunk(i, {"role": "assistant", "content": ""}) for i in range(self._params.n)]
        if self._ids:
            generation = self._job.generations[0]
            now = generation.progress()
            ids = now.prompt_token_ids if now is not None else generation.result(0).prompt_token_ids
            chunks[0]["prompt_token_ids"] = list(ids)
        return chunks

    def _ends(self, output: RequestOutput, sent: TokensSent | None) -> list[dict[str, Any]]:
        """The last chunk of each choice, and the usage."""
        chunks = []
        for choice in output.outputs:
            chunk = self._chunk(choice.index, {}, None if sent is None else (choice, sent.count(0, choice.index)))
            chunk["choices"][0] |= {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
            chunks.append(chunk)
        if self._with_usage:
            end = self._chunk(0, {})
            chunks.append({**end, "choices": [], "usage": usage_of([output])})
        return chunks

    def _chunk(
        self, index: int, delta: dict[str, Any], new: tuple[CompletionOutput, int] | None = None
    ) -> dict[str, Any]:
        """A chunk of one choice; `new` is the choice and where the tokens begin that no chunk has told of."""
        logprobs = None if new is None else self._logprobs(*new)
        choice: dict[str, Any] = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        if self._ids:
            choice["token_ids"] = [] if new is None else list(new[0].token_ids[new[1] :])
        usage = {"usage": None} if self._with_usage else {}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **usage}
