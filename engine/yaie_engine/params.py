"""What a request asks of the sampler: the names and meanings follow vLLM."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator, model_validator

from .errors import RequestError
from .validation import Checked

MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024


def _no_bool(value: object) -> object:
    """`True` is an int to Python; as a number in a request it is a mistake."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not a truth value")
    return value


Int = Annotated[int, BeforeValidator(_no_bool)]
Float = Annotated[float, BeforeValidator(_no_bool)]


class SamplingParams(Checked):
    """Sampling parameters of one request.

    Raises:
        RequestError: a name is unknown or a value out of range; the text names field, value and range.
    """

    error: ClassVar[type[RequestError]] = RequestError

    n: Int = Field(1, ge=1, le=128, description="number of completions of the prompt")
    max_tokens: Int | None = Field(
        None, ge=1, le=2**31 - 1, description="most tokens to generate (default: the room left, at most 256)"
    )
    min_tokens: Int = Field(0, ge=0, le=2**31 - 1, description="the text cannot end before this many tokens")
    temperature: Float = Field(1.0, ge=0, le=100, description="0 is greedy; higher is more varied")
    top_p: Float = Field(1.0, ge=0, le=1, description="nucleus sampling: keep the smallest set with this probability")
    top_k: Int = Field(0, ge=-1, le=2**31 - 1, description="keep the k most likely tokens (0 or -1: off)")
    min_p: Float = Field(0.0, ge=0, le=1, description="drop tokens below this share of the best one's probability")
    repetition_penalty: Float = Field(
        1.0, ge=0.01, le=100, description="over 1: tokens of prompt and output get less likely"
    )
    presence_penalty: Float = Field(0.0, ge=-2, le=2, description="subtracted once from each token that was generated")
    frequency_penalty: Float = Field(0.0, ge=-2, le=2, description="subtracted for each time a token was generated")
    logit_bias: dict[Int, Float] = Field({}, description="added to the logits of token ids (-100 to 100)")
    stop: list[str] = Field([], description="strings that end the text")
    stop_token_ids: list[Int] = Field([], description="token ids that end the text")
    ignore_eos: bool = Field(False, description="go on after the end-of-text token")
    include_stop_str_in_output: bool = Field(False, description="keep the stop string in the text")
    skip_special_tokens: bool = Field(True, description="leave special tokens out of the text")
    seed: Int | None = Field(None, ge=-(2**63), le=2**64 - 1, description="same seed, same text")
    logprobs: Int | None = Field(None, ge=0, le=100, description="log-probabilities of as many alternatives per token")
    prompt_logprobs: Int | None = Field(None, ge=0, le=100, description="the same for the prompt's tokens")
    structured: Any = Field(None, description="constrain the output to a grammar or schema")
    priority: Int = Field(0, ge=-(2**31), le=2**31 - 1, description="higher is served first")
    cache_salt: str | None = Field(
        None, min_length=1, max_length=256, description="share prefixes only under this salt"
    )
    timeout: Float | None = Field(None, gt=0, le=604_800, description="seconds the request may take")

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [] if value is None else [value] if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _stop_bounds(cls, value: list[str]) -> list[str]:
        if len(value) > MAX_STOP_STRINGS:
            raise ValueError(f"{len(value)} stop strings, at most {MAX_STOP_STRINGS}")
        for text in value:
            if not 1 <= len(text) <= MAX_STOP_LENGTH:
                raise ValueError(f"a stop string of {len(text)} characters, allowed are 1 to {MAX_STOP_LENGTH}")
        return value

    @field_validator("logit_bias")
    @classmethod
    def _bias_bounds(cls, value: dict[int, float]) -> dict[int, float]:
        for token_id, bias in value.items():
            if not -100 <= bias <= 100:
                raise ValueError(f"bias {bias} of token {token_id}, allowed are -100 to 100")
        return value

    @field_validator("structured")
    @classmethod
    def _not_built(cls, value: object) -> object:
        if value is not None:
            raise ValueError("structured output is not built yet; leave it out")
        return value

    @model_validator(mode="after")
    def _min_below_max(self) -> SamplingParams:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is over max_tokens {self.max_tokens}")
        return self

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0
