"""POST /tokenize and /detokenize."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NotRequired

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from yaie_engine.errors import YaieError

from .errors import ApiError, Json, refused
from .job import log_failure, while_connected
from .params import as_prompts, chat_prompt, template_values
from .schema import DetokenizeBody, TokenizeBody

if TYPE_CHECKING:
    from .service import Service


class Tokens(TypedDict):
    """Token ids of a text or conversation."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: NotRequired[list[str]]


class Text(TypedDict):
    """`token_bytes`, where they were asked for: those that each token adds to a text, null where it adds none."""

    prompt: str
    token_bytes: NotRequired[list[list[int] | None]]


async def tokenize(service: Service, request: Request) -> Response:
    """The token ids of a prompt, or of messages under the chat template."""
    body = await service.read(request, TokenizeBody)
    llm = service.slot.llm
    if ("prompt" in body) == ("messages" in body):
        raise ApiError(400, "prompt or messages is needed, and not both", "invalid_value", "prompt")

    def work() -> Tokens:
        if "messages" in body:
            ids = chat_prompt(llm, body, template_values(body), service.config)
        else:
            (prompt,) = as_prompts(body["prompt"], service.config) if body["prompt"] else ("",)
            ids = llm.tokenizer.encode(str(prompt), body.get("add_special_tokens", True))
        found: Tokens = {"count": len(ids), "max_model_len": llm.max_model_len, "tokens": ids}
        if body.get("return_token_strs"):
            found["token_strs"] = [llm.tokenizer.token_text(token_id) for token_id in ids]
        return found

    return await _aside(service, request, work)


async def detokenize(service: Service, request: Request) -> Response:
    """The text of token ids, special tokens included."""
    body = await service.read(request, DetokenizeBody)
    llm = service.slot.llm

    def work() -> Text:
        found: Text = {"prompt": llm.detokenize(body["tokens"])}
        if body.get("return_token_bytes"):
            each = [llm.tokenizer.token_bytes(token_id) for token_id in body["tokens"]]
            found["token_bytes"] = [None if raw is None else list(raw) for raw in each]
        return found

    return await _aside(service, request, work)


async def _aside(service: Service, request: Request, work: Callable[[], Any]) -> Response:
    """Work of a tokenizer, which may be slow, beside the event loop."""
    try:
        return Json(await while_connected(request.receive, service.slot.aside(work)))
    except (ApiError, YaieError) as error:
        raise refused(error) from None
    except RuntimeError as error:
        log_failure("a tokenizer failed", error)
        raise refused(error) from None
