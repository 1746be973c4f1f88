"""Another continuation from one token on: which engine takes it, with which parameters, and what it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .run import Run
from .session import session

if TYPE_CHECKING:
    from yaie_engine import SamplingParams
    from yaie_engine.serving import Engine
    from yaie_widgets.inspection import Answer


def fingerprint(llm: Engine) -> str:
    """Which model an engine serves: equal fingerprints, equal token ids."""
    return llm.steps_since(llm.step).model.fingerprint


def engine_for(own: Engine | None, model: str | None) -> Engine:
    """The engine of an answer while it serves, else the current one if it serves the same model.

    Raises:
        EngineDeadError: there is none; the text says what to do.
    """
    from yaie_engine.errors import EngineDeadError

    if own is not None and own.state == "ready":
        return own
    found = session.engines.get(session.current or "")
    if found is None or not found.alive:
        raise EngineDeadError("its engine was unloaded; load the same model again to branch")
    if model is None or fingerprint(found.llm) != model:
        raise EngineDeadError(f"its engine was unloaded, and {found.model} is not known to be the same model")
    return found.llm


def submit_branch(llm: Engine, answer: Answer, params: SamplingParams, position: int, token_id: int) -> Run:
    """Ask for what follows when `token_id` stands at `position` of the output: token-exact, so that it shares the KV.

    Raises:
        RequestError: position or token are out of range, or nothing can follow.
        YaieError: the engine does not take the request.
    """
    from yaie_engine.errors import RequestError

    if not 0 <= position < len(answer.output):
        raise RequestError(f"position={position}: the output has tokens 0 to {len(answer.output) - 1}")
    if not 0 <= token_id < llm.vocab_size:
        raise RequestError(f"token_id={token_id}: token ids go from 0 to {llm.vocab_size - 1}")
    if token_id in llm.end_ids(params):
        raise RequestError(f"token {token_id} ends the text there, nothing follows it")
    prompt = [*answer.prompt, *answer.output[:position], token_id]
    rest = params_after(params, position + 1, llm.max_model_len - len(prompt))
    return Run(llm.submit(prompt, rest), llm, prompt, rest)


def params_after(params: SamplingParams, used: int, room: int) -> SamplingParams:
    """The same parameters with `used` tokens of the output spent and `room` tokens left in the context.

    Raises:
        RequestError: no token is left.
    """
    from yaie_engine.errors import RequestError
    from yaie_engine.limits import DEFAULT_MAX_TOKENS

    limit = params.max_tokens
    left = (DEFAULT_MAX_TOKENS if limit is None else limit) - used
    if left < 1:
        raise RequestError(f"the alternative would be token {used} of max_tokens={left + used}: nothing can follow it")
    if limit is None:  # a default never asks for more than there is
        left = max(1, min(left, room))
    changes = {"n": 1, "max_tokens": left, "min_tokens": max(0, params.min_tokens - used), "prompt_logprobs": None}
    return type(params)(**{**params.model_dump(), **changes})
