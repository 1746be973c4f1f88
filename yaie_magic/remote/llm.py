"""An engine behind an address, with the members of `LLM` as far as its server can give them."""

from __future__ import annotations

import itertools
import secrets
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tqdm.auto import tqdm

from yaie_engine.errors import EngineDeadError, RequestError, YaieError
from yaie_engine.generation import Generation
from yaie_engine.params import SamplingParams
from yaie_engine.prompts import Prompt, split_params, split_prompts
from yaie_engine.serving import NotOffered
from yaie_engine.snapshot import EngineState

from .answer import token_ids
from .bodies import chat_body, own_body, text_body
from .card import ModelCard
from .client import Client
from .figures import count
from .request import Asked, RemoteRequest
from .vocabulary import RemoteTokenizer
from .wire import Wire

if TYPE_CHECKING:
    from yaie_engine.increment import Increment
    from yaie_engine.outputs import RequestOutput
    from yaie_engine.record import RequestRecord
    from yaie_engine.snapshot import EngineSnapshot
    from yaie_engine.tape import Tape
    from yaie_widgets.live.source import Source

    from .address import Address
    from .inspection import Inspection
    from .key import Key

Kind = Literal["yaie", "openai"]
Messages = list[dict[str, Any]]
MOST_STREAMS: dict[Kind, int] = {"yaie": 256, "openai": 32}
"""Requests that a server is asked at a time; more wait here."""
HEALTH_S, PATIENCE_S = 1.0, 1.5
"""Seconds for which what the server said about itself is believed, and in which it gives a sign of life."""
_STATES: dict[str, EngineState] = {"ok": "ready", "loading": "loading", "asleep": "asleep", "failed": "failed"}


class RemoteLLM:
    """Made by `connect`. `kind`: "yaie" is our own server, "openai" any other with its API.

    Attributes:
        client: short questions to the server in JSON, from any thread.
        config: what is known of the engine's settings.
        continues_text: whether a prompt is continued; else it is sent as the one message of a conversation.
        max_model_len: tokens of prompt and output together; 0 where the server does not tell.
        vocab_size: the number of token ids; 0 where the server does not tell.
    """

    def __init__(
        self,
        address: Address,
        key: Key | None,
        kind: Kind,
        card: ModelCard,
        timeout: float = 10.0,
        continues_text: bool = True,
    ) -> None:
        self.kind: Kind = kind
        self.continues_text = continues_text
        self.client = Client(address, key, timeout, card.fingerprint)
        self.model, self.config = card.name, card.config
        self.max_model_len, self.vocab_size = card.max_model_len, card.vocab_size
        self._card, self._key, self._timeout = card, key, timeout
        self._tokenizer = RemoteTokenizer(self.client, card.vocab_size, card.special_ids)
        self._serial = itertools.count()
        self._user = secrets.token_hex(16) if self.config.scheduling_policy == "fair" else None
        self._wire = Wire(address, key, timeout, MOST_STREAMS[kind], card.fingerprint)
        self._closed = False
        self._health: tuple[float, EngineState] = (time.monotonic(), "ready")

    @property
    def url(self) -> str:
        """Where the server is, without the key."""
        return self.client.url

    @property
    def fingerprint(self) -> str:
        """Of the model that was found there; '' where the server does not tell. Another one is not spoken to."""
        return self._card.fingerprint

    # ---- generating

    def submit(self, prompt: Prompt, params: SamplingParams | None = None) -> Generation:
        """Send one prompt and return its handle at once. What the server refuses ends the request with its error.

        Raises:
            RequestError: the prompt is empty, or neither text nor token ids.
            EngineDeadError: the connection was closed.
        """
        chosen = self.config.default_params if params is None else params
        plain = _plain(prompt)
        if self.kind == "yaie":
            return self._send(own_body(self.model, plain, chosen, self._user))
        if self.continues_text:
            return self._send(text_body(self.model, plain, chosen))
        if not isinstance(plain, str):
            self._need("prompts of token ids")
        return self.submit_chat([{"role": "user", "content": plain}], chosen)

    def submit_chat(self, messages: Messages, params: SamplingParams | None = None, **template: Any) -> Generation:
        """`submit` for a conversation, which the server's chat template writes as a prompt."""
        chosen = self.config.default_params if params is None else params
        if self.kind == "yaie":
            return self.submit(self.chat_ids(messages, **template), chosen)
        return self._send(chat_body(self.model, messages, chosen, **template))

    def _send(self, asked: Asked) -> Generation:
        self._check_open()
        request = RemoteRequest(f"sent-{next(self._serial)}", asked, self._wire)
        generation = Generation(request.name, asked.n, request.channel, request.cancel, request.progress)
        request.start(generation)
        return generation

    def generate(self, prompts: Any, params: Any = None, *, use_tqdm: bool = True) -> list[RequestOutput]:
        """Results in prompt order. An interrupt cancels all of them.

        Raises:
            RequestError: a prompt or its parameters are wrong; nothing was sent.
        """
        items = [_plain(prompt) for prompt in split_prompts(prompts)]
        chosen = split_params(self.config.default_params if params is None else params, len(items))
        handles: list[Generation] = []
        try:
            handles += [self.submit(item, one) for item, one in zip(items, chosen, strict=True)]
            for handle in tqdm(handles, desc="requests", disable=None if use_tqdm else True, leave=False):
                handle.wait()
        except BaseException:
            for handle in handles:
                handle.cancel()
            raise
        return [handle.result() for handle in handles]

    # ---- text and ids

    @property
    def tokenizer(self) -> RemoteTokenizer:
        """The vocabulary of the server's model.

        Raises:
            NotOffered: the server does not tell it.
        """
        self._need("token ids")
        return self._tokenizer

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self.tokenizer.encode(text)

    def detokenize(self, token_ids: list[int]) -> str:
        """Text of token ids, special tokens included."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=False)

    def chat_ids(self, messages: Messages, **template: Any) -> list[int]:
        """Prompt ids of a conversation, by the chat template of the server's model."""
        self._need("token ids")
        body: dict[str, Any] = {"messages": messages}
        if template:
            body["chat_template_kwargs"] = template
        found = self.client.post_json("/tokenize", body)
        return token_ids(found.get("tokens") if isinstance(found, dict) else None)

    def end_ids(self, params: SamplingParams) -> frozenset[int]:
        """The token ids that end a text under these parameters."""
        return frozenset(params.stop_token_ids).union(() if params.ignore_eos else self._card.end_ids)

    # ---- looking inside

    @property
    def state(self) -> EngineState:
        """How the engine is; asked for at most once a second. A server that does not answer counts as failed."""
        if self._closed:
            return "closed"
        now = time.monotonic()
        if now - self._health[0] >= HEALTH_S:
            with suppress(YaieError):
                self.reach()
        return self._health[1]

    def reach(self) -> None:
        """Ask for a sign of life, and note how the engine is.

        Raises:
            YaieError: there is none within `PATIENCE_S`.
        """
        state: EngineState = "failed"
        try:
            state = self._ask_state()
        finally:
            self._health = time.monotonic(), state

    def _ask_state(self) -> EngineState:
        if self.kind == "openai":
            self.client.get_json("/v1/models", timeout=PATIENCE_S)
            return "ready"
        found = self.client.get_json("/health", timeout=PATIENCE_S, any_status=True)
        return _STATES.get(str(found.get("status")) if isinstance(found, dict) else "", "failed")

    @property
    def max_num_batched_tokens(self) -> int:
        """The most tokens of one step."""
        return self._card.max_num_batched_tokens

    @property
    def step(self) -> int:
        """The number of the newest step."""
        return self.snapshot().step

    def snapshot(self) -> EngineSnapshot:
        """The engine between two steps.

        Raises:
            NotOffered: the server is not ours, or shows nothing of itself; so for all that looks inside.
            YaieError: it does not answer.
        """
        return self._inside("snapshot").snapshot()

    def steps_since(self, step: int) -> Increment:
        """The recorded steps after `step` (-1: all) and the live requests."""
        return self._inside("record of steps").steps_since(step)

    def tape(self) -> Tape:
        """What each recorded step changed in tree, block tables and queue."""
        return self._inside("record of steps").tape()

    def source(self) -> Source:
        """What live views of the engine follow."""
        return self._inside("views").source()

    def history(self, n: int | None = None) -> list[RequestRecord]:
        """The last `n` ended requests, oldest first."""
        return self._inside("history").history(n)

    def check(self) -> None:
        """Raise an error when what the server shows of its engine contradicts itself."""
        self.snapshot()

    def so_far(self, request_id: str) -> RequestOutput | None:
        """The output of a live request that was sent from here, as it stands; None when there is no such request."""
        return next((each.so_far() for each in list(self._wire.requests) if each.request_id == request_id), None)

    def running(self) -> list[str]:
        """Ids of the requests that have not ended, whoever sent them; of a server that is not ours those sent here."""
        if self.kind == "openai":
            return [request.request_id for request in list(self._wire.requests)]
        return self._inside("list of requests").running()

    def _inside(self, what: str) -> Inspection:
        self._need(what)
        return self._inspection

    @cached_property
    def _inspection(self) -> Inspection:
        from .inspection import Inspection

        return Inspection(self.client)

    # ---- steering

    def reconnect(self) -> RemoteLLM:
        """A new connection to the same model of the same server; this one stays as it is.

        Raises:
            YaieError: as for `connect`.
        """
        from .probe import open_at

        return open_at(self.client.address, self._key, self.model, self._timeout)

    def cancel(self, request_id: str | None = None) -> int:
        """Cancel one request, or all; how many were running. Of a server that is not ours only those sent from here."""
        if self.kind == "yaie":
            found = self.client.post_json("/debug/cancel", {"request_id": request_id})
            return (count(found.get("cancelled")) if isinstance(found, dict) else None) or 0
        wanted = [each for each in list(self._wire.requests) if request_id in (None, each.request_id)]
        for each in wanted:
            each.cancel()
        return len(wanted)

    def close(self) -> None:
        """Drop the connection; what was sent over it is cancelled, the server goes on. Safe to call twice."""
        self._closed = True
        self._wire.close()
        if self.kind == "yaie":
            self._inspection.close()
        self.client.close()

    def __enter__(self) -> RemoteLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteLLM({self.model!r}, {self.url})"

    # ---- inside

    def _check_open(self) -> None:
        if self._closed:
            raise EngineDeadError(f"the connection to {self.url} is closed; connect to it again")

    def _need(self, what: str) -> None:
        self._check_open()
        if self.kind != "yaie":
            raise NotOffered(f"{self.url} is not a YAIE server: it has no {what}")


def _plain(prompt: Prompt) -> str | list[int]:
    """A prompt as JSON.

    Raises:
        RequestError: it is empty, or neither text nor token ids.
    """
    if not isinstance(prompt, str | list | tuple) or (
        not isinstance(prompt, str) and not all(type(each) is int for each in prompt)
    ):
        raise RequestError(f"prompt={type(prompt).__name__}: a string or a list of token ids is needed")
    if not prompt:
        raise RequestError(f"prompt={prompt!r}: the prompt is empty")
    return prompt if isinstance(prompt, str) else list(prompt)
