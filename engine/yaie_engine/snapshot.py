"""The one view of a running engine: frozen plain data, made between two steps. Imports no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .plain_data import SIGNED, MalformedError, read
from .snapshot_check import check_snapshot

EngineState = Literal["loading", "ready", "draining", "failed", "asleep", "closed"]
RequestState = Literal["waiting", "prefill", "decode", "preempted", "swapped", "finished", "cancelled", "failed"]
SNAPSHOT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """`tier` is how transformers serves the model: "flat", "paged" or "state"; `reason` says why."""

    name: str = ""
    fingerprint: str = ""
    dtype: str = ""
    device: str = ""
    tier: str = ""
    attention_backend: str = ""
    reason: str = ""
    max_model_len: int = 0


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """free + held + cached == total, always."""

    block_size: int
    total: int
    free: int
    held: int
    cached: int


@dataclass(frozen=True, slots=True)
class QueueCounts:
    waiting: int = 0
    prefill: int = 0
    decode: int = 0
    preempted: int = 0
    swapped: int = 0


@dataclass(frozen=True, slots=True)
class RequestView:
    """One live sequence; choices after the first carry `request_id/index` as their id."""

    request_id: str
    state: RequestState
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    block_table: tuple[int, ...]
    priority: int = field(metadata={SIGNED: True})
    age_s: float


@dataclass(frozen=True, slots=True)
class NodeView:
    """One radix tree node. The root has id 0 and parent None; each salted namespace has its own root below it.

    `ref_count` is the number of running requests whose block table runs through the node; `request_ids` are theirs.
    """

    id: int
    parent: int | None
    num_tokens: int
    token_ids: tuple[int, ...]
    text: str
    blocks: tuple[int, ...]
    ref_count: int
    last_used_step: int
    namespace: str
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateView:
    """A whole state that an engine of tier "state" keeps in memory for prompts that begin with all of its tokens.

    `num_tokens` are all that it stands for; `token_ids` and `text` are those after its `parent`, the place of the
    longest other state that it goes on from (None: there is none). `age_s`: since it was used last.
    """

    label: str
    parent: int | None
    num_tokens: int
    token_ids: tuple[int, ...]
    text: str
    num_bytes: int
    hits: int
    pinned: bool
    age_s: float
    namespace: str


@dataclass(frozen=True, slots=True)
class BatchEntry:
    request_id: str
    kind: Literal["prefill", "decode"]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class BlockEvents:
    """Block ids of one step; copies and swaps are (source, destination) pairs.

    In a swap the host's block n is called -1 - n: (5, -1) went out to the first host block, (-1, 5) came back from it.
    """

    allocated: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()
    copied: tuple[tuple[int, int], ...] = ()
    swapped: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TreeEvents:
    """Node ids of one step."""

    added: tuple[int, ...] = ()
    extended: tuple[int, ...] = ()
    split: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds of the engine's thread for one step; no moment counts twice, so no sum exceeds the time that passed.

    `schedule`: planning it and making inputs ahead of time, while the step before ran where that was possible;
    `forward`: inputs and launch, with a device that works by itself not the time it takes there; `sample`: launching
    the draw and waiting for its ids, so for the device; `publish`: books, text and delivery, in part while the next
    step ran.
    """

    schedule: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    publish: float = 0.0


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one step did."""

    step: int
    num_prefill_tokens: int
    num_decode_tokens: int
    batch: tuple[BatchEntry, ...]
    blocks: BlockEvents
    tree: TreeEvents
    preempted: tuple[str, ...]
    ms: StepTimes


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the engine started; `requests` counts by outcome ("stop", "length", "cancelled", "error", ...).

    `breaches`: how often the bookkeeping contradicted itself, which only a bug can make more than 0.
    """

    requests: dict[str, int]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    evictions: int = 0
    copies: int = 0
    breaches: int = 0


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Everything the views draw, consistent in itself.

    `states`: what an engine of tier "state" keeps in place of a tree; elsewhere, and while it keeps none, its JSON form
    does not speak of them.
    """

    state: EngineState
    step: int
    model: ModelInfo
    blocks: BlockCounts
    queue: QueueCounts
    requests: tuple[RequestView, ...]
    tree: tuple[NodeView, ...]
    steps: tuple[StepRecord, ...]
    counters: Counters
    version: int = SNAPSHOT_VERSION
    states: tuple[StateView, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form with lists for tuples (the format of `%yaie status --json` and GET /debug/snapshot)."""
        plain: dict[str, Any] = _lists(asdict(self))
        if not self.states:
            plain.pop("states")
        return {"version": plain.pop("version"), **plain}

    @classmethod
    def from_dict(cls, document: Any) -> EngineSnapshot:
        """The snapshot that `to_dict` gave, which anybody may have changed on its way.

        Raises:
            MalformedError: it is none in every part; the text names the first one that is wrong.
        """
        version = document.get("version") if isinstance(document, dict) else None
        if version != SNAPSHOT_VERSION:
            raise MalformedError(f"is {str(version)[:40]}, and only {SNAPSHOT_VERSION} is read here", "version")
        found = read(cls, {"states": [], **document})
        check_snapshot(found)
        return found


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    return value
