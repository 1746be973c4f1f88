"""POST /generate and /batch_generate: a prompt in, its text out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NotRequired

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from .errors import ApiError
from .logprobs import prompt_logprobs
from .params import as_prompts, encode_all, sampling, submit_all
from .schema import BatchBody, GenerateBody

if TYPE_CHECKING:
    from yaie_engine import Generation, RequestOutput

    from .job import Job
    from .service import Service


class Generated(TypedDict):
    """The text of the first choice; `choices` hold all of them when n is over 1. `request_id` is the engine's."""

    text: str
    tokens: int
    seconds: float
    finish_reason: str
    request_id: str
    choices: NotRequired[list[dict[str, Any]]]
    logprobs: NotRequired[list[dict[str, Any] | None]]
    prompt_logprobs: NotRequired[list[dict[str, Any] | None]]


class GeneratedBatch(TypedDict):
    results: list[Generated]


async def generate(service: Service, request: Request) -> Response:
    """Continue a prompt."""
    body = await service.read(request, GenerateBody)
    prompts = as_prompts([body["prompt"]], service.config)
    job, work = _start(service, request, body, prompts)
    if body.get("stream"):
        return await service.stream(request, job, work, lambda: _events(job))
    return await service.whole(request, job, work, lambda: _generated(job.outputs()[0]))


async def batch_generate(service: Service, request: Request) -> Response:
    """Continue several prompts together."""
    body = await service.read(request, BatchBody)
    prompts = as_prompts(body["prompts"], service.config, "prompts")
    job, work = _start(service, request, body, prompts)
    return await service.whole(
        request, job, work, lambda: {"results": [_generated(output) for output in job.outputs()]}
    )


def _start(
    service: Service, request: Request, body: dict[str, Any], prompts: list[str | list[int]]
) -> tuple[Job, Callable[[], list[Generation]]]:
    job = service.job(request)
    try:
        params = sampling(job.llm, body)
    except ApiError:
        job.close()
        raise

    def work() -> list[Generation]:
        return submit_all(job, encode_all(job.llm, prompts), params)

    return job, work


def _generated(output: RequestOutput) -> Generated:
    first = output.outputs[0]
    found: Generated = {
        "text": first.text,
        "tokens": sum(len(choice.token_ids) for choice in output.outputs),
        "seconds": round(output.metrics.total_s, 6),
        "finish_reason": first.finish_reason or "stop",
        "request_id": output.request_id,
    }
    if len(output.outputs) > 1:
        found["choices"] = [
            {"text": choice.text, "tokens": len(choice.token_ids), "finish_reason": choice.finish_reason}
            for choice in output.outputs
        ]
    if first.logprobs is not None:
        found["logprobs"] = prompt_logprobs(first.logprobs)
    if output.prompt_logprobs is not None:
        found["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
    return found


async def _events(job: Job) -> AsyncIterator[dict[str, Any]]:
    several = job.generations[0].n > 1
    begun = False
    async for _, index, text in job.pieces():
        begun = True
        yield {"text": text, "index": index} if several else {"text": text}
    job.check(job.outputs()[0])
    if not begun:
        yield {"text": ""}
