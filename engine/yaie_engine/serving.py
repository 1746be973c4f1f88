"""What a front door asks of an engine, wherever that engine runs: in this process or behind an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .config import EngineConfig
from .errors import YaieError
from .generation import Generation
from .increment import Increment
from .outputs import RequestOutput
from .params import SamplingParams
from .prompts import Prompt
from .record import RequestRecord
from .snapshot import EngineSnapshot, EngineState
from .tape import Tape


class NotOffered(YaieError):
    """An engine that runs elsewhere does not have this to give."""


class TokenTable(Protocol):
    """The vocabulary of an engine."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are no text."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""

    def token_bytes(self, token_id: int) -> bytes | None:
        """Bytes that a token adds to the text; None for an id that has none."""

    def token_text(self, token_id: int) -> str:
        """Readable text of one token."""


class Engine(Protocol):
    """Meaning and errors of each member are those of `LLM`. One that cannot be had from an engine that runs elsewhere
    raises a YaieError that says so."""

    @property
    def config(self) -> EngineConfig: ...
    @property
    def tokenizer(self) -> TokenTable: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def state(self) -> EngineState: ...
    @property
    def step(self) -> int: ...

    def submit(self, prompt: Prompt, params: SamplingParams | None = None) -> Generation: ...
    def submit_chat(
        self, messages: list[dict[str, Any]], params: SamplingParams | None = None, **template: Any
    ) -> Generation: ...
    def generate(self, prompts: Any, params: Any = None, *, use_tqdm: bool = True) -> list[RequestOutput]: ...
    def tokenize(self, text: str) -> list[int]: ...
    def detokenize(self, token_ids: list[int]) -> str: ...
    def chat_ids(self, messages: list[dict[str, Any]], **template: Any) -> list[int]: ...
    def end_ids(self, params: SamplingParams) -> frozenset[int]: ...
    def snapshot(self) -> EngineSnapshot: ...
    def steps_since(self, step: int) -> Increment: ...
    def so_far(self, request_id: str) -> RequestOutput | None: ...
    def tape(self) -> Tape: ...
    def history(self, n: int | None = None) -> list[RequestRecord]: ...
    def running(self) -> list[str]: ...
    def cancel(self, request_id: str | None = None) -> int: ...
    def check(self) -> None: ...
    def close(self) -> None: ...
