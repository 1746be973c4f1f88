"""From a prompt and its parameters to a request: everything is checked here, and nothing is queued yet."""

from __future__ import annotations

import itertools

from .channel import Channel
from .config import EngineConfig
from .detokenizer import Detokenizer
from .errors import CapacityError, RequestError
from .fairness import check_tenant
from .limits import resolve_max_tokens
from .loaded import LoadedModel
from .params import SamplingParams
from .philox import derive_seed
from .prompts import Prompt, encode_prompt, text_of
from .request import Choice, Request
from .sampler import Sampler
from .scheduler import Scheduler
from .sequence import Sequence
from .tokenizer import Tokenizer


class Intake:
    """Makes the requests of one engine; `shares`: sequences may read each other's KV, `resumes`: go on from copies of
    each other's states. Any thread."""

    def __init__(
        self, config: EngineConfig, loaded: LoadedModel, tokenizer: Tokenizer, sampler: Sampler, scheduler: Scheduler
    ) -> None:
        self.shares = loaded.shares_prefixes
        self.resumes = not self.shares and config.enable_prefix_caching and config.state_cache_gib != 0
        self._config, self._tokenizer, self._sampler, self._scheduler = config, tokenizer, sampler, scheduler
        self._max_model_len, self._vocab_size = loaded.max_model_len, loaded.vocab_size
        self._serial, self._sequences = itertools.count(), itertools.count()

    def named(self, index: int, count: int, prompt: Prompt, params: SamplingParams) -> Request:
        """The request of one prompt of `count`; errors name its index."""
        try:
            return self.request(prompt, params)
        except RequestError as error:
            raise type(error)(f"prompt {index}: {error}" if count > 1 else str(error)) from None

    def request(self, prompt: Prompt, params: SamplingParams, scoring: bool = False, tenant: str = "") -> Request:
        """A request, not queued yet. One that is `scoring` may fill the context and still ask for its one token.

        Raises:
            RequestError: prompt, parameters or tenant are wrong (CapacityError: it can never fit).
        """
        check_tenant(tenant)
        self._sampler.check(params)
        token_ids = encode_prompt(self._tokenizer, prompt, self._vocab_size)
        max_tokens = resolve_max_tokens(params, len(token_ids), self._max_model_len + scoring)
        if params.max_tokens is None:  # a default never asks for more than the pool holds
            max_tokens = max(1, params.min_tokens, min(max_tokens, self._scheduler.room(len(token_ids))))
        need, total = self._scheduler.fits(len(token_ids), max_tokens)
        if need > total:
            raise CapacityError(
                f"the prompt ({len(token_ids)} tokens) and max_tokens={max_tokens} need {need} KV blocks, "
                f"the engine has {total}"
            )
        serial = next(self._serial)
        request = Request(
            request_id=f"req-{serial}",
            prompt=text_of(prompt),
            prompt_token_ids=token_ids,
            params=params,
            channel=Channel(),
            prompt_logprobs=None if params.prompt_logprobs is None else [None] * len(token_ids),
        )
        seed = params.seed if params.seed is not None else derive_seed(self._config.seed, serial)
        request.choices = self._choices(request, seed, max_tokens, tenant)
        return request

    def _choices(self, request: Request, seed: int, max_tokens: int, tenant: str) -> list[Choice]:
        choices: list[Choice] = []
        reuses = self.shares or self.resumes
        for index in range(request.params.n):
            seq = Sequence(
                seq_id=next(self._sequences),
                request_id=request.request_id,
                token_ids=list(request.prompt_token_ids),
                num_prompt_tokens=len(request.prompt_token_ids),
                max_tokens=max_tokens,
                priority=request.params.priority,
                namespace=self._namespace(request, index),
                index=index,
                tenant=tenant,
                leader=choices[0].seq if choices and reuses else None,
                read_cache=reuses and (index > 0 or request.prompt_logprobs is None),
                private=not (self.shares and self._config.enable_prefix_caching),
                salt=(request.params.cache_salt or "") if self.resumes else None,
            )
            row = self._sampler.new_row(
                request.params, seed=seed, index=index, prompt_token_ids=request.prompt_token_ids
            )
            choices.append(Choice(seq, row, Detokenizer(self._tokenizer, request.prompt_token_ids, request.params)))
        return choices

    def _namespace(self, request: Request, index: int) -> str:
        """Who may share KV: all, those with the same salt, the choices of one request, or nobody."""
        if not self.shares:
            return f"{request.request_id}/{index}"
        if not self._config.enable_prefix_caching:
            return request.request_id
        return f"salt:{request.params.cache_salt}" if request.params.cache_salt else ""
